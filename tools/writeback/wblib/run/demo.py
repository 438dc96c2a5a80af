# SPDX-License-Identifier: GPL-2.0
"""``wb demo``: the four published incidents replayed, the published figures beside ours."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from wblib.base.paths import RESULTS
from wblib.base.proc import say
from wblib.catalog import axes as ax
from wblib.catalog.suites import in_lane, jobs, left_out, seeds, suite
from wblib.kernel import patchqueue, sources, upstream
from wblib.report.plot import need_matplotlib, write_cdf
from wblib.results import published, store
from wblib.results.store import Result

from . import bench

EXAMPLES = """\
examples:
  wb demo            run what is missing, print the tables
  wb demo --json     the result objects as a list on stdout, the tables in results/demo/tables.txt
  wb demo --seeds 5  medians of five seeds
  wb demo --lane fast   in User Mode Linux, which takes seconds; into results/demo-fast
  wb demo --base 7.3    on mainline; into results/demo@7.3
Leaves results/demo/: a JSON per run, tables.txt, read-latency-cdf.png.
exit code: 0 all runs passed, 1 one failed, 2 wrong usage"""
PNG = "read-latency-cdf.png"


def variants() -> list[str]:
    """Stock, and patched when there is a patch besides a cover letter, of the default kernel line."""
    return [sources.named(name) for name in (["stock", "patched"] if patchqueue.patches() else ["stock"])]


def export(found: Sequence[Result], kernels: Sequence[str], out: Path) -> str:
    """Write the JSON of ``found`` and the tables into ``out``; returns the tables' text."""
    for old in out.glob("*.json"):  # of an earlier choice of seeds
        old.unlink()
    for r in found:
        store.write(r, out / f"{r.kernel}-{r.case}-{ax.slug(r.case, r.axes)}-seed-{r.seed}.json")
    text = "\n\n".join(t.render() for t in published.tables(found, kernels)) + "\n"
    store.write_file(out / "tables.txt", text.encode())
    return text


def run(args: argparse.Namespace) -> int:
    """``wb demo``."""
    seed_list = seeds(args.seeds)
    parallel = bench.check_jobs(args.jobs)
    need_matplotlib()
    kernels = variants()
    say(f"  replaying four incidents on: {', '.join(kernels)}")
    cells = suite("demo").cells
    todo = [j for j in (in_lane(args.lane, j) for j in jobs(cells, kernels, seed_list)) if j]
    for note in left_out(cells, kernels, args.lane):
        say(f"  {note}")
    found = bench.run_jobs(todo, parallel, lane=args.lane)
    out = RESULTS / upstream.in_line("demo" if args.lane == "exact" else f"demo-{args.lane}", upstream.default_line())
    text = export(found, kernels, out)
    line, code = bench.tally(found)
    if args.json:
        print(json.dumps([r.to_json() for r in found], indent=1))
        say(line)
    else:
        print(f"{text}\n{line}")
    write_cdf(found, kernels, out / PNG)  # last: without it the tables are still there
    say(f"  results, tables and {PNG}: {out}")
    return code


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb demo``."""
    p = sub.add_parser("demo", help="replay the four published incidents", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", action="store_true", help="print the result objects instead of the tables")
    p.add_argument("--seeds", default="1", metavar="N|LIST", help="number of seeds, or a list (default 1)")
    p.add_argument("--lane", choices=("exact", "fast"), default="exact",
                   help="fast: without QEMU and without SUSE's dd, which measures memory (default exact)")
    p.add_argument("-j", "--jobs", type=int, metavar="N", help="guests side by side (1..256, default: one per core)")
    p.set_defaults(func=run)
