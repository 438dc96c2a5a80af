# SPDX-License-Identifier: GPL-2.0
"""wb compare on synthetic results: matching, medians, verdicts, exit codes, and its errors."""

import argparse
import json
import os
import re
from pathlib import Path

import pytest

from wblib import cli
from wblib.base.paths import SELFTESTS
from wblib.catalog import axes
from wblib.results import compare, identity, store
from wbtop.errors import WbError

AXES = axes.validate("read-latency", {"disk": "fifo"})
UNITS = {"read_p99_95": "us", "write_mbps": "MB/s", "thresh_1_2": "bytes"}


def make(seed: int, kernel: str = "stock", given: dict[str, str] | None = None, status: str = "pass",
         lane: str = "exact", key: str = "aaaaaaaa", **metrics: float) -> store.Result:
    return store.Result(
        "read-latency", kernel, AXES | (given or {}), seed,
        {n: {"value": v, "unit": UNITS.get(n, "us")} for n, v in metrics.items()},
        {"lane": lane, "image_hash": key}, status, [],
    )


def rows(a: list[store.Result], b: list[store.Result]) -> dict[str, compare.Row]:
    (only,), _ = compare.compare_all(a, b)
    return {r.metric: r for r in only.rows}


def parse(*argv: str) -> argparse.Namespace:
    top = argparse.ArgumentParser()
    compare.register(top.add_subparsers())
    return top.parse_args(["compare", *argv])


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    for kernel, key, base in (("stock", "aaaaaaaa", 60.0), ("patched", "bbbbbbbb", 2.0)):
        for seed in (1, 2, 3):
            result = make(seed, kernel, key=key, read_p99_95=base + seed, write_mbps=500 + seed)
            store.write(result, tmp_path / f"{kernel}-{key}" / "read-latency" / "x" / f"seed-{seed}" / "result.json")
    return tmp_path


def test_medians_delta_and_direction() -> None:
    found = rows([make(s, read_p99_95=60 + s, write_mbps=500) for s in (1, 2, 3)],
                 [make(s, read_p99_95=2 + s, write_mbps=400) for s in (1, 2, 3)])
    row = found["read_p99_95"]
    assert row.a and row.b
    assert (row.a.median, row.b.median, row.a.spread, row.verdict) == (62, 4, 1, "better")
    assert row.delta_pct == pytest.approx(-100 * 58 / 62)
    assert (found["write_mbps"].verdict, found["write_mbps"].delta_pct) == ("worse", -20)


def test_results_of_two_cpus_never_mix() -> None:
    slow, fast = make(1, read_p99_95=60), make(1, read_p99_95=50)
    fast.meta["cpu"] = "max,avx2=off"
    assert len(compare.group([slow, fast])) == 2
    with pytest.raises(WbError, match="nothing to compare"):
        compare.compare_all([slow], [fast])


def test_results_from_before_an_axis_are_at_its_default() -> None:
    old, new = make(1, read_p99_95=60), make(2, read_p99_95=50)
    del old.axes["runtime"]
    assert len(compare.group([old, new])) == 1
    new.axes["runtime"] = "9"
    assert len(compare.group([old, new])) == 2


def test_within_the_spread_is_no_difference() -> None:
    a = [make(s, read_p99_95=v) for s, v in enumerate((32, 52, 75))]
    b = [make(s, read_p99_95=v) for s, v in enumerate((30, 40, 41))]
    assert rows(a, b)["read_p99_95"].verdict == "~"
    assert rows(b, a)["read_p99_95"].verdict == "~"
    assert compare.regressions(compare.compare_all(b, a)[0], 0) == []


def test_equal_neutral_unknown_and_zero() -> None:
    found = rows([make(1, write_mbps=5, thresh_1_2=5, novel=5, read_max=0)],
                 [make(1, write_mbps=5, thresh_1_2=6, novel=6, read_max=1)])
    assert [found[n].verdict for n in ("write_mbps", "thresh_1_2", "novel", "read_max")] == ["=", "", "", "worse"]
    assert found["read_max"].delta_pct is None


def test_a_metric_of_one_side_only() -> None:
    row = rows([make(1, read_max=5)], [make(1)])["read_max"]
    assert (row.b, row.delta_pct, row.verdict) == (None, None, "")


def test_broken_runs_do_not_count_and_failed_ones_are_named() -> None:
    (only,), _ = compare.compare_all([make(1, read_max=5), make(2, status="error", read_max=500)],
                                     [make(1, status="fail", read_max=6)])
    assert only.rows[0].a == compare.Summary(1, 5, None)
    assert only.notes == ["A: seed 2 error", "B: seed 1 fail"]


def test_only_the_same_axes_and_lane_are_compared() -> None:
    a = [make(1, read_max=1), make(1, given={"wbt": "off"}, read_max=2), make(1, lane="functional", read_max=3)]
    b = [make(1, read_max=4), make(1, given={"wbt": "2000"}, read_max=5)]
    both, only = compare.compare_all(a, b)
    assert [(c.lane, c.axes["wbt"]) for c in both] == [("exact", "default")]
    assert [line.split(":")[0] for line in only] == ["only in A", "only in B"]
    with pytest.raises(WbError, match="nothing to compare"):
        compare.compare_all(a[1:], b)


def test_the_same_seed_counts_once() -> None:
    assert len(compare.group([make(1), make(1), make(2)])[next(iter(compare.group([make(1)])))]) == 2


def test_table_fits_a_terminal_and_tells_what_was_compared() -> None:
    (only,), _ = compare.compare_all(
        [make(s, given={"reader-prio": "normal"}, read_p99_95=31900 + s, write_mbps=504.25) for s in (1, 2)],
        [make(s, given={"reader-prio": "normal"}, read_p99_95=1500, write_mbps=504.5) for s in (1, 2)])
    text = compare.render(only)
    assert max(map(len, text.splitlines())) <= 80
    assert "disk=fifo" in text
    assert "reader-prio=normal" in text
    assert "rate=" not in text
    line = next(x for x in text.splitlines() if x.startswith("read_p99_95"))
    assert line.split() == ["read_p99_95", "us", "31902", "1500", "-95.3%", "2/2", "0.5000/0", "better"]


def test_command_by_kernel_name(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse("stock", "patched")
    assert args.func(args) == 0
    out = capsys.readouterr().out
    assert "A = stock-aaaaaaaa" in out
    assert "better" in out


def test_command_json_and_filters(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse("stock", str(tree / "patched-bbbbbbbb"), "--json", "--metric", "read_", "--case", "read-latency")
    assert args.func(args) == 0
    obj = json.loads(capsys.readouterr().out)
    assert [r["metric"] for r in obj["comparisons"][0]["rows"]] == ["read_p99_95"]
    assert obj["comparisons"][0]["rows"][0]["a"] == {"n": 3, "median": 62.0, "spread": 1.0}


def test_fail_on_regression(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for a, b, percent, code in (("stock", "patched", "5", 0), ("patched", "stock", "5", 1),
                                ("patched", "stock", "9999", 0)):
        args = parse(a, b, "--fail-on-regression", percent)
        assert args.func(args) == code
    assert "regression: read-latency read_p99_95 +1450.0%" in capsys.readouterr().err


def test_more_than_nothing_is_a_regression_of_any_percentage() -> None:
    good, bad = ([make(s, endio_lost_dio=lost) for s in (1, 2)] for lost in (0, 57))
    assert compare.regressions(compare.compare_all(good, bad)[0], 1e6) == ["read-latency endio_lost_dio 0 -> 57"]
    assert compare.regressions(compare.compare_all(bad, good)[0], 0) == []


def test_the_latest_build_is_taken(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "stock-cccccccc" / "result.json"
    store.write(make(1, key="cccccccc", read_max=1), path)
    os.utime(path, (2e9, 2e9))
    assert compare.find("stock")[0] == "stock-cccccccc"
    assert "latest of 2 builds" in capsys.readouterr().err
    assert compare.find("stock-aaaaaaaa")[0] == "stock-aaaaaaaa"


def test_a_debug_kernel_is_not_the_latest_beside_a_slim_one(tree: Path) -> None:
    path = tree / "stock-dddddddd" / "result.json"
    debug = make(1, key="dddddddd", read_max=1)
    debug.meta["flavour"] = "debug"
    store.write(debug, path)
    os.utime(path, (2e9, 2e9))
    assert compare.find("stock")[0] == "stock-aaaaaaaa"
    assert compare.find("stock-dddddddd")[0] == "stock-dddddddd"
    with pytest.raises(WbError, match="nothing to compare"):
        compare.compare_all([make(1, read_max=1)], [debug])


def test_files_of_wb_run(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([make(1).to_json(), make(2).to_json()]))
    assert [r.seed for r in compare.find(str(path))[1]] == [1, 2]
    path.write_text(json.dumps([make(1).to_json(), make(1, "patched").to_json()]))
    with pytest.raises(WbError, match="several kernels"):
        compare.find(str(path))


def test_one_seed_is_said() -> None:
    (only,), _ = compare.compare_all([make(1, read_max=5)], [make(1, read_max=6)])
    assert "one seed each" in compare.render(only)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["stok", "patched"], r"no results for 'stok': .* \(there: patched-bbbbbbbb, stock-aaaaaaaa\)"),
        (["stock", "no/such/dir"], "no finished results"),
        (["ROOT", "patched"], "several kernels"),
        (["stock", "patched", "--case", "read-latncy"], "did you mean read-latency"),
        (["stock", "patched", "--metric", "nothing"], "no metric starts with nothing"),
        (["stock", "patched", "--case", "wbdisk"], "nothing to compare"),
    ],
)
def test_errors_are_one_line(tree: Path, argv: list[str], words: str) -> None:
    for name in ("demo", "demo-fast@7.3", "report"):  # no kernels
        (tree / name).mkdir()
    args = parse(*[str(tree) if a == "ROOT" else a for a in argv])
    with pytest.raises(WbError, match=words) as err:
        args.func(args)
    assert "\n" not in str(err.value)


@pytest.mark.parametrize("bad", ["-1", "x", "nan", "inf"])
def test_bad_percentage(bad: str) -> None:
    with pytest.raises(SystemExit) as err:
        parse("a", "b", f"--fail-on-regression={bad}")
    assert err.value.code == 2


def test_truncated_result_names_the_file(tree: Path) -> None:
    path = next(tree.rglob("seed-2/result.json"))
    path.write_text(path.read_text()[:50])
    with pytest.raises(WbError, match="truncated"):
        compare.find("stock")
        compare.find("patched")


@pytest.mark.parametrize(
    ("metric", "better"),
    [("read_p50", "lower"), ("read_p99_95", "lower"), ("read_p99_9_buffered_wbt_off", "lower"),
     ("read_max_idle", "lower"),
     ("read_iops", "higher"), ("write_mbps_40_fdatasync", "higher"), ("drain_s", "lower"), ("throttled_s_20", ""),
     ("max_dirty_100mb_50mb", ""), ("cpu_ns_per_page_nodelalloc_dioread_nolock", "lower"),
     ("mean_request_kib_delalloc", "higher"), ("extents_nodelalloc", "lower"), ("disk_writes", "")],
)
def test_directions(metric: str, better: str) -> None:
    entry = compare.info(metric)
    assert entry is not None
    assert entry.better == better


def test_unknown_metric_has_no_direction() -> None:
    assert compare.info("read_ahead_kib") is None


def test_list_of_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--metrics"]) == 0
    out = capsys.readouterr().out
    for case in axes.CASES.values():
        for m in case.metrics:
            assert m.names in out and m.meaning in out


def test_every_metric_of_a_case_is_declared_by_it() -> None:
    """What the scripts print, with their variables replaced by something that fits."""
    seen = 0
    for script in sorted(SELFTESTS.glob("*/*.sh")):
        for name in re.findall(r'^\s*(?:\[.*\|\| |.*\) )?metric "?([a-z$][\w${},/ \[\]]*)', script.read_text(),
                               re.MULTILINE):
            plain = name.split()[0].rstrip('"')
            # load_run() of lib/load.sh repeats metrics of another case.
            if re.fullmatch(r"\$\{?\w+\}?", plain):
                continue
            seen += 1
            for variable, word in (("read_$name", "read_p99"), ("read_due_$name", "read_due_p99"),
                                   ("disk_$key", "disk_writes"), ("light_${key}", "light_global"),
                                   ("soak_${1}", "soak_slab")):
                plain = plain.replace(variable, word)
            plain = re.sub(r"_?\$(\{[^}]*\}?|\w+)", "_x", plain)
            case = axes.CASES.get(script.stem)
            mine = case.metrics if case else [m for c in axes.CASES.values() for m in c.metrics]
            assert any(m.matches(plain) for m in mine), f"{script.name}: {name}, {plain}"
    assert seen >= 100


def machine(place: Path, seeds: range, kernel: str = "stock", **given: object) -> Path:
    for seed in seeds:
        result = make(seed, kernel, key="cccccccc", read_p99_95=50.0 + seed)
        result.meta.update({"initrd_hash": "ee", "qemu": "7.2"} | given)
        store.write(result, place / kernel / f"seed-{seed}" / "result.json")
    return place


def test_seeds_of_several_machines_are_one_set(tmp_path: Path) -> None:
    places = [str(machine(tmp_path / "a", range(1, 3))), str(machine(tmp_path / "b", range(2, 5)))]
    _, found, notes = compare.find_in(places, "stock")
    assert ([r.seed for r in found], notes) == ([1, 2, 3, 4], [])


def test_machines_that_disagree_are_said_and_left_out(tmp_path: Path) -> None:
    machine(tmp_path / "a", range(1, 3))
    other = machine(tmp_path / "b", range(2, 4))
    result = store.load(other / "stock" / "seed-2" / "result.json")
    result.metrics["read_p99_95"]["value"] = 1.0
    store.write(result, other / "stock" / "seed-2" / "result.json")
    _, found, notes = compare.find_in([str(tmp_path / "a"), str(other)], "stock")
    assert [r.seed for r in found] == [1, 3]
    assert len(notes) == 1
    assert "2 results of the same run differ" in notes[0]
    assert "seed 2" in notes[0]


def test_machines_with_different_builds_are_refused(tmp_path: Path) -> None:
    a = machine(tmp_path / "a", range(1, 2))
    b = machine(tmp_path / "b", range(1, 2), image_hash="dddddddd")
    with pytest.raises(WbError, match="several kernels"):
        compare.find_in([str(a), str(b)], "stock")
    assert len(compare.find_in([str(a), str(b)], "stock-dddddddd")[1]) == 1
    with pytest.raises(WbError, match="no results of 'patched'"):
        compare.find_in([str(a)], "patched")


def test_a_kernel_with_a_dash_in_its_name(tmp_path: Path) -> None:
    place = str(machine(tmp_path / "a", range(1, 3), kernel="host-6.12.0-13-amd64"))
    for spec in ("host-6.12.0-13-amd64", "host-6.12.0-13-amd64-cccccccc"):
        assert len(compare.find_in([place], spec)[1]) == 2
    with pytest.raises(WbError, match=r"no results of 'host'"):
        compare.find_in([place], "host")


@pytest.mark.parametrize(
    ("meta", "lane"),
    [
        ({"lane": "exact", "host_cpu": "A"}, "exact"),
        ({"lane": "exact", "cpu": "max,avx2=off"}, "exact cpu=max,avx2=off"),
        ({"lane": "exact", "command": "qemu -cpu host -seed 1"}, "exact cpu=host"),
        ({"lane": "exact", "flavour": "slim"}, "exact"),
        ({"lane": "exact", "flavour": "debug"}, "exact flavour=debug"),
        ({"lane": "exact", "flavour": "tracing", "trace": True}, "exact flavour=tracing trace=yes"),
        ({"lane": "local", "host_cpu": "Xeon 1"}, "local host=Xeon 1"),
        ({"lane": "functional", "host_cpu": "B", "accelerator": "kvm", "dir": "results/k/c/ahci-xfs/seed-1"},
         "functional on=ahci host=B accel=kvm"),
    ],
)
def test_lane_has_what_decides_times(meta: dict[str, str], lane: str) -> None:
    result = make(1, read_p99_95=1)
    result.meta = meta
    assert identity.lane(result) == lane


def test_two_hosts_never_mix_outside_the_exact_lane() -> None:
    one, two = make(1, lane="local", read_p99_95=1), make(2, lane="local", read_p99_95=2)
    one.meta["host_cpu"], two.meta["host_cpu"] = "A", "B"
    assert len(compare.group([one, two])) == 2


def test_from_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kernel in (("a", "stock"), ("b", "patched")):
        machine(tmp_path / name, range(1, 3), kernel)
    args = parse("stock", "patched", "--from", str(tmp_path / "a"), "--from", str(tmp_path / "b"))
    assert compare.run(args) == 0
    assert "A = stock of 2 places" in capsys.readouterr().out
