# SPDX-License-Identifier: GPL-2.0
"""Private tracing instances: who is put to sleep in balance_dirty_pages(), and how long reads take.

An instance has buffers, events, filters, options and a clock of its own, so no setting
of the machine changes and removing it restores everything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wbtop.errors import WbError
from wbtop.machine import Machine, nvme_head
from wbtop.proc import uninterrupted

from .events import COMPLETE_FORMAT, QUEUE_FORMAT, SLEEP_FORMAT, Format, parse_format

TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
PREFIX = "wb-watch-"
DIRTY_KB = 1024  # per CPU: some 5000 sleeps between two looks
DIRTY_ALL_KB = 16384  # of all CPUs, but not below 64 a CPU, some 300 sleeps
READS_KB = 256  # per CPU: some 3000 events, the sample of an interval
READS_ALL_KB = 4096  # of all CPUs: to read it takes a third of a second; 200 CPUs' 256 KiB take five
SLEEP_EVENT = "events/writeback/balance_dirty_pages"
# A new instance has the machine's options; lines are read as they are by default.
OPTIONS = {"context-info": "1", **dict.fromkeys(("latency-format", "raw", "hex", "bin", "fields", "stacktrace",
                                                 "userstacktrace"), "0")}
READ_EVENTS = ("events/block/block_bio_queue", "events/block/block_rq_complete")

_LINE = re.compile(r"^\s*(?P<comm>.*)-(?P<pid>[0-9]+)\s+(?:\([^)]*\)\s+)?\[[0-9]+\]\s+(?:[^\s:]+\s+)?"
                   r"(?P<time>[0-9]+\.[0-9]+): (?P<event>\w+): (?P<rest>.*)$")
_NEEDED = ("bdi", "dirty", "pause")
_READ_NEEDED = ("dev", "dev#2", "rwbs", "sector")
_LOST = re.compile(r"\[LOST ([0-9]+) EVENTS\]")


@dataclass(frozen=True)
class Sleep:
    """One sleep as the kernel planned it: ms in whole timer ticks; dirty in pages of the domain that throttles.

    bdi_dirty, rate_kbps: 0, cgroup: 1, the root, where this kernel does not say.
    """

    pid: int
    comm: str
    bdi: str
    pause_ms: int
    dirty: int
    bdi_dirty: int
    rate_kbps: int
    cgroup: int


def _format(machine: Machine, event: str, known: str) -> Format:
    """How this kernel prints ``event``; WbError when its format is not one that can be read."""
    text = next((text for d in TRACEFS if (text := machine.text(f"{d}/{event}/format"))), known)
    found = parse_format(text)
    missing = found.lacks(_NEEDED if known is SLEEP_FORMAT else _READ_NEEDED) if found else ["print fmt"]
    if found is None or missing:
        raise WbError(f"{event}/format of this kernel has no {', '.join(missing)}: please report it with the file")
    return found


def parse_sleeps(lines: Iterable[str], form: Format | None = None) -> tuple[list[Sleep], int, int]:
    """Sleeps in the text of a trace, how many events the buffer lost, and how many were not understood."""
    form = form or parse_format(SLEEP_FORMAT)
    assert form is not None
    found, lost, unknown = [], 0, 0
    for line in lines:
        match = _LINE.match(line)
        if match and match["event"] == "balance_dirty_pages":
            v = form.parse(match["rest"])
            if v is None:
                unknown += 1
            elif int(v["pause"]) > 0:
                found.append(Sleep(int(match["pid"]), match["comm"].strip(), v["bdi"], int(v["pause"]),
                                   int(v["dirty"]), int(v.get("wb_dirty", 0)), int(v.get("task_ratelimit", 0)),
                                   int(v.get("cgroup_ino", 1))))
        elif gap := _LOST.search(line):
            lost += int(gap.group(1))
        elif not match and _says_something(line):
            unknown += 1
    return found, lost, unknown


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def parse_reads(lines: Iterable[str], whole: Mapping[str, str] | None = None,
                forms: Mapping[str, Format] | None = None,
                heads: Iterable[str] = ()) -> tuple[dict[str, list[float]], int]:
    """Device number of the disk -> times in us from the submission of a read to its completion; and what was unknown.

    whole: number of a partition -> that of its disk, since a bio carries the one and
    its request the other.  heads: those of multipath(); what completes on a number that
    nothing was sent to was sent to one of them, by its sector.  A read that was merged into
    the request of another one, or was under way at either end of the sample, has no partner
    and does not count.
    """
    whole = whole or {}
    forms = forms or {e: f for e, text in (("block_bio_queue", QUEUE_FORMAT), ("block_rq_complete", COMPLETE_FORMAT))
                      if (f := parse_format(text))}
    waiting: dict[tuple[str, str], float] = {}
    found: dict[str, list[float]] = {}
    sent: set[str] = set()
    unknown = 0
    for line in lines:
        match = _LINE.match(line)
        if not match or match["event"] not in forms:
            unknown += not match and _says_something(line) and not _LOST.search(line)
            continue
        v = forms[match["event"]].parse(match["rest"])
        if v is None:
            unknown += 1
            continue
        if not v["rwbs"].startswith("R"):
            continue
        dev = f"{v['dev']}:{v['dev#2']}"
        key, now = (whole.get(dev, dev), v["sector"]), float(match["time"]) * 1e6
        if match["event"] == "block_bio_queue":
            waiting[key] = now
            sent.add(key[0])
            continue
        if key[0] not in sent:
            of_heads = [k for h in heads if (k := (h, v["sector"])) in waiting]
            key = of_heads[0] if len(of_heads) == 1 else key
        if key in waiting:
            found.setdefault(key[0], []).append(max(0.0, now - waiting.pop(key)))
    return found, unknown


def partitions(machine: Machine) -> dict[str, str]:
    """Device number of each partition -> that of its disk."""
    found = {}
    for name in machine.names("/sys/class/block"):
        base = f"/sys/class/block/{name}"
        if machine.exists(f"{base}/partition"):
            disk = machine.path(base).resolve().parent.name
            part, whole = machine.text(f"{base}/dev"), machine.text(f"/sys/class/block/{disk}/dev")
            if part and whole:
                found[part] = whole
    return found


def multipath(machine: Machine) -> set[str]:
    """Device numbers of the NVMe disks whose reads complete on hidden ones, one a path, whose numbers no file has."""
    heads = {head for name in machine.names("/sys/class/block") if (head := nvme_head(name))}
    return {dev for head in heads if (dev := machine.text(f"/sys/class/block/{head}/dev"))}


def tracefs(machine: Machine) -> str | None:
    """Where tracefs is mounted; None where it is not, or is not readable."""
    return next((d for d in TRACEFS if machine.names(f"{d}/events")), None)


class Instance:
    """One private instance, with its events off until ``on``."""

    def __init__(self, top: Path, what: str, size_kb: int, *, keep_first: bool) -> None:
        """Make it. keep_first: when the buffer is full, new events are dropped instead of old ones."""
        self._events: list[str] = []
        self._held: int | None = None
        try:
            self._make(top, what)
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            self._make(top, what)  # another wb watch removed it before it was open
        try:
            self.write("tracing_on", "0")
            self.write("buffer_size_kb", str(size_kb))
            # CPUs' own clocks differ; on a kernel without this one they have to do.
            with contextlib.suppress(OSError):
                self.write("trace_clock", "mono")
            for option, value in {**OPTIONS, "overwrite": "0" if keep_first else "1"}.items():
                with contextlib.suppress(OSError):  # older kernels do not have all of them
                    self.write(f"options/{option}", value)
        except BaseException:
            self.close()
            raise

    def _make(self, top: Path, what: str) -> None:
        # The number is that of several in containers.
        self.path = top / "instances" / f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}-{what}"
        self.path.mkdir()
        try:
            # With an open file it cannot be removed: not by a wb watch that does not see this process, either.
            self._held = os.open(self.path / "tracing_on", os.O_RDONLY | os.O_CLOEXEC)
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
        if self._held is not None:
            os.close(self._held)
            self._held = None
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
        self._form = _format(machine, SLEEP_EVENT, SLEEP_FORMAT)
        self._read_forms: dict[str, Format] = {}
        self.notes: list[str] = []
        self._top = machine.path(top)
        self._pipe: int | None = None
        self._rest = ""
        self._sleeps: Instance | None = None
        self._reads: Instance | None = None

    def __enter__(self) -> Trace:
        """Make the instances and start."""
        try:
            _remove_stale(self._top)
            self._sleeps = Instance(self._top, "sleeps", dirty_kb(os.cpu_count() or 1), keep_first=False)
            self._sleeps.enable(SLEEP_EVENT, "pause > 0")
            self._pipe = os.open(self._sleeps.path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._sleeps.on()
            # Without block tracepoints there are no read latencies, and that is all.
            if self._reads_known():
                self._reads = Instance(self._top, "reads", reads_kb(os.cpu_count() or 1), keep_first=True)
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

    def _reads_known(self) -> bool:
        if not all((self._top / e).exists() for e in READ_EVENTS):
            self.notes.append("this kernel has no block tracepoints: read percentiles are missing")
            return False
        try:
            self._read_forms = {e.rpartition("/")[2]: _format(self._machine, e, text)
                                for e, text in zip(READ_EVENTS, (QUEUE_FORMAT, COMPLETE_FORMAT))}
        except WbError as exc:
            self.notes.append(f"{exc}; read percentiles are missing")
            return False
        return True

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

    def sleeps(self) -> tuple[list[Sleep], int, int]:
        """The sleeps since the last call, the number of events lost, and of those not understood."""
        return parse_sleeps(self._lines(), self._form)

    def reads(self) -> tuple[dict[str, list[float]], int]:
        """Read times by device of the first part of the interval, as much as the buffer holds; and what was unknown."""
        if self._reads is None:
            return {}, 0
        found = parse_reads(self._reads.take(), partitions(self._machine), self._read_forms,
                            multipath(self._machine))
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


def dirty_kb(cpus: int) -> int:
    """The buffer of each CPU for sleeps."""
    return max(64, min(DIRTY_KB, DIRTY_ALL_KB // cpus))


def reads_kb(cpus: int) -> int:
    """The buffer of each CPU for reads."""
    return max(16, min(READS_KB, READS_ALL_KB // cpus))


def _remove_stale(top: Path) -> None:
    """Instances of a wb watch that was killed."""
    for path in (top / "instances").glob(f"{PREFIX}*"):
        match = re.match(rf"{PREFIX}([0-9]+)-", path.name)
        # In a container the number may be ours again, always 1, and others' processes are not seen: what is live is
        # busy and stays.
        if match and (int(match[1]) == os.getpid() or not Path(f"/proc/{match[1]}").exists()):
            with contextlib.suppress(OSError):
                path.rmdir()
