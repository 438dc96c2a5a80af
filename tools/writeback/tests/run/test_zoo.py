# SPDX-License-Identifier: GPL-2.0
"""wb bench zoo: the declaration, which runs it needs, floors by the simulator, the tables and their verdicts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from wblib.catalog import suites, zoo
from wblib.cli import main
from wblib.kernel import simulator
from wblib.results.store import Result
from wblib.run import bench, zoo_report
from wbtop.errors import WbError

FIELDS = 'name = "a"\nwhat = "b"\ndisk = "fifo"\nset = {}\nload = {}\nsource = "c"\n'


def result(device: zoo.Device, kernel: str, seed: int, *, p9995: float, drain: float | None = None,
           policy: str = "default") -> Result:
    """A run with one tail; p50 is a tenth of it and p99 half."""
    axes = device.axes() | {"writer": "idle" if drain is None else "buffered", "policy": policy, "reader": "open"}
    metrics = {f"read_due_{n}": {"value": 1e3 * v, "unit": "us"}
               for n, v in (("p50", p9995 / 10), ("p99", p9995 / 2), ("p99_95", p9995))}
    if drain is not None:
        metrics["drain_s"] = {"value": drain, "unit": "s"}
    return Result("read-latency", kernel, axes, seed, metrics, {"lane": "fast"}, "pass", [])


def test_every_device_is_valid_has_a_source_and_is_unlike_the_others() -> None:
    devices = zoo.devices()
    assert len(devices) >= 24
    assert len({tuple(d.axes().items()) for d in devices}) == len(devices)
    for d in devices:
        assert len(d.source) > 5 and d.what, d.name
        assert int(d.axes()["mib"]) <= 4096
    assert {d.axes()["stack"] for d in devices} == {"none", "linear", "raid0"}
    assert {d.axes()["fs"] for d in devices} == {"xfs", "ext4", "btrfs"}
    named = {d.name for d in devices}
    assert {"sd-a1", "emmc-5.1", "usb2-stick", "sata", "nvme-64m", "hdd-5400", "hdd-smr", "gp2-1t", "gp3", "pd-ssd-1t",
            "azure-p30", "iscsi-1g", "nbd-1g", "nvme-4q", "nvme-16q"} <= named


@pytest.mark.parametrize(("text", "why"), [
    (FIELDS.replace('source = "c"\n', ""), "a: no source"), (FIELDS + 'colour = "red"\n', "what is colour"),
    (FIELDS + "[[device]]\n" + FIELDS, "a is there twice"),
])
def test_what_is_not_a_device(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "zoo.toml"
    path.write_text("[[device]]\n" + text)
    with pytest.raises(WbError, match=why):
        zoo.read(path)


def test_only_runs_that_say_something() -> None:
    found = [(j.axes["writer"], j.axes["policy"], j.kernel, j.seed)
             for j in suites.jobs(suites.suite("zoo").cells, ["stock", "patched"], [1, 2])
             if j.axes["disk-set"] == "write_buffer_kib=65536" and j.axes["disk"] == "sata"
             and zoo.needed(j.axes, j.kernel, first=(j.kernel, j.seed) == ("stock", 1), lane="fast")]
    assert found == [("idle", "default", "stock", 1), ("buffered", "default", "stock", 1),
                     ("buffered", "default", "patched", 1), ("buffered", "requests", "patched", 1),
                     ("buffered", "default", "stock", 2), ("buffered", "default", "patched", 2),
                     ("buffered", "requests", "patched", 2)]
    btrfs = next(d for d in zoo.devices() if d.name == "sata-btrfs").axes()
    assert zoo.needed(btrfs, "patched", first=True, lane="exact")
    assert not zoo.needed(btrfs, "patched", first=True, lane="fast")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "zoo", "--list"]) == 0
    text = capsys.readouterr().out
    assert text.count("    source: ") == len(zoo.devices())
    assert "gp3: EBS gp3 as it is sold" in text
    assert main(["bench", "demo", "--list"]) == 2


def test_floor_of_a_disk_whose_times_are_known(tmp_path: Path) -> None:
    """A link of 100 MB/s and 1 ms: 64 KiB take 1.655 ms alone, two of them 1.311 ms of its time."""
    program = simulator.build(simulator.series_law(tmp_path), tmp_path)
    device = zoo.Device("a", "b", "fifo", {"link_mbps": 100, "latency_ns": 1000000}, {}, "c")
    assert zoo_report.floors(program, [device])["a"] == pytest.approx(1.655 + 1.311, rel=.05)


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = zoo.devices()[:2]
    monkeypatch.setattr(zoo_report.simulator, "series_law", lambda place: place)
    monkeypatch.setattr(zoo_report.simulator, "build", lambda _law, place: place)
    monkeypatch.setattr(zoo_report, "floors", lambda _program, some: {d.name: 1.0 for d in some})
    found = []
    for d, tail, drain in ((good, 3.0, 2.02), (bad, 9.0, 2.2)):
        found.append(result(d, "stock", 1, p9995=1.0))
        for seed in (1, 2, 3):
            other = 40.5 + seed if d is good else 80.0
            found += [result(d, "stock", seed, p9995=40.0 + seed, drain=2.0),
                      result(d, "patched", seed, p9995=tail, drain=drain),
                      result(d, "patched", seed, p9995=other, drain=2.0, policy="requests")]
    text = zoo_report.render(found)
    rows = {line.split()[0]: line for line in text.split("\n\n")[1].splitlines()}
    assert "42 → 3" in rows[good.name] and "1.01  yes" in " ".join(rows[good.name].split()).replace(" yes", "  yes")
    assert rows[good.name].split()[-2:] == ["1.5", "yes"]
    assert rows[bad.name].split()[-1] == "NO" and "1.1" in rows[bad.name]
    assert "drain ≤ 1.03 on 1 of 2; p99.95 ≤ 3 floors on 1 of 2" in text
    assert "1 of 2 the same" in text
    assert text.splitlines()[-1] == "1 of 2 the same"


def test_without_stock_the_other_policy_is_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    d = zoo.devices()[0]
    monkeypatch.setattr(zoo_report.simulator, "series_law", lambda place: place)
    monkeypatch.setattr(zoo_report.simulator, "build", lambda _law, place: place)
    monkeypatch.setattr(zoo_report, "floors", lambda _program, some: {x.name: 1.0 for x in some})
    text = zoo_report.render([result(d, "patched", 1, p9995=5.0, drain=2.0),
                              result(d, "patched", 1, p9995=50.0, drain=1.0, policy="requests")])
    assert "patched requests → patched" in text and "50 → 5" in text and "same" not in text
    assert zoo_report.render([]) == "no device has a result"


def test_bench_prints_the_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[suites.Job] = []

    def run_jobs(jobs: Sequence[suites.Job], _parallel: int, **_: object) -> list[Result]:
        ran.extend(jobs)
        return []

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    assert main(["bench", "zoo", "--lane", "fast", "--kernel", "stock", "patched", "--seeds", "1"]) == 0
    assert "no device has a result" in capsys.readouterr().out
    assert len(ran) == 4 * (len(zoo.devices()) - 1)
    assert {j.axes["reader"] for j in ran} == {"open"}
