# SPDX-License-Identifier: GPL-2.0
"""Reading /proc and /sys below a root that tests can choose; nothing here writes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")  # of /proc/vmstat, /proc/zoneinfo and the tracepoints
SECTOR = 512  # of /proc/diskstats and /sys/block/*/size, whatever the disk's own is

# Left by podman, Docker and systemd-nspawn.
CONTAINER = ("/run/.containerenv", "/.dockerenv", "/run/systemd/container")
# PROC_PID_INIT_INO of include/linux/proc_ns.h: containerd, runc and LXC leave no file.
HOST_PIDS = "pid:[4026531836]"


@dataclass(frozen=True)
class Machine:
    """The machine whose files are below ``root``: "/" for this one."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        """``name``, an absolute path of the machine, as a path of this one."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """Content of a file without the newline at its end; None when it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace").rstrip("\n")
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """A file with one whole number; None for anything else."""
        text = self.text(name)
        return int(text) if text is not None and re.fullmatch(r"\s*-?[0-9]+\s*", text) else None

    def choice(self, name: str) -> str | None:
        """What is in force in a file such as "none [mq-deadline] bfq"; the word itself where there is one only."""
        text = self.text(name)
        if not text:
            return None
        match = re.search(r"\[([^]]+)\]", text)
        return match.group(1) if match else text.strip()

    def choices(self, name: str) -> tuple[str, ...]:
        """All words of such a file."""
        return tuple((self.text(name) or "").replace("[", "").replace("]", "").split())

    def names(self, name: str) -> list[str]:
        """The entries of a directory, sorted; none when it cannot be read."""
        try:
            return sorted(p.name for p in self.path(name).iterdir())
        except OSError:
            return []

    def exists(self, name: str) -> bool:
        """True if the file is there."""
        return self.path(name).exists()

    def keyed(self, name: str) -> dict[str, int]:
        """A file of lines "key value" or "key: value [unit]"; lines that are not so are left out."""
        return numbers_of(self.text(name) or "")


def numbers_of(text: str) -> dict[str, int]:
    """The lines "key value" and "key: value [unit]" of ``text``."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*([^\s:]+):?\s+(-?[0-9]+)\b", line)
        if match:
            found[match.group(1)] = int(match.group(2))
    return found


def dirtyable_pages(machine: Machine) -> int | None:
    """What vm.dirty_ratio is a share of, by the formula of mm/page-writeback.c; None without zoneinfo.

    Free pages above the reserve, and the file LRU lists: global_dirtyable_memory()
    and, for the reserve, calculate_totalreserve_pages() of mm/page_alloc.c.
    """
    zones = (machine.text("/proc/zoneinfo") or "").split("Node ")[1:]
    vmstat = machine.keyed("/proc/vmstat")
    if not zones or "nr_inactive_file" not in vmstat:
        return None
    reserve = 0
    for zone in zones:
        values = numbers_of(zone.partition("pagesets")[0])  # each CPU's has a "high", too
        protection = re.search(r"protection: \(([0-9, ]*)\)", zone)
        lowmem = max((int(n) for n in protection.group(1).split(",")), default=0) if protection else 0
        reserve += min(lowmem + values.get("high", 0), values.get("managed", lowmem))
    free = vmstat.get("nr_free_pages", 0)
    return free - min(free, reserve) + vmstat["nr_inactive_file"] + vmstat.get("nr_active_file", 0) + 1


@dataclass(frozen=True)
class Dirty:
    """Dirty memory and what limits it, in bytes. freerun: nobody sleeps below it."""

    dirty: int
    writeback: int
    limit: int
    background: int

    @property
    def freerun(self) -> int:
        """(limit + background) / 2, dirty_freerun_ceiling() of mm/page-writeback.c."""
        return (self.limit + self.background) // 2

    @property
    def throttled(self) -> int:
        """What is compared with the limit: dirty and under writeback."""
        return self.dirty + self.writeback


def dirty(machine: Machine) -> Dirty | None:
    """The state of dirty memory; None when /proc/vmstat does not tell."""
    v = machine.keyed("/proc/vmstat")
    if not {"nr_dirty", "nr_writeback", "nr_dirty_threshold", "nr_dirty_background_threshold"} <= v.keys():
        return None
    return Dirty(v["nr_dirty"] * PAGE, v["nr_writeback"] * PAGE, v["nr_dirty_threshold"] * PAGE,
                 v["nr_dirty_background_threshold"] * PAGE)


def sysfs_name(name: str) -> str:
    """A disk's name as sysfs has it: etherd/e0.0 of /dev and /proc/diskstats is /sys/block/etherd!e0.0."""
    return name.replace("/", "!")


def dev_name(name: str) -> str:
    """A disk's name in /sys/block as /dev, /proc/diskstats and udev's KERNEL have it."""
    return name.replace("!", "/")


def disk_of(machine: Machine, dev: str) -> str | None:
    """Name in /sys/block of the disk that the block device ``dev`` ("8:1") is or is a part of."""
    link = machine.path(f"/sys/dev/block/{dev}")
    if not link.exists():
        return None
    real = link.resolve()
    return real.parent.name if (real / "partition").exists() else real.name


def nvme_head(name: str) -> str | None:
    """Of the hidden disk of one path, nvme0c1n1, what users see, nvme0n1: only the path has a queue with wbt."""
    match = re.fullmatch(r"(nvme\d+)c\d+(n\d+)", name)
    return f"{match[1]}{match[2]}" if match else None


def takes_requests(machine: Machine, disk: str) -> bool:
    """True if ``disk`` has a queue of requests, and is not one that hands on bios as they come (md, LVM, LUKS).

    Multipath of the device mapper has one, and its paths refuse requests that are above their own limits.
    """
    return machine.exists(f"/sys/block/{disk}/mq")


def lower_disks(machine: Machine, disk: str) -> list[str]:
    """The disks at the bottom of ``disk`` (device mapper, md, multipath NVMe): itself when nothing is below."""
    if takes_requests(machine, disk):
        return [disk]
    slaves = machine.names(f"/sys/block/{disk}/slaves")
    if not slaves:
        # To look for its paths at every disk would be quadratic.
        names = machine.names("/sys/block") if re.fullmatch(r"nvme\d+n\d+", disk) else []
        return [n for n in names if nvme_head(n) == disk] or [disk]
    found: dict[str, None] = {}
    for slave in slaves:
        dev = machine.text(f"/sys/block/{disk}/slaves/{slave}/dev")
        below = disk_of(machine, dev) if dev else None
        if below and below != disk:
            found |= dict.fromkeys(lower_disks(machine, below))
    return list(found) or [disk]


def in_container(machine: Machine) -> str:
    """What tells that this is a container, whose settings are the host's; empty when nothing does."""
    found = next((f for f in CONTAINER if machine.exists(f)), None)
    if found:
        return f"{found} is there; if it is none, remove that file"
    pids = machine.path("/proc/self/ns/pid")  # not there: a kernel without such namespaces
    return "its PID namespace is not the host's" if pids.is_symlink() and str(pids.readlink()) != HOST_PIDS else ""
