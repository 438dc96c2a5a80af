# SPDX-License-Identifier: GPL-2.0
"""The results of a report: read, sorted into cells, one build per cell and kernel."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wblib.base.paths import RESULTS
from wblib.catalog import axes as ax
from wblib.results import compare, identity, store
from wblib.results.store import Result
from wbtop.errors import WbError
from wbtop.stats import Summary, summary

KERNEL_ORDER = ("stock", "patched", "tree")
SCANS = 5  # a running bench renames directories under a scan


@dataclass(frozen=True)
class Cell:
    """The seeds of one case with one set of axes on one build of a kernel. axes: all, defaults too."""

    case: str
    lane: str
    axes: dict[str, str]
    kernel: str
    build: str
    runs: tuple[Result, ...]

    @property
    def title(self) -> str:
        """The case with its main axes and what differs from the default, in one line."""
        return identity.line(self.case, self.lane, self.axes)

    def measured(self, metric: str) -> Summary | None:
        """Median and spread over the seeds, None when none measured it."""
        got = compare.values(self.runs, metric)
        return summary(got) if got else None

    def files(self, *names: str) -> list[Path]:
        """The data files ``names`` of the first seed that ended and has them all, in this order; or none."""
        for run in self.runs:
            found = [p for n in names if (p := run.data(n))]
            if run.status != "error" and len(found) == len(names):
                return found
        return []

    def has(self, **axes: str) -> bool:
        """Whether the cell has these values."""
        return all(self.axes.get(k.replace("_", "-")) == v for k, v in axes.items())


@dataclass
class Data:
    """Everything a report shows. kernels: in the order of the columns; notes: what the reader must know."""

    cells: list[Cell] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def expected(self) -> list[str]:
        """The two kernels that a part compares, though one may have no results."""
        missing = [k for k in ("stock", "patched") if k not in self.kernels]
        return (self.kernels + missing)[:2]

    def of(self, case: str, kernel: str | None = None, **axes: str) -> list[Cell]:
        """The cells of a case, of one kernel or of all, with the given axes."""
        return [c for c in self.cells if c.case == case and kernel in (None, c.kernel) and c.has(**axes)]

    def pairs(self, case: str) -> list[dict[str, Cell]]:
        """Per set of axes of ``case``: kernel -> cell."""
        found: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, Cell]] = {}
        for cell in self.of(case):
            found.setdefault((cell.lane, tuple(sorted(cell.axes.items()))), {})[cell.kernel] = cell
        return list(found.values())

    def best(self, case: str) -> dict[str, Cell]:
        """Of ``pairs`` the one with most kernels, then nearest to the defaults; in the order of the kernels."""
        pairs = sorted(self.pairs(case), key=lambda p: (
            -len(p), "flavour=" in (first := next(iter(p.values()))).lane, unusual(first)))
        return {k: pairs[0][k] for k in self.kernels if k in pairs[0]} if pairs else {}


def unusual(cell: Cell, *besides: str) -> int:
    """How many axes are not at their defaults, not counting ``besides``."""
    known = {a.name: a.default for a in ax.CASES[cell.case].axes} if cell.case in ax.CASES else {}
    return sum(known.get(k) != v for k, v in cell.axes.items() if k not in besides)


def build_of(result: Result) -> str:
    """The first digits of the kernel image's hash: what result directories are named by."""
    return str(result.meta.get("image_hash", ""))[:8]


def _read(path: Path) -> list[Result]:
    for attempt in range(SCANS):
        try:
            found = store.read(path)
            break
        except FileNotFoundError:
            if attempt == SCANS - 1:
                raise
    # results/demo holds copies under other names.
    return found or [r for p in sorted(path.glob("*.json")) for r in store.load_all(p)]


def gather(specs: Sequence[str]) -> list[Result]:
    """The results that ``specs`` name: files, directories of any depth, kernels; without any, all of results/."""
    found: list[Result] = []
    for spec in specs or [str(RESULTS)]:
        path = Path(spec)
        if not path.exists() and (RESULTS / spec).exists():
            path = RESULTS / spec
        if path.exists():
            mine = _read(path)
        elif not specs:
            mine = []
        elif "/" in spec or spec.endswith(".json"):
            raise WbError(f"no such result: {spec}")
        else:
            mine = compare.find(spec)[1]
        if not mine:
            raise WbError(f"no finished results below {path.name}/: run some with 'wb bench demo' or 'wb run'")
        found += mine
    return found


def _order(kernel: str) -> tuple[int, str]:
    name = kernel.partition("@")[0]  # of another line: stock@7.3
    return (KERNEL_ORDER.index(name) if name in KERNEL_ORDER else len(KERNEL_ORDER), kernel)


def _age(run: Result) -> float:
    return run.path.stat().st_mtime if run.path and run.path.exists() else 0.0


def sort(found: Sequence[Result]) -> Data:
    """Cells of ``found``; where a kernel was built several times, each cell is the newest build's that has it."""
    builds: dict[tuple[str, str], list[Result]] = {}
    found, disagree = identity.merge(found)
    for result in sorted(found, key=_age):  # of one seed that ran twice, group() keeps the last
        builds.setdefault((result.kernel, build_of(result)), []).append(result)
    newest = sorted(builds, key=lambda b: (_order(b[0]), -max(map(_age, builds[b])), b[1]))
    taken: dict[tuple[str, compare.Key], Cell] = {}
    used: dict[str, dict[str, int]] = {}
    for kernel, build in newest:
        for key, runs in compare.group(builds[kernel, build]).items():
            if (kernel, key) in taken:
                continue
            runs = [r for r in runs if r.metrics or r.status in ("fail", "error")]
            if not runs:
                continue
            taken[kernel, key] = Cell(key[0], key[1], identity.all_axes(runs[0]), kernel, build, tuple(runs))
            used.setdefault(kernel, {})[build] = used.get(kernel, {}).get(build, 0) + 1
    data = Data(list(taken.values()), list(dict.fromkeys(k for k, _ in newest if k in used)))
    data.cells.sort(key=lambda c: (c.case, tuple(c.axes.values()), c.lane, _order(c.kernel)))
    data.notes += disagree
    for kernel, counts in used.items():
        if len(counts) > 1:
            words = ", ".join(f"{build or 'unknown'} ({n})" for build, n in counts.items())
            data.notes.append(f"{kernel} was built several times; each cell is of the newest build that has it: "
                              f"{words} cells. Name one directory to see one build.")
    mixed = [c for c in data.cells if len({r.meta.get("initrd_hash") for r in c.runs}) > 1]
    if mixed:
        data.notes.append("Seeds of one cell ran with different versions of the guest's scripts: "
                          f"{mixed[0].kernel}, {mixed[0].title}"
                          + (f", and {len(mixed) - 1} more" if len(mixed) > 1 else "")
                          + ". 'wb run' or 'wb bench' runs what is old again.")
    for cell in data.cells:
        for run in cell.runs:
            if run.status in ("fail", "error"):
                bad = ", ".join(t["name"] for t in run.tests if t["result"] == "fail")
                data.notes.append(f"{cell.kernel}, {cell.title}, seed {run.seed}: {run.status}"
                                  + (f" ({bad})" if bad else "")
                                  + ("; its figures do not count" if run.status == "error" else ""))
    return data


def identifier(cell: Cell) -> str:
    """A name for a cell in a page and in file names; ``sources`` makes it unique."""
    try:
        slug = ax.slug(cell.case, cell.axes)
    except WbError:  # a case that this checkout does not have
        slug = "-".join(cell.axes.values()) or "default"
    lane = "" if cell.lane == "exact" else f"-{cell.lane}"
    return ax.word(f"{cell.kernel}-{cell.case}-{slug}{lane}").strip("-")
