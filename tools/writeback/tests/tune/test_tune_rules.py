# SPDX-License-Identifier: GPL-2.0
"""Recommendations: what each goal asks for, on which kernel, and that every number has its source."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import BACKGROUND, LIMIT, MIB, PART, FakeMachine, measured

from wblib.base.paths import ROOT
from wbtop.errors import WbError
from wbtop.tune import facts as tune_facts
from wbtop.tune import rules
from wbtop.tune.evidence import EVIDENCE
from wbtop.tune.measure import Measured
from wbtop.tune.rules import Advice


@pytest.fixture(name="fake")
def _fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def advice(fake: FakeMachine, goal: str, m: Measured | None = None, hold: float | None = None) -> dict[str, Advice]:
    facts = tune_facts.read(fake.machine, "/srv", PART)
    return {a.key: a for a in rules.recommend(facts, m or measured(), goal, hold)}


def test_facts(fake: FakeMachine) -> None:
    facts = tune_facts.read(fake.machine, "/srv", PART)
    assert (facts.mountpoint, facts.fs, facts.release, facts.ram) == ("/srv", "ext4", "6.12.117", 4 << 30)
    # free - reserve (max lowmem + high, at most managed) + file LRUs + 1
    assert facts.dirtyable == (503840 - (2100 + 4000) + 300000 + 1) * 4096
    assert facts.now.freerun == (LIMIT + BACKGROUND) * 4096 // 2
    disk, = facts.disks
    assert (disk.name, disk.scheduler, disk.wbt_policy, disk.identity) == (
        "sda", "mq-deadline", None, ("ID_SERIAL", "Model_3_S1234"))
    assert facts.bdi is not None
    assert facts.bdi.name == "8:0"


def test_facts_of_a_stack(fake: FakeMachine) -> None:
    fake.stack("sda1")
    assert [d.name for d in tune_facts.read(fake.machine, "/srv", "253:0").disks] == ["sda"]


def test_no_disk(fake: FakeMachine) -> None:
    with pytest.raises(WbError, match="no disk of this machine"):
        tune_facts.read(fake.machine, "/srv", "0:45")


def test_btrfs(fake: FakeMachine, tmp_path: Path) -> None:
    """A subvolume has a device number that no mount has: tune and field had refused every btrfs."""
    fake.write("/proc/self/mountinfo", "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
               "31 30 0:51 /@ /data rw - btrfs /dev/sda1 rw\n"
               "32 30 0:60 / /other rw - btrfs /dev/sdz rw\n")
    for n in range(200):
        fake.write(f"/proc/self/fdinfo/{n}", "pos:\t0\nflags:\t0\nmnt_id:\t31\n")
    assert tune_facts.device_number(fake.machine, str(tmp_path)) == "0:51"
    for name in ("btrfs-1", "btrfs-2"):
        fake.write(f"/sys/devices/virtual/bdi/{name}/max_bytes", "5\n")
        (fake.root / "sys/class/bdi" / name).symlink_to(fake.root / "sys/devices/virtual/bdi" / name)
    one = fake.root / "sys/fs/btrfs/u-u-i-d"
    (one / "devices/sda1").mkdir(parents=True)
    (one / "bdi").symlink_to(fake.root / "sys/devices/virtual/bdi/btrfs-2")
    facts = tune_facts.read(fake.machine, str(tmp_path))
    assert (facts.fs, facts.mountpoint, [d.name for d in facts.disks]) == ("btrfs", "/data", ["sda"])
    assert facts.bdi is not None
    assert facts.bdi.name == "btrfs-2"  # not that of the disk, on which its dirty pages are not counted


@pytest.mark.parametrize("devices", ["/dev/sda1:/dev/sdb", "/dev/sdb:/dev/sda1"])
def test_bcachefs_on_several_disks(fake: FakeMachine, devices: str) -> None:
    """The last of its devices alone was tuned, without a word."""
    fake.disk("sdb", "8:16")
    (fake.root / "sys/class/block/sdb").symlink_to("../../devices/sdb")
    fake.write("/proc/self/mountinfo", f"30 1 0:55 / /srv rw - bcachefs {devices} rw\n")
    assert {d.name for d in tune_facts.read(fake.machine, "/srv", "0:55").disks} == {"sda", "sdb"}


@pytest.mark.parametrize("name", ["/proc/vmstat", "/proc/zoneinfo"])
def test_broken_proc(fake: FakeMachine, name: str) -> None:
    fake.write(name, "garbage\n\x00 1 2 3\n")
    with pytest.raises(WbError, match="dirty limits"):
        tune_facts.read(fake.machine, "/srv", PART)


def test_stock_reads(fake: FakeMachine) -> None:
    found = advice(fake, "read-latency")
    assert found["queue.sda.scheduler"].value == "none"
    assert found["queue.sda.max_sectors_kb"].value == "128"
    assert found["queue.sda.wbt_lat_usec"].value is None
    assert found["vm.dirty_bytes"].value is None
    assert not any(k.startswith("bdi.") for k in found)


def test_request_size_grows_with_the_rate(fake: FakeMachine) -> None:
    # 3200 MB/s x 2 ms / 16 = 400 kB -> 448 KiB in steps of 64
    fast = measured(3200.0)
    assert advice(fake, "read-latency", fast)["queue.sda.max_sectors_kb"].value == "448"
    # One request is on the wire as fast as ever where the page cache drains slowly.
    found = advice(fake, "read-latency", replace(fast, loaded_drain_mbps=500.0))["queue.sda.max_sectors_kb"]
    assert found.value == "448"
    assert "at 3200 MB/s 1280 KiB take 0.41 ms, 448 KiB 0.14 ms. wb's own rule: the direct rate x 2 ms / 16" \
        in found.reason


def test_patched_reads(fake: FakeMachine) -> None:
    fake.patched("[requests] bytes")
    found = advice(fake, "read-latency")
    assert found["queue.sda.wbt_policy"].value == "bytes"
    assert found["queue.sda.scheduler"].value is None
    assert found["queue.sda.max_sectors_kb"].value is None
    fake.patched()
    assert all(a.value is None for a in advice(fake, "read-latency").values())


def test_wbt_target(fake: FakeMachine) -> None:
    fake.queue(wbt_lat_usec="0")
    stock = advice(fake, "read-latency")["queue.sda.wbt_lat_usec"]
    assert stock.value is None and "somebody has set" in stock.reason
    fake.patched()
    # Only the policy "requests" has a target.
    slow = measured(p99_us=3100.0)
    found = advice(fake, "read-latency", slow)
    assert found["queue.sda.wbt_lat_usec"].value == "2000"
    assert found["queue.sda.wbt_lat_usec"].reason.startswith("for wbt_policy")
    assert found["queue.sda.max_sectors_kb"].value is None
    fake.queue(rotational="1")
    assert advice(fake, "read-latency", slow)["queue.sda.wbt_lat_usec"].value is None
    fake.queue(rotational="0")
    fake.queue(wbt_lat_usec="10000")
    assert advice(fake, "read-latency", slow)["queue.sda.wbt_lat_usec"].value is None


@pytest.mark.parametrize(("place", "line", "on"), [
    ("", "8:0 enable=1 ctrl=user rpct=95.00", True), ("unified/", "8:0 enable=1 ctrl=auto", True),
    ("", "8:0 enable=0 ctrl=user", False), ("", "8:00 enable=1\n18:0 enable=1", False)])
def test_wbt_stays_off_where_io_cost_is_on(fake: FakeMachine, place: str, line: str, on: bool) -> None:
    """io.cost with QoS has turned it off: both would limit the same writes."""
    fake.patched("[requests] bytes")
    fake.queue(wbt_lat_usec="0")
    fake.write(f"/sys/fs/cgroup/{place}io.cost.qos", f"8:16 enable=1 ctrl=auto\n{line}\n")
    found = advice(fake, "read-latency")
    for name in ("wbt_lat_usec", "wbt_policy"):
        assert (found[f"queue.sda.{name}"].value is None) is on
        assert ("io.cost.qos has this disk" in found[f"queue.sda.{name}"].reason) is on
    assert found["queue.sda.max_sectors_kb"].value == ("128" if on else None)


def test_bytes_mean_nothing_where_the_disk_says_that_it_turns(fake: FakeMachine) -> None:
    fake.patched("[requests] bytes")
    fake.queue(rotational="1", wbt_lat_usec="75000")
    found = advice(fake, "read-latency", measured(150.0, 8000.0, 22000.0))["queue.sda.wbt_policy"]
    assert found.value is None and "counts for nothing" in found.reason


def test_rotation_is_believed_only_if_measured(fake: FakeMachine) -> None:
    fake.queue(rotational="1", wbt_lat_usec="75000")
    disk = advice(fake, "read-latency", measured(150.0, 8000.0, 22000.0))
    assert all(a.value is None for a in disk.values())
    fake.virtual()
    virtual = advice(fake, "read-latency")
    assert virtual["queue.sda.wbt_lat_usec"].value == "2000"
    unknown = advice(fake, "read-latency", measured(p99_us=None))
    assert unknown["queue.sda.wbt_lat_usec"].value is None


@pytest.mark.parametrize("policy", ["", "[requests] bytes"])
def test_a_hard_disk_behind_a_cache_still_turns(fake: FakeMachine, policy: str) -> None:
    """A RAID controller's cache answers in 0.1 ms: the disks behind it were set as SSDs."""
    fake.queue(rotational="1", wbt_lat_usec="75000")
    if policy:
        fake.patched(policy)
    found = {k: a for k, a in advice(fake, "read-latency").items() if k.startswith("queue.")}
    assert found and all(a.value is None for a in found.values())
    assert "reads may come from a cache" in found["queue.sda.scheduler"].reason
    assert "cache" not in advice(fake, "read-latency", measured(150.0, 8000.0, 22000.0))["queue.sda.scheduler"].reason


def test_two_disks_are_not_told_apart_by_their_reads(fake: FakeMachine) -> None:
    """bcache: the reads are the SSD's, and the hard disk beside it was taken for one; virtual or not."""
    fake.virtual()
    fake.queue(rotational="1", wbt_lat_usec="75000")
    fake.stack("sda1", "nvme0n1")
    facts = tune_facts.read(fake.machine, "/srv", "253:0")
    found = {a.key: a for a in rules.recommend(facts, measured(), "read-latency")}
    assert all(a.value is None for k, a in found.items() if k.startswith("queue.sda."))
    assert found["queue.nvme0n1.max_sectors_kb"].value == "128"


@pytest.mark.parametrize(("name", "model", "place", "virtual"), [
    ("vda", "", "", True), ("xvdb", "", "", True), ("sdb", "QEMU HARDDISK", "", True),
    ("sdb", "VMware Virtual S", "", True), ("sdb", "Virtual disk", "", True),
    ("sdb", "PersistentDisk", "virtio1/", True), ("sdb", "Other", "VMBUS:00/", True),
    ("sdb", "PERC H730P", "", False), ("nvme0n1", "Virtuoso 2", "", False), ("vdo0", "", "", False)])
def test_a_virtual_disk(fake: FakeMachine, name: str, model: str, place: str, virtual: bool) -> None:
    fake.write(f"/sys/devices/{place}{name}/device/model", f"{model}\n")
    (fake.root / f"sys/block/{name}").symlink_to(f"../devices/{place}{name}")
    assert tune_facts.read_disk(fake.machine, name).virtual is virtual


def test_bytes_count_where_the_disk_only_says_that_it_turns(fake: FakeMachine) -> None:
    """virtio-blk: tune had kept rotational=1 and with it a policy that did nothing."""
    fake.patched()
    fake.virtual()
    fake.queue(rotational="1", wbt_lat_usec="75000")
    found = advice(fake, "read-latency")
    assert found["queue.sda.rotational"].value == "0"
    assert "counts for nothing until" in found["queue.sda.rotational"].reason
    policy = found["queue.sda.wbt_policy"]
    assert policy.value is None and "counts for nothing" not in policy.reason
    assert found["queue.sda.max_sectors_kb"].value is None
    fake.queue(rotational="0")
    assert "queue.sda.rotational" not in advice(fake, "read-latency")


@pytest.mark.parametrize("zoned", ["host-managed", "host-aware"])
def test_a_zoned_disk_is_left_as_it_is(fake: FakeMachine, zoned: str) -> None:
    """Before 6.10 only mq-deadline keeps the writes of a zone in order: it was "scheduler: mq-deadline -> none"."""
    fake.queue(zoned=zoned, rotational="1", wbt_lat_usec="75000")
    for policy in ("", "[requests] bytes"):
        if policy:
            fake.patched(policy)
        found = {k: a for k, a in advice(fake, "read-latency").items() if k.startswith("queue.")}
        assert {k.rsplit(".", 1)[1] for k in found} >= {"scheduler", "rotational", "max_sectors_kb"}
        assert all(a.value is None and f"queue/zoned is {zoned}" in a.reason for a in found.values())
    fake.queue(zoned="none", rotational="0")
    assert advice(fake, "read-latency")["queue.sda.wbt_policy"].value == "bytes"


def test_throughput(fake: FakeMachine) -> None:
    found = advice(fake, "throughput")
    # 5 s x 450 MB/s, capped at 1 GiB, is above the limit of 614 MiB
    assert found["vm.dirty_bytes"].value == str(1 << 30)
    assert found["vm.dirty_background_bytes"].value == str(1 << 29)
    assert advice(fake, "throughput", measured(20.0))["vm.dirty_bytes"].value is None
    fake.queue(scheduler="none mq-deadline [bfq]")
    assert advice(fake, "throughput")["queue.sda.scheduler"].value == "none"
    assert advice(fake, "read-latency")["queue.sda.scheduler"].value is None


@pytest.mark.parametrize("scheduler", ["mq-deadline", "bfq"])
@pytest.mark.parametrize("policy", ["", "[requests] bytes"])
def test_of_the_queue_throughput_ends_bfq_alone(fake: FakeMachine, scheduler: str, policy: str) -> None:
    """It had set none, wbt_policy, rotational and wbt_lat_usec, and cited what reads gain by them."""
    fake.virtual()
    fake.queue(rotational="1", wbt_lat_usec="75000")
    fake.switch(scheduler)
    if policy:
        fake.patched(policy)
    queue = {k: a for k, a in advice(fake, "throughput").items() if k.startswith("queue.")}
    assert {k for k, a in queue.items() if a.value is not None} == (
        {"queue.sda.scheduler"} if scheduler == "bfq" else set())
    assert queue["queue.sda.max_sectors_kb"].reason


def test_unplug(fake: FakeMachine) -> None:
    found = advice(fake, "unplug", measured(20.0))
    assert found["bdi.max_bytes"].value == str(57 * MIB)
    assert found["bdi.strict_limit"].value == "1"
    assert found["vm.dirty_bytes"].value is None
    assert advice(fake, "unplug", measured(1.0))["bdi.max_bytes"].value == str(16 * MIB)
    assert advice(fake, "unplug", measured(20.0), 1.0)["bdi.max_bytes"].value == str(19 * MIB)
    fast = advice(fake, "unplug", measured(3000.0))
    assert all(a.value is None for a in fast.values())


def test_unplug_with_a_time_limit(fake: FakeMachine) -> None:
    fake.bdi(max_drain_ms="0")
    assert advice(fake, "unplug", measured(20.0))["bdi.max_drain_ms"].value == "3000"
    fake.bdi(max_drain_ms="3000")
    assert advice(fake, "unplug", measured(20.0))["bdi.max_drain_ms"].value is None
    # 0 would lift the limit.
    assert advice(fake, "unplug", measured(20.0), 0.0005)["bdi.max_drain_ms"].value == "1"


def test_unplug_never_divides_by_zero_in_the_kernel(fake: FakeMachine) -> None:
    fake.write("/proc/vmstat", fake.read("/proc/vmstat").replace(f"threshold {LIMIT}", "threshold 0"))
    found = advice(fake, "unplug", measured(20.0))
    assert all(a.value is None for a in found.values())


def test_database(fake: FakeMachine) -> None:
    found = advice(fake, "database", measured(50.0))
    assert found["vm.dirty_background_bytes"].value == str(47 * MIB)
    assert found["vm.dirty_bytes"].value == str(8 * 47 * MIB)
    # A limit that would only be what it is now is left alone.
    assert "vm.dirty_bytes" not in advice(fake, "database", measured(100.0))
    assert advice(fake, "database", measured(10.0))["vm.dirty_background_bytes"].value == str(16 * MIB)
    fake.write("/proc/vmstat", fake.read("/proc/vmstat").replace(str(BACKGROUND), str(128 * MIB // 4096)))
    assert advice(fake, "database", measured(5000.0))["vm.dirty_background_bytes"].value is None


def test_database_on_a_fast_disk_stays_within_its_sources(fake: FakeMachine) -> None:
    """2.8 GiB were "as EDB has 64 or 128 MB", and 22 GiB "as in tuned's postgresql profile", of 512 MiB."""
    vmstat = fake.read("/proc/vmstat")
    fake.write("/proc/vmstat", vmstat.replace(str(LIMIT), "13000000").replace(str(BACKGROUND), "6500000"))
    found = advice(fake, "database", measured(3000.0))
    assert found["vm.dirty_background_bytes"].value == str(128 * MIB)
    assert found["vm.dirty_bytes"].value == str(1 << 30)


def test_wrong_goal_and_dead_disk(fake: FakeMachine) -> None:
    with pytest.raises(WbError, match="unknown goal"):
        advice(fake, "speed")
    with pytest.raises(WbError, match="drained nothing"):
        advice(fake, "database", measured(0.0))


def test_every_line_has_a_reason_and_every_change_an_effect_or_formula(fake: FakeMachine) -> None:
    for goal in rules.GOALS:
        for rate in (5.0, 450.0, 3000.0):
            for a in advice(fake, goal, measured(rate)).values():
                assert len(a.reason) > 20, a
                assert a.value is None or a.effect or "strict_limit" in a.key, a


def test_every_citation_has_its_effect_and_command() -> None:
    """The numbers are of 'wb figures', whose lint compares them with the results."""
    source = (ROOT / "tools/writeback/wbtop/tune/rules.py").read_text()
    cited = set(re.findall(r"cite\(['\"](\w+)", source)) | {"database", "bytes", "bytes_fsync"}
    assert cited == set(EVIDENCE)
    for name, e in EVIDENCE.items():
        assert len(re.findall(r"\d", e.text)) >= 3, name
        assert e.command.startswith("wb "), name
