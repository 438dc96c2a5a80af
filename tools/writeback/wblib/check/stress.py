# SPDX-License-Identifier: GPL-2.0
"""``wb stress``: the suite ``stress`` on every kernel, each case in the lane for it, failures with their command."""

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wblib.base.proc import say
from wblib.catalog import axes as ax
from wblib.catalog.spec import RunSpec
from wblib.catalog.suites import Cell, in_lane, jobs, left_out, seeds, suite
from wblib.kernel import sources
from wblib.results.store import Result
from wblib.run import runner
from wblib.run.bench import KERNELS, check_jobs, command, minutes
from wbtop.errors import WbError

from . import tiers

FLAVOURS = ("slim", "debug", "kcsan")
LANES = ("auto", "exact", "fast")
# A kernel with checkers executes about this many times the instructions.
DEBUG_FACTOR = 4
# What a run takes in the fast lane, of its estimate, which is for the exact one: these cases compute for most of their
# time, and took 0.6 to 1.8 of it.
FAST_FACTOR = 1.2
# Wall seconds for a guest there; one that hangs panics, and one that is silent is killed, long before.
DEBUG_TIMEOUT_S = 4 * 3600.0
# Elsewhere: on a busy host 200 values of each attribute take longer than the quarter of an hour that a case has.
SLIM_TIMEOUT_S = 2 * 3600.0
EXAMPLES = """\
examples:
  wb stress                                       all rounds: patched, with lockdep and KASAN, stock, with KCSAN
  wb stress --kernel patched --flavour debug      one round
  wb stress --case powercut --seeds 5-8           one case with other seeds
  wb stress --flavour slim --kernel patched --case powercut --seeds 1-18     a thousand power cuts
  wb stress --lane exact                          all of it in QEMU, for hours
  wb stress --short                               less of each, on every kernel
  wb stress --dry-run                             what would run, and for how long
A case is run in the fast lane (User Mode Linux, many times faster, one CPU) if that can judge it, else in QEMU.
Finished runs are kept: the same command again goes on where it was stopped.
Of a failure it prints the seed and the command that repeats it to the byte.
exit code: 0 nothing failed, 1 something did, 2 wrong usage; the last line is 'N passed, N failed'"""


@dataclass(frozen=True)
class Round:
    """One kernel's share: variant and flavour as ``wb build`` takes them, and the suite's name."""

    kernel: str
    flavour: str
    suite: str

    def title(self) -> str:
        return f"{self.kernel}, {self.flavour} kernel, suite {self.suite}"


ROUNDS = (Round("patched", "slim", "stress"), Round("patched", "debug", "stress-short"),
          Round("stock", "slim", "stress-short"), Round("patched", "kcsan", "stress-kcsan"))


def rounds(kernel: str | None, flavour: str | None, *, short: bool) -> list[Round]:
    """The rounds asked for; WbError (code 2) for a kernel or flavour that does not exist.

    None: all of them.  A kernel and a flavour that are no round by default are one with the short suite.
    """
    kernel = kernel and sources.chosen(kernel, KERNELS)
    if flavour is not None and flavour not in FLAVOURS:
        raise ax.unknown("flavour", flavour, FLAVOURS)
    every = [Round(sources.named(r.kernel), r.flavour, r.suite) for r in ROUNDS]
    found = [r for r in every if kernel in (None, r.kernel) and flavour in (None, r.flavour)]
    found = found or [Round(kernel or sources.named("patched"), flavour or "slim", "stress-short")]
    return [Round(r.kernel, r.flavour, "stress-short") if short and r.suite == "stress" else r for r in found]


def cells_of(one: Round, cases: Sequence[str] | None) -> list[Cell]:
    """The round's cells, of ``cases`` only if given."""
    return [c for c in suite(one.suite).cells if not cases or c.case in cases]


def check_cases(wanted: Sequence[Round], cases: Sequence[str] | None) -> None:
    """WbError (code 2) for a case that no round has; a line for each that some do not have."""
    suites = dict.fromkeys(r.suite for r in wanted)
    there = dict.fromkeys(c.case for name in suites for c in suite(name).cells)
    for name in cases or ():
        if name not in there:
            raise ax.unknown(f"case of {' and '.join(suites)}", name, there)
        for one in wanted:
            if not cells_of(one, [name]):
                say(f"  {one.title()}: has no {name}")


def runs_of(one: Round, cells: Iterable[Cell], chosen: Sequence[int], lane: str) -> list[RunSpec]:
    """The round's runs: those of the fast lane first, in each lane the longest first, so that no core idles at the end.

    lane: of LANES; auto: the fast one where it can judge the case.  It has no KCSAN, which looks for races of two CPUs.
    """
    found = []
    for job in jobs(cells, [one.kernel], chosen):
        fast = in_lane("fast", job) if lane != "exact" and one.flavour != "kcsan" else None
        if fast:
            found.append(RunSpec.of(fast, lane="fast", flavour=one.flavour))
        elif lane != "fast":
            found.append(RunSpec.of(job, flavour=one.flavour))
    return sorted(found, key=lambda r: (r.lane != "fast", -estimate(r)))


def estimate(spec: RunSpec) -> float:
    """About how many seconds it takes on one core."""
    return ax.wall_s(spec.case, spec.axes) * (FAST_FACTOR if spec.lane == "fast" else 1) \
        * (DEBUG_FACTOR if spec.flavour in ("debug", "kcsan") else 1)


def timeout_of(flavour: str) -> float:
    """Wall seconds for a guest of a ``flavour``."""
    return SLIM_TIMEOUT_S if flavour == "slim" else DEBUG_TIMEOUT_S


def shown(spec: RunSpec) -> str:
    """A run in the words of the report."""
    return f"{spec.case} {ax.slug(spec.case, spec.axes)} seed {spec.seed} ({spec.lane})"


def report(found: Sequence[tuple[RunSpec, Result]], flavour: str) -> tuple[int, int]:
    """Print a line per run, and each failure with its command; returns how many tests passed and failed."""
    passed = failed = 0
    for spec, result in found:
        verdicts = list(tiers.of_result(result))
        bad = [v for v in verdicts if v.problem]
        good = len(verdicts) - len(bad)
        label = f"{result.kernel} {flavour} {shown(spec)}"
        print(f"{'FAIL' if bad else 'ok  '} {label}: {good} passed" + (f", {len(bad)} failed" if bad else ""))
        for verdict in bad:
            print(f"     {verdict.name}: {verdict.problem}")
        if bad:
            again = command(spec, force=True, timeout_s=timeout_of(flavour))
            print(f"     seed {spec.seed}; repeat with: {again}", flush=True)
        passed += good
        failed += len(bad)
    return passed, failed


def run(args: argparse.Namespace) -> int:
    """``wb stress``."""
    todo = []
    parallel = check_jobs(args.jobs)
    wanted = rounds(args.kernel, args.flavour, short=args.short)
    check_cases(wanted, args.case)
    for one in wanted:
        cells = cells_of(one, args.case)
        if not cells:
            continue
        chosen = seeds(args.seeds) if args.seeds is not None else list(range(1, suite(one.suite).seeds + 1))
        for line in left_out(cells, [one.kernel], args.lane):
            say(f"  {line}")
        runs = runs_of(one, cells, chosen, args.lane)
        if runs:
            todo.append((one, runs))
    if args.dry_run:
        return _dry_run(todo, parallel)
    passed = failed = 0
    for one, wanted_runs in todo:
        print(f"== {one.title()}: {len(wanted_runs)} runs", flush=True)
        begin = time.monotonic()
        try:
            found = runner.run_many(wanted_runs, parallel=parallel, force=args.force,
                                    timeout_s=timeout_of(one.flavour))
        except WbError as exc:
            # A kernel that does not build is one failure; the other rounds go on.
            print(f"FAIL {one.title()}: {exc}", flush=True)
            failed += 1
            continue
        counts = report(list(zip(wanted_runs, found, strict=True)), one.flavour)
        passed, failed = passed + counts[0], failed + counts[1]
        print(f"   {one.title()}: {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _dry_run(todo: Sequence[tuple[Round, list[RunSpec]]], parallel: int) -> int:
    for one, runs in todo:
        print(f"{one.title()}:")
        for spec in runs:
            print(f"  {shown(spec)}")
    every = [spec for _, runs in todo for spec in runs]
    total = sum(map(estimate, every)) / parallel
    print(f"{len(every)} runs, {sum(r.lane == 'fast' for r in every)} of them in the fast lane, "
          f"very roughly {minutes(total)} with {parallel} at a time")
    return 0


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb stress``."""
    p = sub.add_parser("stress", help="power cuts, faults and races on the plain, debug, stock and KCSAN kernels",
                       epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kernel", help="only the rounds of this kernel: stock, patched, tree")
    p.add_argument("--flavour", help=f"only the rounds of this flavour: {', '.join(FLAVOURS)}")
    p.add_argument("--lane", choices=LANES, default="auto",
                   help="all in the exact lane, or only what the fast one can judge (default: each where it belongs)")
    p.add_argument("--case", action="append", metavar="CASE", help="only this case (may be repeated)")
    p.add_argument("--short", action="store_true", help="the suite stress-short everywhere")
    p.add_argument("--seeds", metavar="N|LIST",
                   help="number of seeds, or a list such as 1,7 or 3-6 (default: each suite's)")
    p.add_argument("-j", "--jobs", type=int, metavar="N", help="guests side by side (1..256, default: one per core)")
    p.add_argument("--force", action="store_true", help="run again what is finished")
    p.add_argument("--dry-run", action="store_true", help="print what would run, and for how long")
    p.set_defaults(func=run)
