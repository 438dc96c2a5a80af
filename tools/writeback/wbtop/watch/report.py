# SPDX-License-Identifier: GPL-2.0
"""From two samples and the trace between them to one report: who slept, for whose limit, and what the disks did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wbtop.machine import PAGE, Dirty
from wbtop.stats import quantile

from .advice import diagnose, findings
from .sample import CAUSES, MAX_CGROUPS, ROOT_CGROUP, Device, DiskStat, Sample, Task, Throttle
from .trace import Sleep

# A percentile needs so many reads that at least one is above it.
TOP = 10
PERCENTILES = (("p50", 0.5, 2), ("p99", 0.99, 100), ("p99_95", 0.9995, 2000))


@dataclass
class Slept:
    """Sleeps of one task, cgroup or device in the interval, ms."""

    count: int = 0
    ms: float = 0.0
    longest_ms: float = 0.0
    by_cause: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    devices: set[str] = field(default_factory=set)
    threads: dict[int, float] = field(default_factory=dict)
    rate_kbps: int = 0

    def add(self, sleep: Sleep, cause: str) -> None:
        """Count one sleep."""
        self.count += 1
        self.ms += sleep.pause_ms
        self.longest_ms = max(self.longest_ms, sleep.pause_ms)
        self.by_cause[cause] += sleep.pause_ms
        self.devices.add(sleep.bdi)
        self.threads[sleep.pid] = self.threads.get(sleep.pid, 0.0) + sleep.pause_ms
        self.rate_kbps = sleep.rate_kbps


@dataclass(frozen=True)
class Traced:
    """What tracing saw in the interval. lookup: a task's process, or None when it is gone."""

    sleeps: Sequence[Sleep]
    lost: int
    reads: Mapping[str, Sequence[float]]
    lookup: Callable[[int], tuple[int, Task] | None]
    cgroups: Mapping[int, str]
    unknown: int = 0


def cause_of(sleep: Sleep, now: Dirty | None, device: Device | None) -> str:
    """Whose limit made the task sleep.

    Nobody sleeps below the freerun ceiling of the domain that throttles (source:
    balance_dirty_pages()).  So with less dirty than the global one, it was not the
    global limit; the event has the pages of the cgroup's domain if that one throttled.
    """
    if now is None or sleep.dirty * PAGE >= now.freerun:
        return "global"
    if device is not None and device.limited:
        return "device"
    if sleep.cgroup not in (0, ROOT_CGROUP):
        return "cgroup"
    # In the root cgroup there are only two limits left: FUSE and NFS have one of their own that no file tells
    # before 6.2; a disk that says it has none was near the ceiling, which moves with free memory.
    return "global" if device is not None and device.limited is False else "device"


def state_of(now: Dirty) -> str:
    """Where dirty memory is between nothing and the limit."""
    if now.throttled >= now.limit:
        return "at the limit"
    if now.throttled > now.freerun:
        return "throttling"
    return "background writeback" if now.dirty > now.background else "free run"


def report(old: Sample, new: Sample, traced: Traced | None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """One interval as plain data, for --json and the view. Times in ms and us, sizes in bytes, rates in bytes/s."""
    seconds = max(new.time - old.time, 1e-9)
    all_notes = list(notes)
    total = Slept()
    tasks: dict[int, Any] = {}
    cgroups: dict[str, Slept] = {}
    devices: dict[str, Slept] = {}
    if traced is not None:
        if traced.lost:
            all_notes.append(f"{traced.lost} sleeps were lost: the numbers are too low")
        if traced.unknown:
            all_notes.append(f"{traced.unknown} trace lines were not understood: the numbers are too low; please "
                             "report this with the events' format files")
        _count(traced, new, total, tasks, cgroups, devices)
    if new.more_cgroups:
        all_notes.append(f"of more than {MAX_CGROUPS} cgroups the others' sleeps are not known")
    counted = new.total is not None
    if counted:
        _from_counters(old, new, tasks)
    throttle = new.total.since(old.total) if new.total else None
    names = {d.bdi: d.what if d.name == d.bdi and d.what else d.name for d in new.devices.values()}
    source = "counters" if counted else "tracepoints" if traced is not None else "none"
    found = {
        "version": 2, "source": source, "interval_s": round(seconds, 3), "notes": all_notes,
        "dirty": _dirty(new.dirty),
        "throttle": _total(throttle, total) if source != "none" else None,
        "tasks": sorted((_task(pid, t, s, seconds, names) for pid, (t, s) in tasks.items()),
                        key=lambda t: -t["slept_ms"]),
        "cgroups": _cgroups(old, new, cgroups),
        "devices": [_device(old.devices.get(d.bdi), d, seconds, devices.get(d.bdi),
                            (traced.reads if traced else {}).get(d.bdi, ())) for d in new.devices.values()],
        "writers": _writers(old, new, seconds), "pressure": _pressure(old, new, seconds),
    }
    found["diagnosis"], found["findings"] = diagnose(found), findings(found)
    return found


def _writers(old: Sample, new: Sample, seconds: float) -> list[dict[str, Any]]:
    """Who made most pages dirty in the interval, asleep or not; the first TOP."""
    rates = [(max(0, now - old.writers.get(pid, (comm, 0))[1]), pid, comm) for pid, (comm, now) in new.writers.items()
             if old.writers.get(pid, (comm, 0))[0] == comm]
    return [{"pid": pid, "comm": comm, "dirty_rate": round(n / seconds)}
            for n, pid, comm in sorted(rates, reverse=True)[:TOP] if n]


def _pressure(old: Sample, new: Sample, seconds: float) -> dict[str, dict[str, float]]:
    """Percent of the interval in which some, or all, tasks that could run were stalled."""
    return {name: {kind: round(min(100.0, max(0, us - old.pressure[name].get(kind, us)) / seconds / 1e4), 1)
                   for kind, us in kinds.items()}
            for name, kinds in new.pressure.items() if name in old.pressure}


def _dirty(now: Dirty | None) -> dict[str, Any] | None:
    if now is None:
        return None
    return {"dirty": now.dirty, "writeback": now.writeback, "background": now.background, "freerun": now.freerun,
            "limit": now.limit, "state": state_of(now)}


def _count(traced: Traced, new: Sample, total: Slept, tasks: dict[int, Any], cgroups: dict[str, Slept],
           devices: dict[str, Slept]) -> None:
    processes: dict[int, tuple[int, Task]] = {}
    for sleep in traced.sleeps:
        if sleep.pid not in processes:
            # A task that has ended keeps the name that the trace has.
            processes[sleep.pid] = traced.lookup(sleep.pid) or (sleep.pid, Task(sleep.comm, "", 0, None))
        tgid, process = processes[sleep.pid]
        cause = cause_of(sleep, new.dirty, new.devices.get(sleep.bdi))
        cgroup = traced.cgroups.get(sleep.cgroup, process.cgroup)
        _, slept = tasks.setdefault(tgid, (process, Slept()))
        for one in (total, slept, devices.setdefault(sleep.bdi, Slept())):
            one.add(sleep, cause)
        if cgroup not in ("", "/"):
            cgroups.setdefault(cgroup, Slept()).add(sleep, cause)


def _from_counters(old: Sample, new: Sample, tasks: dict[int, Any]) -> None:
    """Replace the planned times of the trace with the real ones that the kernel counted."""
    for pid, task in new.tasks.items():
        before = old.tasks.get(pid)
        if task.throttle is None:
            continue
        since = task.throttle.since(before.throttle if before and before.start == task.start else None)
        if before is None and pid not in tasks and since.us == 0:
            continue
        if since.count or pid in tasks:
            slept = tasks[pid][1] if pid in tasks else Slept()
            slept.count, slept.ms = since.count, since.us / 1e3
            tasks[pid] = (task, slept)


def _total(counted: Throttle | None, traced: Slept) -> dict[str, Any]:
    if counted is None:
        return {"sleeps": traced.count, "slept_ms": traced.ms,
                "by_cause_ms": dict(traced.by_cause)}
    return {"sleeps": counted.count, "slept_ms": counted.us / 1e3,
            "by_cause_ms": {c: us / 1e3 for c, us in counted.by_cause.items()}}


def _task(pid: int, task: Task, slept: Slept, seconds: float, names: Mapping[str, str]) -> dict[str, Any]:
    causes = {c: ms for c, ms in slept.by_cause.items() if ms}
    # Of the thread that sleeps most.  Counters are of the process, and the trace says how its threads share them.
    most = max(slept.threads.values()) / sum(slept.threads.values()) if slept.threads else 1
    return {"pid": pid, "comm": task.comm, "cgroup": task.cgroup, "sleeps": slept.count,
            "slept_ms": round(slept.ms, 3), "share_pct": round(min(100.0, slept.ms * most / seconds / 10), 1),
            "threads": len(slept.threads) or None, "num_threads": task.threads,
            "longest_ms": slept.longest_ms or None, "cause": max(causes, key=causes.__getitem__) if causes else None,
            "devices": sorted(names.get(b, b) for b in slept.devices),
            "rate": slept.rate_kbps << 10 if slept.rate_kbps else None}


def _cgroups(old: Sample, new: Sample, traced: Mapping[str, Slept]) -> list[dict[str, Any]]:
    found = []
    if new.cgroups:
        for path, throttle in new.cgroups.items():
            since = throttle.since(old.cgroups.get(path))
            if since.count:
                found.append({"path": path, "sleeps": since.count, "slept_ms": since.us / 1e3,
                              "by_cause_ms": {c: us / 1e3 for c, us in since.by_cause.items()}})
    else:
        for path, slept in traced.items():
            found.append({"path": path, "sleeps": slept.count, "slept_ms": slept.ms,
                          "by_cause_ms": dict(slept.by_cause)})
    return sorted(found, key=lambda c: -c["slept_ms"])


def _reads(times: Sequence[float], stat: DiskStat | None, before: DiskStat | None) -> dict[str, Any] | None:
    """Percentiles of the sample; without one, the mean that the kernel keeps, from request to completion."""
    reads = max(0, stat.reads - before.reads) if stat and before else 0
    # The kernel prints the time as 32 bits.
    mean = (stat.read_ms - before.read_ms) % 2**32 * 1e3 / reads if stat and before and reads else None
    if not times and mean is None:
        return None
    found: dict[str, Any] = {"reads": reads, "mean_us": None if mean is None else round(mean, 1),
                             "sampled": len(times), "max_us": round(max(times), 1) if times else None}
    for name, p, least in PERCENTILES:
        found[f"{name}_us"] = round(quantile(times, p), 1) if len(times) >= least else None
    return found


def _device(old: Device | None, new: Device, seconds: float, slept: Slept | None,
            reads: Sequence[float]) -> dict[str, Any]:
    before, stat = (old.stat if old else None), new.stat
    written = max(0, stat.write_bytes - before.write_bytes) if stat and before else None
    wrote_back = max(0, new.written - old.written) if old and None not in (new.written, old.written) else None
    writes = max(0, stat.writes - before.writes) if stat and before else 0
    inflight = new.wbt.get("inflight")
    exact = inflight is not None
    if inflight is None and stat and writes and written is not None:
        inflight = stat.inflight_writes * (written // writes)
    throttle = new.throttle.since(old.throttle if old else None) if new.throttle else None
    return {
        "name": new.name, "what": new.what, "bdi": new.bdi,
        "write_rate": None if written is None else round(written / seconds),
        "writeback_rate": None if wrote_back is None else round(wrote_back / seconds),
        "bandwidth": new.bandwidth, "drain_rate": new.drain, "dirty": new.dirty, "writeback": new.writeback,
        "inflight_writes": stat.inflight_writes if stat else None, "inflight_bytes": inflight,
        "inflight_estimated": not exact and inflight is not None,
        "rotational": new.rotational, "wbt_policy": new.policy, "queues": list(new.queues),
        "wbt_limit": new.wbt.get("limit"), "wbt_held_bytes": new.wbt.get("held_bytes"), "own_limit": new.limited,
        "own_limits": list(new.limits),
        "read": _reads(reads, stat, before),
        "slept_ms": throttle.us / 1e3 if throttle else slept.ms if slept else 0.0,
    }
