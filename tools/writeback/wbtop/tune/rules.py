# SPDX-License-Identifier: GPL-2.0
"""The recommendations of ``wb tune``: per setting a value, or to keep it, with formula, source and effect.

Every value is either computed from what was measured on this machine, by a
formula that its reason states, or was measured on the rig, which its effect
cites.  A setting for which there is neither is not touched.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from wbtop.errors import WbError

from .evidence import cite
from .facts import VM, Disk, Facts, wbt_default_usec
from .measure import Measured

MIB = 1 << 20
GOALS = {
    "read-latency": "reads that are not held up by writeback",
    "throughput": "the most bytes per second through the page cache",
    "unplug": "a removable disk that can be taken away soon after a copy has ended",
    "database": "short fsync and checkpoints beside buffered writes",
}
# Seconds of its drain that a disk may have in dirty pages, for the goals that limit them.
HOLD_S = {
    "throughput": 5.0,  # Dave Chinner, 20131111032211.GT6188@dastard: streaming needs >= 5 s of dirty data
    "unplug": 3.0,  # what the max_drain_ms of this project's mm series is tested with
    "database": 1.0,  # wb's own rule: 64 to 128 MB of EDB KB 13522372519196 on disks of 64 to 128 MB/s
}
# Four chunks of the flusher, MIN_WRITEBACK_PAGES = 4 MiB each: one is written while
# another is filled, and background writeback starts at half.
FLOOR = 16 * MIB
# EDB's larger value, which it gives for any disk; the limit is ENOUGH with it.
DB_BACKGROUND = 128 * MIB
# tuned's postgresql profile: 536870912 / 67108864.
DB_LIMIT_BY_BACKGROUND = 8
# J. Kara, 20231122144932.m44oiw5lufwkc5pw@quack3: more than about 1 GB brings no gain in general.
ENOUGH = 1 << 30
# tuned's throughput-performance: vm.dirty_ratio 40.
THROUGHPUT_RATIO = 40
MAX_SECTORS_KB = 128  # the size the rig measured
# Half a turn at 15000 rpm: 60 s / 15000 / 2.
HALF_TURN_US = 2000
IOCOST = "io.cost.qos has this disk, and turns wbt off on purpose (ioc_qos_write() of block/blk-iocost.c)"
READS_FAST = f"99 % of the reads took less than half a turn at 15000 rpm ({HALF_TURN_US} us)"


@dataclass(frozen=True)
class Advice:
    """One setting. value: None to keep ``current``. reason: formula and source; effect: what to expect."""

    key: str
    file: str
    current: str
    value: str | None
    reason: str
    effect: str = ""

    def to_json(self) -> dict[str, Any]:
        """All of it as a dict."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """What the rules decide from."""

    goal: str
    facts: Facts
    measured: Measured
    hold_s: float

    @property
    def rate(self) -> float:
        """What the disk drains, bytes/s."""
        return self.measured.drain_mbps * 1e6

    @property
    def held(self) -> int:
        """Bytes that are drained in the time to hold, in MiB, not below FLOOR."""
        return max(FLOOR, int(self.rate * self.hold_s) // MIB * MIB)

    def rotating(self, disk: Disk) -> bool:
        """A disk that says it turns.

        Not one that is virtual, alone, and reads in less than half a turn 99 times of 100.
        """
        return disk.rotational and not (disk.virtual and len(self.facts.disks) == 1 and self.reads_fast)

    @property
    def reads_fast(self) -> bool:
        """99 of 100 reads took less than half a turn, be it from a cache."""
        p99 = self.measured.read_p99_us
        return p99 is not None and p99 < HALF_TURN_US

    @property
    def turns(self) -> str:
        """Why a disk that says that it turns is believed."""
        return f"rotating media ({READS_FAST}, but reads may come from a cache)" if self.reads_fast \
            else "rotating media"


def human(size: float) -> str:
    """Bytes in MiB."""
    return f"{size / MIB:.0f} MiB"


def _seconds(case: Case, size: float) -> str:
    seconds = size / case.rate
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def recommend(facts: Facts, measured: Measured, goal: str, hold_s: float | None = None) -> list[Advice]:
    """The advice for ``goal``, in the order in which it is to be applied."""
    if goal not in GOALS:
        raise WbError(f"unknown goal '{goal}': choose from {', '.join(GOALS)}", 2)
    case = Case(goal, facts, measured, HOLD_S.get(goal, 0.0) if hold_s is None else hold_s)
    if case.rate <= 0:
        raise WbError("the disk drained nothing in the time allowed: raise --max-seconds")
    found = _dirty(case)
    for disk in facts.disks:
        found += _disk(case, disk)
    return found + _bdi(case)


# ---- vm.dirty_* --------------------------------------------------------------

def _vm(case: Case, name: str, value: int | None, reason: str, effect: str = "") -> Advice:
    """Advice on dirty_bytes or dirty_background_bytes; its present value in the unit that is in force."""
    ratio = name.replace("bytes", "ratio")
    vm = case.facts.vm
    current = f"{vm[name]}" if vm.get(name) else f"{ratio}={vm.get(ratio, '?')}"
    text = None if value is None or vm.get(name) == value else str(value)
    return Advice(f"vm.{name}", f"{VM}/{name}", current, text, reason, effect)


def _dirty(case: Case) -> list[Advice]:
    return {"read-latency": _dirty_read_latency, "throughput": _dirty_throughput, "unplug": _dirty_unplug,
            "database": _dirty_database}[case.goal](case)


def _dirty_read_latency(case: Case) -> list[Advice]:
    now = case.facts.now
    return [_vm(case, "dirty_bytes", None,
                f"the limit, {human(now.limit)}, is {_seconds(case, now.limit)} of this disk's drain. It decides how "
                "long a burst of writeback lasts, not how long a read waits in it; while a writer sleeps for it, a "
                "stock kernel lifts wbt's limit (wb_recent_wait() of block/blk-wbt.c). A lower one was measured not "
                f"to end the wait: {cite('dirty_small')}")]


def _dirty_throughput(case: Case) -> list[Advice]:
    now, avail = case.facts.now, case.facts.dirtyable
    want = min(case.held, ENOUGH, avail * THROUGHPUT_RATIO // 100)
    formula = (f"{case.measured.drain_mbps:.0f} MB/s x {case.hold_s:g} s = {human(case.held)}: streaming needs that "
               "much dirty data (D. Chinner, 20131111032211.GT6188@dastard), but above about 1 GB nothing is gained "
               "(J. Kara, 20231122144932.m44oiw5lufwkc5pw@quack3)")
    if now.limit >= want:
        return [_vm(case, "dirty_bytes", None, f"{formula}; the limit is {human(now.limit)}")]
    return [
        _vm(case, "dirty_bytes", want, f"{formula}; at most {THROUGHPUT_RATIO} % of dirtyable memory, as tuned's "
            "throughput-performance", f"a burst of {human(want * 3 // 4)} instead of {human(now.freerun)} runs at "
            "memory speed: (limit + background) / 2"),
        _vm(case, "dirty_background_bytes", want // 2, "half of the limit, the ratio of the kernel's defaults (10 and "
            "20 %)", "writeback starts before writers sleep, as by default"),
    ]


def _dirty_unplug(case: Case) -> list[Advice]:
    return [_vm(case, "dirty_bytes", None, "for one disk the bdi's own limit is the setting; this one would slow down "
                "every other disk")]


def _dirty_database(case: Case) -> list[Advice]:
    now = case.facts.now
    background = min(case.held, DB_BACKGROUND)
    limit = min(background * DB_LIMIT_BY_BACKGROUND, now.limit)
    if now.background <= background:
        return [_vm(case, "dirty_background_bytes", None,
                    f"background writeback starts at {human(now.background)}, {_seconds(case, now.background)} of "
                    "drain: early enough")]
    found = []
    if limit < now.limit:
        found.append(_vm(
            case, "dirty_bytes", limit, f"{DB_LIMIT_BY_BACKGROUND} x background, the ratio of tuned's postgresql "
            "profile: far from background, so that no backend sleeps in balance_dirty_pages()",
            f"a checkpoint's fsync has at most {_seconds(case, limit)} of drain in front of it instead of "
            f"{_seconds(case, now.limit)}"))
    return [*found, _vm(
        case, "dirty_background_bytes", background,
        f"{case.measured.drain_mbps:.0f} MB/s x {case.hold_s:g} s (wb's own rule) = {human(case.held)}, not below "
        f"{human(FLOOR)}, four chunks of the flusher, and at most {human(DB_BACKGROUND)}: EDB KB 13522372519196 has 64 "
        "or 128 MB, bytes preferred",
        f"writeback starts after {human(background)} instead of {human(now.background)}")]


# ---- the queue -----------------------------------------------------------------

def _queue(disk: Disk, name: str, current: object, value: object | None, reason: str, effect: str = "") -> Advice:
    text = None if value is None or str(value) == str(current) else str(value)
    return Advice(f"queue.{disk.name}.{name}", disk.queue(name), str(current), text, reason, effect if text else "")


def _disk(case: Case, disk: Disk) -> list[Advice]:
    if case.goal == "unplug":
        return []  # the time to drain is the bdi's business
    if disk.zoned is not None:
        return _zoned(disk)
    found = [a for a in (_scheduler(case, disk), *_wbt(case, disk), _max_sectors(case, disk)) if a is not None]
    if case.goal == "throughput":
        found = [a if a.value is None or a.current == "bfq" else
                 replace(a, value=None, reason="it decides how long reads wait, which is not this goal", effect="")
                 for a in found]
    return found


def _zoned(disk: Disk) -> list[Advice]:
    """A zone takes its writes in order only: what is there stays."""
    reason = f"queue/zoned is {disk.zoned}: writes have to reach a zone in order, which before 6.10 only mq-deadline " \
        "sees to, and no setting was measured on such a disk"
    now = {"scheduler": disk.scheduler, "rotational": int(disk.rotational), "wbt_policy": disk.wbt_policy,
           "wbt_lat_usec": disk.wbt_lat_usec, "max_sectors_kb": disk.max_sectors_kb}
    return [_queue(disk, name, value, None, reason) for name, value in now.items() if value is not None]


def _scheduler(case: Case, disk: Disk) -> Advice | None:
    now = disk.scheduler
    if now is None:
        return None
    if case.rotating(disk):
        return _queue(disk, "scheduler", now, None, f"{case.turns}: no scheduler was measured to be better here")
    if now == "bfq" and "none" in disk.schedulers and case.goal == "throughput":
        return _queue(disk, "scheduler", now, "none", "bfq costs throughput, and turns wbt off", cite("bfq"))
    if now == "bfq":
        return _queue(disk, "scheduler", now, None, f"bfq turns wbt off and limits writes itself: {cite('bfq')}")
    if now == "mq-deadline" and disk.wbt_policy is None and "none" in disk.schedulers:
        return _queue(disk, "scheduler", now, "none", "a stock mq-deadline keeps writes in front of reads that come "
                      "later", cite("none_stock"))
    if disk.wbt_policy is not None:
        return _queue(disk, "scheduler", now, None,
                      f"with wbt_policy bytes it does not matter: {cite('sched_patched')}")
    return _queue(disk, "scheduler", now, None, "none and kyber: each is better than the other at some of the reads "
                  "(the table of Documentation/guide.md)")


def _wbt(case: Case, disk: Disk) -> list[Advice | None]:
    found: list[Advice | None] = []
    if disk.wbt_policy is not None and disk.iocost:
        found.append(_queue(disk, "wbt_policy", disk.wbt_policy, None, f"counts for nothing without wbt: {IOCOST}"))
    elif disk.wbt_policy is not None and case.rotating(disk):
        found.append(_queue(disk, "wbt_policy", disk.wbt_policy, None, "counts for nothing on a disk that says that "
                            f"it turns: the time of the arm is not in the queue; {case.turns}"))
    elif disk.wbt_policy is not None:
        evidence = "bytes_fsync" if case.goal == "database" else "bytes"
        if disk.rotational:
            found.append(_queue(disk, "rotational", 1, 0, "it says that it turns, as virtual disks do, but "
                                f"{READS_FAST}; wbt_policy bytes counts for nothing until it does not", cite(evidence)))
        reason = "limits what is in front of a read to what the disk delivers within its own latency " \
                 "(Documentation/block/writeback-throttling.rst)"
        if disk.wbt_policy == "bytes":
            found.append(_queue(disk, "wbt_policy", "bytes", None, f"{reason}: {cite(evidence)}"))
        else:
            found.append(_queue(disk, "wbt_policy", disk.wbt_policy, "bytes", reason, cite(evidence)))
    if disk.wbt_lat_usec is not None:
        found.append(_wbt_lat(case, disk))
    return found


def _wbt_lat(case: Case, disk: Disk) -> Advice:
    """The default of the medium; only the policy "requests" has a target."""
    now = disk.wbt_lat_usec
    default = wbt_default_usec(rotating=case.rotating(disk))
    if disk.scheduler == "bfq":
        return _queue(disk, "wbt_lat_usec", now, None, "bfq turns wbt off by itself")
    if now == 0 and disk.iocost:
        return _queue(disk, "wbt_lat_usec", now, None, IOCOST)
    if now == 0 and (disk.wbt_policy is None or case.rotating(disk)):
        return _queue(disk, "wbt_lat_usec", now, None, "throttling is off, which somebody has set, and a limit in "
                      f"requests was measured to change little: {cite('wbt_off')}")
    if now == 0:
        return _queue(disk, "wbt_lat_usec", now, default, "for wbt_policy, which does nothing while throttling is off; "
                      f"{default} is the kernel's default without rotating media, and no target of bytes",
                      cite("bytes_fsync" if case.goal == "database" else "bytes"))
    if disk.rotational and not case.rotating(disk) and now == wbt_default_usec(rotating=True):
        return _queue(disk, "wbt_lat_usec", now, default,
                      f"queue/rotational says 1, but {READS_FAST}: the default of media that do not rotate",
                      "the limit is that for a target of 2 ms instead of 75 ms")
    return _queue(disk, "wbt_lat_usec", now, None, f"the kernel's default is {default}; off: {cite('wbt_off')}")


def _max_sectors(case: Case, disk: Disk) -> Advice | None:
    now = disk.max_sectors_kb
    if now is None:
        return None
    if disk.wbt_policy is not None and not disk.iocost and disk.scheduler != "bfq" and not case.rotating(disk):
        return _queue(disk, "max_sectors_kb", now, None, "wbt_policy bytes splits writes while readers are active "
                      "(Documentation/block/writeback-throttling.rst): need not be lowered")
    if case.rotating(disk):
        return _queue(disk, "max_sectors_kb", now, None, f"{case.turns}: each request may cost a seek")
    link = case.measured.write_mbps * 1e6  # one request takes as long as the link needs, not as the drain
    want = max(MAX_SECTORS_KB, -(-int(link * 0.002 / 16) // (64 << 10)) * 64)
    if case.goal in ("read-latency", "database") and now > want:
        return _queue(disk, "max_sectors_kb", now, want, "a read waits for whole requests in front of it: at "
                      f"{case.measured.write_mbps:.0f} MB/s {now} KiB take {now * 1024 / link * 1e3:.2g} ms, "
                      f"{want} KiB {want * 1024 / link * 1e3:.2g} ms. wb's own rule: the direct "
                      f"rate x 2 ms / 16, in steps of 64 KiB, not below the {MAX_SECTORS_KB} that were measured",
                      cite("database" if case.goal == "database" else "max_sectors"))
    why = f"is not above {want} already" if case.goal in ("read-latency", "database") else "not what this goal needs"
    return _queue(disk, "max_sectors_kb", now, None, f"{why}; measured: {cite('max_sectors')}")


# ---- the bdi --------------------------------------------------------------------

def _bdi(case: Case) -> list[Advice]:
    bdi, now = case.facts.bdi, case.facts.now
    if bdi is None:
        return []
    if case.goal != "unplug":
        return _bdi_off(case)
    want = min(case.held, now.limit)
    effect = (f"sync waits for at most {_seconds(case, want)} of drain after a copy instead of "
              f"{_seconds(case, now.limit)}; the copy shows the disk's own speed. {cite('unplug')}")
    formula = f"{case.measured.drain_mbps:.1f} MB/s x {case.hold_s:g} s, not below {human(FLOOR)}"
    if 0 < now.limit == want:
        return [Advice("bdi.max_bytes", bdi.file("max_bytes"), str(bdi.max_bytes), None,
                       f"{formula} = {human(case.held)}: the limit of {human(now.limit)} for all disks drains in "
                       f"{_seconds(case, now.limit)} already")]
    if bdi.max_drain_ms is not None:
        value = str(max(1, int(case.hold_s * 1000)))  # 0 lifts the limit
        return [Advice("bdi.max_drain_ms", bdi.file("max_drain_ms"), bdi.max_drain_ms,
                       None if value == bdi.max_drain_ms else value,
                       "the time itself: the kernel knows the drain rate, and follows it", effect)]
    if bdi.max_bytes is None or bdi.strict_limit is None or now.limit == 0:
        return [Advice("bdi.max_bytes", bdi.file("max_bytes"), str(bdi.max_bytes), None,
                       "this kernel has no max_bytes and strict_limit (6.2 has), or its dirty limit is 0, where 6.12 "
                       "divides by zero: nothing to set")]
    drift = "" if bdi.exact_bytes else \
        "; this kernel keeps it as a share of the dirty limit of now: set it again after changes of vm.dirty_*"
    return [
        Advice("bdi.max_bytes", bdi.file("max_bytes"), str(bdi.max_bytes),
               None if bdi.max_bytes == want else str(want), f"{formula} = {human(want)}{drift}", effect),
        Advice("bdi.strict_limit", bdi.file("strict_limit"), str(bdi.strict_limit),
               None if bdi.strict_limit == 1 else "1",
               "without it max_bytes throttles nobody below the global freerun ceiling, "
               f"{human(now.freerun)} (balance_dirty_pages() of mm/page-writeback.c)", ""),
    ]


def _bdi_off(case: Case) -> list[Advice]:
    bdi = case.facts.bdi
    if bdi is None or bdi.strict_limit != 1 or case.goal != "throughput":
        return []
    return [Advice("bdi.strict_limit", bdi.file("strict_limit"), "1", None,
                   f"this disk alone is limited to {human(bdi.max_bytes or 0)}, "
                   f"{_seconds(case, bdi.max_bytes or 0)} of drain: whoever set it has a reason; 0 lifts it")]
