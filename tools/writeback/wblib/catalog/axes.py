# SPDX-License-Identifier: GPL-2.0
"""The cases and their axes, in one place: ``wb list``, ``wb run``, the suites and the docs use it.

A case is a script CASE.sh in the kselftest directory; an axis is one of its
--name=value options.  Values are strings everywhere, as on a command line.
"""

import argparse
import difflib
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wblib.base.proc import sha256_text
from wbtop.errors import WbError

SLUG_MAX = 200
# Wall seconds of a second of guest time in which the CPU is never idle; an idle one costs nothing.
BUSY_S = 4
SEED_MAX = 999_999_999  # nine digits: what functions.sh takes, and fits QEMU's -seed and fio's randseed


@dataclass(frozen=True)
class Axis:
    """One option of a case.

    choices: the words allowed.  low, high: when given, a number between them
    is allowed too.  pattern: when given, so is a value that matches all of it.
    omit: the value that is said by leaving the option out.  main: always part
    of the guest's command line and of the result's directory; the others only
    when they differ from the default.  wall_s: what one more than the default
    adds to the case's wall_s.
    """

    name: str
    default: str
    help: str
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    unit: str = ""
    pattern: str = ""
    pattern_help: str = ""
    main: bool = False
    omit: str = ""
    wall_s: int = 0

    def allowed(self) -> str:
        """The allowed values in words, for help and errors."""
        parts = list(self.choices)
        if self.pattern_help:
            parts.append(self.pattern_help)
        if self.low is not None:
            parts.append(f"{self.low}..{self.high}" + (f" {self.unit}" if self.unit else ""))
        return "|".join(parts)

    def check(self, value: str) -> str:
        """Return ``value`` in its canonical form; WbError (code 2) when it is not allowed."""
        if value in self.choices or (self.pattern and re.fullmatch(self.pattern, value)):
            return value
        number = int(value) if re.fullmatch(r"[0-9]{1,12}", value) else -1
        if self.low is not None and self.high is not None and self.low <= number <= self.high:
            return str(number)
        raise WbError(f"--{self.name} {value or repr('')}: must be {self.allowed()}{_hint(value, self.choices)}", 2)


@dataclass(frozen=True)
class Case:
    """One case: what it measures and what one run of it costs.

    guest_mib: RAM of the guest, which an axis "ram" overrides.  wall_s: about how long one seed takes on one
    core, for the first estimate of the time left.  needs_series: it tests what
    the series changes, so that on the stock kernel it fails or skips; suites
    leave it out there.  python: its guest has python3 and wb, as /opt/wb/wb.
    foreign: its guest has the programs of guest.FOREIGN.  smp: its virtual
    CPUs in the exact lane.  not_fast: why it says nothing in the fast lane.
    """

    name: str
    help: str
    incident: str
    axes: tuple[Axis, ...]
    guest_mib: int = 2048
    wall_s: int = 40
    needs_series: bool = False
    python: bool = False
    foreign: bool = False
    smp: int = 1
    not_fast: str = ""

    def axis(self, name: str) -> Axis:
        """The axis ``name``; WbError (code 2) with the nearest name when there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        names = [a.name for a in self.axes]
        known = ", ".join(f"--{n}" for n in names) or "no axes"
        raise WbError(f"{self.name} has no axis --{name}: it has {known}{_hint(name, names, '--')}", 2)


def _hint(word: str, options: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def unknown(kind: str, word: str, options: Iterable[str]) -> WbError:
    """The one-line error for a ``word`` that is none of ``options``, with the nearest one."""
    names = list(options)
    return WbError(f"unknown {kind} '{word}': choose from {', '.join(names)}{_hint(word, names)}", 2)


PROFILES = ("sata", "nvme", "hdd", "fifo", "usb")


_PAIRS = r"([a-z_]+=[a-z0-9_]+(,[a-z_]+=[a-z0-9_]+)*)?"


# The keys that there are: SETTING_RE of lib-tune.sh.
_SETTING = r"(vm|queue|bdi)\.[a-z_]+=[a-z0-9-]+"
_SETTINGS = rf"({_SETTING}(,{_SETTING})*)?"


def _disk(default: str) -> tuple[Axis, Axis]:
    return Axis(
        "disk", default,
        "disk model (wbdisk profile sata-ssd, nvme-ssd, hdd, fifo, usb-stick), or a device of the functional lane",
        choices=PROFILES, pattern=r"dev:/dev/[A-Za-z0-9_/-]+", pattern_help="dev:/dev/X", main=True,
    ), Axis(
        "disk-set", "", "attributes of the modelled disk to override",
        pattern=_PAIRS, pattern_help="ATTR=VALUE,...",
    )


# Why a case says nothing in the fast lane.
_SPINS = "where fio, which spins while it waits, takes minutes"
_RECLAIM = "where a cgroup's reclaim gives up before any time has passed"

# Background/limit in percent, limit/background in MB: the order of the study.
DIRTY_ROWS = ("10_20", "5_10", "2_4", "1_2", "1000mb_500mb", "500mb_250mb", "100mb_50mb")
_FS = Axis("fs", "xfs", "file system of the disk", ("xfs", "ext4"))

_CASES = (
    Case(
        "read-latency",
        "latency of rate-limited random readers while one file is written, then synced",
        "Cloudflare 2017: buffered writeback takes reads from 0.8 to 64 ms at p99.95",
        (
            *_disk("sata"),
            Axis("fs", "xfs", "file system of the disk; btrfs has a kernel of its own",
                 ("xfs", "ext4", "btrfs"), main=True),
            Axis("sched", "none", "I/O scheduler of the disk", ("none", "mq-deadline", "kyber", "bfq"), main=True),
            # block/blk-wbt.c: 2 ms without, 75 ms with rotating media
            Axis("wbt", "default", "wbt_lat_usec: the kernel's default, off, or a target for reads in us",
                 ("default", "off"), 1, 10_000_000, "us", main=True),
            Axis("writer", "buffered", "what writes: nothing, dd with O_DIRECT, plain dd, dd that ends with fsync; "
                 "suite: idle, direct, buffered with wbt off and on in one guest, and the replay asserted",
                 ("idle", "direct", "buffered", "fsync", "suite"), main=True, omit="suite"),
            Axis("readers", "4", "number of fio readers (psync, O_DIRECT, 4 KiB, random); 0 = only the writer", (),
                 0, 64),
            Axis("reader", "fio", "fio, whose readers each wait for their last read, or open: each read when it is due",
                 ("fio", "open")),
            Axis("rate", "1000", "Poisson rate of each reader; 0 = as fast as they can", (), 0, 1_000_000, "IOPS"),
            Axis("mib", "1024", "size of the file written", (), 1, 16384, "MiB"),
            Axis("max-sectors-kb", "default", "largest request the block layer sends", ("default",), 4, 4096, "KiB"),
            Axis("reader-prio", "fifo", "readers' policy: SCHED_FIFO keeps CPU sharing out of the latency",
                 ("fifo", "normal")),
            Axis("runtime", "4", "seconds the readers run", (), 1, 600, "s"),
            Axis("policy", "default", "wbt_policy, what wbt limits: as the kernel sets it, bytes, or requests, "
                 "all that a stock kernel has; without the file bytes is skipped", ("default", "bytes", "requests")),
            Axis("sched-set", "", "attributes of the I/O scheduler to set (queue/iosched)",
                 pattern=_PAIRS, pattern_help="ATTR=VALUE,..."),
            Axis("iocost", "off", "io.cost on the disk, readers and writer in a cgroup each; turns wbt off",
                 ("off", "on")),
            Axis("stack", "none", "what the file system is on: the disk, dm-linear over it, a RAID0 of two such disks",
                 ("none", "linear", "raid0")),
            Axis("trace-control", "0", "record bytes in flight, limit and every read over time, for 'wb plot control'",
                 ("0", "1")),
            Axis("probe", "none", "beside the writer: append 4 KiB and fsync, 100 times a second", ("none", "fsync")),
        ),
        wall_s=25,
    ),
    Case(
        "dirty-ratio-dd",
        "apparent and fdatasync speed of dd with vm.dirty_ratio 40 and 20",
        "SUSE TID 7015931: dd 313 against 247 MB/s, with fdatasync 119 against 115",
        (*_disk("fifo"), _FS),
        wall_s=80,
        not_fast="where memory has no speed to compare the disk's with",
    ),
    Case(
        "dirty-limits",
        "peak of dirty + writeback pages against the threshold of the same moment, 7 settings",
        "OSM import study: peak Dirty for dirty_background/dirty 10/20 % ... 50/100 MB",
        (*_disk("fifo"), _FS, Axis("row", "all", "one setting of the study, or all", ("all", *DIRTY_ROWS))),
        # the row 1000/500 MB is only meaningful when 1 GB is below what is dirtyable
        guest_mib=4608,
        wall_s=120,
    ),
    Case(
        "ext4-nodelalloc",
        "cp and dd on ext4 with delalloc, nodelalloc, and nodelalloc,dioread_nolock",
        "Alibaba Cloud Linux 2: 28 MB/s under nodelalloc,dioread_nolock",
        (*_disk("fifo"),
         Axis("mounts", "all", "one set of mount options, or all",
              ("all", "delalloc", "nodelalloc", "nodelalloc,dioread_nolock", "4.19")),
         Axis("dd-mib", "500", "size of the file that dd writes", (), 1, 16384, "MiB"),
         Axis("cp-mib", "2064", "size of the file that cp writes, above 2 GiB as published; 0 = no cp", (), 0, 16384,
              "MiB")),
        wall_s=260,
    ),
    Case(
        "ext4-cost",
        "CPU time and speed of buffered writes to ext4 without delayed allocation, against with it",
        "none: tests allocation ahead of the copy; skips on a kernel without it",
        (Axis("mib", "256", "size of each file written", (), 1, 16384, "MiB"),
         Axis("disk-set", "", "attributes of the modelled disk to override",
              pattern=_PAIRS, pattern_help="ATTR=VALUE,...")),
        wall_s=120,
        not_fast="where computing costs nothing",
        needs_series=True,
    ),
    Case(
        "ext4-commit",
        "fsync of a small file on ext4 while another one is dirty, and of many tasks at once",
        "none: tests dioread_nolock with nodelalloc; fails on the stock kernel, which ignores it",
        (Axis("dirty-mib", "143", "what is dirty in another file", (), 1, 9999, "MiB"),
         Axis("writers", "32", "tasks that write 16 KiB and fsync; 0 = no such test", (), 0, 999),
         Axis("runtime", "3", "seconds they run", (), 1, 600, "s")),
        not_fast="where computing, which bounds its many writers, costs nothing (without them: --writers 0)",
        wall_s=50,
        needs_series=True,
    ),
    Case(
        "ext4-shape",
        "splits at the end of I/O, extents, st_blocks and remounts of ext4 with nodelalloc,dioread_nolock",
        "none: tests appends beside writeback; skips on a kernel that does not count splits",
        (Axis("mib", "256", "size of the file appended to", (), 1, 9999, "MiB"),),
        wall_s=30,
        needs_series=True,
    ),
    Case(
        "ext4-powercut",
        "what new, replaced and fsynced files on ext4 hold after a power cut",
        "none: with nodelalloc,dioread_nolock no worse than with delalloc; skips where that is ignored",
        (Axis("cuts", "3", "how many moments of each set of mount options the power is cut at", (), 1, 99),),
        wall_s=60,
        needs_series=True,
    ),
    Case(
        "ext4-kunit",
        "KUnit suite of ext4's extents: insert, merge, split, convert",
        "none: tests rules of dioread_nolock with nodelalloc; skips on a kernel without the suite",
        (),
        wall_s=10,
        needs_series=True,
    ),
    Case(
        "powercut",
        "power cuts at random moments of random work on ext4 and XFS: fsync'd data, no foreign blocks, fsck",
        "none: looks for lost and stale data",
        (Axis("cuts", "14", "how often the power is cut", (), 1, 999),
         Axis("config", "all", "format and mount options, all in turn or one",
              ("all", "xfs:4k", "xfs:1k",
               *(f"{f}:{m}" for f in ("plain", "1k", "bigalloc", "quota")
                 for m in ("delalloc", "nodelalloc", "nodelalloc,dioread_nolock"))))),
        wall_s=90,
    ),
    Case(
        "log-writes",
        "ext4 replayed from the log of its writes to each flush: journal, no foreign blocks, e2fsck",
        "none: looks for lost and stale data",
        (Axis("points", "8", "flushes looked at for each configuration", (), 1, 9999),
         Axis("configs", "2", "how many configurations", (), 1, 6)),
        wall_s=90,
    ),
    Case(
        "ext4-model",
        "random operations on ext4 against a model in memory, with several file system formats",
        "none: looks for lost, stale or misplaced data",
        (Axis("ops", "1000", "operations for each format and set of mount options", (), 1, 999999),
         Axis("formats", "short", "formats: plain, 1k and quota, or all", ("short", "all"))),
        wall_s=60,
    ),
    Case(
        "ext4-torture",
        "random work on ext4 while mount options, latency, free space and more change; power cuts, write errors",
        "none: looks for lost, stale or misplaced data; fails on the stock kernel, whose bugs it finds",
        (Axis("rounds", "14", "how many rounds", (), 1, 9999),
         Axis("first", "0", "number of the first round", (), 0, 9999),
         Axis("ms", "2500", "length of a round", (), 100, 999999, "ms"),
         Axis("faults", "no", "may rounds end with a disk that refuses accesses", ("no", "yes")),
         Axis("format", "all", "format, all in turn or one",
              ("all", "plain", "1k", "quota", "bigalloc", "encrypt", "fast_commit", "inline_1k", "nojournal"))),
        needs_series=True,
        wall_s=60,
    ),
    Case(
        "ext4-endio",
        "ext4 with no block left for a split, and with write errors: the data or an error, never old data",
        "none: fails on the stock kernel, which loses data and lets fsync return 0",
        (Axis("part", "all", "one part, or all",
              ("all", "nospace", "convert", "ioerror", "remount", "switch", "zeroed", "discarded", "page", "quota")),),
        wall_s=60,
        needs_series=True,
    ),
    Case(
        "ext4-inline",
        "files that leave the inode (inline_data), with what was written before and after compared",
        "none: fails on the stock kernel, where old content comes back",
        (),
        wall_s=40,
        needs_series=True,
    ),
    Case(
        "tune-replay",
        "readers and a writer on one disk with two lists of settings, before and after: 'wb tune --simulate'",
        "none: compares settings",
        (
            *_disk("fifo"), _FS,
            Axis("before", "queue.scheduler=mq-deadline", "settings of the first run: vm.dirty_*, queue.*, bdi.*",
                 pattern=_SETTINGS, pattern_help="KEY=VALUE,..."),
            Axis("after", "queue.scheduler=none,queue.max_sectors_kb=128", "settings of the second run",
                 pattern=_SETTINGS, pattern_help="KEY=VALUE,..."),
            Axis("readers", "4", "number of fio readers (psync, O_DIRECT, 4 KiB, random); 0 = only the writer", (),
                 0, 64),
            Axis("probe", "none", "beside the writer: append 4 KiB and fsync, 100 times a second", ("none", "fsync")),
            Axis("mib", "256", "size of the file written", (), 1, 16384, "MiB"),
            Axis("held", "0", "trace how long the writer sleeps in balance_dirty_pages", ("0", "1")),
            Axis("ram", "2048", "memory of the guest", (), 512, 65536, "MiB"),
        ),
        wall_s=40,
        not_fast=_SPINS,
    ),
    Case(
        "tune",
        "wb tune in the guest: measure, apply, the same load again, undo",
        "none: the recommendation must make the load better, and undo restore every value",
        (
            *_disk("fifo"), _FS,
            Axis("goal", "read-latency", "what to tune for", ("read-latency", "unplug", "database")),
            Axis("mib", "1024", "size of the file that the load writes", (), 1, 16384, "MiB"),
        ),
        wall_s=90,
        python=True,
        not_fast=_SPINS,
    ),
    Case(
        "watch",
        "wb watch in the guest: names the task, cgroup and limit, and leaves tracing as it was",
        "none: tests wb watch",
        (*_disk("fifo"), _FS),
        wall_s=60,
        python=True,
        not_fast=_RECLAIM,
    ),
    Case(
        "wbt-stress",
        "every setting of writeback throttling and its disks changed at random under load, then removal of the disks",
        "none: looks for hangs, splats, lost data and lost charges",
        (
            Axis("profile", "sata", "modelled disk", PROFILES, main=True),
            Axis("runtime", "20", "seconds of changes under load", (), 1, 9999, "s", wall_s=BUSY_S),
            Axis("removals", "3", "how often the disks are removed under load", (), 0, 99),
            Axis("cpus", "1", "take CPUs offline, too, if there are several", ("0", "1")),
        ),
        wall_s=120,
        not_fast="where a loop that never sleeps takes no time, so its seconds never end",
    ),
    Case(
        "wbt-fixes",
        "throttling by requests: empty flushes, writes that someone waits for, depth without a scheduler",
        "none: tests three fixes; fails on the stock kernel, whose defects it shows",
        (*_disk("sata"), _FS),
        not_fast="where its 32 writers do not all come to wait, for a reason not found yet",
        wall_s=60,
        needs_series=True,
    ),
    Case(
        "wbt-bytes",
        "throttling by bytes: attributes, and the bound that readers rely on, on three disks and two stacks",
        "none: tests wbt_policy=bytes; skips on a kernel without it",
        (),
        not_fast=_SPINS,
        wall_s=60,
        needs_series=True,
    ),
    Case(
        "wbt-order",
        "throttling by bytes: who passes what is held back, and who is exempt",
        "none: tests wbt_policy=bytes; skips on a kernel without it",
        (),
        not_fast=_SPINS,
        wall_s=40,
        needs_series=True,
    ),
    Case(
        "wbt-account",
        "throttling by bytes: the accounting is back at zero after errors, timeouts, discards, merges and removal",
        "none: tests wbt_policy=bytes; skips on a kernel without it",
        (),
        not_fast="where it takes longer than in the exact lane",
        wall_s=30,
        needs_series=True,
    ),
    Case(
        "wbt-kunit",
        "KUnit suite of throttling by bytes: its law in front of simulated disks",
        "none: tests wbt_policy=bytes; skips on a kernel without it",
        (),
        wall_s=10,
        needs_series=True,
    ),
    Case(
        "wbt-cost",
        "CPU time per O_DIRECT read and per page written on a null_blk, with throttling, without, and by policy",
        "none: what counting costs where there is nothing to throttle",
        (Axis("sched", "none", "I/O scheduler of the disk", ("none", "mq-deadline", "kyber")),),
        wall_s=40,
        not_fast="where computing costs nothing",
    ),
    Case(
        "dirty-fixes",
        "bytes of a device, strict limits, new cgroups, trace and a division by zero in the limits of dirty memory",
        "none: tests fixes; fails on the stock kernel, whose defects it shows (the last one is an Oops)",
        (Axis("oops", "1", "divide by zero, if the kernel does", ("0", "1")),),
        wall_s=90,
        needs_series=True,
        not_fast=_RECLAIM,
    ),
    Case(
        "dirty-accounting",
        "time that writers sleep for dirty memory as counted for system, cgroup, device and task, by cause",
        "SUSE TID 7015931, where only sampled stacks showed that dd was throttled",
        (),
        wall_s=30,
        needs_series=True,
        not_fast=_RECLAIM,
    ),
    Case(
        "dirty-time",
        "time limit of dirty data: thresholds, sync of a stick, a step in speed, two disks, quiet times, extents",
        "none: tests vm.dirty_drain_ms; without it, it measures what it can",
        (
            Axis("part", "all", "one part, or all",
                 ("all", "knobs", "off", "stick", "step", "lower", "beside", "quiet", "extents", "groups")),
            _FS,
            Axis("mib", "2048", "written to the stick", (), 10, 99_999, "MiB"),
        ),
        wall_s=160,
        needs_series=True,
    ),
    Case(
        "dirty-stress",
        "limits of dirty memory, cgroups, memory and devices changed at random under load",
        "none: looks for hangs, splats, lost data and counters that go backwards",
        (Axis("runtime", "6", "seconds of changes under load", (), 1, 9999, "s", wall_s=BUSY_S),),
        wall_s=60,
    ),
    Case(
        "faults",
        "EIO for data, journal and metadata, timeouts, removal, ENOSPC, EDQUOT: who is told, what is left (ext4, XFS)",
        "none: looks for errors that nobody or the wrong one hears of, and charges that stay",
        (Axis("part", "all", "one part, or all",
              ("all", "data", "hang", "journal", "meta", "remove", "full", "quota")),),
        wall_s=60,
    ),
    Case(
        "faults-wait",
        "stalls of 1 to 60 s, SIGKILL, little memory, freeze, remount, suspend: who waits how long (ext4, XFS)",
        "none: looks for hangs, for waits longer than the disk's own, and for charges that stay",
        (Axis("part", "all", "one part, or all",
              ("all", "stall", "kill", "memory", "freeze", "remount", "suspend")),),
        not_fast=_RECLAIM,
        wall_s=60,
    ),
    Case(
        "races",
        "disks made and removed by several tasks while others use them, CPUs taken offline, the module unloaded in use",
        "none: looks for hangs, splats and lost data",
        (Axis("runtime", "8", "seconds of it", (), 1, 9999, "s", wall_s=BUSY_S),),
        wall_s=40,
        smp=2,
        not_fast="which has one CPU",
    ),
    Case(
        "soak",
        "a long time of changing load, disks and cgroups: memory, slab and counters stay flat",
        "none: looks for leaks",
        (Axis("hours", "0", "how long, in guest time; 0: 480 s", (), 0, 99, "h", wall_s=40),),
        wall_s=40,
        needs_series=True,
    ),
    Case(
        "foreign",
        "fio's verify jobs, stress-ng, dbench, fs_mark on ext4 and XFS: compare two kernels",
        "none: looks for what fails on one kernel only",
        (Axis("stressors", "quick", "of stress-ng: those that write a lot, or all of its io and file system classes",
              ("quick", "all")),
         Axis("ops", "50", "operations of each stressor", (), 1, 999_999),
         Axis("dbench-s", "1", "seconds of dbench, each of two runs", (), 1, 9999, "s"),
         Axis("fs", "all", "file system", ("all", "ext4", "xfs"))),
        wall_s=90,
        foreign=True,
    ),
    Case(
        "fuzz",
        "random, huge, negative, empty and binary values for every attribute of the series and of wbdisk, under load",
        "none: looks for bad values that are taken, values that change when refused, and splats",
        (Axis("values", "24", "values for each attribute", (), 1, 99_999),),
        wall_s=40,
        needs_series=True,
    ),
    Case(
        "wbdisk",
        "the modelled disk itself: attributes, timing, faults, power cut, removal in use",
        "none: tests the test module",
        (),
        wall_s=60,
    ),
    Case(
        "wbdisk-kunit",
        "KUnit tests of the disk model's arithmetic",
        "none: tests the test module",
        (),
        wall_s=15,
    ),
)
CASES: dict[str, Case] = {c.name: c for c in _CASES}


def case(name: str) -> Case:
    """The case ``name``; WbError (code 2) with the nearest name when there is none."""
    if name not in CASES:
        raise unknown("case", name, CASES)
    return CASES[name]


def validate(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """All axes of case ``name``, in order, with ``given`` over the defaults.

    Raises WbError (code 2) for an unknown case or axis, or a value out of range.
    """
    the_case = case(name)
    for axis_name, value in given.items():
        the_case.axis(axis_name).check(value)
    return {a.name: a.check(given.get(a.name, a.default)) for a in the_case.axes}


def wall_s(name: str, axes: Mapping[str, str]) -> int:
    """About how long a run of case ``name`` takes on one core, with how long ``axes`` say that it lasts."""
    the_case = case(name)
    more = sum(a.wall_s * (int(axes[a.name]) - int(a.default)) for a in the_case.axes if a.wall_s and a.name in axes)
    return the_case.wall_s + more


def check_seed(text: str | int) -> int:
    """A seed as a number from 1 to SEED_MAX; WbError (code 2) for anything else."""
    if re.fullmatch(r"[0-9]{1,10}", str(text)) and 1 <= int(text) <= SEED_MAX:
        return int(text)
    raise WbError(f"seed '{text}': must be a number from 1 to {SEED_MAX}", 2)


def word(text: str) -> str:
    """``text`` as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)


def slug(name: str, axes: Mapping[str, str]) -> str:
    """A directory name for validated ``axes``: the main ones, then what differs from the default.

    The same axes always give the same name, whatever their order; a case
    without axes gives "default".
    """
    words = []
    for axis in case(name).axes:
        value = word(axes.get(axis.name, axis.default))
        if axis.main and value in axis.choices and value != "default" and axis.name != "wbt":
            words.append(value)
        elif axis.main or axes.get(axis.name, axis.default) != axis.default:
            words.append(f"{axis.name}-{value}")
    name = "-".join(words) or "default"
    # Room for suffixes in the 255 bytes of a file name; lists of settings are long.
    return name if len(name) <= SLUG_MAX else f"{name[:SLUG_MAX - 13]}-{sha256_text(name)[:12]}"


def guest_args(name: str, axes: Mapping[str, str], seed: int) -> list[str]:
    """Arguments of the guest's CASE.sh: main axes, the others where not default, and the seed."""
    words = []
    for axis in case(name).axes:
        value = axes.get(axis.name, axis.default)
        if (axis.main or value != axis.default) and value != axis.omit:
            words.append(f"--{axis.name}={value}")
    return [*words, f"--seed={seed}"]


def options(case: str, axes: Mapping[str, str]) -> list[str]:
    """The axes of a case as options of ``wb run``, those at their defaults left out."""
    known = {a.name: a.default for a in CASES[case].axes} if case in CASES else {}
    words: list[str] = []
    for name, value in axes.items():
        if known.get(name) != value:
            words += [f"--{name}", value]
    return words


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Folds each line of an option's help by itself: an axis can mean something else to each case."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [folded for line in text.splitlines() for folded in textwrap.wrap(line, width, break_on_hyphens=False)]


def add_axis_options(parser: argparse.ArgumentParser) -> None:
    """Add every axis of every case to ``parser``; ``given_axes`` reads them back.

    Values are checked later, by ``validate``, since they depend on the case.
    """
    group = parser.add_argument_group("axes", "which case has which, with defaults: 'wb list'")
    shown: dict[str, dict[str, list[str]]] = {}
    for the_case in CASES.values():
        for axis in the_case.axes:
            owners = shown.setdefault(axis.name, {}).setdefault(f"{axis.help}: {axis.allowed()}", [])
            owners.append(the_case.name)
    for name, meanings in shown.items():
        text = "\n".join(f"{meaning} (of {', '.join(owners)})" for meaning, owners in meanings.items())
        group.add_argument(f"--{name}", dest=f"axis:{name}", metavar="VALUE", help=text.replace("%", "%%"))


def given_axes(args: argparse.Namespace) -> dict[str, str]:
    """The axes given on a command line that ``add_axis_options`` described."""
    return {k.removeprefix("axis:"): v for k, v in vars(args).items() if k.startswith("axis:") and v is not None}


def describe(the_case: Case) -> str:
    """The text of ``wb list`` for one case."""
    lines = [f"{the_case.name}: {the_case.help}", f"    replays {the_case.incident}"]
    if the_case.needs_series:
        lines.append("    suites run it on patched and tree only")
    for axis in the_case.axes:
        lines.append(f"    --{axis.name} {axis.allowed()}  (default {axis.default or 'none'})")
    return "\n".join(lines)
