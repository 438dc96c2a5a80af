# SPDX-License-Identifier: GPL-2.0
"""The whole page: head, parts, sources."""

from . import GENERATOR
from .collect import Data
from .markup import ENV
from .section import Section
from .sections import blocktable, cdf, drain, limits, pareto, pauses, sources, tables, timeline

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


def _kernels(data: Data) -> list[tuple[str, str]]:
    """Each kernel, and what is there of it."""
    lines = []
    for kernel in data.kernels:
        mine = [c for c in data.cells if c.kernel == kernel]
        releases = sorted({str(r.meta["release"]) for c in mine for r in c.runs if r.meta.get("release")})
        builds = list(dict.fromkeys(c.build for c in mine if c.build))
        which = f"{', '.join(releases)}" + (f", build {', '.join(builds)}" if builds else "")
        lines.append((kernel, f" {which}: {sum(len(c.runs) for c in mine)} runs in {len(mine)} cells"))
    return lines


def build(data: Data, title: str) -> tuple[str, list[Section], sources.Sources]:
    """The page as text, its parts, and the sources whose JSON belongs beside it."""
    found = sources.Sources()
    headline = blocktable.headline(data, found)
    every = sections(data, found)
    parts = [s for s in every if not s.empty]
    for cell in data.cells:
        found.add(cell)
    text = ENV.get_template("page.html").render(
        generator=GENERATOR, title=title, headline=headline, kernels=_kernels(data), reading=reading(data),
        notes=data.notes, parts=parts, lacking=[s for s in every if s.empty], sources=sources.listing(found))
    return text, parts, found
