# SPDX-License-Identifier: GPL-2.0
"""Reads over time with the writer below them, from what ``read-latency --trace-control 1`` records."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from wblib.catalog import axes as ax
from wblib.report import plot_control
from wblib.report.collect import Cell, Data, unusual
from wblib.report.markup import Html, join, paragraph
from wblib.report.plot_control import MIB, Recording
from wblib.report.section import Section, lacking_runs, shown
from wblib.report.theme import WIDTH_IN, Drawn, Theme, draw, legend_below, plain
from wblib.results.store import Result

from .sources import Sources

CASE = "read-latency"
READ_BIN_S = 0.02  # of the reads: one screen pixel is not much less
WRITE_BIN_S = 0.1  # of dd's progress, which is sampled every 0.02 s
FLOOR_MIB = plot_control.FLOOR_MIB
AXES = ("--disk", "fifo", "--trace-control", "1")  # of the recording to make when there is none


def recorded(cell: Cell) -> Result | None:
    """The run of a cell to draw: the first seed that has a recording."""
    return next((r for r in cell.runs if r.status != "error" and r.data(plot_control.EVENTS)), None)


def setups(data: Data) -> list[dict[str, Cell]]:
    """Per setup the recorded cells by kernel; those of several kernels first, at most one setup per disk."""
    found = [{k: c for k, c in pair.items() if recorded(c)} for pair in data.pairs(CASE)]
    found = sorted((f for f in found if f), key=lambda f: (-len(f), unusual(next(iter(f.values())))))
    chosen: dict[str, dict[str, Cell]] = {}
    for pair in found:
        chosen.setdefault(next(iter(pair.values())).axes.get("disk", "?"), pair)
    return list(chosen.values())


def slowest(reads: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Begin (s) of each READ_BIN_S in which reads ended, and the slowest of them in ms."""
    worst: dict[int, float] = {}
    for at, latency in reads:
        bin_ = math.floor(at / READ_BIN_S)
        worst[bin_] = max(worst.get(bin_, 0.0), latency)
    bins = sorted(worst)
    return [b * READ_BIN_S for b in bins], [1e3 * worst[b] for b in bins]


def speed(writer: Sequence[tuple[float, int]]) -> tuple[list[float], list[float]]:
    """Begin (s) of each WRITE_BIN_S of dd's run, and its MB/s there, between samples by interpolation."""
    if len(writer) < 2:
        return [], []

    def written(at: float) -> float:
        before = writer[0]
        for sample in writer:
            if sample[0] >= at:
                span = sample[0] - before[0]
                share = (at - before[0]) / span if span > 0 else 1.0
                return before[1] + share * (sample[1] - before[1])
            before = sample
        return before[1]

    begin, end = writer[0][0], writer[-1][0]
    # The last bin takes what is left: a short one of its own would be all noise.
    count = max(1, math.floor((end - begin) / WRITE_BIN_S))
    edges = [*(begin + n * WRITE_BIN_S for n in range(count)), end]
    return edges[:-1], [(written(b) - written(a)) / (b - a) / 1e6 if b > a else 0.0
                        for a, b in itertools.pairwise(edges)]


def figure(name: str, recordings: dict[str, Recording]) -> Drawn:
    """A panel of reads per kernel, then what dd writes, then what is inside the disk, of both."""
    count = len(recordings)
    top = max([1.0, *(1e3 * s for r in recordings.values() for _, s in r.reads)])

    def make(plt: Any, theme: Theme) -> Any:
        made, axes = plt.subplots(count + 2, 1, figsize=(WIDTH_IN, 1.75 * (count + 2) + 0.5), sharex=True,
                                  layout="constrained")
        for axis, (kernel, recording) in zip(axes, recordings.items(), strict=False):
            axis.plot(*slowest(recording.reads), color=theme.colour(kernel), linewidth=0.9)
            axis.set_yscale("log")
            axis.set_ylim(0.05, 2 * top)
            plain(axis.yaxis)
            axis.set_title(f"{kernel}: slowest read of {1e3 * READ_BIN_S:.0f} ms, ms (log)", loc="left")
            end = recording.marks.get("written", 0.0)
            axis.axvspan(0, end, color=theme.colour("band"), alpha=0.07, linewidth=0)
            axis.axvspan(end, recording.marks.get("synced", end), color=theme.colour("band"), alpha=0.14, linewidth=0)
        for kernel, recording in recordings.items():
            xs, ys = speed(recording.writer)
            last = recording.writer[-1][0] if recording.writer else 0.0
            axes[count].step([*xs, last, last], [*ys, *ys[-1:], 0] if ys else [0, 0], where="post",
                             color=theme.colour(kernel), linewidth=1.5, label=kernel)
            _flight(axes[count + 1], recording, kernel, theme)
        axes[count].set_title("dd writes, MB/s", loc="left")
        axes[count].set_ylim(bottom=0)
        axes[-1].set_yscale("log")
        axes[-1].set_ylim(bottom=FLOOR_MIB)
        plain(axes[-1].yaxis)
        axes[-1].set_title("writes inside the disk, peak of 10 ms, MiB (log)", loc="left")
        axes[-1].set_xlabel("time since dd began, s")
        legend_below(made, axes[-1], 2)
        return made

    return draw(name, f"Reads, dd and writes in flight over time: {', '.join(recordings)}", make)


def _flight(axis: Any, recording: Recording, kernel: str, theme: Theme) -> None:
    xs, ys = plot_control.peaks(recording.flight, recording.marks.get("synced", recording.flight[-1][0])) \
        if recording.flight else ([], [])
    axis.step(xs, [max(y, FLOOR_MIB) for y in ys], where="post", color=theme.colour(kernel), linewidth=0.9,
              label=kernel)
    if any(v is not None for _, v in recording.limit):
        axis.step([at for at, _ in recording.limit], [math.nan if v is None else v / MIB for _, v in recording.limit],
                  where="post", color=theme.text, linestyle="--", linewidth=1.2, label=f"limit set by {kernel}")


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    parts: list[Html] = [paragraph(
        "The same over time, one seed. Light grey: dd writes into the page cache; darker: sync. A read that takes "
        "long while the disk holds many bytes of writes waits for them.")]
    pictures = []
    chosen = setups(data)
    for pair in chosen:
        runs = {k: r for k in data.kernels if k in pair and (r := recorded(pair[k]))}
        recordings = {k: plot_control.load(r) for k, r in runs.items()}
        first = next(iter(pair.values()))
        disk = first.axes.get("disk", "?")
        picture = figure(f"timeline-{ax.word(disk)}", recordings)
        pictures.append(picture)
        facts = join((join([f"{k}, seed {runs[k].seed}: p99.95 ",
                            sources.value(pair[k], "read_p99_95", 1000), " ms, dd ",
                            sources.value(pair[k], "write_mbps"), " MB/s"]) for k in recordings), "; ")
        parts.append(shown(picture, join([f"{disk} disk, {first.axes.get('fs', '?')}. ", facts, "."])))
    best = max(chosen, key=len, default={})
    axes = ax.options(CASE, next(iter(best.values())).axes) if best else AXES
    parts.append(lacking_runs(CASE, best, data, axes, " that was recorded over time"))
    return Section("timeline", "Reads and the writer over time", join(parts, "\n"), pictures)
