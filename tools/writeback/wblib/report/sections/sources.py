# SPDX-License-Identifier: GPL-2.0
"""Where every number comes from: a link for each, and the list that the links lead to."""

import json
from dataclasses import dataclass, field

from wblib.report import markup, reproduce
from wblib.report.collect import Cell, identifier
from wblib.report.markup import Html, Text, join
from wblib.results.store import Result
from wbtop.stats import number


def _as_exact(spread: float, median: str) -> str:
    """The spread with as many decimals as the median beside it has."""
    whole, _, decimals = median.partition(".")
    return f"{spread:.{len(decimals)}f}" if f"{whole}{decimals}".isdigit() else number(spread)


@dataclass
class Sources:
    """The cells of a report, each under a name of its own."""

    names: dict[int, str] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def add(self, cell: Cell) -> str:
        """The name of ``cell``, the same each time."""
        if id(cell) not in self.names:
            base = name = identifier(cell)
            count = 1
            while name in self._taken:
                count += 1
                name = f"{base}-{count}"
            self._taken.add(name)
            self.names[id(cell)] = name
            self.cells.append(cell)
        return self.names[id(cell)]

    def link(self, text: Text, cell: Cell) -> Html:
        """``text`` as a link to the source; the command is its tooltip."""
        made: Html = markup.link(text, f"#src-{self.add(cell)}", reproduce.command(cell))
        return made

    def value(self, cell: Cell | None, metric: str, divisor: float = 1, *, spread: bool = False) -> Html:
        """The median of ``metric``, linked; with its IQR behind it when asked for; "-" without one."""
        got = cell.measured(metric) if cell else None
        if cell is None or got is None:
            return Html("-")
        made = self.link(number(got.median / divisor), cell)
        if not spread or got.spread is None:
            return made
        return join([made, markup.small(f" ±{_as_exact(got.spread / divisor, number(got.median / divisor))}")])


def json_path(name: str, result: Result) -> str:
    """Where the copy of a result is, from the page's directory."""
    return f"json/{name}/seed-{result.seed}.json"


def files(sources: Sources) -> dict[str, bytes]:
    """The copies of the results, by path."""
    return {json_path(sources.names[id(cell)], r): (json.dumps(r.to_json(), indent=1) + "\n").encode()
            for cell in sources.cells for r in cell.runs}


def _entry(sources: Sources, cell: Cell) -> Html:
    name = sources.names[id(cell)]
    meta = cell.runs[0].meta
    facts = [f"build {cell.build}" if cell.build else "", str(meta.get("release", ""))]
    patches = str(meta.get("patchset_hash", ""))[:12]
    facts += [f"patches {patches}"] if patches else []
    revs = sorted({str(r.meta["git_rev"]) for r in cell.runs if r.meta.get("git_rev")})
    facts += [f"revision {', '.join(revs)}"] if revs else []
    made: Html = markup.source(
        name, f"{cell.kernel}: {cell.title}", ", ".join(f for f in facts if f),
        [(f"seed {r.seed}", json_path(name, r), "" if r.status == "pass" else r.status) for r in cell.runs],
        reproduce.command(cell))
    return made


def listing(sources: Sources) -> Html:
    """All sources, in the order of their names."""
    order = sorted(sources.cells, key=lambda c: (c.case, sources.names[id(c)]))
    return join((_entry(sources, c) for c in order), "\n")
