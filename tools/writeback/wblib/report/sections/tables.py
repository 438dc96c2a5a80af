# SPDX-License-Identifier: GPL-2.0
"""The published incidents beside ours: the tables of ``wb demo``, every figure of ours a link."""

from collections.abc import Callable, Sequence

from wblib.report.collect import Cell, Data
from wblib.report.markup import Html, Text, bullets, join, missing, paragraph, table
from wblib.report.section import Section, lacking_runs, shown
from wblib.results import published
from wblib.results.published import Table

from . import cdf, ext4
from .sources import Sources

# Of the table of reads: the first column's word -> axes.
READ_ROWS = {"idle": {"writer": "idle", "wbt": "default"}, "direct": {"writer": "direct", "wbt": "default"},
             "buffered, wbt off": {"writer": "buffered", "wbt": "off"},
             "buffered, wbt on": {"writer": "buffered", "wbt": "default"}}
NOTHING = ": - without wbt, - with"  # the ratio of a kernel that has neither
Find = Callable[[int, str], Cell | None]  # number of the row, kernel -> the cell of its figures


def linked(made: Table, kernels: Sequence[str], find: Find, sources: Sources) -> Html:
    """A published table as HTML; the columns of a kernel, from its name on, link to its results."""
    owner: list[str | None] = []
    for title in made.head:
        owner.append(title if title in kernels else owner[-1] if owner else None)
    rows: list[list[Text]] = []
    for n, row in enumerate(made.rows):
        cells: list[Text] = []
        for text, kernel in zip(row, owner, strict=True):
            cell = find(n, kernel) if kernel and text != "-" else None
            cells.append(sources.link(text, cell) if cell else join(text.split(","), Html(",<wbr>")))
        rows.append(cells)
    return join([table(made.head, rows, made.left, made.title, groups=made.left > 1),
                 bullets([n for n in made.notes if NOTHING not in n])])


def _simple(case: str, make: Callable[..., Table], data: Data, sources: Sources) -> Html:
    """The table of a case whose results of one kernel are one cell."""
    cells = data.best(case)
    if not cells:
        return lacking_runs(case, cells, data)
    made = make([r for c in cells.values() for r in c.runs], list(cells))
    return join([linked(made, list(cells), lambda _row, kernel: cells[kernel], sources),
                 lacking_runs(case, cells, data)])


def osm(data: Data, sources: Sources) -> Section:
    """Peaks of dirty memory."""
    about = paragraph("The import of an OpenStreetMap extract: under which limits stays dirty memory where it was "
                      "told to? ", "A peak near its limit is right; above 1.03 the limit does not hold.")
    return Section("osm", "Dirty limits: published and ours",
                   join([about, _simple("dirty-limits", published.dirty_limits, data, sources)]))


def suse(data: Data, sources: Sources) -> Section:
    """dd at two ratios."""
    about = paragraph("SUSE's report (TID 7015931): a smaller dirty_ratio makes dd look slower. With fdatasync the "
                      "difference is gone: the disk did not get slower, dd had to wait earlier.")
    return Section("suse", "Speed that dd reports: published and ours",
                   join([about, _simple("dirty-ratio-dd", published.dirty_ratio, data, sources)]))


def reads(data: Data, sources: Sources) -> Section:
    """Percentiles of reads."""
    setups = cdf.setups(data)
    cells = setups.get("sata") or next(iter(setups.values()), [])
    kernels = [k for k in data.kernels if any(c.kernel == k for c in cells)]

    def make() -> Html:
        made = published.read_latency([r for c in cells for r in c.runs], kernels)
        labels: list[str] = []
        for row in made.rows:
            labels.append(row[0] or labels[-1])

        def find(row: int, kernel: str) -> Cell | None:
            return next((c for c in cells if c.kernel == kernel and c.has(**READ_ROWS[labels[row]])), None)

        return linked(made, kernels, find, sources)

    body = make() if cells else missing("No run of read-latency with a buffered writer is among the results:",
                                        "wb bench demo --kernel stock patched")
    lacking = [k for k in data.expected if {r for r, a in READ_ROWS.items() for c in cells if c.kernel == k
                                               and c.has(**a)} != set(READ_ROWS)]
    if cells and lacking:
        body = join([body, missing("Rows of a kernel without figures:",
                                   f"wb bench demo --kernel {' '.join(lacking)}")])
    about = paragraph("“High IO latency during writeback” (linux-block, 2017): ms until a 4-KiB read is done. "
                      "Ours come from a modelled disk: compare rows and ratios, not milliseconds.")
    return Section("reads", "Read latency: published and ours", join([about, body]))


def ext4_section(data: Data, sources: Sources) -> Section:
    """ext4: picture and table."""
    cells = data.best("ext4-nodelalloc")
    picture = ext4.figure(cells) if cells else None
    parts = [paragraph("A large file written under three sets of mount options (a case of Alibaba Cloud Linux 2). What "
                       "tells them apart is the CPU time per page and the size of the requests.")]
    if picture:
        parts.append(shown(picture, "Medians of the seeds; the dashed line is the published figure."))
    parts.append(_simple("ext4-nodelalloc", published.ext4, data, sources))
    return Section("ext4", "ext4: speed and request size", join(parts, "\n"), [picture] if picture else [])
