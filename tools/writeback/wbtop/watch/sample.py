# SPDX-License-Identifier: GPL-2.0
"""One look at the counters of a machine: dirty memory, disks, backing devices, tasks and cgroups."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wbtop.machine import SECTOR, Dirty, Machine, dirty, lower_disks, numbers_of, sysfs_name, takes_requests

from .taskstats import Taskstats

CAUSES = ("global", "cgroup", "device")
# Number and ns of the sleeps of a process, if delay accounting knows them.
Delays = Callable[[int], "tuple[int, int] | None"]
CGROUP = "/sys/fs/cgroup"
MAX_CGROUPS = 5000
DRAIN_FLOOR = 12 << 20  # of mm/page-writeback.c: no time limit is lower
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
    threads: int = 1


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
    limits: tuple[str, ...] = ()  # the files of its own limits that are in force
    rotational: bool | None = None  # what its queue says, true or not
    written: int | None = None  # by writeback, since it is there
    queues: tuple[dict[str, Any], ...] = ()  # of the disks at its bottom, which settings are for; itself if it is none


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
    more_cgroups: bool = False  # than were read


def _throttle(values: dict[str, int]) -> Throttle | None:
    """The series' counters in vmstat or memory.stat."""
    if "nr_dirty_throttled" not in values:
        return None
    by_cause = {c: values.get(f"dirty_throttled_{c}_usec", 0) for c in CAUSES}
    return Throttle(values["nr_dirty_throttled"], sum(by_cause.values()), by_cause)


def has_counters(machine: Machine) -> bool:
    """True if the kernel counts the time of throttling."""
    return _throttle(machine.keyed("/proc/vmstat")) is not None


def kernel_delays(machine: Machine) -> Delays:
    """What the running kernel answers; nothing for a root that is not this machine's."""
    if machine.root != Path("/"):
        return lambda _: None
    return Taskstats().sleeps


def sample(machine: Machine, *, counters: bool, delays: Delays | None = None) -> Sample:
    """Take one sample. counters: also read what the series counts per cgroup and, by ``delays``, per task."""
    cgroups, more = _cgroups(machine) if counters else ({}, False)
    return Sample(time.monotonic(), dirty(machine), _throttle(machine.keyed("/proc/vmstat")),
                  dict(_tasks(machine, delays)) if counters and delays else {}, cgroups,
                  _devices(machine), dict(_writers(machine)), dict(_pressure(machine)), more)


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

def task(machine: Machine, pid: int, delays: Delays | None = None) -> tuple[int, Task] | None:
    """The process that the task ``pid`` belongs to; None when it is gone."""
    status = machine.text(f"/proc/{pid}/status") or ""
    group = re.search(r"^Tgid:\s+([0-9]+)", status, re.MULTILINE)
    name = re.search(r"^Name:\s+(.*)", status, re.MULTILINE)
    if not group or not name:
        return None
    tgid = int(group.group(1))
    stat = _stat(machine, tgid)
    slept = delays(tgid) if delays and _delayed(stat) else None
    throttle = Throttle(slept[0], slept[1] // 1000) if slept else None
    threads, start = (int(stat[17]), int(stat[19])) if len(stat) > 19 else (1, 0)
    return tgid, Task(name.group(1), cgroup_of(machine, tgid), start, throttle, threads)


def _stat(machine: Machine, pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on."""
    return (machine.text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()


def _delayed(stat: list[str]) -> bool:
    """Has delay accounting seen the process wait for I/O, which such sleeps are taken for?"""
    return len(stat) > 39 and stat[39] != "0"


def cgroup_of(machine: Machine, pid: int) -> str:
    """Path of the process in the cgroup v2 tree; "" when there is none."""
    match = re.search(r"^0::(.*)$", machine.text(f"/proc/{pid}/cgroup") or "", re.MULTILINE)
    return match.group(1) if match else ""


def _tasks(machine: Machine, delays: Delays) -> Iterator[tuple[int, Task]]:
    for name in machine.names("/proc"):
        # A process that never waited costs one file.
        if name.isdigit() and _delayed(_stat(machine, int(name))):
            found = task(machine, int(name), delays)
            if found and found[1].throttle:
                yield found


def _directories(machine: Machine) -> tuple[list[str], bool]:
    """The cgroups, the first MAX_CGROUPS of them; and whether there are more."""
    top = machine.path(cgroup_root(machine))
    found: list[str] = []
    for path, names, _ in os.walk(top):
        if len(found) == MAX_CGROUPS:
            return found, True
        names.sort()
        found.append("/" + str(Path(path).relative_to(top)) if Path(path) != top else "/")
    return found, False


def cgroup_root(machine: Machine) -> str:
    """Where cgroup v2 is: alone, or beside v1."""
    return f"{CGROUP}/unified" if machine.exists(f"{CGROUP}/unified/cgroup.controllers") else CGROUP


def _cgroups(machine: Machine) -> tuple[dict[str, Throttle], bool]:
    root = cgroup_root(machine)
    paths, more = _directories(machine)
    stats = {path: _throttle(machine.keyed(f"{root}{path}/memory.stat")) for path in paths if path != "/"}
    return {path: found for path, found in stats.items() if found is not None}, more


def cgroup_names(machine: Machine) -> dict[int, str]:
    """Inode number, which is the cgroup's id in tracepoints, -> path; nothing where there is only cgroup v1."""
    root = machine.path(cgroup_root(machine))
    found: dict[int, str] = {}
    # Each hierarchy of v1 has its own numbers.
    if not (root / "cgroup.controllers").exists():
        return found
    for path in _directories(machine)[0]:
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
        inflight = (machine.text(f"/sys/block/{sysfs_name(f[2])}/inflight") or "").split()
        writes = int(inflight[1]) if len(inflight) == 2 and inflight[1].isdigit() else 0
        found[f"{f[0]}:{f[1]}"] = (f[2], DiskStat(n[0], n[2] * SECTOR, n[3], n[4], n[6] * SECTOR, writes))
    return found


def _kilo(values: dict[str, int], *names: str) -> int | None:
    value = next((values[n] for n in names if n in values), None)
    return None if value is None else value << 10


def _limited(machine: Machine, bdi: str) -> bool | None:
    """True if the device has a limit of its own that holds below the global freerun ceiling; None: not to be known."""
    if machine.number(f"/sys/class/bdi/{bdi}/strict_limit") is None:
        return None
    return bool(_limits(machine, bdi))


def _limits(machine: Machine, bdi: str) -> tuple[str, ...]:
    """The files in /sys/class/bdi/BDI by which a device has a limit of its own."""
    base = f"/sys/class/bdi/{bdi}"
    found = [n for n in ("max_drain_ms", "strict_limit") if machine.number(f"{base}/{n}")]
    if "strict_limit" in found and (machine.number(f"{base}/max_ratio") or 0) < 100:
        found.append("max_bytes" if machine.exists(f"{base}/max_bytes") else "max_ratio")
    return tuple(found)


def _drain(machine: Machine, bdi: str) -> int | None:
    """What the time limit takes the device for, in bytes/s; None without one, or while it knows nothing better."""
    ms = machine.number(f"/sys/class/bdi/{bdi}/max_drain_ms")
    limit = machine.number(f"/sys/class/bdi/{bdi}/max_drain_bytes")
    return limit * 1000 // ms if ms and limit and limit > DRAIN_FLOOR else None


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


def _turns(machine: Machine, name: str) -> bool | None:
    turns = machine.number(f"/sys/block/{name}/queue/rotational")
    return None if turns is None else turns == 1


def _queues(machine: Machine, name: str) -> Iterator[dict[str, Any]]:
    """The settings of the queues that decide how long a read of ``name`` waits; zoned: the kind of zones, if any."""
    # A path of multipath gets its requests from the map, as the map's queue makes them.
    maps = [n for n in machine.names(f"/sys/block/{name}/holders") if takes_requests(machine, n)]
    for disk in maps or lower_disks(machine, name):
        queue = f"/sys/block/{disk}/queue"
        zoned = machine.choice(f"{queue}/zoned")
        yield {"name": disk, "rotational": _turns(machine, disk), "zoned": None if zoned == "none" else zoned,
               "scheduler": machine.choice(f"{queue}/scheduler"), "wbt_policy": machine.choice(f"{queue}/wbt_policy"),
               "max_sectors_kb": machine.number(f"{queue}/max_sectors_kb")}


def _devices(machine: Machine) -> dict[str, Device]:
    """By bdi: whole disks, and what else has a bdi with data on it (btrfs, NFS, FUSE)."""
    stats = _diskstats(machine)
    mounts = _mounts(machine)
    found = {}
    for bdi in machine.names("/sys/class/bdi"):
        name, stat = stats.get(bdi, (bdi, None))
        disk = sysfs_name(name)
        what = _block_what(machine, disk) if stat else _mount_what(bdi, mounts)
        if _NO_DISK.fullmatch(name):
            continue
        debug = numbers_of(machine.text(f"/sys/kernel/debug/bdi/{bdi}/stats") or "")
        base = f"/sys/class/bdi/{bdi}"
        us = machine.number(f"{base}/dirty_throttled_usec")
        found[bdi] = Device(
            name=name, bdi=bdi, stat=stat, dirty=_kilo(debug, "BdiReclaimable"),
            writeback=_kilo(debug, "BdiWriteback"), bandwidth=_kilo(debug, "BdiWriteBandwidth"),
            drain=_drain(machine, bdi), limited=_limited(machine, bdi),
            wbt=machine.keyed(f"/sys/kernel/debug/block/{disk}/rqos/wbt/bytes") if stat else {},
            throttle=None if us is None else Throttle(machine.number(f"{base}/nr_dirty_throttled") or 0, us),
            what=what, limits=_limits(machine, bdi),
            policy=machine.choice(f"/sys/block/{disk}/queue/wbt_policy") if stat else None,
            rotational=_turns(machine, disk) if stat else None, written=_kilo(debug, "BdiWritten"),
            queues=tuple(_queues(machine, disk)) if stat else (),
        )
    return found
