# SPDX-License-Identifier: GPL-2.0
"""Suites: named lists of (case, axes) that ``wb bench``, ``wb demo`` and the checks run."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wblib.base.lines import LTS
from wbtop.errors import WbError

from . import axes as ax
from . import zoo


@dataclass(frozen=True)
class Job:
    """One run to do. axes: validated, all of them; kernel: stock, patched or tree."""

    case: str
    axes: dict[str, str]
    seed: int
    kernel: str


@dataclass(frozen=True)
class Cell:
    """One case with all its axes."""

    case: str
    axes: dict[str, str]


@dataclass(frozen=True)
class Suite:
    """A named list of cells; ``seeds`` is how many ``wb bench`` takes unless told otherwise."""

    name: str
    help: str
    cells: tuple[Cell, ...]
    seeds: int = 1

    def wall_s(self) -> int:
        """Estimated seconds on one core for one seed and one kernel."""
        return sum(ax.wall_s(c.case, c.axes) for c in self.cells)


def cell(words: str) -> Cell:
    """A cell from "CASE axis=value ...", other axes at their defaults."""
    name, *pairs = words.split()
    return Cell(name, ax.validate(name, dict(p.split("=", 1) for p in pairs)))


def _cells(*lines: str) -> tuple[Cell, ...]:
    # Where wb is installed without the selftests, as in a guest, there are no cases.
    return tuple(cell(line) for line in lines) if ax.CASES else ()


# The four incidents.  With wbt off as well: the kernel of the 2017 report had none.
_DEMO = _cells(
    "dirty-limits",
    "ext4-nodelalloc",
    "dirty-ratio-dd",
    "read-latency writer=idle",
    "read-latency writer=direct",
    "read-latency writer=buffered",
    "read-latency writer=buffered wbt=off",
)

# The project's reference table: first measured on a prototype of the simplest disk.
_REFERENCE = _cells(*(f"read-latency disk=fifo reader-prio=normal {line}" for line in (
    "writer=idle",
    "writer=direct",
    "wbt=off",
    "sched=mq-deadline wbt=off",
    "writer=buffered",
    "sched=mq-deadline",
    "sched=kyber",
    "sched=bfq",
    "sched=kyber max-sectors-kb=128",
    "max-sectors-kb=128",
)))

# 20 readers as fast as they can.  At 100 MB/s a 4-KiB read occupies the link for
# 41 us, so 24400 IOPS at most: a third of what the guest's CPU could do.
_SATURATING = _cells(*(
    f"read-latency disk={disk} disk-set=link_mbps=100 readers=20 rate=0 mib=256 runtime=6 writer={writer} wbt={wbt}"
    for disk in ("fifo", "sata")
    for writer, wbt in (("idle", "default"), ("direct", "default"), ("buffered", "off"), ("buffered", "default"))
))


def _matrix() -> Iterator[str]:
    """Everything that changes what is measured; combinations that would repeat another are left out."""
    for readers, disk, fs, sched, writer, wbt, sectors in itertools.product(
        ("readers=4 rate=1000", "readers=20 rate=200"), ("sata", "nvme", "hdd"), ("xfs", "ext4"),
        ("none", "mq-deadline", "kyber", "bfq"), ("idle", "direct", "buffered", "fsync"),
        ("default", "off"), ("default", "128"),
    ):
        if wbt == "off" and (sched == "bfq" or writer in ("idle", "direct")):
            continue  # bfq disables wbt; wbt ignores O_DIRECT
        if sectors == "128" and writer == "idle":
            continue  # 4-KiB reads are below any limit
        yield (f"read-latency {readers} disk={disk} fs={fs} sched={sched} writer={writer} wbt={wbt} "
               f"max-sectors-kb={sectors}")


# What one can have today by turning knobs: the competitors of any change.  1280 KiB
# is the kernel's own max_sectors_kb; a queue of 4 is what a driver can be told.
_PEERS = _cells(*(
    f"read-latency disk={disk} {peer} {knob}"
    for disk in ("fifo", "sata")
    for peer in ("sched=none", "sched=mq-deadline", "sched=mq-deadline sched-set=fifo_batch=1",
                 "sched=mq-deadline sched-set=async_depth=4", "sched=kyber", "sched=bfq", "sched=none iocost=on")
    for knob in ("max-sectors-kb=128", "max-sectors-kb=1280", "disk-set=queue_depth=4")
))

# What a change of throttling in the block layer is accepted by: better where a
# reader waits, and no worse where nobody does.
_BLOCK = _cells(*(f"read-latency {line}" for line in (
    *(f"disk={disk} sched={sched} fs={fs}" for disk in ("fifo", "sata") for sched in ("none", "mq-deadline")
      for fs in ("xfs", "ext4")),
    "disk=fifo disk-set=max_io_kib=4096 max-sectors-kb=4096",
    "disk=fifo writer=fsync",
    "disk=fifo writer=direct",
    "disk=nvme",
    "disk=hdd mib=256",
    *(f"disk={disk} readers=0 runtime=1" for disk in ("fifo", "sata", "nvme")),
    "disk=hdd readers=0 mib=256 runtime=1",
    *(f"disk={disk} probe=fsync" for disk in ("fifo", "sata")),
    *(f"disk=fifo stack={stack}" for stack in ("linear", "raid0")),
)))

# Both lanes side by side ('wb lanes'): devices with few and many tags, slow links and long latencies,
# readers that wait and readers that do not, with and without what the block layer does about them.
_LANES = _cells(*(f"read-latency reader=open mib=256 {line}" for line in (
    *(f"disk={disk} writer={writer}" for disk in ("fifo", "sata", "nvme") for writer in ("idle", "direct", "buffered")),
    *(f"disk={disk} wbt=off" for disk in ("fifo", "sata", "nvme")),
    "disk=sata sched=mq-deadline",
    "disk=sata sched=kyber",
    "disk=sata sched=bfq",
    "disk=sata fs=ext4",
    "disk=sata writer=fsync",
    "disk=sata reader-prio=normal",
    "disk=fifo disk-set=queue_depth=1,link_mbps=587 readers=8 rate=100",
    "disk=fifo disk-set=queue_depth=1,link_mbps=587 readers=8 rate=100 reader-prio=normal",
    "disk=fifo disk-set=queue_depth=1023,latency_ns=1000000",
    "disk=hdd rate=10",
)))

# Documentation/guide.md: published limits of dirty memory on each disk.  Each is the
# second load of its guest, so that no limit is charged with a first one's cold caches
# and estimates; the first load has the kernel's own limits.
_DEFAULT = "vm.dirty_background_ratio=10,vm.dirty_ratio=20"
_MIB = 1 << 20
LIMITS = {
    "10/20 %": _DEFAULT,
    "10/40 %": "vm.dirty_background_ratio=10,vm.dirty_ratio=40",
    "3/10 %": "vm.dirty_background_ratio=3,vm.dirty_ratio=10",
    "64/512 MiB": f"vm.dirty_background_bytes={64 * _MIB},vm.dirty_bytes={512 * _MIB}",
    "16/48 MiB": f"vm.dirty_background_bytes={16 * _MIB},vm.dirty_bytes={48 * _MIB}",
}
_GUIDE_MIB = {"fifo": 1024, "sata": 1024, "nvme": 1024, "hdd": 512, "usb": 256}
# A stick in machines of several sizes: the kernel's limits, then 3 s of the stick.
_GUIDE = _cells(*(
    f"tune-replay disk={disk} mib={mib} held=1 before={_DEFAULT} after={limits}"
    for limits in LIMITS.values() for disk, mib in _GUIDE_MIB.items()
), *(
    f"tune-replay disk=usb readers=0 mib=1024 held=1 ram={ram} before={_DEFAULT} "
    f"after=bdi.max_bytes={27 * _MIB},bdi.strict_limit=1"
    for ram in (1024, 2048, 4096, 8192)
))
_MATRIX = _cells(*_matrix())
_CASES = _cells(*(f"{c.name} {c.once}" for c in ax.CASES.values()))

# What breaks first under a power cut, a fault or a race.  The short one is for the
# kernels where it is slow (debug) or only the baseline (stock).
_STRESS = _cells(
    "powercut cuts=56",
    "log-writes configs=6 points=40",
    "ext4-powercut cuts=10",
    "ext4-fastcommit",
    "ext4-fastcommit replay=e2fsck",
    "ext4-names rounds=63",
    "ext4-names rounds=21 journal=plain",
    "ext4-model ops=4000 formats=all",
    "ext4-torture rounds=28",
    "ext4-torture rounds=28 faults=all",
    "dirty-stress runtime=30",
    "wbt-stress runtime=60 removals=10",
    "faults",
    "faults-wait",
    "races runtime=60",
    "fuzz values=200",
    "foreign stressors=all dbench-s=5",
)
_STRESS_SHORT = _cells(
    "powercut cuts=28",
    "log-writes",
    "ext4-powercut",
    "ext4-fastcommit",
    "ext4-names",
    "ext4-model",
    "ext4-torture",
    "ext4-torture rounds=10 faults=all",
    "dirty-stress",
    "wbt-stress",
    "faults",
    "races",
    "fuzz values=12",
    "foreign fs=ext4",
)
# About 50 times slower than in the exact lane otherwise.
_STRESS_KCSAN = _cells("races")
# Guest time in hours.
_ENDURANCE = _cells("soak hours=4", "wbt-stress runtime=1200 removals=20", "dirty-stress runtime=1200")


def _union(*groups: Iterable[Cell]) -> tuple[Cell, ...]:
    found: list[Cell] = []
    for one in itertools.chain(*groups):
        if one not in found:
            found.append(one)
    return tuple(found)


SUITES = {s.name: s for s in (
    Suite("smoke", "the disk's own tests and one short read-latency run", _cells(
        "wbdisk-kunit", "wbdisk", "read-latency disk=fifo mib=256 runtime=1")),
    Suite("cases", "every case once, with its own assertions", _CASES),
    Suite("demo", "the four published incidents", _DEMO),
    Suite("reference", "the reference table: fifo disk, XFS, readers of normal priority", _REFERENCE, 5),
    Suite("saturating", "20 readers as fast as they can on a link of 100 MB/s", _SATURATING, 3),
    Suite("peers", "today's knobs: schedulers, their attributes, io.cost, request size, queue depth", _PEERS, 5),
    Suite("block", "acceptance of throttling: disks, fs, schedulers, large requests, no readers, fsync, stacks", _BLOCK,
          5),
    Suite("lanes", "cells that 'wb lanes' runs in the exact and in the fast lane", _LANES),
    Suite(zoo.SUITE, "devices that people have, with the source of each one's numbers", _cells(*zoo.lines()), 3),
    Suite("guide", "limits of dirty memory as published, on each disk; a stick in machines of several sizes", _GUIDE),
    Suite("read-latency", "the matrix: readers, disks, file systems, schedulers, writers, wbt, request sizes", _MATRIX),
    Suite("all", "all of the above", _union(_CASES, _DEMO, _REFERENCE, _SATURATING, _PEERS, _BLOCK, _GUIDE, _MATRIX)),
    Suite("stress", "power cuts, faults, races: what 'wb stress' runs on the patched kernel", _STRESS, 4),
    Suite("stress-short", "the same, less of each: for the debug and the stock kernel", _STRESS_SHORT),
    Suite("stress-kcsan", "what needs two CPUs, for the kernel with KCSAN", _STRESS_KCSAN),
    Suite("endurance", "4 hours of changing load, 20 minutes of each stress case", _ENDURANCE, 1),
)}


def suite(name: str) -> Suite:
    """The suite ``name``; WbError (code 2) with the nearest name when there is none."""
    if name not in SUITES:
        raise ax.unknown("suite", name, SUITES)
    return SUITES[name]


def seeds(text: str) -> list[int]:
    """"5" = seeds 1 to 5; "1,7" and "3-6" as they say. WbError (code 2) for anything else."""
    if re.fullmatch(r"[0-9]{1,4}", text):
        if 1 <= int(text) <= 1000:
            return list(range(1, int(text) + 1))
        raise WbError(f"--seeds {text}: must be 1..1000 seeds, or a list such as 1,7 or 3-6", 2)
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if not match:
            raise WbError(f"--seeds '{text}': must be a number of seeds, or a list such as 1,7 or 3-6", 2)
        low, high = ax.check_seed(match[1]), ax.check_seed(match[2] or match[1])
        if not low <= high < low + 1000:
            raise WbError(f"--seeds '{text}': {part} is not a range of 1..1000 seeds", 2)
        found |= dict.fromkeys(range(low, high + 1))
    return list(found)


def jobs(cells: Iterable[Cell], kernels: Sequence[str], seed_list: Sequence[int]) -> list[Job]:
    """All runs of a suite: seed by seed, the kernels next to each other, so that an early stop is still useful.

    Without those that ``left_out`` names.
    """
    cell_list = list(cells)
    return [Job(c.case, dict(c.axes), seed, kernel) for seed in seed_list for c in cell_list for kernel in kernels
            if _runs_on(c.case, kernel)]


def _runs_on(case: str, kernel: str) -> bool:
    needs = ax.case(case).needs_series
    name, _, line = kernel.partition("@")
    return not needs or (name != "stock" and needs in ("all", line or LTS))


def in_lane(lane: str, job: Job) -> Job | None:
    """``job`` as it is run in ``lane``, None where it would measure nothing.

    In the fast lane fio's readers, which spin while they wait, take minutes: open_reader instead.
    """
    if lane != "fast":
        return job
    if ax.case(job.case).not_fast:
        return None
    if job.axes.get("reader") == "fio" and job.axes["rate"] != "0" and job.axes["trace-control"] == "0":
        return replace(job, axes=job.axes | {"reader": "open"})
    return job


def left_out(cells: Iterable[Cell], kernels: Sequence[str], lane: str = "exact") -> list[str]:
    """A line for each case that ``jobs`` leaves out on one of ``kernels``, or ``in_lane`` in the fast lane."""
    names = list(dict.fromkeys(c.case for c in cells))
    return [f"{kernel} {case}: left out, it tests what the series changes"
            + ("" if ax.case(case).needs_series == "all" else f" on {ax.case(case).needs_series}")
            for case in names for kernel in kernels if not _runs_on(case, kernel)] + \
           [f"{case}: left out of the fast lane, {ax.case(case).not_fast}"
            for case in names if lane == "fast" and ax.case(case).not_fast]
