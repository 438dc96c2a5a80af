# SPDX-License-Identifier: GPL-2.0
"""``wb foreign``: xfstests or blktests, unmodified, on two kernels side by side, and what differs."""

import argparse
import concurrent.futures
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wblib.base.fs import alone, write_atomic
from wblib.base.paths import RESULTS
from wblib.base.proc import say, sha256_text
from wblib.base.progress import Progress
from wblib.kernel import build as kernels
from wblib.kernel import sources
from wblib.kernel.kconfig import UML_FOREIGN
from wblib.run.bench import KERNELS, check_jobs, minutes
from wbtop import ranges
from wbtop.errors import WbError
from wbtop.stats import table

from . import foreign_guest as guests
from . import foreign_suite as suites
from .foreign_suite import Config

TRIES = 3
TIMEOUT_S = 900.0
ESTIMATE_S = 20.0
# Stands for a test of which nothing can be said.
WORSE = ("fail", "timeout", "died")
EXAMPLES = """\
examples:
  wb foreign --suite fstests --source ~/xfstests --group quick
  wb foreign --suite fstests --source ~/xfstests --group auto --without soak --without dangerous \\
     --config default --config nodelalloc,dioread_nolock --config 'default:-b 1024' -j 8
  wb foreign --suite fstests --source ~/xfstests --test generic/001 --kernel tree
  wb foreign --suite fstests --source ~/xfstests --fs xfs --group quick --first 30
  wb foreign --suite blktests --source ~/blktests --group block --group throtl
The checkout is yours and stays as it is: it is copied, built once and run in guests of
User Mode Linux, one per test, in real time, on disks in memory.  A guest sees the host's
files, read-only: what a suite needs of programs must be installed here.
A finished test is not run again: the same command goes on where it was stopped, and one
that runs beside another waits for the test that both want, and takes its result.  What
does not pass on one kernel and passes on another is tried again on both.
exit code: 0 nothing is worse on the second kernel, 1 something is, 2 wrong usage"""


@dataclass(frozen=True)
class Job:
    """One try of a test on one kernel."""

    kernel: str
    config: Config
    test: str
    attempt: int


@dataclass(frozen=True)
class Setting:
    """What all jobs of a command have in common."""

    suite: suites.Suite
    tree: Path
    ident: str
    fs: str
    built: Mapping[str, kernels.Kernel]
    modules: Mapping[str, Path]
    timeout_s: float
    force: bool

    def place(self, job: Job) -> Path:
        """Where the files of ``job`` are."""
        built = self.built[job.kernel]
        return (RESULTS / "foreign" / f"{built.name}-{built.key[:8]}" / f"{self.suite.name}-{self.fs}" / job.config.name
                / f"{job.test.replace('/', '-')}.{job.attempt}")

    def identity(self, job: Job) -> str:
        """What makes two runs the same run."""
        init = (guests.GUEST / "foreign-init").read_text()
        text = self.suite.job(self.tree, job.test, self.fs, job.config)
        words = [self.built[job.kernel].key, self.ident, init, text, str(self.suite.memory_mib)]
        return sha256_text("\n".join(words))[:16]


def kept(setting: Setting, job: Job) -> dict[str, Any] | None:
    """The result of ``job`` if it has been run to its end before."""
    try:
        old = json.loads((setting.place(job) / guests.VERDICT).read_text())
    except (OSError, ValueError):
        return None
    same = isinstance(old, dict) and old.get("identity") == setting.identity(job) and old.get("what") in suites.VERDICTS
    # With more patience it may end.
    return old if same and not (old["what"] == "timeout" and old.get("timeout_s", 0) < setting.timeout_s) else None


def _run_one(setting: Setting, job: Job, progress: Progress, stop: threading.Event) -> dict[str, Any]:
    with alone(setting.place(job), stop):
        # Another wb may have ended it meanwhile.
        return (None if setting.force else kept(setting, job)) or _run_guest(setting, job, progress, stop)


def _run_guest(setting: Setting, job: Job, progress: Progress, stop: threading.Event) -> dict[str, Any]:
    def tick(_elapsed: float) -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    label = f"{job.test} {job.config.name} on {job.kernel}"
    out = setting.place(job)
    progress.start(label)
    try:
        task = guests.Task(setting.suite, setting.tree, job.test, setting.fs, job.config,
                           setting.built[job.kernel].image, setting.modules[job.kernel], setting.timeout_s)
        ran = guests.run(task, out, tick)
    finally:
        progress.stop(label)
    result = {"suite": setting.suite.name, "fs": setting.fs, "test": job.test, "config": job.config.name,
              "kernel": job.kernel, "try": job.attempt, "what": ran.verdict.what, "why": ran.verdict.why,
              "splats": ran.splats, "wall_s": ran.wall_s, "timeout_s": setting.timeout_s,
              "identity": setting.identity(job)}
    if ran.verdict.what in ("pass", "notrun") and not ran.splats:
        guests.tidy(out)
    write_atomic(out / guests.VERDICT, json.dumps(result, indent=1) + "\n")
    if ran.splats or ran.verdict.what in WORSE:
        say(f"  {label}: {ran.verdict.what} {ran.verdict.why}{' SPLAT ' if ran.splats else ''}"
            f"{ran.splats[0] if ran.splats else ''}")
    return result


def run_jobs(setting: Setting, jobs: Sequence[Job], parallel: int) -> list[dict[str, Any]]:
    """Run those of ``jobs`` that have no result yet; the results in their order."""
    done = {job: None if setting.force else kept(setting, job) for job in jobs}
    todo = [job for job, result in done.items() if result is None]
    if len(todo) < len(jobs):
        say(f"  {len(jobs) - len(todo)} of {len(jobs)} results are there already")
    stop = threading.Event()
    progress = Progress([ESTIMATE_S] * len(todo), parallel)
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        futures = {pool.submit(_run_one, setting, job, progress, stop): job for job in todo}
        try:
            waiting = set(futures)
            while waiting:
                finished, waiting = concurrent.futures.wait(waiting, timeout=1)
                for future in finished:
                    done[futures[future]] = future.result()
                progress.show()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            progress.end()
    return [result for result in done.values() if result is not None]


def failed(jobs: Sequence[Job], found: Sequence[Mapping[str, Any]], kernel: str) -> list[Job]:
    """What is to run on ``kernel``, too: those of ``jobs`` that failed, ended early or had splats."""
    return [Job(kernel, job.config, job.test, 1) for job, result in zip(jobs, found, strict=True)
            if result["what"] in WORSE or result["splats"]]


# ---- what differs -----------------------------------------------------------

Cell = tuple[str, str]  # configuration, test


def by_cell(found: Iterable[Mapping[str, Any]]) -> dict[Cell, dict[str, list[Mapping[str, Any]]]]:
    """Configuration and test -> kernel -> its tries."""
    cells: dict[Cell, dict[str, list[Mapping[str, Any]]]] = {}
    for r in found:
        cells.setdefault((r["config"], r["test"]), {}).setdefault(r["kernel"], []).append(r)
    return cells


def differing(found: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Where the kernels' verdicts, or whether there were splats, are not all the same."""
    def seen(tries: Sequence[Mapping[str, Any]]) -> set[tuple[str, bool]]:
        return {(r["what"], bool(r["splats"])) for r in tries}

    return [cell for cell, of in by_cell(found).items() if len(set().union(*map(seen, of.values()))) > 1]


def said(tries: Sequence[Mapping[str, Any]]) -> str:
    """The tries of a kernel in a few words, such as "2 pass, 1 fail"."""
    count = Counter(r["what"] for r in tries)
    words = [f"{n} {what}" if len(tries) > 1 else what for what, n in count.items()]
    bad = sum(bool(r["splats"]) for r in tries)
    return ", ".join([*words, *([f"{bad} with a splat"] if bad else [])])


def worse(found: Iterable[Mapping[str, Any]], a: str, b: str) -> list[Cell]:
    """Where no try on ``b`` passed and one on ``a`` did, or only ``b`` had splats."""
    bad = []
    for cell, of in by_cell(found).items():
        first, second = of.get(a, []), of.get(b, [])
        passed = [any(r["what"] == "pass" for r in side) for side in (first, second)]
        splats = [any(r["splats"] for r in side) for side in (first, second)]
        fails = any(r["what"] in WORSE for r in second)
        if (passed[0] and not passed[1] and fails) or (splats[1] and not splats[0]):
            bad.append(cell)
    return bad


def rows_of_counts(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each configuration and kernel: how many tests came to what in the first try."""
    count: dict[tuple[str, str], Counter[str]] = {}
    for r in found:
        if r["try"] == 1:
            one = count.setdefault((r["config"], r["kernel"]), Counter())
            one[r["what"]] += 1
            one["splats"] += bool(r["splats"])
    return [[config, kernel, str(sum(c[w] for w in suites.VERDICTS)),
             *(str(c[w]) for w in (*suites.VERDICTS, "splats"))] for (config, kernel), c in count.items()]


COUNTS = ("configuration", "kernel", "tests", *suites.VERDICTS, "splats")


def rows_of_differences(found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[str]]:
    """A row for each difference: configuration, test, what each kernel's tries came to, why."""
    cells = by_cell(found)
    rows = []
    for cell in differing(found):
        reasons = [r["splats"][0] if r["splats"] else r["why"] for name in names for r in cells[cell].get(name, [])
                   if r["splats"] or r["what"] != "pass"]
        rows.append([*cell, *(said(cells[cell].get(n, [])) for n in names), reasons[0] if reasons else ""])
    return rows


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [[c.replace("|", "\\|") for c in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [list(head), ["---"] * len(head), *cells])


def markdown(title: str, found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The report."""
    rows = rows_of_differences(found, names)
    differences = _markdown(["configuration", "test", *names, "why"], rows) if rows else "None."
    return f"# {title}\n\n{_markdown(COUNTS, rows_of_counts(found))}\n\n## Differences\n\n{differences}\n"


# ---- the command ------------------------------------------------------------

def run(args: argparse.Namespace) -> int:
    """``wb foreign``."""
    names = list(dict.fromkeys(sources.chosen(k, KERNELS) for k in args.kernel))
    parallel = check_jobs(args.jobs)
    configs = [suites.config(text) for text in dict.fromkeys(args.config or ["default"])]
    suite = suites.SUITES[args.suite]
    if not (args.group or args.test):
        raise WbError("which tests? Give --group or --test", 2)
    tree, ident = suites.prepare(suite, args.source.expanduser().absolute())
    tests = suites.chosen(suite, tree, args.fs, groups=args.group or (), without=args.without or (),
                          tests=args.test or ())[:args.first]
    jobs = [Job(name, config, test, 1) for config in configs for test in tests for name in names]
    if args.only_failed:
        if len(names) < 2:
            raise WbError("--only-failed compares two kernels: give both with --kernel", 2)
        jobs = [job for job in jobs if job.kernel == names[1]]
    if args.dry_run:
        for job in jobs:
            print(f"{job.test} {job.config.name} on {job.kernel}")
        wall = minutes(ESTIMATE_S * len(jobs) / parallel)
        print(f"{len(jobs)} guests, very roughly {wall} with {parallel} at a time")
        return 0
    built = {name: kernels.build(name, UML_FOREIGN) for name in names}
    modules = {name: kernels.install_modules(kernel) for name, kernel in built.items()}
    setting = Setting(suite, tree, ident, args.fs, built, modules, args.timeout or TIMEOUT_S, args.force)
    found = run_jobs(setting, jobs, parallel)
    if args.only_failed:
        again = failed(jobs, found, names[0])
        say(f"  {len(again)} of {len(jobs)} did not pass on {names[1]}: they run on {names[0]}, too")
        found += run_jobs(setting, again, parallel)
    for attempt in range(2, args.tries + 1):
        again = [Job(name, config, test, attempt) for config in configs
                 for where, test in differing(found) if where == config.name for name in names]
        if not again or len(names) < 2:
            break
        say(f"  try {attempt} of the {len(again) // len(names)} that differ")
        found += run_jobs(setting, again, parallel)
    return report(args, found, names)


def report(args: argparse.Namespace, found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    """Print the tables and write the report's two files; returns the exit code."""
    print(table(COUNTS, rows_of_counts(found), left=2))
    if rows := rows_of_differences(found, names):
        print("\n" + table(["configuration", "test", *names, "why"], rows, left=len(names) + 3))
    bad = worse(found, names[0], names[1]) if len(names) > 1 else []
    title = f"{args.suite}, {args.fs}: {' and '.join(names)}" if args.suite == "fstests" else \
        f"{args.suite}: {' and '.join(names)}"
    stem = args.output or RESULTS / "foreign" / f"{args.suite}-{args.fs}"
    write_atomic(stem.with_name(stem.name + ".md"), markdown(title, found, names))
    write_atomic(stem.with_name(stem.name + ".json"), json.dumps(
        {"title": title, "kernels": list(names), "worse": bad, "runs": list(found)}, indent=1) + "\n")
    print(f"{len(found)} runs" + (f", worse on {names[1]}: {len(bad)}" if len(names) > 1 else ""))
    print(f"  files: {stem}.md, {stem}.json")
    return 1 if bad else 0


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb foreign``."""
    p = sub.add_parser("foreign", help="xfstests or blktests that you have, on two kernels, and what differs",
                       epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suite", required=True, choices=tuple(suites.SUITES), help="whose tests")
    p.add_argument("--source", required=True, type=Path, metavar="DIR", help="a checkout of them; it is not changed")
    p.add_argument("--kernel", nargs="+", metavar="K", default=["stock", "patched"],
                   help="stock, patched, tree (default stock patched: the second is judged by the first)")
    p.add_argument("--fs", choices=suites.FILESYSTEMS, default="ext4", help="fstests: file system (default ext4)")
    p.add_argument("--config", action="append", metavar="MOUNT[:MKFS]",
                   help="fstests: options of mount, or default, and of mkfs (may be repeated; default: default)")
    p.add_argument("--group", action="append", metavar="GROUP", help="all tests of it (may be repeated)")
    p.add_argument("--without", action="append", metavar="GROUP", help="but not those of this one (may be repeated)")
    p.add_argument("--test", action="append", metavar="TEST", help="this one, such as generic/001 (may be repeated)")
    p.add_argument("--first", type=ranges.whole(1, 99999), metavar="N", help="only the first N of them")
    p.add_argument("--tries", type=ranges.whole(1, 99), default=TRIES, metavar="N",
                   help=f"how often what differs is run (1..99, default {TRIES})")
    p.add_argument("--only-failed", action="store_true",
                   help="run on the first kernel only what fails on the second, dies, ends early or has splats there")
    p.add_argument("-j", "--jobs", type=int, metavar="N", help="guests side by side (1..256, default: one per core)")
    ranges.add_timeout(p)
    p.add_argument("--output", type=Path, metavar="STEM", help="write STEM.md and .json (default: in results/foreign)")
    p.add_argument("--force", action="store_true", help="run again what is finished")
    p.add_argument("--dry-run", action="store_true", help="print what would run, and for how long")
    p.set_defaults(func=run)
