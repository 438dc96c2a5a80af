# SPDX-License-Identifier: GPL-2.0
"""``wb bench SUITE``: many runs, then one table of medians, or the A/B tables of two kernels."""

import argparse
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path

from wblib.base.proc import cpus, say
from wblib.catalog import axes as ax
from wblib.catalog import zoo
from wblib.catalog.spec import CPU, RunSpec, specs
from wblib.catalog.suites import SUITES, Job, Suite, in_lane, jobs, left_out, seeds, suite
from wblib.guest import qemu
from wblib.kernel import sources
from wblib.results import compare, identity, store
from wblib.results.store import Result
from wbtop import ranges
from wbtop.errors import WbError
from wbtop.stats import number, summary, table

from . import zoo_report
from .runner import run_many

KERNELS = ("stock", "patched", "tree")
EXAMPLES = """\
examples:
  wb bench                                   list the suites
  wb bench reference --seeds 5               five seeds on the stock kernel
  wb bench peers --kernel stock patched      both kernels, then the A/B tables
  wb bench read-latency --seeds 1,7,20-24 -j 8
  wb bench reference --kernel stock patched stock@7.3 patched@7.3     on both kernel lines
  wb bench all --dry-run                     what would run, and for how long
  wb bench block --shard 2/8 -j 4            the second eighth of it, on one of eight machines
  wb bench zoo --list                        its devices, with the source of each one's numbers
  wb bench zoo --lane fast --kernel stock patched --seeds 3
  wb bench block --list-cells | parallel -j2 any scheduler: a 'wb run' command per line
Finished runs are kept: the same command again goes on where it was stopped.
Each cell is one guest of its own, so shards need nothing of each other; give the
result directories of all machines to 'wb compare --from' and 'wb report'.
exit code: 0 all passed, 1 a run failed, 2 wrong usage"""

# Columns of the read-latency table: metric, heading, divisor.
_LATENCY = (
    ("read_p50", "p50 us", 1), ("read_p99", "p99 ms", 1000), ("read_p99_9", "p99.9", 1000),
    ("read_p99_95", "p99.95", 1000), ("read_max", "max ms", 1000), ("write_mbps", "MB/s", 1), ("drain_s", "drain s", 1),
)


def run_jobs(job_list: Sequence[Job], parallel: int, *, lane: str = "exact", force: bool = False,
             cpu: str = CPU, timeout_s: float = 0.0) -> list[Result]:
    """Run ``job_list`` in ``lane``, on the CPU model ``cpu``; finished ones are reused unless ``force``.

    timeout_s: wall seconds for each guest; 0: by its case.
    """
    return run_many(specs(job_list, lane=lane, cpu=cpu), parallel=parallel, force=force, timeout_s=timeout_s)


def latency_table(found: Sequence[Result]) -> str:
    """Medians of read-latency runs, a line per cell and kernel; common axes in the first line."""
    kernels = dict.fromkeys(r.kernel for r in found)
    groups = [item for k in kernels for item in compare.group(r for r in found if r.kernel == k).items()]
    names = list(dict.fromkeys(n for r in found for n in r.axes))
    varying = [n for n in names if len({dict(key[2]).get(n) for key, _ in groups}) > 1]
    common = {n: v for n, v in found[0].axes.items() if n not in varying}
    rows = []
    for key, runs in sorted(groups, key=lambda item: [found.index(r) for r in item[1]]):
        cells = []
        for metric, _, divisor in _LATENCY:
            got = compare.values(runs, metric)
            cells.append(number(summary(got).median / divisor if got else None))
        label = " ".join(v if n != "wbt" else f"wbt-{v}" for n in varying if (v := dict(key[2])[n]))
        names_of = [runs[0].kernel] if len(kernels) > 1 else []
        rows.append([label or "-", *names_of, str(len(runs)), *cells])
    head = [" ".join(varying) or "axes", *(["kernel"] if len(kernels) > 1 else []), "n", *(h for _, h, _ in _LATENCY)]
    return f"{compare.title('read-latency', key[1], common)}\n{table(head, rows, left=min(len(kernels), 2))}"


def medians_table(found: Sequence[Result]) -> str:
    """All metrics of the runs of one cell: median and spread."""
    first = found[0]
    rows = []
    for metric in dict.fromkeys(n for r in found for n in r.metrics):
        got = compare.values(found, metric)
        if got:
            s = summary(got)
            unit = next(str(r.metrics[metric]["unit"]) for r in found if metric in r.metrics)
            rows.append([metric, unit, number(s.median), number(s.spread), str(s.n)])
    head = compare.title(first.case, identity.lane(first), first.axes)
    return f"{head}\n{table(['metric', 'unit', 'median', 'spread', 'seeds'], rows, left=2)}"


def _has_reads(result: Result) -> bool:
    return result.case == "read-latency" and "read_p50" in result.metrics


def render(found: Sequence[Result]) -> str:
    """Tables of one kernel's results."""
    whole = [r for r in found if r.status != "error" and r.metrics]
    parts = []
    latency = [r for r in whole if _has_reads(r)]
    for runs in compare.group(r for r in whole if r not in latency).values():
        parts.append(medians_table(runs))
    if latency:
        parts.append(latency_table(latency))
    return "\n\n".join(parts)


def render_pair(found: Sequence[Result], a: str, b: str) -> str:
    """A/B tables of two kernels."""
    sides = [[r for r in found if r.kernel == k and r.metrics] for k in (a, b)]
    comparisons, _ = compare.compare_all(*sides)
    return "\n\n".join([f"A = {a}\nB = {b}", *(compare.render(c) for c in comparisons)])


def tally(found: Sequence[Result]) -> tuple[str, int]:
    """The closing line, and the exit code."""
    count = {s: sum(r.status == s for r in found) for s in store.STATUSES}
    words = ", ".join(f"{n} {s}" for s, n in count.items() if n)
    return f"{len(found)} runs: {words}", 1 if count["fail"] or count["error"] else 0


def describe(one: Suite) -> str:
    """One line about a suite."""
    return f"{one.name:13} {len(one.cells):4} cells  {minutes(one.wall_s()):>7} per seed  {one.help}"


def shard(text: str, job_list: Sequence[Job]) -> list[Job]:
    """The jobs of shard "i/n": every n-th from the i-th on, so that all shards take about as long."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise WbError(f"--shard '{text}': must be I/N with 1 <= I <= N, such as 2/8", 2)
    return list(job_list[int(match[1]) - 1::int(match[2])])


def command(spec: RunSpec, *, force: bool = False, timeout_s: float = 0.0) -> str:
    """``wb run`` of one run: the same kernel, guest and seed give the same result, in the same place."""
    more = ["--timeout", f"{timeout_s:.10g}"] if timeout_s else []
    return spec.command(*more, program="tools/writeback/wb") + (" --force" if force else "")


def check_jobs(wanted: int | None) -> int:
    """Guests side by side: what -j asks for, 1..256, or one per core; WbError (code 2) for another number."""
    parallel = wanted if wanted is not None else cpus()
    if not 1 <= parallel <= 256:
        raise WbError(f"-j {parallel}: must be 1..256", 2)
    return parallel


def minutes(seconds: float) -> str:
    """Time on one core as "12 min" or "3.4 h"."""
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, seconds / 60):.0f} min"


def _jobs(chosen: Suite, kernels: Sequence[str], seed_list: Sequence[int], lane: str) -> list[Job]:
    """The runs of a suite in a lane; WbError (code 2) when there is none."""
    every = jobs(chosen.cells, kernels, seed_list)
    found = [j for j in map(functools.partial(in_lane, lane), every) if j]
    if not found:
        why = f"in the {lane} lane" if every else f"on {' and '.join(kernels)}, as they test what the series changes"
        raise WbError(f"none of the runs of {chosen.name} can run {why}", 2)
    return found


def run(args: argparse.Namespace) -> int:
    """``wb bench``."""
    if args.suite is None and args.kernel:
        raise WbError("which suite? Name it first: wb bench SUITE --kernel ...", 2)
    if args.suite is None:
        print("suites (times on one core):\n" + "\n".join(f"  {describe(s)}" for s in SUITES.values()))
        return 0
    chosen = suite(args.suite)
    kernels = list(dict.fromkeys(sources.chosen(k, KERNELS) for k in args.kernel or ["stock"]))
    seed_list = seeds(args.seeds) if args.seeds is not None else list(range(1, chosen.seeds + 1))
    parallel = check_jobs(args.jobs)
    cpu = qemu.check_cpu(args.cpu, args.lane)
    job_list = _jobs(chosen, kernels, seed_list, args.lane)
    if args.list:
        if chosen.name != zoo.SUITE:
            raise WbError(f"--list is for {zoo.SUITE}; --list-cells prints the runs of any suite", 2)
        print("\n".join(map(str, zoo.devices())))
        return 0
    if chosen.name == zoo.SUITE:
        job_list = [j for j in job_list if zoo.needed(j.axes, j.kernel, lane=args.lane,
                                                      first=(j.kernel, j.seed) == (kernels[0], seed_list[0]))]
    if args.shard is not None:
        job_list = shard(args.shard, job_list)
    for note in left_out(chosen.cells, kernels, args.lane):
        say(f"  {note}")
    if args.list_cells:
        print("\n".join(command(spec, timeout_s=args.timeout)
                        for spec in specs(job_list, lane=args.lane, cpu=cpu)))
        return 0
    if not job_list:
        say(f"shard {args.shard} of {chosen.name} is empty: there are fewer runs than shards")
        return 0
    if args.dry_run:
        for job in job_list:
            print(f"{job.case} {ax.slug(job.case, job.axes)} seed {job.seed} on {job.kernel}")
        estimate = sum(ax.wall_s(j.case, j.axes) for j in job_list) / min(parallel, len(job_list))
        print(f"{len(job_list)} runs, about {minutes(estimate)} with {parallel} at a time")
        return 0
    found = run_jobs(job_list, parallel, lane=args.lane, force=args.force, cpu=cpu, timeout_s=args.timeout)
    line, code = tally(found)
    text = json.dumps([r.to_json() for r in found], indent=1) + "\n"
    if args.json == "-":
        print(text, end="")
        say(line)
        return code
    if args.json:
        store.write_file(Path(args.json), text.encode())
    if chosen.name == zoo.SUITE:
        print(zoo_report.render(found))
    elif len(kernels) == 2 and args.shard is None:
        print(render_pair(found, *kernels))
    elif len(kernels) > 2 and all(map(_has_reads, found)):
        print(f"{latency_table(found)}\n")
    else:
        for kernel in kernels:
            print(f"{kernel}:\n\n{render([r for r in found if r.kernel == kernel])}\n")
    print(line)
    return code


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb bench``."""
    p = sub.add_parser("bench", help="run a suite on one or more kernels", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suite", metavar="SUITE", nargs="?", help=f"{', '.join(SUITES)}; without: list them")
    p.add_argument("--kernel", nargs="+", metavar="K", help="stock, patched, tree (default stock)")
    p.add_argument("--seeds", metavar="N|LIST",
                   help="number of seeds, or a list such as 1,7 or 3-6 (default: the suite's)")
    p.add_argument("-j", "--jobs", type=int, metavar="N", help="guests side by side (1..256, default: one per core)")
    p.add_argument("--lane", choices=("exact", "fast"), default="exact",
                   help="fast: User Mode Linux, ten times faster, computing costs no time (default exact)")
    p.add_argument("--cpu", default=CPU, metavar="MODEL",
                   help="exact lane: QEMU's CPU model with features, such as max (default %(default)s)")
    p.add_argument("--force", action="store_true", help="run again what is finished")
    ranges.add_timeout(p)
    p.add_argument("--json", metavar="FILE", help="write all result objects to FILE as a list, '-' for stdout")
    p.add_argument("--shard", metavar="I/N", help="only every N-th run from the I-th on: one of N machines")
    p.add_argument("--list-cells", action="store_true", help="print a 'wb run' command for each run, and run nothing")
    p.add_argument("--list", action="store_true", help="of zoo: print its devices, and run nothing")
    p.add_argument("--dry-run", action="store_true", help="print what would run, and for how long")
    p.set_defaults(func=run)
