# SPDX-License-Identifier: GPL-2.0
"""Reading what a run keeps of dirty memory: vmstat samples and the sleeps of a throttled task."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from wbtop.errors import WbError

PAGE = 4096
COLUMNS = ("seconds", "nr_dirty", "nr_writeback", "nr_dirty_threshold", "nr_dirty_background_threshold")
_EVENT = re.compile(r" (?P<at>[0-9]+\.[0-9]+): balance_dirty_pages: (?P<rest>.*)$")
_FIELD = re.compile(r"([a-z_]+)=(-?[0-9]+)")


@dataclass(frozen=True)
class Sample:
    """Counters of one moment, in bytes; at in s."""

    at: float
    dirty: int
    writeback: int
    limit: int
    background: int

    @property
    def freerun(self) -> float:
        """Below it nobody is throttled: dirty_freerun_ceiling() of mm/page-writeback.c."""
        return (self.limit + self.background) / 2


@dataclass(frozen=True)
class Pause:
    """One planned sleep in balance_dirty_pages(). at: s; pause: ms; rates: MB/s; the device's pages: bytes."""

    at: float
    pause: float
    dirty_ratelimit: float
    task_ratelimit: float
    device_dirty: int = 0
    device_setpoint: int = 0


def _again(path: Path, problem: str) -> WbError:
    return WbError(f"{path} {problem}: delete that run and run the case again")


def _lines(path: Path) -> list[str]:
    """The lines of a file that ends with one."""
    try:
        text = path.read_text()
    except OSError as exc:
        raise WbError(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise _again(path, "is not text") from exc
    if text and not text.endswith("\n"):
        raise _again(path, "is truncated")
    return text.splitlines()


def samples(path: Path) -> list[Sample]:
    """The rows of vmstat_sampler's CSV; WbError when it is not one or is cut short."""
    try:
        rows = list(csv.DictReader(_lines(path)))
        found = [Sample(float(r["seconds"]), *(int(r[c]) * PAGE for c in COLUMNS[1:])) for r in rows]
    except (ValueError, KeyError, TypeError) as exc:
        raise _again(path, "is truncated or holds no samples of vmstat") from exc
    if not found:
        raise _again(path, "holds no samples")
    return found


def pauses(path: Path) -> list[Pause]:
    """The events of writeback:balance_dirty_pages in a trace; empty when nobody slept."""
    found = []
    for line in _lines(path):
        event = _EVENT.search(line)
        fields = dict(_FIELD.findall(event["rest"])) if event else {}
        if not {"pause", "dirty_ratelimit", "task_ratelimit"} <= set(fields):
            raise _again(path, "is truncated or not a trace of balance_dirty_pages")
        assert event is not None
        # KBps() of include/trace/events/writeback.h: units of 1024 bytes.
        found.append(Pause(float(event["at"]), float(fields["pause"]), int(fields["dirty_ratelimit"]) * 1024 / 1e6,
                           int(fields["task_ratelimit"]) * 1024 / 1e6, int(fields.get("bdi_dirty", 0)) * PAGE,
                           int(fields.get("bdi_setpoint", 0)) * PAGE))
    return found


def marks(path: Path) -> dict[str, float]:
    """Moments that a case has named, in s of the trace's clock: lines "name seconds"."""
    try:
        return {name: float(at) for name, at in (line.split() for line in _lines(path))}
    except ValueError as exc:
        raise _again(path, "is truncated or holds no moments") from exc
