# SPDX-License-Identifier: GPL-2.0
"""The line that says what is wrong: that it is so, and that nothing is said that is not."""

from typing import Any

import pytest

from wbtop.watch.advice import diagnose, findings
from wbtop.watch.view import render

MIB = 1 << 20
CALM = "nothing is held up by writeback"


def device(**more: Any) -> dict[str, Any]:
    return {"name": "sda", "bdi": "8:0", "write_rate": 0, "bandwidth": None, "drain_rate": None, "dirty": 0,
            "writeback": 0, "read": None, "wbt_limit": None, "slept_ms": 0.0, **more}


def report(*devices: dict[str, Any], source: str = "tracepoints") -> dict[str, Any]:
    throttle = None if source == "none" else {"by_cause_ms": {"global": 0.0, "cgroup": 0.0, "device": 0.0}}
    return {"source": source, "interval_s": 2.0, "throttle": throttle, "tasks": [], "cgroups": [],
            "dirty": {"limit": 4096 * MIB, "freerun": 3072 * MIB}, "devices": list(devices)}


def test_a_sync_of_a_disk_that_drains() -> None:
    stick = device(dirty=290 * MIB, writeback=10 * MIB, bandwidth=10 * 10**6, write_rate=9 * 10**6)
    found = diagnose(report(stick))
    assert found["what"] == "a sync of sda takes about 31 s: 300 MiB are dirty"
    assert "/sys/class/bdi/8:0/max_drain_ms" in found["fix"]
    # Faster than the kernel has noticed yet.
    assert diagnose(report(stick | {"write_rate": 100 * 10**6}))["what"] == CALM
    # The series' own estimate goes first.
    assert diagnose(report(stick | {"drain_rate": 40 * 10**6, "write_rate": 39 * 10**6}))["what"] == CALM


def test_the_longest_sync_is_named() -> None:
    """The first device's was: 13 s of a disk hid the 300 s of a stick."""
    disk = device(dirty=2400 * 10**6, writeback=200 * 10**6, bandwidth=200 * 10**6, write_rate=200 * 10**6)
    stick = device(name="sdb", bdi="8:16", dirty=897 * 10**6, writeback=3 * 10**6, bandwidth=3 * 10**6,
                   write_rate=3 * 10**6)
    for devices in ((disk, stick), (stick, disk)):
        assert [f["what"] for f in findings(report(*devices))] == [
            "a sync of sdb takes about 300 s: 858 MiB are dirty"]


def test_no_sync_is_foretold_from_the_estimate_of_an_idle_disk() -> None:
    """Seen on 6.18: 1669 MiB dirty, estimate 21 MB/s from a few small writes, a disk of 1200 MB/s: "83 s"."""
    idle = device(dirty=1669 * MIB, writeback=0, bandwidth=21 * 10**6, write_rate=200_000)
    assert diagnose(report(idle))["what"] == CALM
    assert diagnose(report(idle | {"writeback": 64 << 10, "write_rate": 12 * 10**6}))["what"] == CALM


def test_a_mount_without_a_disk_has_its_estimate_only() -> None:
    nfs = device(name="0:53", bdi="0:53", dirty=300 * MIB, writeback=20 * MIB, bandwidth=5 * 10**6, write_rate=None)
    assert diagnose(report(nfs))["what"].startswith("a sync of 0:53 takes about 67 s")
    assert diagnose(report(nfs | {"writeback": 0}))["what"] == CALM


@pytest.mark.parametrize(("read", "said"), [
    ({"p99_us": 90e3}, "up to 90 ms"), ({"p99_us": None, "max_us": 90e3}, "up to 90 ms"),
    ({"p99_us": None, "max_us": None, "mean_us": 90e3}, "on average 90 ms")])
def test_reads_are_seen_to_wait_also_without_tracing(read: dict[str, Any], said: str) -> None:
    busy = device(write_rate=50 * 10**6, inflight_writes=8, read=read)
    assert diagnose(report(busy, source="none"))["what"] == \
        f"reads of sda wait behind writeback: {said} while 50 MB/s are written"
    assert "sleeps is not known" in diagnose(report(device(), source="none"))["what"]


@pytest.mark.parametrize(("policy", "start"), [
    (None, "the series' wbt_policy=bytes; without it wb tune"), ("requests", "echo bytes > /sys/block/sda/queue/wbt"),
    ("bytes", "wbt_policy of sda is bytes already")])
def test_what_helps_reads_is_by_the_policy_in_force(policy: str | None, start: str) -> None:
    busy = device(write_rate=50 * 10**6, inflight_writes=8, read={"p99_us": 90e3}, wbt_policy=policy)
    assert diagnose(report(busy))["fix"].startswith(start)


@pytest.mark.parametrize("policy", [None, "requests", "bytes"])
def test_a_disk_that_turns_is_not_told_what_does_nothing_there(policy: str | None) -> None:
    """scheduler none, which wb tune never gives it, and bytes, which counts for nothing there."""
    busy = device(write_rate=50 * 10**6, inflight_writes=8, read={"p99_us": 90e3}, wbt_policy=policy, rotational=True)
    fix = diagnose(report(busy))["fix"]
    assert fix.startswith("wb tune DIR --goal read-latency measures whether sda turns")
    assert "bytes" not in fix and "none" not in fix


def asleep(cause: str, ms: float, tasks: list[tuple[str, float]], cgroups: dict[str, float] | None = None,
           **more: Any) -> dict[str, Any]:
    found = report(device(slept_ms=ms, **more))
    found["throttle"]["by_cause_ms"][cause] = ms
    found["tasks"] = [{"comm": c, "pid": 10 + i, "share_pct": pct} for i, (c, pct) in enumerate(tasks)]
    found["cgroups"] = [{"path": p, "slept_ms": v, "by_cause_ms": {"cgroup": v}} for p, v in (cgroups or {}).items()]
    return found


def test_a_task_sleeps_its_own_time() -> None:
    """Eight writers of one pod: "w1 sleeps 720 % of the time", for the cgroup of all pods."""
    pods = {"/kubepods.slice": 14400.0, "/kubepods.slice/pod": 14400.0, "/kubepods.slice/pod/a": 9000.0,
            "/kubepods.slice/pod/b": 5400.0}
    found = diagnose(asleep("cgroup", 14400.0, [("w1", 90.0), *[("w", 90.0)] * 7], pods))
    assert found["what"] == "w1 (10) sleeps 90 % of the time for its cgroup's share of dirty memory"
    assert " /kubepods.slice/pod/a, " in found["fix"]
    assert diagnose(asleep("global", 400.0, []))["what"].startswith("writers, together, sleep 20 % of the time: sda is")


@pytest.mark.parametrize(("files", "said"), [
    (["max_drain_ms"], "8:0/max_drain_ms"), (["strict_limit", "max_bytes"], "8:0/strict_limit and max_bytes"),
    ([], "8:0/max_ratio")])
def test_the_limit_of_a_device_is_lifted_by_its_file(files: list[str], said: str) -> None:
    found = diagnose(asleep("device", 1000.0, [("dd", 50.0)], own_limits=files))
    assert found["what"] == "dd (10) sleeps 50 % of the time for sda's own limit of dirty memory"
    assert found["fix"].endswith(f"/sys/class/bdi/{said}")


def test_who_sleeps_is_said_of_the_limit_that_is_named() -> None:
    """Three tasks of a pod slept 60 % each for its limit: it was "dd, 90 %, for its cgroup's share"."""
    found = asleep("cgroup", 3600.0, [("dd", 90.0), ("w1", 60.0), ("w2", 60.0), ("w3", 60.0)])
    for task, cause in zip(found["tasks"], ("global", "cgroup", "cgroup", "cgroup"), strict=True):
        task["cause"] = cause
    assert diagnose(found)["what"].startswith("w1 (11) sleeps 60 % of the time for its cgroup's")
    # Counters alone know no cause.
    for task in found["tasks"]:
        task["cause"] = None
    assert diagnose(found)["what"].startswith("dd (10) sleeps 90 %")


@pytest.mark.parametrize(("cause", "disk", "stick", "said"), [
    ("device", 700.0, 600.0, "for sdb's own limit"), ("global", 400.0, 600.0, ": sda is slower")])
def test_the_device_is_one_that_has_the_limit(cause: str, disk: float, stick: float, said: str) -> None:
    """Sleeps of both kinds at once: it was "sda's own limit" of a disk without one."""
    found = asleep(cause, 1000.0, [("cp", 50.0)])
    found["devices"] = [device(slept_ms=disk, own_limit=False),
                        device(name="sdb", bdi="8:16", slept_ms=stick, own_limit=True, own_limits=["strict_limit"])]
    assert said in diagnose(found)["what"]


def queue(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "rotational": False, "zoned": None, "scheduler": "mq-deadline", "wbt_policy": None,
            "max_sectors_kb": 1280, **more}


def test_a_task_that_stands_still_is_not_hidden_by_a_slow_read() -> None:
    """One line only, and reads always won: a task asleep for 95 % of the time was not mentioned."""
    found = asleep("cgroup", 1900.0, [("postgres", 95.0)], write_rate=50 * 10**6, inflight_writes=8,
                   read={"p99_us": 90e3})
    assert [f["what"][:14] for f in findings(found)] == ["postgres (10) ", "reads of sda w"]
    assert diagnose(found) == findings(found)[0]
    found["tasks"][0]["share_pct"] = 40.0
    assert [f["what"][:14] for f in findings(found)] == ["reads of sda w", "postgres (10) "]
    assert findings(report(device())) == []


def test_a_sleep_for_the_global_limit_is_above_the_freerun_ceiling() -> None:
    """With 24 MiB dirty and "throttling" in the bar it was "at its limit of 32 MiB"."""
    assert diagnose(asleep("global", 1000.0, [("dd", 50.0)]))["what"] == (
        "dd (10) sleeps 50 % of the time: sda is slower than what is written, and dirty memory was above the freerun "
        "ceiling of 3072 MiB (limit 4096 MiB)")


def test_of_many_the_one_that_sleeps_longest_is_named() -> None:
    """30 processes slept 0.4 % each: "cp (10) sleeps 0 % of the time"."""
    found = asleep("global", 240.0, [("cp", 0.4)] * 30)
    assert diagnose(found)["what"].startswith("writers, together, sleep 12 % of the time: sda is slower")
    # The first has many threads, the other sleeps.
    assert diagnose(asleep("global", 2400.0, [("mysqld", 1.0), ("cp", 60.0)]))["what"].startswith("cp (11) sleeps 60 %")


def test_threads_together_do_not_stand_still() -> None:
    """20 of 5 % each came before reads that were late, and before a writer that stood still."""
    late = {"write_rate": 50 * 10**6, "inflight_writes": 8, "read": {"p99_us": 90e3}}
    found = asleep("global", 3000.0, [("mysqld", 100.0), ("cp", 6.0)], **late)
    found["tasks"][0] |= {"threads": None, "num_threads": 20, "slept_ms": 2000.0}
    assert diagnose(found)["what"].startswith("reads of sda wait")
    assert findings(found)[1]["what"].startswith("the 20 threads of mysqld (10), together, sleep 100 % of the time: ")
    found["tasks"][1]["share_pct"] = 60.0
    assert diagnose(found)["what"].startswith("cp (11) sleeps 60 % of the time: sda")


def test_every_finding_is_shown() -> None:
    found = asleep("cgroup", 1900.0, [], write_rate=50 * 10**6, inflight_writes=8, inflight_bytes=1,
                   inflight_estimated=False, read={"p99_us": 90e3})
    found |= {"notes": [], "dirty": None, "findings": findings(found), "diagnosis": diagnose(found)}
    found["throttle"] |= {"slept_ms": 1900.0, "sleeps": 3}
    found["cgroups"] = []
    assert [line[:10] for line in render(found).splitlines() if line.startswith("=>")] == ["=> reads o", "=> writers"]
    del found["findings"]  # of an earlier version's --record
    assert [line[:10] for line in render(found).splitlines() if line.startswith("=>")] == ["=> reads o"]


@pytest.mark.parametrize(("more", "wrong"), [
    ({"read": {"p99_us": 22e3}}, False), ({"read": {"p99_us": 74e3}}, False), ({"read": {"p99_us": 76e3}}, True),
    ({"read": {"p99_us": 22e3}, "rotational": False}, True)])
def test_a_hard_disk_takes_20_ms_by_itself(more: dict[str, Any], wrong: bool) -> None:
    busy = device(write_rate=50 * 10**6, inflight_writes=8, **({"rotational": True} | more))
    assert (diagnose(report(busy))["what"] != CALM) is wrong


@pytest.mark.parametrize(("more", "wrong"), [
    ({}, False), ({"writeback": MIB}, True), ({"inflight_writes": 1}, True), ({"writeback_rate": 10**7}, True),
    ({"writeback_rate": 10**5}, False), ({"writeback": None}, True),
    ({"inflight_writes": 1, "write_rate": 10**5}, False)])
def test_reads_wait_only_behind_writeback(more: dict[str, Any], wrong: bool) -> None:
    """Nothing dirty, nothing under way: it was "wait behind writeback" all the same."""
    slow = device(read={"p99_us": 90e3}, **({"write_rate": 50 * 10**6} | more))
    assert (diagnose(report(slow))["what"] != CALM) is wrong


@pytest.mark.parametrize(("queues", "fix"), [
    ([queue("sda")], "the series' wbt_policy=bytes; without it TUNE (scheduler none, max_sectors_kb 128 on sda)"),
    ([queue("sda", scheduler="none", max_sectors_kb=64)],
     "the series' wbt_policy=bytes; what helps without it is set on sda"),
    ([queue("sda", wbt_policy="requests", scheduler="kyber", max_sectors_kb=128)],
     "echo bytes > /sys/block/sda/queue/wbt_policy"),
    ([queue("sda", scheduler="none"), queue("sdb", max_sectors_kb=128)],
     "the series' wbt_policy=bytes; without it TUNE (max_sectors_kb 128 on sda; scheduler none on sdb)"),
    ([queue("sda", wbt_policy="bytes"), queue("sdb", wbt_policy="requests", scheduler="none")],
     "echo bytes > /sys/block/sdb/queue/wbt_policy; or TUNE (max_sectors_kb 128 on sdb)"),
    ([queue("sda", rotational=True), queue("nvme0n1", wbt_policy="bytes")],
     "wbt_policy of nvme0n1 is bytes already; TUNE"),
    ([queue("sda", scheduler=None, max_sectors_kb=None, rotational=None)],  # could not be read
     "the series' wbt_policy=bytes; without it TUNE (scheduler none, max_sectors_kb 128 on sda)"),
    ([queue("pmem0", scheduler=None)], "the series' wbt_policy=bytes; without it TUNE (max_sectors_kb 128 on pmem0)"),
    ([queue("sda", zoned="host-managed")], "for zoned disks, as sda, no setting of the queue was measured to help")])
def test_what_helps_is_said_of_the_lower_disks(queues: list[dict[str, Any]], fix: str) -> None:
    """It was "max_sectors_kb 128 on dm-0", which has no queue of its own, and what was set already."""
    busy = device(name="dm-0", write_rate=50 * 10**6, inflight_writes=8, read={"p99_us": 90e3}, queues=queues)
    assert diagnose(report(busy))["fix"] == fix.replace("TUNE", "wb tune DIR --goal read-latency")
