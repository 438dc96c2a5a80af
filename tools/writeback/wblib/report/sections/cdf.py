# SPDX-License-Identifier: GPL-2.0
"""CDF of read latency, a picture per disk: what a writer does to readers."""

import math
from collections.abc import Mapping
from typing import Any

from wblib.catalog import axes as ax
from wblib.report import plot
from wblib.report.collect import Cell, Data, unusual
from wblib.report.markup import Html, box, bullets, join, missing, paragraph
from wblib.report.section import Section, shown
from wblib.report.theme import WIDTH_IN, Drawn, Theme, draw, legend_below, plain

from .sources import Sources

CASE = "read-latency"
HEIGHT_IN = 4.3
# What is drawn of a kernel, in the order of the legend: label, axes, line style.
WRITERS = (
    ("no writer", {"writer": "idle", "wbt": "default"}, ":"),
    ("dd oflag=direct", {"writer": "direct", "wbt": "default"}, "-."),
    ("dd, wbt off", {"writer": "buffered", "wbt": "off"}, "--"),
    ("dd", {"writer": "buffered", "wbt": "default"}, "-"),
)
# These can only come from one kernel without hiding each other; the first that has them.
SHARED = 2

Curve = tuple[str, str, str, Mapping[int, int]]  # label, role of the colour, line style, bins
Setup = tuple[tuple[str, str], ...]


def _rest(cell: Cell) -> Setup:
    return tuple((k, v) for k, v in cell.axes.items() if k not in ("writer", "wbt", "trace-control"))


def setups(data: Data) -> dict[str, list[Cell]]:
    """Per disk the cells that differ in writer and wbt only: of the setup with most kernels, then most writers."""
    groups: dict[tuple[str, Setup], list[Cell]] = {}
    for cell in data.of(CASE):
        if cell.axes.get("trace-control", "0") == "0" and any(r.data("fio.json") for r in cell.runs):
            groups.setdefault((cell.lane, _rest(cell)), []).append(cell)
    best: dict[str, tuple[tuple[int, ...], list[Cell]]] = {}
    for (lane, setup), cells in groups.items():
        buffered = {c.kernel for c in cells if c.has(writer="buffered", wbt="default")}
        if not buffered:
            continue
        rank = (len(buffered), lane == "exact", -unusual(cells[0], "disk", "writer", "wbt"),
                len({tuple(c.axes.items()) for c in cells}))
        disk = dict(setup).get("disk", "?")
        if disk not in best or rank > best[disk][0]:
            best[disk] = (rank, cells)
    order = [*ax.CASES[CASE].axis("disk").choices]
    return {d: best[d][1] for d in sorted(best, key=lambda d: (order.index(d) if d in order else 99, d))}


def curves(cells: list[Cell], kernels: list[str]) -> list[tuple[Cell, Curve]]:
    """What to draw of one disk."""
    found: list[tuple[Cell, Curve]] = []
    for number, (label, axes, style) in enumerate(WRITERS):
        mine = [c for k in kernels for c in cells if c.kernel == k and c.has(**axes)]
        for cell in mine[:1] if number < SHARED else mine:
            bins = plot.merged([r for r in cell.runs if r.status != "error"])
            if bins:
                role = label.split(" ")[-1] if number < SHARED else cell.kernel
                role = {"writer": "idle", "oflag=direct": "direct"}.get(role, role)
                found.append((cell, (f"{label} ({cell.kernel})", role, style, bins)))
    return found


def figure(name: str, drawn: list[Curve], disk: str) -> Drawn:
    """The picture of one disk."""
    def make(plt: Any, theme: Theme) -> Any:
        made, axis = plt.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        top = 2.0
        for label, role, style, bins in drawn:
            xs, ys = plot.points(bins)
            axis.step([xs[0], *xs], [0.0, *ys], where="post", color=theme.colour(role), linestyle=style, linewidth=1.7,
                      label=label)
            top = max(top, ys[-1])
        ticks = [t for t in plot.TICKS if -math.log10(1 - t) <= top + 0.05]
        axis.set_xscale("log")
        plain(axis.xaxis)  # of the data's limits
        axis.set_yticks([-math.log10(1 - t) for t in ticks], [f"{100 * t:.6g} %" for t in ticks])
        axis.set_ylim(0, top * 1.03)
        axis.set_xlabel(f"read latency, ms (log), {disk} disk")
        axis.set_title("share of reads at or below", loc="left")
        legend_below(made, axis, 2)
        return made

    labels = ", ".join(c[0] for c in drawn)
    return draw(name, f"CDF of read latency on the {disk} disk: {labels}", make)


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    parts: list[Html] = [paragraph(
        "4-KiB reads beside a writer. To the right is worse. The y axis is logarithmic towards 100 %, so the slowest "
        "reads have as much room as the others; a curve pools its seeds.")]
    pictures, items = [], []
    for disk, cells in setups(data).items():
        found = curves(cells, data.kernels)
        picture = figure(f"read-latency-cdf-{ax.word(disk)}", [c for _, c in found], disk)
        pictures.append(picture)
        lines = bullets([join([curve[0], ": p99.95 ", sources.value(cell, "read_p99_95", 1000), " ms, p99.99 ",
                               sources.value(cell, "read_p99_99", 1000), " ms, slowest ",
                               sources.value(cell, "read_max", 1000), " ms"]) for cell, curve in found])
        items.append(box("", shown(picture, f"{disk} disk: {_note(cells[0])}"), lines))
    parts.append(box("grid", *items))
    if not pictures:
        parts.append(missing("No run of read-latency with a buffered writer and its fio.json is among the results. "
                             "These make them:", "wb bench demo --kernel stock patched",
                             "wb bench block --kernel stock patched"))
    return Section("cdf", "Read latency beside a writer", join(parts, "\n"), pictures)


def _note(cell: Cell) -> str:
    axes = cell.axes
    readers = f"{axes.get('readers', '?')} readers, {axes.get('rate', '?')} IOPS each"
    return f"{axes.get('fs', '?')}, scheduler {axes.get('sched', '?')}, {readers}, dd of {axes.get('mib', '?')} MiB"
