# SPDX-License-Identifier: GPL-2.0
"""The whole page: head, parts, sources."""

from pathlib import Path

from .collect import Data
from .markup import Html, bullets, join, paragraph, tag
from .section import Section
from .sections import blocktable, cdf, drain, limits, pareto, pauses, sources, tables, timeline

GENERATOR = "wb report"  # by which a directory is known to be a report's
STYLE = Path(__file__).with_name("page.css")
VIRTUAL = ("One instruction is one virtual nanosecond and the disk is a model: compare rows, kernels and ratios, not "
           "microseconds with your hardware; each seed repeats to the byte.")
FAST = ("Results of lane fast: the disk is the same model and its time virtual, too, but computing takes none: do not "
        "compare them with the exact lane's.")
REAL = ("Times are real, of a machine that may have done other things: two runs differ, and only a difference beyond "
        "the spread of several runs says anything.")
READING = (
    "One run is one sample. A median has several seeds, ± is their interquartile range; without ± there is one seed.",
    "1 MB is 10⁶ bytes; 1 MiB and 1 KiB are 2²⁰ and 2¹⁰.",
    "Every figure is a link to the results it is the median of, and to the command that repeats them.",
)


def sections(data: Data, found: sources.Sources) -> list[Section]:
    """All parts but the sources, in order."""
    return [cdf.section(data, found), timeline.section(data, found), pareto.section(data, found),
            blocktable.section(data, found), tables.reads(data, found), limits.section(data, found),
            tables.osm(data, found), pauses.section(data, found), tables.suse(data, found),
            drain.section(data, found), tables.ext4_section(data, found)]


def reading(data: Data) -> list[str]:
    """How to read the numbers: of virtual time, of real time, or of both where both are among the results."""
    kinds = {c.lane: c.lane.split()[0] for c in data.cells}  # a lane's name may have a flavour behind it
    virtual = any(k == "exact" for k in kinds.values())
    fast = any(k == "fast" for k in kinds.values())
    real = [lane for lane, k in kinds.items() if k not in ("exact", "fast")]
    named = " and ".join(sorted(f"lane {lane}" for lane in set(real)))
    which = f"Results of {named}: " if (virtual or fast) and real else ""
    return [*([VIRTUAL] if virtual else []), *([FAST] if fast else []), *([which + REAL] if real else []), *READING]


def _kernels(data: Data) -> Html:
    lines = []
    for kernel in data.kernels:
        mine = [c for c in data.cells if c.kernel == kernel]
        releases = sorted({str(r.meta["release"]) for c in mine for r in c.runs if r.meta.get("release")})
        builds = list(dict.fromkeys(c.build for c in mine if c.build))
        runs = sum(len(c.runs) for c in mine)
        which = f"{', '.join(releases)}" + (f", build {', '.join(builds)}" if builds else "")
        lines.append(join([tag("b", kernel), f" {which}: {runs} runs in {len(mine)} cells"]))
    return bullets(lines)


def build(data: Data, title: str) -> tuple[str, list[Section], sources.Sources]:
    """The page as text, its parts, and the sources whose JSON belongs beside it."""
    found = sources.Sources()
    short = blocktable.headline(data, found)
    every = sections(data, found)
    parts = [s for s in every if not s.empty]
    lacking = [s for s in every if s.empty]
    for cell in data.cells:
        found.add(cell)
    contents = tag("nav", tag("ul", *(tag("li", tag("a", s.title, href=f"#{s.ident}")) for s in parts),
                              tag("li", tag("a", "Sources", href="#sources"))), aria_label="contents")
    intro = [tag("h1", title), short, _kernels(data), bullets(reading(data))]
    if data.notes:
        intro.append(tag("details", tag("summary", f"Notes on these results: {len(data.notes)}"), bullets(data.notes)))
    main = join([*intro, contents, *(tag("section", tag("h2", s.title), s.body, id=s.ident) for s in parts),
                 *([tag("details", tag("summary", f"Not in these results: {', '.join(s.title for s in lacking)}"),
                        *(tag("div", tag("h3", s.title), s.body) for s in lacking))] if lacking else []),
                 tag("section", tag("h2", "Sources"), paragraph(
                     "Every cell of the results: what ran, on which kernel, its JSON per seed, and the command. A "
                     "kernel other than stock is built with 'wb build' at the revision named."),
                     tag("div", sources.listing(found), class_="sources"), id="sources")], "\n")
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="{GENERATOR}">', '<link rel="icon" href="data:,">',
        tag("title", title), f"<style>\n{STYLE.read_text()}</style>", "</head>",
        f"<body>\n{tag('main', main)}\n</body>", "</html>", ""]), parts, found

