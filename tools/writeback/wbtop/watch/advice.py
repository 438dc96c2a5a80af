# SPDX-License-Identifier: GPL-2.0
"""From a report to lines that say what is wrong, each with one that says what helps."""

from __future__ import annotations

from typing import Any

from wbtop.machine import sysfs_name

# A read of an idle disk that does not rotate is far below, one behind a burst of writeback above.
SLOW_READ_US = 20_000
# One that rotates takes 20 ms by itself: a seek and a turn, behind another read or two.  75 ms is what wbt takes
# for too long there (wbt_default_latency_nsec() of block/blk-wbt.c).
SLOW_READ_ROTATING_US = 75_000
# Writes of journals and logs go on always; below this they are not what a read waits for.
BUSY_BYTES = 1e6
# A task that sleeps so much stands still, which outweighs reads that are late.
STANDS_STILL_PCT = 50.0
# So much of an interval asleep is what a user notices.
SLEPT_PCT = 5.0
# A sync that takes longer is worth a line.
LONG_SYNC_S = 10
# A disk that drains has at least this much of its estimated rate, in s, under writeback.
DRAINING_S = 0.05
# Backing devices that have no disk but are on some of this machine: those of file systems with disks of their own.
LOCAL = ("btrfs-", "bcachefs-", "zfs")


def _mib(value: float) -> str:
    return f"{value / 2**20:.0f} MiB"


def _main_cause(throttle: dict[str, Any] | None) -> tuple[str, float]:
    causes = throttle["by_cause_ms"] if throttle else {}
    cause = max(causes, key=causes.__getitem__) if causes else ""
    return cause, causes.get(cause, 0.0)


def _writes_back(device: dict[str, Any]) -> bool:
    """Whether writeback is under way, or was in the interval; where debugfs does not tell, any write may be it."""
    if (device["write_rate"] or 0) <= BUSY_BYTES:
        return False
    return device["writeback"] is None or device["writeback"] > 0 or (device.get("inflight_writes") or 0) > 0 \
        or (device.get("writeback_rate") or 0) > BUSY_BYTES


def _above_writes_back(device: dict[str, Any], devices: list[dict[str, Any]]) -> bool:
    """Whether writeback was counted for this disk at the device mapper, md or file system above it."""
    return (device["write_rate"] or 0) > BUSY_BYTES and any(
        (d.get("writeback_rate") or 0) > BUSY_BYTES
        and (d["name"].startswith(LOCAL) or sysfs_name(device["name"]) in (q["name"] for q in d.get("queues") or []))
        for d in devices)


def _reads(report: dict[str, Any]) -> dict[str, str] | None:
    """Reads that wait behind writeback: the disk with the slowest."""
    def worst(device: dict[str, Any]) -> float:
        read = device["read"] or {}
        return float(read.get("p99_us") or read.get("max_us") or read.get("mean_us") or 0)

    def slow(device: dict[str, Any]) -> bool:
        return worst(device) >= (SLOW_READ_ROTATING_US if device.get("rotational") else SLOW_READ_US)

    devices = report["devices"]
    busy = [d for d in devices if slow(d) and (_writes_back(d) or _above_writes_back(d, devices))]
    if not busy:
        return None
    d = max(busy, key=worst)
    mean = all((d["read"] or {}).get(k) is None for k in ("p99_us", "max_us"))
    return {"what": f"reads of {d['name']} wait behind writeback: {'on average' if mean else 'up to'} "
                    f"{worst(d) / 1e3:.0f} ms while {d['write_rate'] / 1e6:.0f} MB/s are written",
            "fix": _read_fix(d.get("queues") or [d])}


def _names(queues: list[dict[str, Any]]) -> str:
    return " and ".join(q["name"] for q in queues)


def _to_set(queues: list[dict[str, Any]]) -> str:
    """What wb tune would set, where it is not so; what is not known counts as the kernel's default."""
    lines = []
    for q in queues:
        known = q.get("max_sectors_kb") is not None  # every queue that can be read has it; not so a scheduler (pmem)
        scheduler, kb = (q["scheduler"], q["max_sectors_kb"]) if known else ("mq-deadline", 1280)
        values = [*(["scheduler none"] if scheduler == "mq-deadline" else []),
                  *(["max_sectors_kb 128"] if kb > 128 else [])]
        lines += [f"{', '.join(values)} on {q['name']}"] if values else []
    return "; ".join(lines)


def _read_fix(queues: list[dict[str, Any]]) -> str:
    """What helps reads of the disks with ``queues``, by the series' setting; None: a kernel, or a disk, without it."""
    tune = "wb tune DIR --goal read-latency"
    fitting = [q for q in queues if not q.get("rotational") and not q.get("zoned")]
    if not fitting and any(q.get("zoned") for q in queues):
        return f"for zoned disks, as {_names(queues)}, no setting of the queue was measured to help"
    if not fitting:
        turns = "turn" if len(queues) > 1 else "turns"
        return f"{tune} measures whether {_names(queues)} {turns}, as queue/rotational says (virtual disks often say " \
            "so; others are believed): for a disk that does, no setting of its queue was measured to help"
    requests = [q for q in fitting if q.get("wbt_policy") not in (None, "bytes")]
    rest = _to_set([q for q in fitting if q.get("wbt_policy") != "bytes"])
    if all(q.get("wbt_policy") == "bytes" for q in fitting):
        return f"wbt_policy of {_names(fitting)} is bytes already; {tune}"
    if requests:
        return "; ".join(f"echo bytes > /sys/block/{q['name']}/queue/wbt_policy" for q in requests) \
            + (f"; or {tune} ({rest})" if rest else "")
    return "the series' wbt_policy=bytes; " + (f"without it {tune} ({rest})" if rest else
                                               f"what helps without it is set on {_names(fitting)}")


def _together(task: dict[str, Any]) -> bool:
    """Whether its time is that of several threads, and the trace does not say how they share it."""
    return task.get("threads") is None and task.get("num_threads", 1) > 1


def _still(task: dict[str, Any]) -> bool:
    return task["share_pct"] >= STANDS_STILL_PCT and not _together(task)


def _share(pct: float) -> str:
    return f"{pct:.0f} % of the time" if pct <= 100 else f"{pct / 100:.0f} s in each second"


def _who(report: dict[str, Any], pct: float, cause: str) -> str:
    """The task that sleeps longest for that limit; of all, asleep for ``pct`` of the time, where none is noticed."""
    # None: counters do not know the cause of a task's sleeps.
    tasks = [t for t in report["tasks"] if t.get("cause") in (cause, None)]
    task = max(tasks, key=lambda t: (_still(t), t["share_pct"]), default=None)
    if task is None or task["share_pct"] < SLEPT_PCT:
        return f"writers, together, sleep {_share(pct)}"
    if _together(task):
        return f"the {task['num_threads']} threads of {task['comm']} ({task['pid']}), together, sleep " \
            + _share(task["slept_ms"] / max(report["interval_s"], 1e-3) / 10)
    threads = task.get("threads") or 1
    return f"{task['comm']} ({task['pid']})" + (f", in {threads} threads, sleeps up to" if threads > 1 else " sleeps") \
        + f" {task['share_pct']:.0f} % of the time"


def _cgroup(cgroups: list[dict[str, Any]]) -> str:
    """The lowest with half of what was slept for a cgroup's limit: memory.stat counts what is below a cgroup, too."""
    slept = {c["path"]: c["by_cause_ms"]["cgroup"] for c in cgroups}
    most = max(slept.values(), default=0)
    found = [path for path, ms in slept.items() if 0 < most <= 2 * ms]
    return f" {max(found, key=lambda p: (p.count('/'), slept[p]))}, or the one above it that sets them" if found else ""


def _slept_for(devices: list[dict[str, Any]], cause: str) -> dict[str, Any] | None:
    """The device with most sleep; of those, if any, that can be what is slept for."""
    wrong = cause != "device"  # None is not wrong: this kernel does not tell
    fitting = [d for d in devices if d["slept_ms"] and d.get("own_limit") is not wrong]
    return max(fitting or devices, key=lambda d: d["slept_ms"], default=None)


def _sleep(report: dict[str, Any]) -> dict[str, str] | None:
    cause, ms = _main_cause(report["throttle"])
    pct = ms / max(report["interval_s"], 1e-3) / 10
    if pct < SLEPT_PCT:
        return None
    who = _who(report, pct, cause)
    device = _slept_for(report["devices"], cause)
    name = device["name"] if device and device["slept_ms"] else "the disk"
    if cause == "device":
        bdi = device["bdi"] if device and device["slept_ms"] else "BDI"
        files = (device or {}).get("own_limits") or ["max_ratio"]  # before 6.2 there is no other file
        return {"what": f"{who} for {name}'s own limit of dirty memory",
                "fix": f"that limit is what it is for; to lift it: /sys/class/bdi/{bdi}/{' and '.join(files)}"}
    if cause == "cgroup":
        group = _cgroup(report["cgroups"])
        return {"what": f"{who} for its cgroup's share of dirty memory",
                "fix": f"more memory.high and memory.max for the cgroup{group}: its limit is a share of them"}
    dirty = report["dirty"]
    above = f", and dirty memory was above the freerun ceiling of {_mib(dirty['freerun'])} (limit " \
        f"{_mib(dirty['limit'])})" if dirty else ""
    return {"what": f"{who}: {name} is slower than what is written{above}",
            "fix": "vm.dirty_bytes moves the wait to sync and does not remove it; wb tune DIR --goal throughput says "
                   "whether more helps"}


def _drains(device: dict[str, Any], rate: float) -> float | None:
    """The rate at which a device drains now; None when it does not, as its estimate is of some other time then.

    The kernel's estimate of a disk that has only small writes sinks to what those
    were, whatever the disk could do.
    """
    if (device["writeback"] or 0) < DRAINING_S * rate:
        return None
    written = device["write_rate"]
    if written is None:  # no disk: the estimate is all there is
        return rate
    return max(rate, written) if written >= rate / 2 else None


def _sync(report: dict[str, Any]) -> dict[str, str] | None:
    """So much is dirty that a sync or an unplugging takes long: of the device where it takes longest."""
    def seconds(device: dict[str, Any]) -> float:
        estimate = device["drain_rate"] or device["bandwidth"]
        rate = _drains(device, estimate) if estimate else None
        return dirty(device) / rate if rate else 0.0

    def dirty(device: dict[str, Any]) -> int:
        return int(device["dirty"] or 0) + int(device["writeback"] or 0)

    d = max(report["devices"], key=seconds, default=None)
    if d is None or seconds(d) <= LONG_SYNC_S:
        return None
    return {"what": f"a sync of {d['name']} takes about {seconds(d):.0f} s: {_mib(dirty(d))} are dirty",
            "fix": f"/sys/class/bdi/{d['bdi']}/max_drain_ms (the series), else max_bytes and strict_limit: "
                   "wb tune DIR --goal unplug"}


def findings(report: dict[str, Any]) -> list[dict[str, str]]:
    """The worst of each kind that is wrong, what weighs most first: ``what``, and the ``fix``."""
    reads, sleep, sync = _reads(report), _sleep(report), _sync(report)
    still = any(map(_still, report["tasks"]))
    return [f for f in ((sleep, reads, sync) if still else (reads, sleep, sync)) if f]


def diagnose(report: dict[str, Any]) -> dict[str, str]:
    """The first of ``findings``; "nothing" and no fix when nothing is wrong."""
    found = findings(report)
    if found:
        return found[0]
    if report["source"] == "none":
        return {"what": "who sleeps is not known: no tracepoints and no counters (see the notes)", "fix": ""}
    return {"what": "nothing is held up by writeback", "fix": ""}
