# SPDX-License-Identifier: GPL-2.0
"""One look at the counters of a machine: dirty memory, disks, backing devices, tasks and cgroups."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wbtop.machine import SECTOR, Dirty, Machine, dirty, numbers_of

CAUSES = ("global", "cgroup", "device")
CGROUP = "/sys/fs/cgroup"
MAX_CGROUPS = 5000
# Memory that is never written back.
_NO_DISK = re.compile(r"(ram|zram|sr|fd)[0-9]+")
ROOT_CGROUP = 1  # the inode of cgroup v2's root, and what a kernel without cgroup writeback prints
PRESSURE = ("io", "memory", "cpu")


@dataclass(frozen=True)
class Throttle:
    """Sleeps in balance_dirty_pages() since the start: their number, time, and time by cause, in us."""

    count: int = 0
    us: int = 0
    by_cause: dict[str, int] = field(default_factory=dict)

    def since(self, old: Throttle | None) -> Throttle:
        """What was added after ``old``; all of it without."""
        if old is None:
            return self
        return Throttle(max(0, self.count - old.count), max(0, self.us - old.us),
                        {c: max(0, us - old.by_cause.get(c, 0)) for c, us in self.by_cause.items()})


@dataclass(frozen=True)
class Task:
    """A process. throttle: None where the kernel does not count it."""

    comm: str
    cgroup: str
    start: int  # ticks: tells a new process with an old number
    throttle: Throttle | None


@dataclass(frozen=True)
class DiskStat:
    """Fields of /proc/diskstats since boot, bytes and ms; inflight: requests now."""

    reads: int
    read_bytes: int
    read_ms: int
    writes: int
    write_bytes: int
    inflight_writes: int


@dataclass(frozen=True)
class Device:
    """One disk or other backing device; sizes in bytes, rates in bytes/s, None where the kernel does not tell."""

    name: str
    bdi: str
    stat: DiskStat | None
    dirty: int | None
    writeback: int | None
    bandwidth: int | None
    drain: int | None
    limited: bool | None  # None: this kernel does not tell (before 6.2)
    wbt: dict[str, int]
    throttle: Throttle | None
    what: str = ""  # the name for people: a file system and where it is, a mapped name, a loop's file
    policy: str | None = None  # the series' wbt_policy


@dataclass(frozen=True)
class Sample:
    """Everything at one time, monotonic seconds."""

    time: float
    dirty: Dirty | None
    total: Throttle | None
    tasks: dict[int, Task]
    cgroups: dict[str, Throttle]
    devices: dict[str, Device]
    # Process -> its name, cgroup and bytes made dirty; us stalled by resource, "some" and "full".
    writers: dict[int, tuple[str, int]] = field(default_factory=dict)
    pressure: dict[str, dict[str, int]] = field(default_factory=dict)


def _throttle(values: dict[str, int]) -> Throttle | None:
    """The series' counters in vmstat or memory.stat."""
    if "dirty_throttle_us" not in values:
        return None
    by_cause = {c: values[f"dirty_throttle_{c}_us"] for c in CAUSES if f"dirty_throttle_{c}_us" in values}
    return Throttle(values.get("dirty_throttle", 0), values["dirty_throttle_us"], by_cause)


def has_counters(machine: Machine) -> bool:
    """True if the kernel counts the time of throttling."""
    return _throttle(machine.keyed("/proc/vmstat")) is not None


def sample(machine: Machine, *, counters: bool) -> Sample:
    """Take one sample. counters: also read what the series counts per task and cgroup."""
    return Sample(time.monotonic(), dirty(machine), _throttle(machine.keyed("/proc/vmstat")),
                  dict(_tasks(machine)) if counters else {}, dict(_cgroups(machine)) if counters else {},
                  _devices(machine), dict(_writers(machine)), dict(_pressure(machine)))


def _pressure(machine: Machine) -> Iterator[tuple[str, dict[str, int]]]:
    """Total us stalled since boot, of /proc/pressure; nothing where the kernel has no PSI or it is off."""
    for name in PRESSURE:
        text = machine.text(f"/proc/pressure/{name}") or ""
        found = re.findall(r"^(some|full) .*\btotal=([0-9]+)", text, re.MULTILINE)
        if found:
            yield name, {kind: int(us) for kind, us in found}


def _writers(machine: Machine) -> Iterator[tuple[int, tuple[str, int]]]:
    """Processes that have made pages dirty: name, and bytes less those truncated before they were written."""
    for name in machine.names("/proc"):
        if name.isdigit():
            io = machine.keyed(f"/proc/{name}/io")
            if io.get("write_bytes"):
                yield int(name), ((machine.text(f"/proc/{name}/comm") or name).strip(),
                                  io["write_bytes"] - io.get("cancelled_write_bytes", 0))


# ---- tasks and cgroups --------------------------------------------------------

def task(machine: Machine, pid: int) -> tuple[int, Task] | None:
    """The process that the task ``pid`` belongs to; None when it is gone."""
    status = machine.text(f"/proc/{pid}/status") or ""
    group = re.search(r"^Tgid:\s+([0-9]+)", status, re.MULTILINE)
    name = re.search(r"^Name:\s+(.*)", status, re.MULTILINE)
    if not group or not name:
        return None
    tgid = int(group.group(1))
    stat = (machine.text(f"/proc/{tgid}/stat") or "").rpartition(")")[2].split()
    throttle = _own_throttle(machine, tgid)
    return tgid, Task(name.group(1), cgroup_of(machine, tgid), int(stat[19]) if len(stat) > 19 else 0, throttle)


def _own_throttle(machine: Machine, tgid: int) -> Throttle | None:
    """That of a process's threads; its own file also has that of all children that have ended."""
    found = None
    for tid in machine.names(f"/proc/{tgid}/task"):
        values = machine.keyed(f"/proc/{tgid}/task/{tid}/io")
        if "dirty_throttle_us" in values:
            found = found or Throttle()
            found = Throttle(found.count + values.get("dirty_throttle", 0), found.us + values["dirty_throttle_us"])
    return found


def cgroup_of(machine: Machine, pid: int) -> str:
    """Path of the process in the cgroup v2 tree; "" when there is none."""
    match = re.search(r"^0::(.*)$", machine.text(f"/proc/{pid}/cgroup") or "", re.MULTILINE)
    return match.group(1) if match else ""


def _tasks(machine: Machine) -> Iterator[tuple[int, Task]]:
    for name in machine.names("/proc"):
        # A process that was never throttled costs one file.
        if name.isdigit() and machine.keyed(f"/proc/{name}/io").get("dirty_throttle_us"):
            found = task(machine, int(name))
            if found:
                yield found


def _directories(machine: Machine) -> Iterator[str]:
    top = machine.path(cgroup_root(machine))
    for count, (path, names, _) in enumerate(os.walk(top)):
        names.sort()
        if count >= MAX_CGROUPS:
            return
        yield "/" + str(Path(path).relative_to(top)) if Path(path) != top else "/"


def cgroup_root(machine: Machine) -> str:
    """Where cgroup v2 is: alone, or beside v1."""
    return f"{CGROUP}/unified" if machine.exists(f"{CGROUP}/unified/cgroup.controllers") else CGROUP


def _cgroups(machine: Machine) -> Iterator[tuple[str, Throttle]]:
    root = cgroup_root(machine)
    for path in _directories(machine):
        found = _throttle(machine.keyed(f"{root}{path}/memory.stat"))
        if found is not None and path != "/":
            yield path, found


def cgroup_names(machine: Machine) -> dict[int, str]:
    """Inode number, which is the cgroup's id in tracepoints, -> path."""
    root = machine.path(cgroup_root(machine))
    found = {}
    for path in _directories(machine):
        try:
            found[(root / path.lstrip("/")).stat().st_ino] = path
        except OSError:
            continue  # it went away meanwhile
    return found


# ---- devices ------------------------------------------------------------------------

def _diskstats(machine: Machine) -> dict[str, tuple[str, DiskStat]]:
    found = {}
    for line in (machine.text("/proc/diskstats") or "").splitlines():
        f = line.split()
        if len(f) < 14 or not all(x.isdigit() for x in (*f[:2], *f[3:14])):
            continue
        n = [int(x) for x in f[3:14]]
        inflight = (machine.text(f"/sys/block/{f[2]}/inflight") or "").split()
        writes = int(inflight[1]) if len(inflight) == 2 and inflight[1].isdigit() else 0
        found[f"{f[0]}:{f[1]}"] = (f[2], DiskStat(n[0], n[2] * SECTOR, n[3], n[4], n[6] * SECTOR, writes))
    return found


def _kilo(values: dict[str, int], *names: str) -> int | None:
    value = next((values[n] for n in names if n in values), None)
    return None if value is None else value << 10


def _limited(machine: Machine, bdi: str) -> bool | None:
    """True if the device has a limit of its own that holds below the global freerun ceiling; None: not to be known."""
    base = f"/sys/class/bdi/{bdi}"
    strict = machine.number(f"{base}/strict_limit")
    if strict == 1:
        return True
    if strict is None:
        return None
    drain = machine.text(f"{base}/max_drain_ms")
    if drain == "default":
        drain = machine.text("/proc/sys/vm/dirty_drain_ms")
    return drain is not None and drain.strip() not in ("", "0")


def _mounts(machine: Machine) -> list[tuple[str, str, str]]:
    """Device number, file system and place of each mount."""
    found = []
    for line in (machine.text("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        if len(left.split()) > 4 and right:
            # The kernel writes a blank as \\040.
            place = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), left.split()[4])
            found.append((left.split()[2], right.split()[0], place))
    return found


def _mount_what(bdi: str, mounts: list[tuple[str, str, str]]) -> str:
    """The file system behind a bdi without a disk: by device number (NFS, FUSE), or by its type (btrfs-1, ceph-2)."""
    number = re.match(r"[0-9]+:[0-9]+", bdi)
    kind = re.fullmatch(r"([a-z0-9.]+)-[0-9]+", bdi)
    mine = [m for m in mounts if (number and m[0] == number[0]) or (kind and m[1] == kind[1])]
    if number and mine:
        return f"{mine[0][1]} {mine[0][2]}"
    if kind and mine:
        places = sorted({m[2] for m in mine})
        return f"{kind[1]} {places[0]}" + (f" or {len(places) - 1} others" if len(places) > 1 else "")
    return ""


def _block_what(machine: Machine, name: str) -> str:
    """The mapped name of dm, the file of a loop."""
    return machine.text(f"/sys/block/{name}/dm/name") or machine.text(f"/sys/block/{name}/loop/backing_file") or ""


def _devices(machine: Machine) -> dict[str, Device]:
    """By bdi: whole disks, and what else has a bdi with data on it (btrfs, NFS, FUSE)."""
    stats = _diskstats(machine)
    mounts = _mounts(machine)
    found = {}
    for bdi in machine.names("/sys/class/bdi"):
        name, stat = stats.get(bdi, (bdi, None))
        what = _block_what(machine, name) if stat else _mount_what(bdi, mounts)
        if _NO_DISK.fullmatch(name):
            continue
        debug = numbers_of(machine.text(f"/sys/kernel/debug/bdi/{bdi}/stats") or "")
        base = f"/sys/class/bdi/{bdi}"
        us = machine.number(f"{base}/dirty_throttle_us")
        found[bdi] = Device(
            name=name, bdi=bdi, stat=stat, dirty=_kilo(debug, "BdiReclaimable"),
            writeback=_kilo(debug, "BdiWriteback"), bandwidth=_kilo(debug, "BdiWriteBandwidth"),
            drain=_kilo(debug, "BdiDrainRate"), limited=_limited(machine, bdi),
            wbt=machine.keyed(f"/sys/kernel/debug/block/{name}/rqos/wbt/bytes") if stat else {},
            throttle=None if us is None else Throttle(machine.number(f"{base}/dirty_throttle") or 0, us),
            what=what, policy=machine.choice(f"/sys/block/{name}/queue/wbt_policy") if stat else None,
        )
    return found
