# SPDX-License-Identifier: GPL-2.0
"""Private tracing instances: who is put to sleep in balance_dirty_pages(), and how long reads take.

An instance has buffers, events, filters and a clock of its own, so no setting of
the machine changes and removing it restores everything.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import WbError
from .proc import uninterrupted
from .watch_read import Machine

TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
PREFIX = "wb-watch-"
DIRTY_KB = 1024  # per CPU: some 5000 sleeps between two looks
READS_KB = 256  # per CPU: some 3000 events, the sample of an interval
SLEEP_EVENT = "events/writeback/balance_dirty_pages"
READ_EVENTS = ("events/block/block_bio_queue", "events/block/block_rq_complete")

_LINE = re.compile(r"^\s*(?P<comm>.*)-(?P<pid>[0-9]+)\s+(?:\([^)]*\)\s+)?\[[0-9]+\]\s+(?:[^\s:]+\s+)?"
                   r"(?P<time>[0-9]+\.[0-9]+): (?P<event>\w+): (?P<rest>.*)$")
_SLEEP = re.compile(r"bdi (?P<bdi>\S+): .*\bdirty=(?P<dirty>[0-9]+) .*\bbdi_dirty=(?P<bdi_dirty>[0-9]+) .*"
                    r"\btask_ratelimit=(?P<rate>[0-9]+) .*\bpause=(?P<pause>-?[0-9]+) .*"
                    r"\bcgroup_ino=(?P<cgroup>[0-9]+)")
_BLOCK = re.compile(r"(?P<major>[0-9]+),(?P<minor>[0-9]+) (?P<rwbs>[A-Z]+) (?:\(.*?\) )?(?P<sector>[0-9]+) \+ ")
_LOST = re.compile(r"\[LOST ([0-9]+) EVENTS\]")


@dataclass(frozen=True)
class Sleep:
    """One sleep as the kernel planned it: ms in whole timer ticks; dirty in pages of the domain that throttles."""

    pid: int
    comm: str
    bdi: str
    pause_ms: int
    dirty: int
    bdi_dirty: int
    rate_kbps: int
    cgroup: int


def parse_sleeps(lines: Iterable[str]) -> tuple[list[Sleep], int]:
    """Sleeps in the text of a trace, and how many events the buffer lost; other lines are passed over."""
    found, lost = [], 0
    for line in lines:
        match = _LINE.match(line)
        inner = _SLEEP.match(match["rest"]) if match and match["event"] == "balance_dirty_pages" else None
        if match and inner and int(inner["pause"]) > 0:
            found.append(Sleep(int(match["pid"]), match["comm"].strip(), inner["bdi"], int(inner["pause"]),
                               int(inner["dirty"]), int(inner["bdi_dirty"]), int(inner["rate"]), int(inner["cgroup"])))
        elif not match and (gap := _LOST.search(line)):
            lost += int(gap.group(1))
    return found, lost


def parse_reads(lines: Iterable[str], whole: Mapping[str, str] | None = None) -> dict[str, list[float]]:
    """Device number of the disk -> times in us from the submission of a read to its completion.

    whole: number of a partition -> that of its disk, since a bio carries the one and
    its request the other.  A read that was merged into the request of another one, or
    was under way at either end of the sample, has no partner and does not count.
    """
    whole = whole or {}
    waiting: dict[tuple[str, str], float] = {}
    found: dict[str, list[float]] = {}
    for line in lines:
        match = _LINE.match(line)
        inner = _BLOCK.match(match["rest"]) if match else None
        if not match or not inner or not inner["rwbs"].startswith("R"):
            continue
        dev = f"{inner['major']}:{inner['minor']}"
        key, now = (whole.get(dev, dev), inner["sector"]), float(match["time"]) * 1e6
        if match["event"] == "block_bio_queue":
            waiting[key] = now
        elif match["event"] == "block_rq_complete" and key in waiting:
            found.setdefault(key[0], []).append(max(0.0, now - waiting.pop(key)))
    return found


def partitions(machine: Machine) -> dict[str, str]:
    """Device number of each partition -> that of its disk."""
    found = {}
    for name in machine.names("/sys/class/block"):
        base = f"/sys/class/block/{name}"
        if machine.exists(f"{base}/partition"):
            part, disk = machine.text(f"{base}/dev"), machine.path(base).resolve().parent / "dev"
            if part and disk.exists():
                found[part] = disk.read_text().strip()
    return found


def tracefs(machine: Machine) -> str | None:
    """Where tracefs is mounted; None where it is not, or is not readable."""
    return next((d for d in TRACEFS if machine.names(f"{d}/events")), None)


class Instance:
    """One private instance, with its events off until ``on``."""

    def __init__(self, top: Path, name: str, size_kb: int, *, keep_first: bool) -> None:
        """Make it. keep_first: when the buffer is full, new events are dropped instead of old ones."""
        self.path = top / "instances" / name
        self.path.mkdir()
        self._events: list[str] = []
        try:
            self.write("tracing_on", "0")
            self.write("buffer_size_kb", str(size_kb))
            # CPUs' own clocks differ; on a kernel without this one they have to do.
            with contextlib.suppress(OSError):
                self.write("trace_clock", "mono")
            if keep_first:
                self.write("options/overwrite", "0")
        except BaseException:
            self.close()
            raise

    def write(self, name: str, value: str) -> None:
        """Write one of its files."""
        with (self.path / name).open("w") as f:
            f.write(value)

    def enable(self, event: str, condition: str) -> None:
        """Record ``event`` where ``condition`` holds."""
        self.write(f"{event}/filter", condition)
        self.write(f"{event}/enable", "1")
        self._events.append(event)

    def on(self) -> None:
        """Start with an empty buffer."""
        self.write("trace", "")
        self.write("tracing_on", "1")

    def take(self) -> list[str]:
        """Stop, and return what was recorded."""
        self.write("tracing_on", "0")
        return (self.path / "trace").read_text(errors="replace").splitlines()

    def close(self) -> None:
        """Remove it, and with it all its settings."""
        for event in self._events:
            with contextlib.suppress(OSError):
                self.write(f"{event}/enable", "0")
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                # EBUSY while somebody else has one of its files open.
                time.sleep(0.02)


class Trace:
    """Both instances. Use it as a context: they are gone at its end, however it ends."""

    def __init__(self, machine: Machine) -> None:
        """Needs tracefs, root and the tracepoints; WbError in one line when one is missing."""
        top = tracefs(machine)
        if top is None:
            raise WbError("tracing is missing: mount tracefs (mount -t tracefs tracefs /sys/kernel/tracing), or the "
                          "kernel has no CONFIG_FTRACE")
        if not machine.exists(f"{top}/{SLEEP_EVENT}"):
            raise WbError("tracing is missing: this kernel has no tracepoint writeback:balance_dirty_pages")
        self._machine = machine
        self._top = machine.path(top)
        self._pipe: int | None = None
        self._rest = ""
        self._sleeps: Instance | None = None
        self._reads: Instance | None = None

    def __enter__(self) -> Trace:
        """Make the instances and start."""
        try:
            _remove_stale(self._top)
            self._sleeps = Instance(self._top, f"{PREFIX}{os.getpid()}-sleeps", DIRTY_KB, keep_first=False)
            self._sleeps.enable(SLEEP_EVENT, "pause > 0")
            self._pipe = os.open(self._sleeps.path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._sleeps.on()
            # Without block tracepoints there are no read latencies, and that is all.
            if all((self._top / e).exists() for e in READ_EVENTS):
                self._reads = Instance(self._top, f"{PREFIX}{os.getpid()}-reads", READS_KB, keep_first=True)
                for event in READ_EVENTS:
                    self._reads.enable(event, 'rwbs ~ "R*"')
                self._reads.on()
        except OSError as exc:
            self.close()
            raise WbError(f"tracing is not possible here: {exc.filename}: {exc.strerror}") from exc
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        """Remove the instances."""
        self.close()

    def close(self) -> None:
        """Remove what there is; Ctrl-C in here does not leave anything behind."""
        with uninterrupted():
            self._close()

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        for instance in (self._sleeps, self._reads):
            if instance is not None:
                instance.close()
        self._sleeps = self._reads = None

    def sleeps(self) -> tuple[list[Sleep], int]:
        """The sleeps since the last call, and the number of events lost."""
        return parse_sleeps(self._lines())

    def reads(self) -> dict[str, list[float]]:
        """Read times by device of the first part of the interval, as much as the buffer holds."""
        if self._reads is None:
            return {}
        found = parse_reads(self._reads.take(), partitions(self._machine))
        self._reads.on()
        return found

    def _lines(self) -> Iterator[str]:
        if self._pipe is None:
            return
        while True:
            try:
                chunk = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                return
            text = self._rest + chunk.decode(errors="replace")
            *lines, self._rest = text.split("\n")
            yield from lines


def _remove_stale(top: Path) -> None:
    """Instances of a wb watch that was killed."""
    for path in (top / "instances").glob(f"{PREFIX}*"):
        match = re.fullmatch(rf"{PREFIX}([0-9]+)-\w+", path.name)
        if match and not Path(f"/proc/{match.group(1)}").exists():
            with contextlib.suppress(OSError):
                path.rmdir()
