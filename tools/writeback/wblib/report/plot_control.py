# SPDX-License-Identifier: GPL-2.0
"""The control loop of writeback throttling as a picture: bytes in flight and reads, over time.

Made from what ``read-latency --trace-control 1`` keeps; one column per result.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wblib.results import compare, store
from wblib.results.store import Result
from wbtop.errors import WbError
from wbtop.stats import short

from . import figure

EVENTS, READS = "control.csv", "control-read_clat.log"
BIN_S = 0.01  # of the bytes in flight; the largest value of each is drawn
NO_LIMIT = 1 << 50  # bytes; what is above it means "not limited"
SIZE_IN, DPI = (11.0, 6.6), 130  # 1430 x 858 pixels
MIB = 1 << 20
FLOOR_MIB = 0.05  # a log scale has no 0
COLOURS = {"flight": "#D55E00", "limit": "#000000", "reads": "#0072B2"}


@dataclass
class Recording:
    """One run over time, in seconds since the writer began.

    flight: bytes of writes inside the disk.  limit: of the kernel, None where
    there is none.  reads: completion and latency (s).  writer: bytes dd has
    written.  marks: the ends of dd and sync.
    """

    flight: list[tuple[float, int]] = field(default_factory=list)
    limit: list[tuple[float, int | None]] = field(default_factory=list)
    reads: list[tuple[float, float]] = field(default_factory=list)
    writer: list[tuple[float, int]] = field(default_factory=list)
    marks: dict[str, float] = field(default_factory=dict)


def load(result: Result) -> Recording:
    """What a run recorded; WbError when a file is missing or is not whole."""
    events, reads = result.data(EVENTS), result.data(READS)
    if events is None:
        raise WbError(f"{result.path} has no {EVENTS}: run the case again with --trace-control 1")
    try:
        recording = _events(events)
        if reads is not None:
            recording.reads = _reads(reads, float(result.axes["runtime"]))
    except OSError as exc:
        raise WbError(f"cannot read the recording of {result.path}: {exc.strerror}") from exc
    except (ValueError, IndexError, KeyError) as exc:
        raise WbError(f"the recording of {result.path} is not whole: run the case again") from exc
    if "start" not in recording.marks:
        raise WbError(f"the recording of {result.path} has no writer: run it with --writer buffered")
    start = recording.marks["start"]
    for series in (recording.flight, recording.limit, recording.reads, recording.writer):
        series[:] = [(at - start, value) for at, value in series]  # type: ignore[index]
    recording.marks = {name: at - start for name, at in recording.marks.items()}
    return recording


def _events(path: Path) -> Recording:
    """The lines "s,event,..." of lib/control.sh."""
    recording = Recording()
    flight = 0
    for line in path.read_text().splitlines():
        at, event, *values = line.split(",")
        if event in ("queue", "complete"):
            flight += int(values[0]) * (1 if event == "queue" else -1)
            recording.flight.append((float(at), max(flight, 0)))
        elif event == "wbt_bytes":
            named = dict(v.split("=", 1) for v in values)
            limit = int(named["limit"])
            active = named.get("active", "1") == "1" and limit < NO_LIMIT
            recording.limit.append((float(at), limit if active else None))
        elif event == "writer":
            recording.writer.append((float(at), int(values[0])))
        elif event == "mark":
            recording.marks[values[0]] = float(at)
    return recording


def _reads(path: Path, runtime: float) -> list[tuple[float, float]]:
    """fio's latency log: completion in ms of the monotonic clock, latency in ns.

    Without what completed after the readers' time: the first reader to end
    writes its log, at its real-time priority, while the others wait for the CPU.
    """
    found = []
    for line in path.read_text().splitlines():
        ms, ns = line.split(",")[:2]
        found.append((int(ms) / 1e3, int(ns) / 1e9))
    end = min((at - s for at, s in found), default=0.0) + runtime
    return [(at, s) for at, s in found if at <= end]


def peaks(series: Sequence[tuple[float, int]], end: float) -> tuple[list[float], list[float]]:
    """The largest value in each BIN_S, in MiB, from the first event to ``end``: what held on counts as well."""
    if not series:
        return [], []
    times = [at for at, _ in series]
    first = math.floor(times[0] / BIN_S)
    xs, ys, last = [], [], 0
    for n in range(first, math.ceil(end / BIN_S)):
        low = bisect.bisect_left(times, n * BIN_S)
        high = bisect.bisect_left(times, (n + 1) * BIN_S)
        values = [v for _, v in series[low:high]]
        xs.append(n * BIN_S)
        ys.append(max([last, *values]) / MIB)
        last = values[-1] if values else last
    return xs, ys


def choose(spec: str) -> Result:
    """The one recorded run that ``spec`` names: of several seeds the first; WbError for none or for several."""
    _, found = compare.find(spec)
    recorded = [r for r in found if r.case == "read-latency" and r.status != "error" and r.data(EVENTS)]
    if not recorded:
        raise WbError(f"{spec}: no run of read-latency with --trace-control 1 is there", 2)
    groups = compare.group(recorded)
    if len(groups) > 1:
        places = ", ".join(str(runs[0].path.parent) for runs in groups.values() if runs[0].path)
        raise WbError(f"{spec} holds several recordings, name one: {places}", 2)
    return min(recorded, key=lambda r: r.seed)


def percentile(reads: Sequence[tuple[float, float]], share: float) -> float | None:
    """The latency (s) that ``share`` of the reads are not above; None without reads."""
    ordered = sorted(s for _, s in reads)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def titles(runs: Sequence[Result], recordings: Sequence[Recording]) -> list[str]:
    """A heading per run: its kernel, in what it differs from the others, and its figures."""
    names = [n for n in runs[0].axes if len({r.axes.get(n) for r in runs}) > 1]
    found = []
    for run, recording in zip(runs, recordings, strict=True):
        head = " ".join([f"{run.kernel} kernel", *(f"{n}={run.axes[n]}" for n in names if run.axes.get(n))])
        tail, mbps = percentile(recording.reads, 0.9995), run.value("write_mbps")
        figures = [f"p99.95 read {short(1e3 * tail)} ms"] if tail is not None else []
        figures += [f"dd {mbps:.0f} MB/s"] if mbps is not None else []
        found.append("\n".join(filter(None, [head, ", ".join(figures)])))
    return found


def draw(recordings: Sequence[Recording], heads: Sequence[str], title: str) -> bytes:
    """The picture as PNG."""

    def make(plt: Any) -> Any:
        made, axes = plt.subplots(2, len(recordings), figsize=SIZE_IN, dpi=DPI, sharex=True, sharey="row",
                                  squeeze=False)
        for column, (recording, head) in enumerate(zip(recordings, heads, strict=True)):
            _flight(axes[0][column], recording)
            _latency(axes[1][column], recording)
            axes[0][column].set_title(head, fontsize=12)
            axes[1][column].set_xlabel("time since dd began, s")
        _decorate(axes, recordings)
        made.suptitle(title, fontsize=14)
        return made

    return figure.png(make, 12)


def _end(recording: Recording) -> float:
    """The last moment of a recording."""
    series = (recording.flight, recording.reads, recording.limit)
    return max([recording.marks.get("synced", 0.0), *(s[-1][0] for s in series if s)])


def _flight(axis: Any, recording: Recording) -> None:
    xs, ys = peaks(recording.flight, _end(recording))
    axis.step(xs, [max(y, FLOOR_MIB) for y in ys], where="post", color=COLOURS["flight"], linewidth=1.5,
              label=f"writes in flight, peak per {1000 * BIN_S:.0f} ms")
    if any(v is not None for _, v in recording.limit):
        axis.step([at for at, _ in recording.limit], [math.nan if v is None else v / MIB for _, v in recording.limit],
                  where="post", color=COLOURS["limit"], linestyle="--", linewidth=1.8, label="limit set by the kernel")
    axis.set_yscale("log")
    axis.legend(loc="lower right", fontsize=10.5, framealpha=0.95)


def _latency(axis: Any, recording: Recording) -> None:
    axis.plot([at for at, _ in recording.reads], [1e3 * s for _, s in recording.reads], linestyle="none", marker=".",
              markersize=3, color=COLOURS["reads"], alpha=0.5, label="one 4-KiB read")
    axis.set_yscale("log")
    if recording.reads:
        axis.legend(loc="upper right", fontsize=10.5, framealpha=0.95, markerscale=3)


def _decorate(axes: Any, recordings: Sequence[Recording]) -> None:
    from matplotlib.ticker import FuncFormatter
    plain = FuncFormatter(lambda v, _pos: f"{v:g}")
    axes[0][0].set_ylabel("bytes in the disk, MiB (log)")
    axes[1][0].set_ylabel("read latency, ms (log)")
    axes[0][0].set_ylim(bottom=FLOOR_MIB)
    slowest = max((1e3 * s for r in recordings for _, s in r.reads), default=1.0)
    axes[1][0].set_ylim(top=6 * slowest)  # room for the legend
    for row in axes:
        for axis, recording in zip(row, recordings, strict=True):
            axis.yaxis.set_major_formatter(plain)
            axis.grid(True, which="major", color="#cccccc", linewidth=0.8)
            axis.set_axisbelow(True)
            marks = recording.marks
            axis.axvspan(0, marks.get("written", 0.0), color="#f0e442", alpha=0.25, linewidth=0)
            if "synced" in marks:
                axis.axvspan(marks.get("written", 0.0), marks["synced"], color="#bbbbbb", alpha=0.25, linewidth=0)
    for axis, recording in zip(axes[1], recordings, strict=True):
        if recording.marks.get("written"):
            axis.text(0.02, 0.955, "yellow: dd runs; grey: sync", transform=axis.transAxes, va="top", fontsize=10.5)


def write(specs: Sequence[str], out: Path) -> None:
    """Draw the recordings that ``specs`` name side by side into ``out``."""
    if not 1 <= len(specs) <= 2:
        raise WbError("wb plot control takes one or two results: stock left, patched right", 2)
    runs = [choose(spec) for spec in specs]
    axes = runs[0].axes
    title = (f"Writeback throttling over time: {axes.get('writer', '?')} dd of {axes.get('mib', '?')} MiB, "
             f"{axes.get('disk', '?')} disk, {axes.get('fs', '?')}, {axes.get('readers', '?')} readers")
    recordings = [load(r) for r in runs]
    store.write_file(out, draw(recordings, titles(runs, recordings), title))
