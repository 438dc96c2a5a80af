# SPDX-License-Identifier: GPL-2.0
"""``wb lanes``: the same cells in the exact and in the fast lane, side by side."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from wblib.catalog.suites import SUITES, jobs, seeds, suite
from wblib.kernel import sources
from wblib.results import compare, identity, store
from wblib.results.store import Result
from wbtop.errors import WbError
from wbtop.stats import number, summary, table

from . import bench

EXAMPLES = """\
examples:
  wb lanes                              the suite "lanes" on the stock and the patched kernel
  wb lanes reference --kernel stock     another suite of read-latency
  wb lanes --seeds 3 --json both.json   medians of three seeds; all results as a list
A figure is "exact / fast".  What the exact lane adds is what computing costs there (1 ns an
instruction on one CPU); where the device decides, both say the same.
exit code: 0 all passed, 1 a run failed, 2 wrong usage"""

# Metric, heading, divisor.
COLUMNS = (("read_p50", "p50 us", 1), ("read_p99", "p99 ms", 1000), ("read_p99_95", "p99.95 ms", 1000),
           ("read_max", "max ms", 1000), ("drain_s", "drain s", 1))
LANES = ("exact", "fast")


def median(found: Sequence[Result], metric: str) -> float | None:
    """The median of ``metric`` over ``found``, None where no run has it."""
    got = compare.values(found, metric)
    return summary(got).median if got else None


def rows(of_lane: dict[str, Sequence[Result]]) -> list[list[str]]:
    """A row for each cell and kernel: its name, the kernel, and "exact / fast" for each of COLUMNS."""
    both: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for lane, found in of_lane.items():
        for r in found:
            name = identity.line(r.case, "exact", r.axes).removeprefix("read-latency ")
            both.setdefault((name, r.kernel), {}).setdefault(lane, []).append(r)
    lines = []
    for (name, kernel), runs in both.items():
        cells = []
        for metric, _, divisor in COLUMNS:
            pair = [median(runs.get(lane, []), metric) for lane in LANES]
            cells.append(" / ".join(number(None if v is None else v / divisor) for v in pair))
        lines.append([name, kernel, *cells])
    return lines


def run(args: argparse.Namespace) -> int:
    """``wb lanes``."""
    chosen = suite(args.suite)
    if {c.case for c in chosen.cells} != {"read-latency"}:
        raise WbError(f"suite {args.suite} is not of read-latency alone", 2)
    kernels = list(dict.fromkeys(sources.chosen(k, bench.KERNELS) for k in args.kernel))
    job_list = jobs(chosen.cells, kernels, seeds(args.seeds))
    parallel = bench.check_jobs(args.jobs)
    of_lane = {lane: bench.run_jobs(job_list, parallel, lane=lane) for lane in LANES}
    found = [r for lane in LANES for r in of_lane[lane]]
    if args.json:
        store.write_file(Path(args.json), (json.dumps([r.to_json() for r in found], indent=1) + "\n").encode())
    print(table(["cell (exact / fast)", "kernel", *(h for _, h, _ in COLUMNS)], rows(of_lane), left=2))
    line, code = bench.tally(found)
    print(line)
    return code


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb lanes``."""
    p = sub.add_parser("lanes", help="the same cells in both lanes", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suite", metavar="SUITE", nargs="?", default="lanes",
                   help=f"a suite of read-latency: {', '.join(n for n in SUITES if n in READS)} (default lanes)")
    p.add_argument("--kernel", nargs="+", metavar="K", default=["stock", "patched"],
                   help="stock, patched, tree (default stock patched)")
    p.add_argument("--seeds", default="1", metavar="N|LIST", help="number of seeds, or a list (default 1)")
    p.add_argument("-j", "--jobs", type=int, metavar="N", help="guests side by side (1..256, default: one per core)")
    p.add_argument("--json", metavar="FILE", help="write all result objects to FILE as a list")
    p.set_defaults(func=run)


READS = tuple(s.name for s in SUITES.values() if {c.case for c in s.cells} == {"read-latency"})
