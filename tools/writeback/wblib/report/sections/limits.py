# SPDX-License-Identifier: GPL-2.0
"""The classic picture of dirty memory over time against its limits, stock over patched."""

from collections.abc import Mapping, Sequence
from typing import Any

from wblib.catalog.axes import DIRTY_ROWS
from wblib.report import samples
from wblib.report.collect import Cell, Data
from wblib.report.markup import Html, details, join, paragraph
from wblib.report.samples import Sample
from wblib.report.section import Section, lacking_runs, shown
from wblib.report.theme import WIDTH_IN, Drawn, Theme, draw, legend_below

from .sources import Sources

CASE = "dirty-limits"


def label(row: str) -> str:
    """A setting of the study in words: background/limit in percent, limit/background in bytes."""
    a, b = row.replace("mb", "").split("_")
    return f"limit {a} MB, background {b} MB" if "mb" in row else f"limit {b} %, background {a} %"


def recordings(cells: Mapping[str, Cell], row: str) -> dict[str, list[Sample]]:
    """kernel -> samples of ``row``, of the first seed that has them."""
    return {kernel: samples.samples(path) for kernel, cell in cells.items()
            for path in cell.files(f"dirty_{row}.csv")}


def figure(name: str, found: Mapping[str, Sequence[Sample]], title: str) -> Drawn:
    """A panel per kernel, on the same scales."""
    top = max(max(s.dirty + s.writeback, s.limit) for mine in found.values() for s in mine) / 1e6

    def make(plt: Any, theme: Theme) -> Any:
        made, axes = plt.subplots(len(found), 1, figsize=(WIDTH_IN, 2.5 * len(found) + 0.7), sharex=True, sharey=True,
                                  squeeze=False, layout="constrained")
        for axis, (kernel, mine) in zip(axes[:, 0], found.items(), strict=True):
            at = [s.at for s in mine]
            axis.plot(at, [(s.dirty + s.writeback) / 1e6 for s in mine], color=theme.colour("a"), linewidth=1.4,
                      label="dirty + writeback")
            axis.plot(at, [s.dirty / 1e6 for s in mine], color=theme.colour("e"), linewidth=0.9, label="dirty")
            axis.plot(at, [s.writeback / 1e6 for s in mine], color=theme.colour("b"), linewidth=0.9,
                      label="writeback")
            axis.plot(at, [s.limit / 1e6 for s in mine], color=theme.text, linewidth=1.2, label="limit")
            axis.plot(at, [s.freerun / 1e6 for s in mine], color=theme.text, linewidth=1.2, linestyle="--",
                      label="freerun")
            axis.plot(at, [s.background / 1e6 for s in mine], color=theme.text, linewidth=1.2, linestyle=":",
                      label="background limit")
            axis.set_title(f"{kernel}: MB of page cache", loc="left")
            axis.set_ylim(0, 1.06 * top)
        axes[-1, 0].set_xlabel("time since dd began, s")
        legend_below(made, axes[-1, 0], 3)
        return made

    return draw(name, f"Dirty memory and its limits over time, {title}: {', '.join(found)}", make)


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    parts: list[Html] = [paragraph(
        "dd into the page cache under each setting of the study, sampled every 10 ms from /proc/vmstat. Above the "
        "background limit the flusher writes; above freerun, (limit + background) / 2, dd is made to sleep; dirty + "
        "writeback should stay between freerun and the limit, as a line and not as a saw.")]
    pictures = []
    cells = data.best(CASE)
    folded = []
    drawn: set[str] = set()
    for row in DIRTY_ROWS:
        found = recordings(cells, row)
        if not found:
            continue
        drawn |= set(found)
        picture = figure(f"dirty-limits-{row}", found, label(row))
        pictures.append(picture)
        peaks = join((join([f"{k}: peak ", sources.value(cells[k], f"max_dirty_{row}", 1e6), " MB of ",
                            sources.value(cells[k], f"thresh_{row}", 1e6)]) for k in found), ", ")
        made = shown(picture, join([f"{label(row)}. ", peaks, " MB."]))
        if len(pictures) == 1:
            parts.append(made)
        else:
            folded.append(details(label(row), made))
    parts += folded
    parts.append(lacking_runs(CASE, drawn, data, what=" with its samples"))
    return Section("limits", "Dirty memory and its limits", join(parts, "\n"), pictures)
