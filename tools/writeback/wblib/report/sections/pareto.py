# SPDX-License-Identifier: GPL-2.0
"""Read p99.95 against the writer's MB/s: every knob there is today, and the series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wblib.catalog import axes as ax
from wblib.catalog.suites import suite
from wblib.report.collect import Cell, Data
from wblib.report.markup import Html, Text, box, join, missing, paragraph, table
from wblib.report.section import Section, shown
from wblib.report.theme import SMALL, WIDTH_IN, Drawn, Theme, draw, legend_below, plain

from .place import labels
from .sources import Sources

CASE, READ, WRITE = "read-latency", "read_p99_95", "write_mbps"
KNOBS = ("sched", "sched-set", "wbt", "policy", "max-sectors-kb", "iocost")
COMMANDS = ("wb bench peers", "wb bench block --kernel stock patched")
MARK_PT = 3.6  # radius of a point
FAMILIES = {"none": ("a", "o"), "mq-deadline": ("d", "s"), "kyber": ("c", "^"), "bfq": ("e", "v"),
            "iocost": ("f", "D")}


@dataclass(frozen=True)
class Point:
    """One setting of one kernel. read: ms; write: MB/s."""

    cell: Cell
    read: float
    write: float

    @property
    def family(self) -> str:
        """The scheduler, or io.cost."""
        return "iocost" if self.cell.axes.get("iocost") == "on" else self.cell.axes.get("sched", "none")

    @property
    def off(self) -> bool:
        """Whether throttling is switched off, or back to what stock has."""
        return self.cell.axes.get("wbt") == "off" or self.cell.axes.get("policy") == "requests"

    @property
    def knobs(self) -> str:
        """What was turned, in words."""
        axes = self.cell.axes
        words = [f"io.cost, {axes.get('sched')}" if self.family == "iocost" else self.family]
        words += [axes["sched-set"]] if axes.get("sched-set") else []
        words += [f"wbt {axes['wbt']}"] if axes.get("wbt", "default") != "default" else []
        words += [f"policy {axes['policy']}"] if axes.get("policy", "default") != "default" else []
        words += [f"max_sectors_kb {axes['max-sectors-kb']}"] if axes.get("max-sectors-kb", "default") != "default" \
            else []
        words += [axes["disk-set"]] if axes.get("disk-set") else []
        return ", ".join(words)


def _is_knob(cell: Cell) -> bool:
    """Whether the cell differs from the defaults by settings only: same disk, files, readers and writer."""
    if not cell.has(writer="buffered") or cell.lane != "exact":
        return False
    for axis in ax.CASES[CASE].axes:
        value = cell.axes.get(axis.name, axis.default)
        if axis.name == "disk-set":
            if value and not value.startswith("queue_depth="):
                return False
        elif axis.name not in ("disk", "writer", *KNOBS) and value != axis.default:
            return False
    return True


def points(data: Data) -> dict[str, list[Point]]:
    """Per disk what was measured: by kernel, then from fast reads to slow ones."""
    found: dict[str, list[Point]] = {}
    for cell in data.of(CASE):
        read, write = cell.measured(READ), cell.measured(WRITE)
        if _is_knob(cell) and read and write:
            found.setdefault(cell.axes["disk"], []).append(Point(cell, read.median / 1000, write.median))
    for mine in found.values():
        mine.sort(key=lambda p: (data.kernels.index(p.cell.kernel), p.read, p.knobs))
    return {d: mine for d, mine in found.items() if len(mine) > 2}


def frontier(found: Sequence[Point]) -> list[Point]:
    """The points that no other one beats in both, by speed."""
    return sorted((p for p in found if not any(
        q.read <= p.read and q.write >= p.write and (q.read, q.write) != (p.read, p.write) for q in found)),
        key=lambda p: (p.write, p.read))


def figure(name: str, found: Sequence[Point], disk: str) -> Drawn:
    """The picture of one disk; a point's number is its row in the table."""
    def make(plt: Any, theme: Theme) -> Any:
        made, axis = plt.subplots(figsize=(WIDTH_IN, 4.9), layout="constrained")
        for family in dict.fromkeys(p.family for p in found if p.cell.kernel == "stock"):
            role, marker = FAMILIES.get(family, ("g", "o"))
            mine = [p for p in found if p.cell.kernel == "stock" and p.family == family]
            axis.plot([p.write for p in mine], [p.read for p in mine], linestyle="none", marker=marker,
                      markersize=2 * MARK_PT, color=theme.colour(role), label=f"stock, {family}")
        for kernel in dict.fromkeys(p.cell.kernel for p in found if p.cell.kernel != "stock"):
            for off in (False, True):
                mine = [p for p in found if p.cell.kernel == kernel and p.off is off]
                if mine:
                    axis.plot([p.write for p in mine], [p.read for p in mine], linestyle="none", marker="*",
                              markersize=3.4 * MARK_PT, color=theme.colour(kernel),
                              fillstyle="none" if off else "full",
                              label=f"{kernel}, switched off" if off else kernel)
        best = frontier(found)
        # What one of them reaches is to its left and above: a stair, no line.
        axis.step([p.write for p in best], [p.read for p in best], where="pre", color=theme.text, linewidth=0.8,
                  linestyle=":", label="not beaten in both")
        axis.set_yscale("log")
        axis.margins(0.1)
        plain(axis.yaxis)
        axis.set_title("read p99.95, ms (log): lower is better", loc="left")
        axis.set_xlabel(f"dd, MB/s: right is better ({disk} disk)")
        legend_below(made, axis, 2)
        made.canvas.draw()
        _number(made, axis, found, theme)
        return made

    return draw(name, f"Read p99.95 against the writer's speed on the {disk} disk", make)


def _number(made: Any, axis: Any, found: Sequence[Point], theme: Theme) -> None:
    """Write each point's number beside it."""
    scale = made.dpi / 72
    at = [tuple(axis.transData.transform((p.write, p.read))) for p in found]
    sizes = [(0.68 * SMALL * len(str(n + 1)) * scale, SMALL * scale) for n in range(len(found))]
    box = axis.get_window_extent()
    for n, (x, y) in enumerate(labels(at, sizes, 1.2 * MARK_PT * scale, (box.x0, box.y0, box.x1, box.y1))):
        dx, dy = (x - at[n][0]) / scale, (y - at[n][1]) / scale
        line = {"arrowstyle": "-", "linewidth": 0.5, "color": theme.text, "shrinkA": 2, "shrinkB": 2}
        axis.annotate(str(n + 1), (found[n].write, found[n].read), xytext=(dx, dy), textcoords="offset points",
                      ha="center", va="center", fontsize=SMALL, color=theme.text,
                      arrowprops=line if dx * dx + dy * dy > (3.2 * MARK_PT) ** 2 else None)


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    parts: list[Html] = [paragraph(
        "What turning knobs can reach today, and what the series reaches: fast reads are bought with the writer's "
        "speed unless a point is to the right of and below the others. dd's speed includes what stays in the page "
        "cache; drain is the time until all of it is on the disk. Numbers are rows of the table.")]
    pictures = []
    wanted = suite("peers").cells
    have = {tuple(c.axes.items()) for c in data.of(CASE, "stock")}
    for disk, found in points(data).items():
        picture = figure(f"pareto-{ax.word(disk)}", found, disk)
        pictures.append(picture)
        best = frontier(found)
        rows: list[list[Text]] = [[
            str(n), join([p.cell.kernel, ": ", p.knobs, " ●" if p in best else ""]),
            sources.value(p.cell, READ, 1000, spread=True), sources.value(p.cell, WRITE, spread=True),
            sources.value(p.cell, "drain_s", spread=True), str(len(p.cell.runs))] for n, p in enumerate(found, 1)]
        parts.append(box(
            "pair", shown(picture, f"{disk} disk, XFS, 4 readers at 1000 IOPS each, dd of 1 GiB; medians of the seeds"),
            table(["", "setting (● not beaten)", "read p99.95, ms", "dd, MB/s", "drain, s", "seeds"], rows, 2,
                  f"settings on the {disk} disk", wrap=1)))
    there = sum(tuple(c.axes.items()) in have for c in wanted)
    if there < len(wanted):
        parts.append(missing(f"{there} of the {len(wanted)} settings of the suite peers are among the results. "
                             "These make the others:", *COMMANDS))
    return Section("pareto", "What the reads cost the writer", join(parts, "\n"), pictures)
