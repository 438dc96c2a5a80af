# SPDX-License-Identifier: GPL-2.0
"""Which disks' queues count below a stack, and disks whose names or number are unusual."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeMachine

from wbtop.machine import Machine, dev_name, lower_disks, sysfs_name
from wbtop.watch import sample
from wbtop.watch.report import Traced, report


@pytest.fixture(name="fake")
def _fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def above(fake: FakeMachine, name: str, dev: str, *disks: str, requests: bool = False) -> None:
    """A device mapper's disk over whole ``disks``."""
    fake.disk(name, dev, **({"mq/0/nr_tags": "2048"} if requests else {}))
    for disk in disks:
        for link, target in ((f"{name}/slaves/{disk}", disk), (f"{disk}/holders/{name}", name)):
            path = fake.root / f"sys/devices/{link}"
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(f"../../{target}")


def test_requests_of_multipath_are_sized_by_its_own_queue(fake: FakeMachine) -> None:
    """The paths got max_sectors_kb 128: they refuse the map's requests of 1280 KiB, and all paths fail."""
    fake.disk("sdb", "8:16")
    above(fake, "dm-0", "253:0", "sda", "sdb", requests=True)
    above(fake, "dm-1", "253:1", "dm-0")
    assert lower_disks(fake.machine, "dm-0") == ["dm-0"]
    assert lower_disks(fake.machine, "dm-1") == ["dm-0"]
    for name in ("dm-0", "dm-1", "sda", "sdb"):
        assert [q["name"] for q in sample._queues(fake.machine, name)] == ["dm-0"], name


def test_bios_go_through_other_stacks(fake: FakeMachine) -> None:
    fake.disk("sdb", "8:16")
    above(fake, "dm-0", "253:0", "sda", "sdb")
    assert lower_disks(fake.machine, "dm-0") == ["sda", "sdb"]
    assert [q["name"] for q in sample._queues(fake.machine, "sda")] == ["sda"]


def stat(dev: str, name: str, reads: int, read_ms: int, kb: int) -> str:
    """A line of /proc/diskstats."""
    return f" {dev.replace(':', ' ')} {name} {reads} 0 {reads * 8} {read_ms} {kb} 0 {kb * 2} 30 0 40 80\n"


def between(fake: FakeMachine, looks: tuple[dict[str, str], dict[str, str]], **reads: list[float]) -> dict[str, Any]:
    """The report of 10 s, with files as the two ``looks`` have them and the times of reads by device number."""
    samples = []
    for at, files in zip((0.0, 10.0), looks, strict=True):
        for name, text in files.items():
            fake.write(name, text)
        samples.append(dataclasses.replace(sample.sample(fake.machine, counters=False), time=at))
    times = {dev.replace("_", ":"): found for dev, found in reads.items()}
    return report(*samples, Traced((), 0, times, lambda _: None, {}))


def test_a_name_with_a_slash_is_a_directory_with_another_sign(fake: FakeMachine) -> None:
    """AoE, cciss, rd: no setting was found, and "what helps without it is set on etherd/e0.0" was said."""
    assert (sysfs_name("etherd/e0.0"), dev_name("etherd!e0.0")) == ("etherd!e0.0", "etherd/e0.0")
    fake.disk("etherd!e0.0", "152:0", **{"queue/scheduler": "[mq-deadline] none", "inflight": "0 7",
                                         "queue/wbt_policy": "[requests] bytes"})
    fake.write("/sys/class/bdi/152:0/strict_limit", "0\n")
    found = between(fake, ({"/proc/diskstats": stat("152:0", "etherd/e0.0", 100, 50, 10)},
                           {"/proc/diskstats": stat("152:0", "etherd/e0.0", 200, 9050, 409600)}))
    device = next(d for d in found["devices"] if d["bdi"] == "152:0")
    assert (device["name"], device["inflight_writes"], device["rotational"], device["wbt_policy"]) == (
        "etherd/e0.0", 7, False, "requests")
    assert device["queues"] == [{"name": "etherd!e0.0", "rotational": False, "zoned": None,
                                 "scheduler": "mq-deadline", "wbt_policy": "requests", "max_sectors_kb": 1280}]
    assert found["diagnosis"]["fix"] == (
        "echo bytes > /sys/block/etherd!e0.0/queue/wbt_policy; or wb tune DIR --goal read-latency "
        "(scheduler none, max_sectors_kb 128 on etherd!e0.0)")


WAITED = [300.0] * 970 + [900_000.0] * 30


def burst(fake: FakeMachine, bdi: str, bdi_kb: int = 400_000, read_ms: int = 8050) -> dict[str, Any]:
    """A burst of writeback, counted at ``bdi``, that is over when the report is made; sda writes it."""
    fake.write("/sys/devices/sda/inflight", "0 0\n")
    looks = []
    for kb, reads, ms in ((0, 100, 50), (400_000, 2100, read_ms)):
        counted = {"8:0": 0, bdi: kb * bdi_kb // 400_000}
        looks.append({"/proc/diskstats": stat("8:0", "sda", reads, ms, kb) + stat("253:0", "dm-0", reads, ms, kb),
                      **{f"/sys/kernel/debug/bdi/{b}/stats": "BdiWriteback: 0 kB\nBdiReclaimable: 0 kB\n"
                         f"BdiWritten: {n} kB\nBdiWriteBandwidth: 200000 kBps\n" for b, n in counted.items()},
                      f"/sys/class/bdi/{bdi}/strict_limit": "0\n"})
    return between(fake, (looks[0], looks[1]), **{"8_0": WAITED})


@pytest.mark.parametrize(("bdi", "kb", "waits"), [
    ("8:0", 400_000, True), ("253:0", 400_000, True), ("btrfs-1", 400_000, True),
    ("253:0", 4000, False),  # of journals only
    ("0:53", 400_000, False), ("cifs-1", 400_000, False)])  # over the network
def test_a_burst_that_is_over_is_seen_below_a_stack(fake: FakeMachine, bdi: str, kb: int, waits: bool) -> None:
    """Writeback is counted where the file system is, reads where the disk is: "nothing is held up" with LVM."""
    above(fake, "dm-0", "253:0", "sda")
    found = [f["what"] for f in burst(fake, bdi, kb)["findings"]]
    assert found == (["reads of sda wait behind writeback: up to 900 ms while 41 MB/s are written"] if waits else [])


def test_a_burst_of_another_stack_is_not_that_disks(fake: FakeMachine) -> None:
    fake.disk("sdb", "8:16")
    above(fake, "dm-0", "253:0", "sdb")
    assert burst(fake, "253:0")["findings"] == []


def test_many_disks_are_not_listed_for_each_disk(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """To find paths of NVMe: 2 s of CPU for a sample of 800 disks."""
    fake.disk("nvme0n1", "259:0")
    fake.disk("nvme0c0n1", "")
    listed: list[str] = []
    names = Machine.names
    monkeypatch.setattr(Machine, "names", lambda self, name: listed.append(name) or names(self, name))
    assert lower_disks(fake.machine, "sda") == ["sda"]
    assert "/sys/block" not in listed
    assert lower_disks(fake.machine, "nvme0n1") == ["nvme0c0n1"]


def test_the_time_of_reads_has_32_bits(fake: FakeMachine) -> None:
    """After 49.7 days of reading: a mean of 0."""
    found = between(fake, ({"/proc/diskstats": stat("8:0", "sda", 100, 2**32 - 1000, 0)},
                           {"/proc/diskstats": stat("8:0", "sda", 300, 9000, 0)}))
    assert next(d for d in found["devices"] if d["name"] == "sda")["read"]["mean_us"] == 50_000
