# SPDX-License-Identifier: GPL-2.0
"""The sleeps of a throttled dd and the rates the kernel planned them from, stock over patched."""

from collections.abc import Mapping, Sequence
from typing import Any

from wblib.report import samples
from wblib.report.collect import Cell, Data
from wblib.report.markup import Html, join, paragraph
from wblib.report.samples import Pause
from wblib.report.section import Section, lacking_runs, shown
from wblib.report.theme import WIDTH_IN, Drawn, Theme, draw, legend_below

from .sources import Sources

CASE = "dirty-ratio-dd"
ROWS = ("20", "20_fdatasync", "40", "40_fdatasync")


def recordings(cells: Mapping[str, Cell], row: str) -> dict[str, list[Pause]]:
    """kernel -> sleeps under ``row``, of the first seed that has them."""
    return {kernel: mine for kernel, cell in cells.items()
            for path in cell.files(f"throttle_{row}.txt") if (mine := samples.pauses(path))}


def figure(name: str, found: Mapping[str, Sequence[Pause]], title: str) -> Drawn:
    """Per kernel a panel of sleeps and one of rates, on the same scales."""
    rate = max(max(p.dirty_ratelimit, p.task_ratelimit) for mine in found.values() for p in mine)
    longest = max(p.pause for mine in found.values() for p in mine)

    def make(plt: Any, theme: Theme) -> Any:
        made, axes = plt.subplots(2 * len(found), 1, figsize=(WIDTH_IN, 3.3 * len(found) + 0.6), sharex=True,
                                  layout="constrained")
        for n, (kernel, mine) in enumerate(found.items()):
            at = [p.at - mine[0].at for p in mine]
            axes[2 * n].vlines(at, 0, [p.pause for p in mine], color=theme.colour(kernel), linewidth=1.2)
            axes[2 * n].plot(at, [p.pause for p in mine], linestyle="none", marker="o", markersize=3,
                             color=theme.colour(kernel))
            axes[2 * n].set_title(f"{kernel}: sleep planned, ms", loc="left")
            axes[2 * n].set_ylim(0, 1.1 * longest)
            axes[2 * n + 1].step(at, [p.dirty_ratelimit for p in mine], where="post", color=theme.colour("b"),
                                 linewidth=1.4, label="dirty_ratelimit (estimate for the disk)")
            axes[2 * n + 1].step(at, [p.task_ratelimit for p in mine], where="post", color=theme.colour("e"),
                                 linewidth=0.9, label="task_ratelimit (what dd may dirty)")
            axes[2 * n + 1].set_title(f"{kernel}: rates, MB/s", loc="left")
            axes[2 * n + 1].set_ylim(0, 1.1 * rate)
        axes[-1].set_xlabel("time since the first sleep, s")
        legend_below(made, axes[-1], 1)
        return made

    return draw(name, f"Sleeps in balance_dirty_pages and the rates behind them, {title}: {', '.join(found)}", make)


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    parts: list[Html] = [paragraph(
        "How dd is slowed down: each point is one sleep in balance_dirty_pages(). The kernel plans it from "
        "dirty_ratelimit, its estimate of what one task may dirty so that the disk keeps up, and from how far dirty "
        "memory is from its set point. Short sleeps of equal length are good; long ones are what a user feels.")]
    pictures = []
    cells = data.best(CASE)
    drawn: set[str] = set()
    for row in ROWS:
        found = recordings(cells, row)
        if not found:
            continue
        ratio, _, sync = row.partition("_")
        title = f"dirty_ratio {ratio}" + (f", {sync}" if sync else "")
        drawn |= set(found)
        picture = figure(f"pauses-{row}", found, title)
        pictures.append(picture)
        slept = {k: f"{sum(p.pause for p in mine) / 1000:.3f}" for k, mine in found.items()}
        facts = join((join([f"{k}: {len(found[k])} sleeps, ", sources.link(slept[k], cells[k]), " s in all"])
                      for k in found), "; ")
        parts.append(shown(picture, join([f"{title}. ", facts, "."])))
    parts.append(lacking_runs(CASE, drawn, data, what=" in which dd slept"))
    return Section("pauses", "Sleeps of a throttled writer", join(parts, "\n"), pictures)
