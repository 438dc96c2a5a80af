# SPDX-License-Identifier: GPL-2.0
"""Measuring a directory's disk with one file of bounded size, in bounded time, that is always removed."""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import random
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wbtop.errors import WbError
from wbtop.proc import uninterrupted
from wbtop.stats import median, quantile

MIB = 1 << 20
BLOCK = 4096
# Writers side by side: the 32 commands of a SATA disk are full of 1-MiB requests long before.
WRITERS = 8
# Of the free space at most this part: the file system must not fill up for anybody else.
FREE_PART = 10
MIN_MIB = 16
# Different data in each MiB of this much: a disk that compresses must not find the same again at once.
POOL_MIB = 16
# Of the time left, this part by the rate measured: reads beside the writer slow it down.
LOADED_PART = 0.6
# A p99 of fewer samples is only the maximum of them.
MIN_READS = 100
# Rounds of reads beside the writer: of fewer than six no interval of the median has 95 %.
LEAST_ROUNDS, MOST_ROUNDS = 6, 16
ROUND_MIB = 16
# Of a round's reads: the quantile, and the fewest of them that tell it.
QUANTILES = {"p50": (0.5, 10), "p90": (0.9, 30), "p99": (0.99, MIN_READS)}
# Stable: the 95 % interval of the median drain is this far around it at most, that of the reads' tail as a factor.
STABLE_DRAIN, STABLE_READS = 0.15, 1.5


@dataclass(frozen=True)
class Measured:
    """Rates in MB/s (10^6), times in us. None: not known, for want of time or of O_DIRECT.

    write_mbps: what the disk drains, of the second half of the bytes written.
    write_first_mbps: of the first half; much more than write_mbps means a cache in
    the disk that fills up.  read_*: 4 KiB at random, one at a time, on an idle disk;
    loaded_*: the same while a file of loaded_mib is written through the page cache, in
    rounds: read times of all of them, the drain's median.  loaded_*_each: of each round.
    loaded_stable: whether more rounds would not have changed the medians much.
    """

    mib: int
    seconds: float
    direct: bool
    write_mbps: float
    write_first_mbps: float
    read_p50_us: float | None
    read_p99_us: float | None
    fsync_p50_us: float | None
    fsync_p99_us: float | None
    loaded_p50_us: float | None
    loaded_p99_us: float | None
    loaded_max_us: float | None
    loaded_drain_mbps: float | None
    loaded_mib: int = 0
    loaded_stable: bool | None = None
    loaded_p50_us_each: tuple[float, ...] = ()
    loaded_p90_us_each: tuple[float, ...] = ()
    loaded_p99_us_each: tuple[float, ...] = ()
    loaded_drain_mbps_each: tuple[float, ...] = ()

    @property
    def drain_mbps(self) -> float:
        """What writeback drains: of the buffered writer, to its fdatasync; the direct rate where there is none.

        The direct rate may be a burst into a cache of the disk or of its host, which
        pages written back one after the other do not have.
        """
        return min(self.write_mbps, self.loaded_drain_mbps or self.write_mbps)

    def to_json(self) -> dict[str, Any]:
        """All of it as a dict."""
        return asdict(self)


@dataclass
class Budget:
    """How much the measurement may take. deadline: on the monotonic clock."""

    mib: int
    deadline: float

    def left(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()


def size_mib(wanted: int, free: int) -> int:
    """The size of the file: ``wanted`` MiB, or what FREE_PART allows; WbError when that is too little to tell."""
    mib = min(wanted, free // FREE_PART // MIB)
    if mib < MIN_MIB:
        raise WbError(f"only {free // MIB} MiB are free: measuring needs at least {MIN_MIB * FREE_PART}")
    return mib


@contextlib.contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """A new directory below ``directory`` that is gone at the end, also on Ctrl-C."""
    path = directory / f".wb-tune-{secrets.token_hex(8)}"
    try:
        try:
            path.mkdir(mode=0o700)
        except OSError as exc:
            raise WbError(f"cannot write below {directory}: {exc.strerror}") from exc
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # says that this run is alive
            yield path
        except OSError as exc:
            if exc.filename:
                raise
            # A write names no file; the disk is full, or broken.
            raise WbError(f"measuring below {directory}: {exc.strerror}; what was written is removed") from exc
        finally:
            os.close(fd)
    finally:
        with uninterrupted():
            shutil.rmtree(path, ignore_errors=True)


def remove_stale(directory: Path, tell: Callable[[str], None]) -> None:
    """Remove what a run left that was killed with SIGKILL; one that still runs holds its directory's lock."""
    for path in sorted(directory.glob(".wb-tune-*")):
        if not re.fullmatch(r"\.wb-tune-[0-9a-f]{16}", path.name) or path.is_symlink() or not path.is_dir():
            continue
        # Another user's, or one that has just ended and removed its own.
        with contextlib.suppress(PermissionError, FileNotFoundError):
            _remove_if_dead(path, tell)


def _remove_if_dead(path: Path, tell: Callable[[str], None]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = sum(f.stat().st_blocks * 512 for f in path.iterdir())
        shutil.rmtree(path, ignore_errors=True)
        tell(f"removed {path}, {size // MIB} MiB that a killed run left")
    except BlockingIOError:
        tell(f"another wb measures in {path.parent}: each is the other's load, and neither is right")
    finally:
        os.close(fd)


def _open(path: Path, flags: int, direct: bool) -> int:
    return os.open(path, flags | os.O_CLOEXEC | (os.O_DIRECT if direct else 0), 0o600)


def _direct_works(path: Path) -> bool:
    """True if this file system takes O_DIRECT (tmpfs and some FUSE ones do not)."""
    buffer = mmap.mmap(-1, BLOCK)
    try:
        fd = _open(path, os.O_RDWR | os.O_CREAT, direct=True)
    except OSError:
        return False
    try:
        return os.pwritev(fd, [buffer], 0) == BLOCK
    except OSError:
        return False
    finally:
        os.close(fd)
        buffer.close()


def _pool(zeros: bool) -> list[mmap.mmap]:
    """1-MiB buffers in page-aligned memory, as O_DIRECT needs it."""
    pool = []
    for _ in range(1 if zeros else POOL_MIB):
        buffer = mmap.mmap(-1, MIB)
        if not zeros:
            buffer.write(os.urandom(MIB))
        pool.append(buffer)
    return pool


def _in_threads(count: int, work: Callable[[int], None], stop: threading.Event) -> None:
    """Run ``work(n)`` in ``count`` threads; the first error is raised here, when all have ended.

    ``work`` has to end soon after ``stop`` is set, which an error or Ctrl-C does.
    """
    errors: list[BaseException] = []

    def one(n: int) -> None:
        try:
            work(n)
        except BaseException as exc:
            errors.append(exc)
            stop.set()

    threads = [threading.Thread(target=one, args=(n,), daemon=True) for n in range(count)]
    try:
        # None may write on after this function has ended.
        with uninterrupted():
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if errors:
        raise errors[0]


def _write(path: Path, mib: int, direct: bool, pool: list[mmap.mmap], budget: Budget) -> tuple[int, float, float]:
    """Write up to ``mib`` MiB; returns MiB written, and MB/s of the first and of the second half."""
    stop = threading.Event()
    lock = threading.Lock()
    next_mib = 0
    stamps: list[float] = []
    share = budget.deadline - budget.left() * 0.5  # half of the time is for the other phases

    def writer(_n: int) -> None:
        nonlocal next_mib
        fd = _open(path, os.O_WRONLY | os.O_CREAT, direct)
        try:
            while not stop.is_set():
                with lock:
                    if next_mib >= mib or time.monotonic() > share:
                        return
                    mine, next_mib = next_mib, next_mib + 1
                os.pwritev(fd, [pool[mine % len(pool)]], mine * MIB)
                if not direct:
                    os.fdatasync(fd)
                with lock:
                    stamps.append(time.monotonic())
        finally:
            os.close(fd)

    start = time.monotonic()
    _in_threads(WRITERS, writer, stop)
    if len(stamps) < 2:
        raise WbError(f"only {len(stamps)} MiB were written in the time allowed: raise --max-seconds")
    # Of both halves of the time on the wire; the stamps are in order of completion.
    middle = len(stamps) // 2
    first = middle * MIB / max(stamps[middle - 1] - start, 1e-9) / 1e6
    second = (len(stamps) - middle) * MIB / max(stamps[-1] - stamps[middle - 1], 1e-9) / 1e6
    return next_mib, first, second


def _reads(path: Path, mib: int, direct: bool, until: Callable[[int], bool], seed: int) -> list[float]:
    """Times in us of 4-KiB reads at random places, one after the other, until ``until(count)``."""
    rng = random.Random(seed)
    buffer = mmap.mmap(-1, BLOCK)
    times: list[float] = []
    fd = _open(path, os.O_RDONLY, direct)
    try:
        while not until(len(times)):
            offset = rng.randrange(mib * MIB // BLOCK) * BLOCK
            if not direct:
                os.posix_fadvise(fd, offset, BLOCK, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter_ns()
            os.preadv(fd, [buffer], offset)
            times.append((time.perf_counter_ns() - start) / 1e3)
    finally:
        os.close(fd)
        buffer.close()
    return times


def _fsyncs(path: Path, seconds: float, count: int) -> list[float]:
    """Times in us of appending 4 KiB and fdatasync, as a database's log does."""
    times: list[float] = []
    end = time.monotonic() + seconds
    fd = _open(path, os.O_WRONLY | os.O_CREAT, direct=False)
    try:
        while len(times) < count and time.monotonic() < end:
            os.write(fd, os.urandom(BLOCK))
            start = time.perf_counter_ns()
            os.fdatasync(fd)
            times.append((time.perf_counter_ns() - start) / 1e3)
    finally:
        os.close(fd)
    return times


def _loaded(place: Path, there: int, mib: int, direct: bool, pool: list[mmap.mmap],
            budget: Budget) -> tuple[list[float], float | None]:
    """Reads beside a buffered writer and its fdatasync; also the writer's MB/s until all is on the disk."""
    done = threading.Event()
    rate: list[float] = []

    def writer() -> None:
        start, count = time.monotonic(), 0
        fd = _open(place / "loaded", os.O_WRONLY | os.O_CREAT, direct=False)
        try:
            while count < mib and budget.left() > 0 and not done.is_set():
                os.pwritev(fd, [pool[count % len(pool)]], count * MIB)
                count += 1
            os.fdatasync(fd)
            rate.append(count * MIB / max(time.monotonic() - start, 1e-9) / 1e6)
        finally:
            os.close(fd)
            done.set()

    thread = threading.Thread(target=writer, daemon=True)
    try:
        with uninterrupted():
            thread.start()
        times = _reads(place / "data", there, direct, lambda _n: done.is_set(), seed=2)
    except BaseException:
        done.set()
        # What is not on its way to the disk yet need not go there any more.
        with contextlib.suppress(OSError):
            os.truncate(place / "loaded", 0)
        raise
    finally:
        if thread.ident is not None:
            thread.join()
    return times, (rate[0] if rate else None)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The median with 95 % confidence, whatever the distribution: two of the ordered values; None of fewer than six."""
    ordered, n = sorted(values), len(values)
    below, cut = 0.0, 0
    for k in range(n):
        below += math.comb(n, k) / 2**n
        if 2 * below > 0.05:
            break
        cut = k + 1
    return (ordered[cut - 1], ordered[n - cut]) if cut else None


def stable(drains: Sequence[float], tails: Sequence[float]) -> bool:
    """Whether the medians are known well enough; the reads' where there are enough of them."""
    drain = median_interval(drains)
    reads = median_interval(tails) if tails else (1.0, 1.0)
    if drain is None or reads is None:
        return False
    middle = median(drains)
    return drain[1] - middle <= STABLE_DRAIN * middle and middle - drain[0] <= STABLE_DRAIN * middle \
        and reads[1] <= STABLE_READS**2 * reads[0]


@dataclass
class Rounds:
    """What the rounds beside a writer have given so far."""

    reads: list[float] = field(default_factory=list)
    each: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in QUANTILES})
    drain: list[float] = field(default_factory=list)

    def add(self, reads: list[float], drain: float | None) -> None:
        """One more round."""
        self.reads += reads
        if drain:
            self.drain.append(round(drain, 2))
            for name, (p, least) in QUANTILES.items():
                if len(reads) >= least:
                    self.each[name].append(round(quantile(reads, p), 1))

    def of_all(self, name: str) -> tuple[float, ...]:
        """A quantile of each round; none when some have too few reads for it: those are the ones with long waits."""
        return tuple(self.each[name]) if len(self.each[name]) == len(self.drain) else ()

    def stable(self) -> bool:
        """Whether more rounds would not change much: the drain, and the farthest quantile that all rounds have."""
        return stable(self.drain, next((v for n in ("p99", "p90", "p50") if (v := self.of_all(n))), ()))


def _rounds(place: Path, there: int, mib: int, direct: bool, pool: list[mmap.mmap], budget: Budget) -> Rounds:
    """The same round again until it is stable, or the time is over, or it was written often enough."""
    found = Rounds()
    while True:
        start = time.monotonic()
        reads, drain = _loaded(place, there, mib, direct, pool, budget)
        (place / "loaded").unlink()
        # One that the end of the time has cut is not the same load.
        if budget.left() > 0 or not found.drain:
            found.add(reads, drain)
        if len(found.drain) >= MOST_ROUNDS or found.stable() \
                or budget.left() < 1.5 * (time.monotonic() - start):
            return found


def _q(times: list[float], p: float, least: int = MIN_READS) -> float | None:
    return round(quantile(times, p), 1) if len(times) >= least else None


def measure(directory: Path, *, max_mib: int, max_seconds: float, zeros: bool = False, loaded_mib: int = 0,
            say: Callable[[str], None] = lambda _text: None) -> Measured:
    """Measure the disk of ``directory``; at most 2 x ``max_mib`` MiB are there at a time, all of it removed again.

    Phases: sequential writes, an idle disk's reads, fdatasync of small appends, and
    reads beside a buffered writer, in rounds until that is stable.  ``max_seconds``
    bounds all of them together; a disk that is slow gets through less.  zeros: write
    zeros, for a disk that keeps none.  loaded_mib: of a round, as in an earlier
    measurement, to be compared with it.
    """
    remove_stale(directory, say)
    free = os.statvfs(directory)
    mib = size_mib(max_mib, free.f_bavail * free.f_frsize)
    start = time.monotonic()
    budget = Budget(mib, start + max_seconds)
    pool = _pool(zeros)
    with scratch(directory) as place:
        path = place / "data"
        direct = _direct_works(path)
        say(f"writing {mib} MiB{'' if direct else ' (no O_DIRECT here)'}")
        wrote, first, second = _write(path, mib, direct, pool, budget)
        _settle(path)
        say("4-KiB reads, idle disk")
        end = time.monotonic() + budget.left() * 0.2
        idle = _reads(path, wrote, direct, lambda n: n >= 5000 or time.monotonic() > end, seed=1)
        say("4-KiB appends with fdatasync")
        syncs = _fsyncs(place / "log", budget.left() * 0.2, 200)
        say("4-KiB reads beside a buffered writer")
        # What is in the page cache when the time is over has to be drained, too.
        whole = int(second * 1e6 * budget.left() * LOADED_PART) // MIB
        more = loaded_mib or min(wrote, whole, max(ROUND_MIB, whole // LEAST_ROUNDS))
        rounds = _rounds(place, wrote, more, direct, pool, budget) if more >= 1 else Rounds()
    loaded = rounds.reads
    for buffer in pool:
        buffer.close()
    return Measured(
        mib=wrote, seconds=round(time.monotonic() - start, 1), direct=direct, write_mbps=round(second, 2),
        write_first_mbps=round(first, 2), read_p50_us=_q(idle, 0.5), read_p99_us=_q(idle, 0.99),
        fsync_p50_us=_q(syncs, 0.5, 10), fsync_p99_us=_q(syncs, 0.99), loaded_p50_us=_q(loaded, 0.5, 10),
        loaded_p99_us=_q(loaded, 0.99), loaded_max_us=_q(loaded, 1, 1),
        loaded_drain_mbps=round(median(rounds.drain), 2) if rounds.drain else None, loaded_mib=more,
        loaded_stable=rounds.stable() if rounds.drain else None, loaded_p50_us_each=rounds.of_all("p50"),
        loaded_p90_us_each=rounds.of_all("p90"), loaded_p99_us_each=rounds.of_all("p99"),
        loaded_drain_mbps_each=tuple(rounds.drain))


def _settle(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
