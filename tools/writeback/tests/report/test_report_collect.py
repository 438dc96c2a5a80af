# SPDX-License-Identifier: GPL-2.0
"""Which results a report takes, and what it makes of them."""

import json
import os
from pathlib import Path

import pytest
import report_tree

from wblib.report import collect, reproduce, samples
from wblib.report.sections import cdf, drain, pareto, place, timeline
from wblib.results import store


def data_of(*places: Path) -> collect.Data:
    return collect.sort(collect.gather([str(p) for p in places]))


def older(root: Path, seconds: float) -> None:
    for path in root.rglob("result.json"):
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))


def test_a_cell_is_of_one_build_the_newest_that_has_it(tmp_path: Path) -> None:
    report_tree.read_latency(tmp_path, "disk=fifo", "patched", 1, 9)
    report_tree.read_latency(tmp_path, "disk=nvme", "patched", 1, 9)
    older(tmp_path, 1000)
    new = "3333cccc" + "0" * 56
    for seed in (1, 2):
        report_tree.place(tmp_path, "read-latency disk=fifo", "patched", seed, {"read_p99_95": (2000.0, "us")},
                          image=new)
    data = data_of(tmp_path)
    assert [(c.axes["disk"], c.build, len(c.runs)) for c in data.cells] == [
        ("fifo", "3333cccc", 2), ("nvme", "2222bbbb", 1)]
    assert any("patched was built several times" in n and "3333cccc (1), 2222bbbb (1) cells" in n for n in data.notes)
    assert not any("built several" in n for n in data_of(tmp_path / "patched-3333cccc").notes)


def test_a_seed_that_ran_twice_counts_once_the_newer(tmp_path: Path) -> None:
    report_tree.read_latency(tmp_path / "a", "disk=fifo", "stock", 1, 9)
    report_tree.read_latency(tmp_path / "b", "disk=fifo", "stock", 1, 5)
    older(tmp_path / "b", 1000)
    for order in (("a", "b"), ("b", "a")):
        (cell,) = data_of(*(tmp_path / n for n in order)).cells
        assert cell.measured("read_p99_95") is not None
        assert cell.runs[0].value("read_p99_95") == pytest.approx(9001)


def test_broken_runs_are_named_and_do_not_count(tmp_path: Path) -> None:
    report_tree.place(tmp_path, "read-latency disk=fifo", "stock", 1, {"read_p99_95": (1.0, "us")}, "error")
    report_tree.place(tmp_path, "read-latency disk=fifo", "stock", 2, {"read_p99_95": (3.0, "us")}, "fail")
    data = data_of(tmp_path)
    got = data.cells[0].measured("read_p99_95")
    assert got is not None
    assert (got.n, got.median) == (1, 3.0)
    assert any("seed 1: error" in n and "do not count" in n for n in data.notes)
    assert any("seed 2: fail (it ran)" in n for n in data.notes)


def test_files_lists_and_the_directory_of_demo(tmp_path: Path) -> None:
    report_tree.ext4(tmp_path / "r", "stock")
    one = store.scan(tmp_path / "r")
    (tmp_path / "demo").mkdir()
    store.write(one[0], tmp_path / "demo" / "stock-ext4.json")
    (tmp_path / "list.json").write_text(json.dumps([r.to_json() for r in one]))
    for where in (tmp_path / "demo", tmp_path / "list.json", tmp_path / "r"):
        assert [c.case for c in data_of(where).cells] == ["ext4-nodelalloc"]


def test_unfinished_runs_and_unknown_cases(tmp_path: Path) -> None:
    report_tree.ext4(tmp_path, "stock")
    partial = tmp_path / "stock-1111aaaa" / "x" / "y" / "seed-1.partial"
    partial.mkdir(parents=True)
    (partial / "result.json").write_text("{")
    other = store.scan(tmp_path)[0]
    other.case, other.axes = "of-a-later-wb", {"mode": "a b/c"}
    store.write(other, tmp_path / "z" / "result.json")
    data = data_of(tmp_path)
    assert [c.case for c in data.cells] == ["ext4-nodelalloc", "of-a-later-wb"]
    assert collect.identifier(data.cells[1]) == "stock-of-a-later-wb-a-b-c"
    assert reproduce.command(data.cells[1]) == "wb run of-a-later-wb --kernel stock --mode 'a b/c' --seed 1"


def test_a_directory_that_is_renamed_under_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_tree.ext4(tmp_path, "stock")
    scan, calls = store.scan, []

    def once(path: Path) -> list[store.Result]:
        calls.append(path)
        if len(calls) == 1:
            raise FileNotFoundError(2, "No such file or directory", "seed-1.partial")
        return scan(path)

    monkeypatch.setattr(store, "scan", once)
    assert len(data_of(tmp_path).cells) == 1
    assert len(calls) == 2


def test_commands(tmp_path: Path) -> None:
    report_tree.place(tmp_path, "read-latency disk=fifo max-sectors-kb=128", "stock", 7, {"drain_s": (1, "s")},
                      cpu="max,avx2=off")
    report_tree.place(tmp_path / "f", "read-latency", "stock", 1, {"drain_s": (1, "s")}, lane="functional",
                      dir="results/stock-1/read-latency/nvme-sata-xfs/seed-1")
    report_tree.place(tmp_path / "f", "read-latency writer=idle", "stock", 1, {"drain_s": (1, "s")}, lane="local")
    report_tree.place(tmp_path / "f", "read-latency reader=open", "stock", 1, {"drain_s": (1, "s")}, lane="fast")
    for wbt, meta in (("off", {"flavour": "debug"}), ("2000", {"flavour": "tracing", "trace": True})):
        report_tree.place(tmp_path / "d", f"read-latency wbt={wbt}", "stock", 1, {"drain_s": (1, "s")}, **meta)
    assert sorted(reproduce.command(c) for c in data_of(tmp_path).cells) == [
        "wb run read-latency --dir DIRECTORY --writer idle --seed 1",
        "wb run read-latency --kernel stock --disk fifo --max-sectors-kb 128 --cpu max,avx2=off --seed 7",
        "wb run read-latency --kernel stock --lane functional --on nvme --seed 1",
        "wb run read-latency --kernel stock --reader open --lane fast --seed 1",
        "wb run read-latency --kernel stock --wbt 2000 --trace --seed 1",
        "wb run read-latency --kernel stock --wbt off --flavour debug --seed 1"]


def test_devices_of_the_functional_lane_do_not_mix(tmp_path: Path) -> None:
    for device in ("ahci", "nvme"):
        report_tree.place(tmp_path / device, "read-latency", "stock", 1, {"drain_s": (1, "s")}, lane="functional",
                          dir=f"results/stock-1/read-latency/{device}-sata-xfs/seed-1")
    assert sorted(c.lane for c in data_of(tmp_path).cells) == ["functional on=ahci", "functional on=nvme"]


def test_cpu_models_do_not_mix_wherever_they_are_said(tmp_path: Path) -> None:
    old = {"command": "qemu-system-x86_64 -cpu max,avx2=off -seed 1"}
    same = {"command": "qemu-system-x86_64 -cpu max,erms=off -m 1"}
    for seed, meta in enumerate(({}, {"cpu": "max,avx2=off"}, old, same), 1):
        report_tree.place(tmp_path, "read-latency disk=nvme", "stock", seed, {"drain_s": (1, "s")}, **meta)
    assert [(c.lane, [r.seed for r in c.runs]) for c in data_of(tmp_path).cells] == [
        ("exact", [1, 4]), ("exact cpu=max,avx2=off", [2, 3])]


def test_pareto(tmp_path: Path) -> None:
    for words, ms, mbps in (("sched=none", 30, 500), ("sched=bfq", 1, 190), ("sched=mq-deadline", 80, 390),
                            ("sched=kyber", 30, 480), ("disk-set=queue_depth=4", 10, 390),
                            ("disk-set=max_io_kib=4096", 1, 900), ("readers=20", 1, 900), ("fs=ext4", 1, 900)):
        report_tree.read_latency(tmp_path, f"disk=fifo {words}", "stock", 1, ms, mbps)
    report_tree.read_latency(tmp_path, "disk=fifo", "patched", 1, 2, 480)
    found = pareto.points(data_of(tmp_path))["fifo"]
    assert [p.knobs for p in found] == ["bfq", "none, queue_depth=4", "kyber", "none", "mq-deadline", "none"]
    assert [(p.cell.kernel, p.family) for p in pareto.frontier(found)] == [
        ("stock", "bfq"), ("patched", "none"), ("stock", "none")]


def test_cdf_takes_the_setup_that_both_kernels_have(tmp_path: Path) -> None:
    for fs in ("xfs", "ext4"):
        report_tree.read_latency(tmp_path, f"disk=fifo fs={fs}", "stock", 1, 9)
    report_tree.read_latency(tmp_path, "disk=fifo writer=idle", "stock", 1, 9)
    report_tree.read_latency(tmp_path, "disk=fifo fs=ext4", "patched", 1, 9)
    data = data_of(tmp_path)
    (cells,) = cdf.setups(data).values()
    assert {(c.kernel, c.axes["fs"]) for c in cells} == {("stock", "ext4"), ("patched", "ext4")}
    assert [label for _, (label, *_) in cdf.curves(cells, data.kernels)] == ["dd (stock)", "dd (patched)"]


def test_speed_of_the_writer() -> None:
    xs, ys = timeline.speed([(n / 50, n * 2_000_000) for n in range(52)])  # 1.02 s at 100 MB/s
    assert len(xs) == 10
    assert ys == pytest.approx([100.0] * 10)
    assert timeline.speed([(0.0, 5)]) == ([], [])
    assert timeline.slowest([(0.001, 0.1), (0.019, 0.3), (0.05, 0.2)]) == ([0.0, 0.04], [300.0, 200.0])


def test_labels_do_not_cover_each_other() -> None:
    points = [(50.0 + n % 3, 50.0 + n // 3) for n in range(9)]
    sizes = [(8.0, 6.0)] * 9
    centres = place.labels(points, sizes, 3.0, (0.0, 0.0, 100.0, 100.0))
    for n, (x, y) in enumerate(centres):
        assert 4 <= x <= 96
        assert all(abs(x - u) >= 8 - 1e-6 or abs(y - v) >= 6 - 1e-6 for u, v in centres[:n])
    assert centres == place.labels(points, sizes, 3.0, (0.0, 0.0, 100.0, 100.0))


def test_thinned_keeps_the_extremes_in_order() -> None:
    xs = [n / 10 for n in range(5000)]
    ys = [float(n % 50 == 7) for n in range(5000)]
    at, values = drain.thinned(xs, ys)
    assert len(at) <= 2 * drain.PARTS_OF_PICTURE + 2
    assert at == sorted(at)
    assert max(values) == 1 and values.count(1.0) >= 80
    assert drain.thinned(xs[:10], ys[:10]) == (xs[:10], ys[:10])


def test_samples_and_pauses(tmp_path: Path) -> None:
    rows = samples.samples(report_tree.dirty_limits(tmp_path, "stock") / "dirty_10_20.csv")
    assert (len(rows), rows[0].limit, rows[0].freerun) == (200, 24415 * 4096, (24415 + 12208) * 2048)
    data = report_tree.dirty_ratio(tmp_path, "stock")
    slept = samples.pauses(data / "throttle_20.txt")
    assert (len(slept), slept[0].pause) == (10, 10.0)
    assert slept[0].dirty_ratelimit == pytest.approx(104.8576)
    assert samples.pauses(data / "throttle_40.txt") == []
