# SPDX-License-Identifier: GPL-2.0
"""wb demo and the published tables, with a runner that invents results."""

import argparse
import functools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from wblib.catalog import axes
from wblib.catalog.suites import Job
from wblib.kernel import patchqueue
from wblib.results import published, store
from wblib.run import bench, demo
from wbtop.errors import WbError

READ = {"idle": 0.13, "direct": 3.2, "buffered": 32.0}


def metrics_of(job: Job) -> dict[str, tuple[float, str]]:
    if job.case == "read-latency":
        ms = READ[job.axes["writer"]] * (2.5 if job.axes["wbt"] == "off" else 1)
        ms *= 0.1 if job.kernel == "patched" else 1
        return dict.fromkeys(published.PERCENTILES, (ms * 1000, "us"))
    if job.case == "dirty-ratio-dd":
        return {"write_mbps_40": (1000, "MB/s"), "write_mbps_20": (750, "MB/s"),
                "write_mbps_40_fdatasync": (400, "MB/s"), "write_mbps_20_fdatasync": (396, "MB/s"),
                "throttled_s_40": (0, "s"), "throttled_s_20": (0.25, "s")}
    if job.case == "dirty-limits":
        return {f"{n}_{r}": (v * 1e6, "bytes") for r in axes.DIRTY_ROWS
                for n, v in (("max_dirty", 96.0), ("thresh", 100.0), ("freerun", 75.0))}
    return {f"{n}_{m}": (v, u) for m in published.MOUNTS for n, v, u in (
        ("write_mbps", 312.0 if m == "delalloc" else 80.7, "MB/s"), ("cpu_ns_per_page", 2500, "ns"),
        ("mean_request_kib", 1024, "KiB"), ("extents", 5, "count"))}


def invent(job: Job, where: Path) -> store.Result:
    place = where / job.kernel / axes.slug(job.case, job.axes) / str(job.seed)
    if job.case == "read-latency":
        (place / "data").mkdir(parents=True, exist_ok=True)
        bins = {"100000": 1000, str(int(READ[job.axes["writer"]] * 1e6)): 2}
        (place / "data" / "fio.json").write_text(json.dumps({"jobs": [{"read": {"clat_ns": {"bins": bins}}}]}))
    return store.Result(
        job.case, job.kernel, job.axes, job.seed,
        {n: {"value": v, "unit": u} for n, (v, u) in metrics_of(job).items()}, {"dir": str(place)}, "pass", [],
    )


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def run_jobs(jobs: Sequence[Job], parallel: int, *, lane: str) -> list[store.Result]:
        found = [invent(j, tmp_path / "runs") for j in jobs]
        for r in found:
            r.meta["lane"] = lane
        return found

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    monkeypatch.setattr(demo, "RESULTS", tmp_path)
    of_root = functools.partial(patchqueue.patches, tmp_path / "root")
    monkeypatch.setattr(patchqueue, "patches", of_root)
    return tmp_path


def call(*argv: str) -> int:
    top = argparse.ArgumentParser()
    demo.register(top.add_subparsers())
    args = top.parse_args(["demo", *argv])
    return int(args.func(args))


def test_leaves_json_tables_and_picture(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert call() == 0
    out = rig / "demo"
    tables = (out / "tables.txt").read_text()
    assert tables in capsys.readouterr().out
    assert (out / demo.PNG).read_bytes()[:4] == b"\x89PNG"
    assert len(list(out.glob("*.json"))) == 7
    assert all(store.load(p).kernel == "stock" for p in out.glob("*.json"))
    assert [t for t in ("1. ", "2. ", "3. ", "4. ") if f"\n{t}" in f"\n{tables}"] == ["1. ", "2. ", "3. ", "4. "]
    assert max(map(len, tables.splitlines())) <= 80
    first = {p.name: p.read_bytes() for p in out.iterdir()}
    assert call() == 0
    assert {p.name: p.read_bytes() for p in out.iterdir()} == first


def test_fast_lane_leaves_out_what_measures_memory(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert call("--lane", "fast") == 0
    said = capsys.readouterr()
    assert "dirty-ratio-dd: left out of the fast lane" in said.err
    assert "Speed that dd reports" not in said.out
    assert "CPU ns per page" not in said.out
    assert "which this lane does not have" in " ".join(said.out.split())
    assert not (rig / "demo").exists()
    found = [store.load(p) for p in (rig / "demo-fast").glob("*.json")]
    assert len(found) == 6
    assert {r.axes["reader"] for r in found if r.case == "read-latency"} == {"open"}


def test_each_line_keeps_its_own(rig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    assert call() == 0
    monkeypatch.setenv("BASE", "7.3")
    assert call() == 0
    assert {store.load(p).kernel for p in (rig / "demo@7.3").glob("*.json")} == {"stock@7.3"}
    assert {store.load(p).kernel for p in (rig / "demo").glob("*.json")} == {"stock"}


def test_patched_gets_its_columns_once_there_is_a_patch(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    series = rig / "root" / "block"
    series.mkdir(parents=True)
    (series / "0000-cover-letter.patch").touch()
    assert demo.variants() == ["stock"]
    (series / "0001-a.patch").touch()
    assert demo.variants() == ["stock", "patched"]
    assert call() == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    line = next(x for x in out.splitlines() if x.startswith("buffered, wbt on"))
    assert line.split()[-4:] == ["p99", "0.6", "32", "3.2"]
    assert len(list((rig / "demo").glob("patched-*.json"))) == 7
    shutil.rmtree(series)
    call()
    assert list((rig / "demo").glob("patched-*.json")) == []


def test_json_on_stdout(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert call("--json", "--seeds", "2") == 0
    assert len(json.loads(capsys.readouterr().out)) == 14


def test_a_run_that_died_leaves_dashes_and_fails(
    rig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")

    def run_jobs(jobs: Sequence[Job], parallel: int, *, lane: str) -> list[store.Result]:
        found = [invent(j, rig / "runs") for j in jobs]
        for r in found:
            if r.case == "ext4-nodelalloc":
                r.status, r.metrics = "error", {}
        return found

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    assert call() == 1
    out = capsys.readouterr().out
    assert "6 pass, 1 error" in out
    line = next(x for x in out.splitlines() if x.startswith("nodelalloc,dioread_nolock"))
    assert line.split()[-2:] == ["28", "-"]


@pytest.mark.parametrize("argv", [["--seeds", "0"], ["-j", "0"], ["-j", "1000"]])
def test_bad_input(rig: Path, argv: list[str]) -> None:
    with pytest.raises(WbError) as err:
        call(*argv)
    assert err.value.code == 2
    assert not (rig / "demo").exists()


def all_results(where: Path) -> list[store.Result]:
    from wblib.catalog.suites import jobs, suite
    return [invent(j, where) for j in jobs(suite("demo").cells, ["stock"], [1])]


def test_read_latency_ratios(tmp_path: Path) -> None:
    text = published.read_latency(all_results(tmp_path), ["stock"]).render()
    assert "buffered over direct, stock: 25 without wbt, 10 with (published 14.5)" in text


def test_dirty_tables(tmp_path: Path) -> None:
    found = all_results(tmp_path)
    ratio = {r[0]: r[1:] for r in published.dirty_ratio(found, ["stock"]).rows}
    assert ratio["20 over 40"] == ("0.789", "0.75")
    assert ratio["s slept in throttling at 40"] == ("-", "0")
    limits = {r[0]: r[1:] for r in published.dirty_limits(found, ["stock"]).rows}
    assert limits["1000/500 MB"] == ("993", "0.993", "96", "100", "0.96")
    assert limits["10/20 %"][1] == "-"


def test_medians_over_seeds(tmp_path: Path) -> None:
    found = all_results(tmp_path) * 3
    for i, r in enumerate(x for x in found if x.case == "ext4-nodelalloc"):
        found[found.index(r)] = store.Result(r.case, r.kernel, r.axes, i, {
            "write_mbps_delalloc": {"value": [300, 100, 310][i], "unit": "MB/s"}}, {}, "pass", [])
    rows = published.ext4(found, ["stock"]).rows
    assert next(r for r in rows if r[1] == "dd, MB/s")[3] == "300"
