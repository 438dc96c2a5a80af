# SPDX-License-Identifier: GPL-2.0
"""``wb compare A B``: one table per case and axes, medians over the seeds with their spread."""

import argparse
import functools
import itertools
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wblib.base.paths import RESULTS
from wblib.base.proc import say
from wblib.catalog import axes as ax
from wbtop import ranges
from wbtop.errors import WbError
from wbtop.stats import Summary, number, summary, table

from . import store
from .identity import all_axes, lane, line, merge, spec_of
from .store import Result

EXAMPLES = """\
examples:
  wb compare stock patched                     the latest results of both kernels
  wb compare stock-1a2b3c4d stock-5e6f7a8b     two builds of the stock kernel
  wb compare before.json after.json            two files of 'wb run --json'
  wb compare stock patched --case read-latency --metric read_p99_95
  wb compare stock patched --fail-on-regression 5
  wb compare stock patched --from lab1/results --from lab2/results   of several machines

Columns: medians over the seeds of A and of B, B against A in percent, seeds
of A/B, and the spread (interquartile range) of A/B.  The last column says
better or worse, '~' when the medians are no further apart than the larger
spread, '=' when they are equal, nothing when neither direction is better.
exit code: 0, or 1 when --fail-on-regression finds one, 2 for wrong usage"""


@functools.cache
def info(metric: str, case: str = "") -> ax.Metrics | None:
    """What ``metric`` means to ``case``, or else to any case; None when it has no meaning."""
    mine = ax.CASES[case].metrics if case in ax.CASES else ()
    others = (m for c in ax.CASES.values() for m in c.metrics)
    return next((m for m in itertools.chain(mine, others) if m.matches(metric)), None)


def metrics_table() -> str:
    """The metrics of all cases; what several cases measure alike is one row."""
    owners: dict[ax.Metrics, list[str]] = {}
    for case in ax.CASES.values():
        for m in case.metrics:
            owners.setdefault(m, []).append(case.name)
    rows = [[m.names, m.unit, m.better or "-", ", ".join(cases), m.meaning] for m, cases in owners.items()]
    return table(["metric", "unit", "better", "of", "meaning"], rows, 5)


Key = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Row:
    """One metric of one comparison. delta_pct: B against A; None without both, or when A is 0."""

    metric: str
    unit: str
    a: Summary | None
    b: Summary | None
    delta_pct: float | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """All metrics of one case with one set of axes."""

    case: str
    lane: str
    axes: dict[str, str]
    rows: list[Row]
    notes: list[str]


def group(found: Iterable[Result]) -> dict[Key, list[Result]]:
    """Runs that differ only in their seed, by case, lane and axes; a seed counts once."""
    groups: dict[Key, dict[int, Result]] = {}
    for result in found:
        key = (result.case, lane(result), tuple(sorted(all_axes(result).items())))
        groups.setdefault(key, {})[result.seed] = result
    return {k: [by_seed[s] for s in sorted(by_seed)] for k, by_seed in sorted(groups.items())}


def values(runs: Iterable[Result], metric: str) -> list[float]:
    """``metric`` of every run that was whole and measured it."""
    return [v for r in runs if r.status != "error" and (v := r.value(metric)) is not None]


def _verdict(case: str, metric: str, a: Summary, b: Summary) -> str:
    if a.median == b.median:
        return "="
    if abs(a.median - b.median) <= max(a.spread or 0, b.spread or 0):
        return "~"
    entry = info(metric, case)
    if entry is None or not entry.better:
        return ""
    return "better" if (b.median > a.median) == (entry.better == "higher") else "worse"


def compare_runs(key: Key, a: Sequence[Result], b: Sequence[Result]) -> Comparison:
    """Compare the seeds of A with those of B."""
    case, lane, axes = key
    rows = []
    units = {n: str(m["unit"]) for r in (*b, *a) for n, m in r.metrics.items()}
    for metric in dict.fromkeys(n for r in (*a, *b) for n in r.metrics):
        sa, sb = (summary(v) if (v := values(runs, metric)) else None for runs in (a, b))
        delta, verdict = None, ""
        if sa and sb:
            verdict = _verdict(case, metric, sa, sb)
            delta = 100 * (sb.median - sa.median) / abs(sa.median) if sa.median else None
        if sa or sb:
            rows.append(Row(metric, units[metric], sa, sb, delta, verdict))
    notes = [f"{side}: seed {r.seed} {r.status}" for side, runs in (("A", a), ("B", b)) for r in runs
             if r.status in ("fail", "error")]
    return Comparison(case, lane, dict(axes), rows, notes)


def _pair(a: str, b: str) -> str:
    return "" if a == b == "-" else f"{a}/{b}"


def title(case: str, lane: str, axes: Mapping[str, str]) -> str:
    """``line``, folded."""
    return textwrap.fill(line(case, lane, axes), 78, subsequent_indent="  ")


def render(comparison: Comparison) -> str:
    """The A/B table as text."""
    rows = []
    for r in comparison.rows:
        spreads = [number(s.spread) if s else "-" for s in (r.a, r.b)]
        rows.append([
            r.metric, r.unit, number(r.a.median if r.a else None), number(r.b.median if r.b else None),
            "-" if r.delta_pct is None else f"{r.delta_pct:+.1f}%", f"{r.a.n if r.a else 0}/{r.b.n if r.b else 0}",
            _pair(*spreads), r.verdict,
        ])
    head = ["metric", "unit", "A", "B", "delta", "seeds", "spread", ""]
    lines = [title(comparison.case, comparison.lane, comparison.axes), table(head, rows, left=2)]
    if any(r.a and r.b and r.a.n == r.b.n == 1 for r in comparison.rows):
        lines.append("  one seed each: no spread is known, a difference may be chance")
    return "\n".join(lines + [f"  {n}" for n in comparison.notes])


def find_in(places: Sequence[str], kernel: str) -> tuple[str, list[Result], list[str]]:
    """The results of ``kernel`` (or KERNEL-KEY8) below several machines' directories: label, results, notes.

    WbError when there is none, or when the machines had different builds of it.
    """
    name, _, key = kernel.rpartition("-")
    there = [r for place in places for r in _below(Path(place))]
    # The whole first: what 'wb run --dir' ran on has a name such as host-6.12.0-13-amd64.
    found = [r for r in there if r.kernel == kernel] or [
        r for r in there if r.kernel == name and str(r.meta.get("image_hash", "")).startswith(key)]
    if not found:
        raise WbError(f"no results of '{kernel}' below {', '.join(places)}: "
                      "with --from, A and B are kernels, such as stock or stock-1a2b3c4d", 2)
    _one_kernel(found, ", ".join(places))
    kept, notes = merge(found)
    return f"{kernel} of {len(places)} places", kept, notes


def _below(place: Path) -> list[Result]:
    if not place.exists():
        raise WbError(f"--from {place}: no such file or directory", 2)
    return store.read(place)


def _one_kernel(found: Sequence[Result], where: str) -> None:
    kernels = sorted({f"{r.kernel} {str(r.meta.get('image_hash', ''))[:8]}".strip() for r in found})
    if len(kernels) > 1:
        raise WbError(f"{where} holds results of several kernels ({', '.join(kernels)}): name one of them", 2)


def find(spec: str) -> tuple[str, list[Result]]:
    """The results that ``spec`` names, with a label: a file, a directory, or a kernel below results/.

    "stock" is the latest of stock-*; WbError when there is nothing, or several kernels.
    """
    path = Path(spec)
    if not path.exists():
        path = RESULTS / spec
    if "/" not in spec and not path.exists():
        path = _latest(spec)
    found = store.read(path)
    if not found:
        raise WbError(f"no finished results below {path}: run some with 'wb run' or 'wb bench'")
    _one_kernel(found, str(path))
    return (spec if path.is_file() else path.name), found


def _latest(name: str) -> Path:
    there = [p for p in RESULTS.iterdir() if p.is_dir()] if RESULTS.is_dir() else []
    matching = [p for p in there if re.fullmatch(re.escape(name) + r"-[0-9a-f]{1,8}", p.name)]
    if not matching:
        known = sorted(p.name for p in there if p.name.split("-")[0].split("@")[0] not in ("demo", "report"))
        raise WbError(f"no results for '{name}': neither a file, a directory nor a kernel below {RESULTS.name}/ "
                      f"(there: {', '.join(known) or 'none, run some with wb bench'})", 2)
    matching.sort(key=_rank)
    if len(matching) > 1:
        say(f"  {name}: the latest of {len(matching)} builds, {matching[-1].name}")
    return matching[-1]


def _rank(build: Path) -> tuple[bool, float]:
    """How a build of a kernel ranks: one of another flavour than slim, such as debug, before any slim one."""
    newest, path = max(((f.stat().st_mtime, f) for f in build.rglob("result.json")), default=(0.0, build))
    try:
        return not spec_of(store.load(path)).told_flavour, newest
    except (WbError, OSError):
        return True, newest


def compare_all(a: Sequence[Result], b: Sequence[Result]) -> tuple[list[Comparison], list[str]]:
    """Compare what A and B have in common; also one line for each that has more. WbError for nothing."""
    ga, gb = group(a), group(b)
    both = [compare_runs(key, ga[key], gb[key]) for key in ga if key in gb]
    if not both:
        cases = [", ".join(sorted({k[0] for k in g})) for g in (ga, gb)]
        raise WbError(f"nothing to compare: no case with the same axes in both (A has {cases[0]}; B has {cases[1]})")
    only = [(side, [k for k in mine if k not in other]) for side, mine, other in (("A", ga, gb), ("B", gb, ga))]
    return both, [f"only in {side}: {len(keys)} (first: {line(*keys[0][:2], dict(keys[0][2]))})"
                  for side, keys in only if keys]


def regressions(comparisons: Iterable[Comparison], percent: float) -> list[str]:
    """Metrics that are worse by more than ``percent``, beyond their spread; of 0, anything is more."""
    return [f"{c.case} {r.metric} " + (f"{r.delta_pct:+.1f}%" if r.delta_pct is not None
                                       else f"0 -> {number(r.b.median if r.b else None)}")
            for c in comparisons for r in c.rows
            if r.verdict == "worse" and (r.delta_pct is None or abs(r.delta_pct) > percent)]


def run(args: argparse.Namespace) -> int:
    """``wb compare``."""
    labels, sides, notes = [], [], []
    for spec in (args.a, args.b):
        label, found, dropped = find_in(args.places, spec) if args.places else (*find(spec), [])
        labels.append(label)
        notes += dropped
        sides.append([r for r in found if args.case in (None, r.case)])
    if args.case is not None:
        ax.case(args.case)
    comparisons, only = compare_all(*sides)
    if args.metric:
        wanted = re.compile("|".join(map(re.escape, args.metric)))
        comparisons = [Comparison(c.case, c.lane, c.axes, rows, c.notes) for c in comparisons
                       if (rows := [r for r in c.rows if wanted.match(r.metric)])]
        if not comparisons:
            raise WbError(f"no metric starts with {' or '.join(args.metric)}", 2)
    if args.json:
        print(json.dumps({"a": labels[0], "b": labels[1], "notes": notes,
                          "comparisons": [asdict(c) for c in comparisons]}, indent=1))
    else:
        print(f"A = {labels[0]}\nB = {labels[1]}\n")
        print("\n\n".join(render(c) for c in comparisons))
        print("".join(f"{text}\n" for text in (*only, *notes)), end="")
    bad = regressions(comparisons, args.fail_on_regression) if args.fail_on_regression is not None else []
    for text in bad:
        say(f"regression: {text}")
    return 1 if bad else 0


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb compare``."""
    p = sub.add_parser("compare", help="compare two sets of results", epilog=EXAMPLES,
                       description="Compare results A and B: each a result directory, a JSON file, or a kernel's name.",
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("a", metavar="A", help="the base")
    p.add_argument("b", metavar="B", help="what is compared with it")
    p.add_argument("--from", action="append", dest="places", metavar="DIR",
                   help="results of another machine: a directory or JSON file; A and B are then kernels (repeatable)")
    p.add_argument("--case", help="only this case")
    p.add_argument("--metric", action="append", metavar="NAME", help="only metrics that start with NAME (repeatable)")
    p.add_argument("--json", action="store_true", help="print the comparison as JSON")
    p.add_argument("--fail-on-regression", type=ranges.number(0, 1e6), metavar="PCT",
                   help="exit 1 if a metric is worse by more than PCT percent (0..1000000) and by more than the spread")
    p.set_defaults(func=run)
