# SPDX-License-Identifier: GPL-2.0
"""The time limit at work: dirty memory, the device's share, rates and sleeps over time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wblib.report import samples
from wblib.report.collect import Cell, Data
from wblib.report.markup import Html, join, paragraph
from wblib.report.samples import Pause, Sample
from wblib.report.section import Section, lacking_runs, shown
from wblib.report.theme import WIDTH_IN, Drawn, Theme, draw
from wbtop.stats import short

from .sources import Sources

CASE = "dirty-time"
MB = 1e6
PARTS_OF_PICTURE = 160  # a phone shows the picture on 340 pixels


@dataclass(frozen=True)
class Recording:
    """One part of the case over time, in s since it began. without: samples of the same without a limit."""

    samples: Sequence[Sample]
    pauses: Sequence[Pause]
    marks: dict[str, float]
    without: Sequence[Sample]


# Name in the data files, the samples without the limit, title.
PARTS = (
    ("step", (), "a disk that goes from 200 to 10 MB/s, limit 300 ms"),
    ("stick_on", ("dirty_stick_off.csv",), "a stick of 10 MB/s, limit 3 s"),
)


def load(cell: Cell, name: str, without: Sequence[str]) -> Recording | None:
    """The recording ``name`` of a cell, None if no seed has it."""
    files = cell.files(f"dirty_{name}.csv", f"throttle_{name}.txt", f"{name}.marks", *without)
    if not files:
        return None
    dirty, slept, marks, *others = files
    moments = samples.marks(marks)
    begin = moments.pop("sampler", 0.0)
    return Recording(samples.samples(dirty), [replace(p, at=p.at - begin) for p in samples.pauses(slept)],
                     {n: at - begin for n, at in moments.items()}, [s for o in others for s in samples.samples(o)])


def thinned(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    """The least and the largest of each part of the time, in order: looks the same, and takes less room."""
    if len(xs) <= 2 * PARTS_OF_PICTURE:
        return list(xs), list(ys)
    parts: dict[int, list[int]] = {}
    for n, x in enumerate(xs):
        parts.setdefault(int((x - xs[0]) / (xs[-1] - xs[0]) * PARTS_OF_PICTURE), []).append(n)
    kept = sorted({pick(part, key=lambda n: ys[n]) for part in parts.values() for pick in (min, max)})
    return [xs[n] for n in kept], [ys[n] for n in kept]


def figure(name: str, found: Recording, title: str) -> Drawn:
    """Four panels: page cache and its limits, the device and its set point, rates, sleeps."""
    at = [p.at for p in found.pauses]

    def make(plt: Any, theme: Theme) -> Any:
        made, axes = plt.subplots(4, 1, figsize=(WIDTH_IN, 8.4), sharex=True, layout="constrained")
        memory, device, rates, sleeps = axes
        for mine, label, colour in ((found.without, "dirty + writeback, without", "a"),
                                    (found.samples, "dirty + writeback, with the time limit", "b")):
            if mine:
                memory.plot(*thinned([s.at for s in mine], [(s.dirty + s.writeback) / MB for s in mine]),
                            color=theme.colour(colour), linewidth=1.4, label=label)
        every = [s.at for s in found.samples]
        for style, label, limit in (("-", "global limit", [s.limit for s in found.samples]),
                                    ("--", "its freerun", [s.freerun for s in found.samples])):
            memory.plot(*thinned(every, [v / MB for v in limit]), color=theme.text, linewidth=1, linestyle=style,
                        label=label)
        memory.set_title("page cache, MB", loc="left")
        for axis, values, label, colour in (
                (device, [p.device_dirty / MB for p in found.pauses], "dirty + writeback", theme.colour("b")),
                (device, [p.device_setpoint / MB for p in found.pauses], "set point", theme.text),
                (rates, [p.dirty_ratelimit for p in found.pauses], "dirty_ratelimit", theme.colour("b")),
                (rates, [p.task_ratelimit for p in found.pauses], "task_ratelimit", theme.colour("e")),
                (sleeps, [p.pause for p in found.pauses], "", theme.colour("b"))):
            axis.plot(*thinned(at, values), color=colour, linewidth=1, label=label,
                      drawstyle="default" if axis is sleeps else "steps-post")
        device.set_title("of the device, at each sleep, MB", loc="left")
        rates.set_yscale("symlog", linthresh=1)
        rates.set_title("rates, MB/s (log)", loc="left")
        sleeps.set_title("sleeps planned, ms", loc="left")
        for axis in axes:
            axis.set_ylim(bottom=0)
            for moment in found.marks.values():
                axis.axvline(moment, color=theme.colour("a"), linewidth=1, linestyle=":")
        for axis in (memory, device, rates):
            axis.legend(loc="best", handlelength=1.6, labelspacing=0.3)
        sleeps.set_xlabel("time, s")
        return made

    return draw(name, f"Dirty memory, rates and sleeps over time, {title}", make)


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    parts: list[Html] = [paragraph(
        "max_drain_ms at work, in the four classic views: page cache against the global limit; the dirty pages "
        "of the device against its set point, which the time limit moves; the rates that the kernel plans from; the "
        "sleeps of dd. A dotted line: the disk becomes slower.")]
    pictures = []
    cells = data.best(CASE)
    for name, without, title in PARTS:
        # Stock has no such limit, and so no such recording.
        found = next(((k, r) for k, c in cells.items() if (r := load(c, name, without))), None)
        if not found:
            continue
        kernel, recording = found
        picture = figure(f"drain-{name.partition('_')[0]}", recording, title)
        pictures.append(picture)
        parts.append(shown(picture, join([f"{kernel}, {title}: {len(recording.pauses)} sleeps, ", sources.link(
            short(sum(p.pause for p in recording.pauses) / 1000), cells[kernel]), " s in all."])))
    if not pictures:
        parts.append(lacking_runs(CASE, {"stock"}, data, what=" with the time limit"))
    return Section("drain", "The time limit", join(parts, "\n"), pictures)
