# SPDX-License-Identifier: GPL-2.0
"""The incidents' loads on the user's own disk: reads, then fsyncs, beside a buffered writer; bounded, removed."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from wbtop.errors import WbError
from wbtop.proc import uninterrupted
from wbtop.stats import quantile
from wbtop.tune import measure as tm

# Name -> quantile, and the fewest samples that say anything about it.
QUANTILES = {"p50": (0.5, 10), "p70": (0.7, 10), "p90": (0.9, 20), "p99": (0.99, 100), "p99_9": (0.999, 1000),
             "p99_99": (0.9999, 10000)}


class Load:
    """The file that is read, and the writer beside its readers. Use it as ``with scratch(...)``'s guest."""

    def __init__(self, place: Path, mib: int) -> None:
        """Make the file of ``mib`` MiB in ``place``."""
        self.place, self.mib = place, mib
        self.pool = tm._pool(zeros=False)
        self.direct = tm._direct_works(place / "data")
        tm._write(place / "data", mib, self.direct, self.pool, tm.Budget(mib, time.monotonic() + 600))
        tm._settle(place / "data")

    def run(self, seconds: float) -> dict[str, float]:
        """Both loads once, in about ``seconds`` at most; metrics in ms, s and MB/s."""
        reads, wrote, drained = self._beside(seconds / 2, lambda stop: tm._reads(
            self.place / "data", self.mib, self.direct, lambda _n: stop.is_set(), seed=2))
        syncs, _, _ = self._beside(seconds / 2, lambda stop: self._fsyncs(stop))
        found = {f"read_{name}_ms": quantile(reads, p) / 1e3
                 for name, (p, least) in QUANTILES.items() if len(reads) >= least}
        found |= {f"fsync_{name}_ms": quantile(syncs, p) / 1e3
                  for name, (p, least) in QUANTILES.items() if len(syncs) >= least}
        return {**found, "drain_s": drained, "writer_s": wrote}

    def _fsyncs(self, stop: threading.Event) -> list[float]:
        times: list[float] = []
        fd = os.open(self.place / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            while not stop.is_set():
                os.write(fd, os.urandom(tm.BLOCK))
                start = time.perf_counter_ns()
                os.fdatasync(fd)
                times.append((time.perf_counter_ns() - start) / 1e3)
                stop.wait(0.01)
        finally:
            os.close(fd)
        return times

    def _beside(self, seconds: float, probe: Callable[[threading.Event], list[float]],
                ) -> tuple[list[float], float, float]:
        """What ``probe`` measured until the writer's data was on the disk; seconds of its writes, and with fdatasync.

        The writer always writes the same bytes, so that its seconds can be compared;
        WbError when they do not fit into ``seconds`` by far.
        """
        stop = threading.Event()
        out: list[float] = []
        errors: list[BaseException] = []
        path = self.place / "written"

        def writer() -> None:
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                try:
                    start = time.monotonic()
                    for n in range(self.mib):
                        if stop.is_set() or time.monotonic() - start > seconds * 4:
                            return
                        os.pwritev(fd, [self.pool[n % len(self.pool)]], n * tm.MIB)
                    out.append(time.monotonic() - start)
                    os.fdatasync(fd)
                    out.append(time.monotonic() - start)
                finally:
                    os.close(fd)
            except BaseException as exc:
                errors.append(exc)
            finally:
                stop.set()

        thread = threading.Thread(target=writer, daemon=True)
        with uninterrupted():
            thread.start()
        try:
            times = probe(stop)
        finally:
            stop.set()
            thread.join()
            path.unlink(missing_ok=True)
        if errors:
            raise errors[0]
        if len(out) < 2:
            raise WbError(f"{self.mib} MiB were not written in {seconds * 4:.0f} s: lower --max-mib, or "
                          "raise --max-seconds")
        return times, out[0], out[1]


def fitting_mib(place: Path, most: int, seconds: float) -> int:
    """How many MiB the disk takes in ``seconds`` through the page cache, at most ``most``, at least 16."""
    probe = min(64, most)
    buffer = mmap.mmap(-1, tm.MIB)
    buffer.write(os.urandom(tm.MIB))
    fd = os.open(place / "probe", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        start = time.monotonic()
        for n in range(probe):
            os.pwritev(fd, [buffer], n * tm.MIB)
        os.fdatasync(fd)
        rate = probe / max(time.monotonic() - start, 1e-6)
    finally:
        os.close(fd)
        (place / "probe").unlink(missing_ok=True)
    return max(tm.MIN_MIB, min(most, int(rate * seconds)))
