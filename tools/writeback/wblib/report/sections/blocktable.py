# SPDX-License-Identifier: GPL-2.0
"""The acceptance table of the block series: medians of the seeds, spread, stock against each other kernel."""

from wblib.catalog.suites import suite
from wblib.report import markup, plot
from wblib.report.collect import Cell, Data, unusual
from wblib.report.markup import Html, Text, join, missing, paragraph, table
from wblib.report.section import Section
from wblib.results import compare, identity
from wbtop.stats import number, short

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
        return Html("-")
    kind = f"verdict {row.verdict}" if row.verdict in ("better", "worse") else "verdict"
    words = {"~": "within spread", "=": "equal"}.get(row.verdict, row.verdict)
    if row.a and row.b and row.a.n == row.b.n == 1 and row.verdict != "=":
        kind, words = "verdict", f"{words}, one seed"  # no spread is known
    # Without the noise of a small difference's digits, but never as 0.
    percent = f"{row.delta_pct:+.1f}" if abs(row.delta_pct) >= 1 else f"{row.delta_pct:+.1g}"
    made: Html = markup.verdict(percent, words, kind)
    return made


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
    made: Html = table(head, rows, 1, title, wrap=0, above=above)
    return made


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


# The head of the page: what the worst reads gain, what the middle ones and the writer pay.
HEAD = (("read_p50", "read p50, ms", 1000), ("pooled_70", "p70, ms", 1e6), ("pooled_90", "p90, ms", 1e6),
        ("read_p99", "p99, ms", 1000), ("read_p99_95", "p99.95, ms", 1000),
        ("read_p99_99", "p99.99, ms", 1000), ("drain_s", "drain, s", 1))


NOTICED = 1.005


def headline(data: Data, sources: Sources) -> Html:
    """The first lines of the page: the verdict, then per disk with everything at its default gain and price."""
    lines: list[list[Text]] = []
    ratios: dict[str, list[float]] = {}
    worse: dict[str, list[str]] = {}
    if len(data.kernels) < 2:
        return Html("")
    base, other = data.kernels[:2]
    for pair in data.pairs(CASE):
        if base not in pair or other not in pair or not _default(pair[base]):
            continue
        a, b = pair[base], pair[other]
        if not a.measured("read_p99_95") or not b.measured("read_p99_95"):
            continue
        disk = a.axes["disk"] + ("" if a.lane == "exact" else f", {a.lane}")
        line: list[Text] = [disk]
        for metric, heading, divisor in HEAD:
            one, two = _value(a, metric), _value(b, metric)
            times = two / one if one and two is not None else None
            if times is not None:
                ratios.setdefault(metric, []).append(times)
                if times > NOTICED:
                    worse.setdefault(disk, []).append(f"{heading.split(',')[0]} x {short(times)}")
            line += [*("-" if v is None else sources.link(number(v / divisor), c) for v, c in ((one, a), (two, b))),
                     "-" if times is None else f"x {short(times)}"]
        lines.append(line)
    if not lines:
        return Html("")
    above = [("", 1), *((heading, 3) for _, heading, _ in HEAD)]
    said = paragraph(_verdict(base, other, ratios, worse))
    return join([said, table(["disk", *[base, other, "change"] * len(HEAD)], lines, 1, "in short", above=above)], "\n")


def _value(cell: Cell, metric: str) -> float | None:
    """The median of a metric; of pooled_N, which is none, the N-th percentile of all seeds' reads, in ns."""
    if not metric.startswith("pooled_"):
        got = cell.measured(metric)
        return got.median if got else None
    bins = plot.merged([r for r in cell.runs if r.status != "error"])
    wanted, seen = sum(bins.values()) * int(metric.removeprefix("pooled_")) / 100, 0
    for value in sorted(bins):
        seen += bins[value]
        if seen >= wanted:
            return value
    return None


def _verdict(base: str, other: str, ratios: dict[str, list[float]], worse: dict[str, list[str]]) -> str:
    """One sentence: the gain and the cost, each as its range over the disks; below 1 is better. Then what is worse."""
    parts = [f"{heading.split(',')[0]} x {short(min(found))}" + (f" to {short(max(found))}" if len(found) > 1 else "")
             for metric, heading, _ in HEAD if (found := ratios.get(metric))]
    price = "".join(f" Worse on {disk}: {', '.join(what)}." for disk, what in worse.items()) \
        or " Nothing of these is worse on any disk."
    return f"{other} against {base}, beside a buffered writer (below 1 is better): {'; '.join(parts)}.{price}"


def _default(cell: Cell) -> bool:
    """Whether only the disk, the reader and, as it has to be on a slow one, the size of the file are its own."""
    return cell.lane in ("exact", "fast") and not unusual(cell, "disk", "reader",
                                                          *(["mib"] if cell.axes.get("disk") == "hdd" else []))
