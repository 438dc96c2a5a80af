# SPDX-License-Identifier: GPL-2.0
"""The acceptance table of the block series: medians of the seeds, spread, stock against each other kernel."""

from .. import compare, identity
from ..suites import suite
from .collect import Cell, Data, unusual
from .markup import Html, Text, esc, join, missing, paragraph, table, tag
from .section import Section
from .sources import Sources

CASE = "read-latency"
# metric, heading, divisor
METRICS = (("read_p99_95", "read p99.95, ms", 1000), ("write_mbps", "dd, MB/s", 1), ("drain_s", "drain, s", 1))
FSYNC = (("fsync_p50", "fsync p50, ms", 1000), ("fsync_p99", "fsync p99, ms", 1000), METRICS[0])
Metric = tuple[str, str, int]


def label(axes: dict[str, str]) -> Html:
    """Disk, file system and scheduler, then what is unusual."""
    rest = [w for w in identity.notable(CASE, {k: v for k, v in axes.items() if k not in ("disk", "fs", "sched")})
            if w not in ("wbt=default", "writer=buffered")]
    words = ", ".join([axes.get("disk", "?"), axes.get("fs", "?"), axes.get("sched", "?"), *rest])
    return join(words.split("="), "=<wbr>")


def verdict(a: Cell, b: Cell, metric: str) -> Html:
    """B against A in percent, and whether that is more than the spread."""
    key = (a.case, a.lane, tuple(sorted(a.axes.items())))
    row = next((r for r in compare.compare_runs(key, a.runs, b.runs).rows if r.metric == metric), None)
    if row is None or row.delta_pct is None:
        return esc("-")
    kind = f"verdict {row.verdict}" if row.verdict in ("better", "worse") else "verdict"
    words = {"~": "within spread", "=": "equal"}.get(row.verdict, row.verdict)
    if row.a and row.b and row.a.n == row.b.n == 1 and row.verdict != "=":
        kind, words = "verdict", f"{words}, one seed"  # no spread is known
    # Without the noise of a small difference's digits, but never as 0.
    percent = f"{row.delta_pct:+.1f}" if abs(row.delta_pct) >= 1 else f"{row.delta_pct:+.1g}"
    return join([f"{percent} % ", tag("span", words, class_=kind)])


def ab_table(pairs: list[tuple[Cell, Cell]], metrics: tuple[Metric, ...], sources: Sources, title: str) -> Html:
    """One line per cell; of each metric A, B and the difference."""
    rows: list[list[Text]] = []
    a, b = pairs[0][0].kernel, pairs[0][1].kernel
    for one, two in pairs:
        line: list[Text] = [label(one.axes)]
        for metric, _, divisor in metrics:
            line += [sources.value(one, metric, divisor, spread=True),
                     sources.value(two, metric, divisor, spread=True), verdict(one, two, metric)]
        rows.append([*line, f"{len(one.runs)}/{len(two.runs)}"])
    head: list[Text] = ["disk, file system, scheduler", *[a, b, "difference"] * len(metrics), "seeds"]
    above = [("", 1), *((heading, 3) for _, heading, _ in metrics), ("", 1)]
    return table(head, rows, 1, title, wrap=0, above=above)


def section(data: Data, sources: Sources) -> Section:
    """The part of the page."""
    wanted = [tuple(c.axes.items()) for c in suite("block").cells]
    pairs = [p for p in data.pairs(CASE) if tuple(next(iter(p.values())).axes.items()) in wanted]
    pairs.sort(key=lambda p: wanted.index(tuple(next(iter(p.values())).axes.items())))
    base, others = data.kernels[0] if data.kernels else "", data.kernels[1:]
    parts: list[Html] = [paragraph(
        "Medians of the seeds, ± the interquartile range. A difference counts when it is larger than the larger of "
        "the two ranges; of one seed no range is known, its difference may be chance. "
        "drain is from dd's first write to the end of sync: what throttling may cost.")]
    complete = False
    for other in others:
        both = [(p[base], p[other]) for p in pairs if base in p and other in p and p[base].lane == "exact"]
        plain = [b for b in both if not b[0].has(probe="fsync")]
        probed = [b for b in both if b[0].has(probe="fsync")]
        if plain:
            parts.append(ab_table(plain, METRICS, sources, f"{base} against {other}"))
        if probed:
            parts += [paragraph("4 KiB appended and fsynced 100 times a second beside dd:"),
                      ab_table(probed, FSYNC, sources, f"fsync, {base} against {other}")]
        complete |= len(both) == len(wanted)
    if not complete:
        parts.append(missing("Not every cell of the suite block was measured on both kernels. This makes the others:",
                             "wb bench block --kernel stock patched"))
    return Section("block", f"Throttling: {' against '.join(data.expected)}", join(parts, "\n"))


def short(data: Data, sources: Sources) -> Html:
    """The first lines of the page: per disk, with everything at its default."""
    lines: list[list[Text]] = []
    if len(data.kernels) < 2:
        return Html("")
    base, other = data.kernels[:2]
    for pair in data.pairs(CASE):
        if base not in pair or other not in pair:
            continue
        a, b = pair[base], pair[other]
        values = [c.measured("read_p99_95") for c in (a, b)]
        if _default(a) and values[0] and values[1]:
            lines.append([a.axes["disk"], *(sources.value(c, m, d) for m, _, d in (METRICS[0], METRICS[2])
                                            for c in (a, b))])
    if not lines:
        return Html("")
    above = [("", 1), *((heading, 2) for _, heading, _ in (METRICS[0], METRICS[2]))]
    return table(["disk", base, other, base, other], lines, 1, "in short", above=above)


def _default(cell: Cell) -> bool:
    """Whether only the disk and, as it has to be on a slow one, the size of the file are its own."""
    return cell.lane == "exact" and not unusual(cell, "disk", *(["mib"] if cell.axes.get("disk") == "hdd" else []))
