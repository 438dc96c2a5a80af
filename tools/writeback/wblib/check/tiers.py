# SPDX-License-Identifier: GPL-2.0
"""``wb check``: everything that must hold, in tiers, with one closing line."""

import argparse
import concurrent.futures
import contextlib
import filecmp
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wblib.base.paths import BUILD, ROOT, SELFTESTS, TOOLS
from wblib.base.proc import cpus, need, say
from wblib.catalog import axes as ax
from wblib.catalog.spec import RunSpec, specs
from wblib.catalog.suites import Job, cell, in_lane, jobs, left_out, suite
from wblib.figures import blocks as figures
from wblib.guest import nested, qemu, uml
from wblib.kernel import build as kernels
from wblib.kernel import patchqueue, sources, upstream
from wblib.results import ktap, store
from wblib.run import runner
from wblib.run.demo import variants
from wblib.series import command
from wblib.ship import boot as boots
from wbtop.errors import WbError

EXAMPLES = """\
examples:
  wb check                       every tier, as CI does
  wb check --tier lint --tier unit   only these
exit code: 0 if nothing failed; the last line is 'N passed, N failed'"""


@dataclass(frozen=True)
class Verdict:
    """One line of the report; problem is empty when the check passed."""

    name: str
    problem: str = ""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb check``."""
    p = sub.add_parser("check", help="everything that must hold, in tiers", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tier", action="append", choices=tuple(TIERS), help="only this tier (may be repeated)")
    p.add_argument("--seed", default="1", help=f"seed of the cases (1..{ax.SEED_MAX}, default 1)")
    p.set_defaults(func=check)


def check(args: argparse.Namespace) -> int:
    """Run the tiers; a tier that cannot run counts as one failure, the others go on."""
    seed = ax.check_seed(args.seed)
    passed = failed = 0
    for name in args.tier or TIERS:
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        try:
            verdicts = list(TIERS[name](seed))
        except WbError as exc:
            verdicts = [Verdict(name, str(exc))]
        for verdict in verdicts:
            print(f"{'FAIL' if verdict.problem else 'ok  '} {verdict.name}"
                  + (f": {verdict.problem}" if verdict.problem else ""), flush=True)
            failed += bool(verdict.problem)
            passed += not verdict.problem
        print(f"   {name}: {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _command(name: str, argv: list[str], cwd: Path = ROOT) -> Verdict:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Verdict(name)
    output = (done.stdout + done.stderr).strip()
    say(output)
    return Verdict(name, output.splitlines()[-1] if output else f"exit code {done.returncode}")


def _tracked(*patterns: str) -> list[str]:
    return patchqueue.git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns).split()


def venv_tool(name: str) -> str:
    """Path of a Python tool: the project's venv first, then PATH."""
    mine = BUILD / "venv" / "bin" / name
    return str(mine) if mine.exists() else need(name, f"python3 package {name}")


def lint(_seed: int) -> Iterator[Verdict]:
    """ShellCheck, ruff, checkpatch on our C files, the series' round trip, and the figures of the documentation."""
    shells = [f for f in _tracked() if (ROOT / f).is_file() and _is_shell(ROOT / f)]
    yield _command("shellcheck", [need("shellcheck", "shellcheck"), "-x", "-P", "SCRIPTDIR", *shells])
    yield _command("ruff", [venv_tool("ruff"), "check", "--no-cache", "."])
    sources = [str(ROOT / f) for f in _tracked(f"{SELFTESTS.relative_to(ROOT)}/*.[ch]",
                                               f"{SELFTESTS.relative_to(ROOT)}/**/*.[ch]")]
    # The shim imitates the kernel's own headers, macros and all.
    sources = [f for f in sources if "/shim/" not in f]
    stock = kernels.source("stock")
    # VOLATILE: a signal handler's flag in user space.  The versions: wbdisk_compat.h is for both kernel lines.
    checkpatch = ["perl", "scripts/checkpatch.pl", "--strict", "--terse", "--no-summary",
                  "--ignore", "FILE_PATH_CHANGES,VOLATILE,LINUX_VERSION_CODE,CONSTANT_COMPARISON", "-f"]
    yield _command("checkpatch (C of the selftests)", [*checkpatch, *sources], cwd=stock)
    yield from (Verdict(f"series: {name}", problem) for name, problem in command.lint())
    yield from (Verdict(f"figures: {name}", problem) for name, problem in figures.lint())


def _is_shell(path: Path) -> bool:
    with path.open("rb") as f:
        first = f.readline(64)
    return path.suffix == ".sh" or (first.startswith(b"#!") and (b"bash" in first or first.rstrip().endswith(b"/sh")))


def unit(_seed: int) -> Iterator[Verdict]:
    """Host-side pytest, a directory of tests at a time on each CPU."""
    here = TOOLS / "tests"
    groups = {"tests": sorted(map(str, here.glob("test_*.py")))}
    groups |= {f"tests/{d.name}": [str(d)] for d in sorted(here.iterdir()) if any(d.glob("test_*.py"))}
    pytest = [venv_tool("pytest"), "-q", "-p", "no:cacheprovider"]
    with concurrent.futures.ThreadPoolExecutor(cpus()) as pool:
        yield from pool.map(lambda name: _command(f"pytest {name}", [*pytest, *groups[name]]), groups)


# The disk's own tests and the incident that the series is about say in the exact lane, too, that all is well; only
# there a file system has large folios.
BOTH = ("wbdisk-kunit", "wbdisk", "read-latency", "dirty-time-crowd")


def cases(seed: int) -> Iterator[Verdict]:
    """KUnit, the module's own tests, and each case once, on every kernel; in the fast lane where it can."""
    cells, kernel_names = suite("cases").cells, variants()
    for line in left_out(cells, kernel_names):
        print(f"     {line}", flush=True)
    every = jobs(cells, kernel_names, [seed])
    if len(kernel_names) > 1:
        # The checks have 75 minutes; what looks for crashes looks at the patches first.
        stress, later = ({c.case for c in suite(name).cells} for name in ("stress", "stress-short"))
        left = {j.case for j in every if sources.is_stock(j.kernel)} & stress
        for what, names in (("left to 'wb stress'", left & later), ("left out", left - later)):
            if names:
                print(f"     stock, {what}: {', '.join(sorted(names))}", flush=True)
        every = [j for j in every if not sources.is_stock(j.kernel) or j.case not in stress]
    # What the fast lane cannot judge is left to the exact one; the longest first, so that no core idles at the end.
    fast = [j for j in map(functools.partial(in_lane, "fast"), every) if j]
    exact = [j for j in every if in_lane("fast", j) is None or j.case in BOTH]
    for lane, of_lane in (("fast", fast), ("exact", exact)):
        of_lane.sort(key=lambda j: -ax.wall_s(j.case, j.axes))
        for result in runner.run_many(specs(of_lane, lane=lane)):
            yield from of_result(result)


def _on_stock(case: str, seed: int, **axes: str) -> Job:
    return Job(case, ax.validate(case, axes), seed, sources.named("stock"))


def of_result(result: store.Result) -> Iterator[Verdict]:
    """A verdict for each test of a run, and one for a run that did not end well without a failed test."""
    lane = result.meta.get("lane", "exact")
    name = f"{result.kernel} {result.case}" + (f" ({lane})" if lane != "exact" else "")
    # Our own guest has all that a case needs: one that skips itself has tested nothing.
    failed = any(t["result"] == "fail" for t in result.tests)
    for test in result.tests:
        if test["result"] != "fail":
            yield Verdict(f"{name}: {test['name']}" + (" (skipped)" if test["result"] == "skip" else ""))
        else:
            yield Verdict(f"{name}: {test['name']}", f"see {result.meta['dir']}/ktap")
    if result.status != "pass" and not failed:
        yield Verdict(name, _why(result))


def kselftest(seed: int) -> Iterator[Verdict]:
    """The kselftest runner itself, parsed by the kernel's own kunit.py."""
    ready = runner.prepare(RunSpec.of(_on_stock("wbdisk", seed)))
    out = BUILD / "check" / "kselftest"
    shutil.rmtree(out, ignore_errors=True)
    guest = qemu.Guest(ready.kernel.image, ready.initrd, "kselftest", ("-t", "writeback:wbdisk/wbdisk-kunit.sh"),
                       kunit=True)
    outcome = qemu.run(guest, out, timeout_s=900)
    if outcome.exit_code != 0:
        yield Verdict("run_kselftest.sh", outcome.problem or f"exit code {outcome.exit_code}, see {out / 'ktap'}")
        return
    log = out / "ktap"
    yield _command("run_kselftest.sh, read by kunit.py parse",
                   [sys.executable, "tools/testing/kunit/kunit.py", "parse", str(log)], cwd=kernels.source("stock"))


# What says that the series does on mainline what it does on LTS: the reference rows, and what each set mends.
MAINLINE = ("wbdisk-kunit", "wbdisk", "read-latency disk=fifo", "read-latency disk=sata", "wbt-kunit", "wbt-cgroup",
            "ext4-kunit", "dirty-kunit",
            *(f"ext4-endio part={part}" for part in (
                "nospace", "convert", "ioerror", "rewrite", "private", "switch", "direct", "partial", "page", "quota",
                "trim")),
            "ext4-inline", "ext4-powercut", "ext4-fastcommit", "dirty-limits", "dirty-time part=stick")
# Random work that must lose nothing, where the stock kernel of that line does, and neighbours that must not wait.
MAINLINE_PATCHED = ("ext4-fastcommit replay=e2fsck", "ext4-model", "ext4-names", "powercut cuts=20", "log-writes",
                    "dirty-neighbour")


def mainline(seed: int) -> Iterator[Verdict]:
    """The kernels of the mainline line, and MAINLINE in the fast lane; skipped where it has no source to build."""
    if upstream.default_line() == upstream.MAINLINE:
        print("     left out: every tier is on this line", flush=True)
        return
    try:
        sources.describe(upstream.in_line("patched", upstream.MAINLINE))
    except upstream.NoBase as exc:
        print(f"     SKIPPED: {exc}", flush=True)
        return
    kernel_names = [upstream.in_line(name, upstream.MAINLINE) for name in ("stock", "patched")]
    every = jobs([cell(words) for words in MAINLINE], kernel_names, [seed])
    every += jobs([cell(words) for words in MAINLINE_PATCHED], kernel_names[1:], [seed])
    fast = [j for j in map(functools.partial(in_lane, "fast"), every) if j]
    fast.sort(key=lambda j: -ax.wall_s(j.case, j.axes))
    for result in runner.run_many(specs(fast, lane="fast")):
        yield from of_result(result)


def determinism(seed: int) -> Iterator[Verdict]:
    """One case twice with one seed: every byte the same, also under load; with another seed: other measurements."""
    ready = runner.prepare(RunSpec.of(_on_stock("wbdisk", seed)))
    # Or a checkout elsewhere would have other bytes in its guests, and so other measurements.
    named = os.fsencode(BUILD) + b"/" in ready.initrd.read_bytes()
    yield Verdict("no path of this machine in the guest", f"{BUILD} is in {ready.initrd}" if named else "")
    yield from _same_bytes("exact", {"disk": "fifo", "mib": "256", "runtime": "1"})
    yield from _same_bytes("fast", {"disk": "fifo", "mib": "1024", "runtime": "20"})
    yield from _same_on_another_cpu()


def _reads(lane: str, seed: int, axes: dict[str, str]) -> qemu.Guest:
    """The guest of read-latency on the stock kernel."""
    job = in_lane(lane, _on_stock("read-latency", seed, **axes))
    assert job
    spec = RunSpec.of(job, lane=lane)
    return runner.guest_of(spec, runner.prepare(spec))


def _same_bytes(lane: str, axes: dict[str, str]) -> Iterator[Verdict]:
    """read-latency on the stock kernel in ``lane``: seed 7 alone, seed 7 on a host that is busy, and seed 8.

    Busy means in the exact lane that QEMU's threads run in an odd order, too.
    """
    pauses = None
    if lane == "exact":
        if b"__longjmp_chk" in Path(need(qemu.QEMU, "qemu-system-x86")).resolve().read_bytes():
            pauses = uml.shim("qemupause")
        else:
            print("     left out: pauses of QEMU's threads; this one is not built with _FORTIFY_SOURCE", flush=True)
    metrics: list[object] = []
    runs = []
    for seed, busy in ((7, False), (7, True), (8, False)):
        place = BUILD / "check" / f"determinism-{lane}-{len(runs) + 1}"
        runs.append(place)
        shutil.rmtree(place, ignore_errors=True)
        guest = _reads(lane, seed, axes)
        with _busy() if busy else contextlib.nullcontext():
            outcome = qemu.run(guest, place, timeout_s=900, preload=pauses if busy else None)
        metrics.append(ktap.parse(outcome.ktap).metrics)
        if outcome.exit_code != 0:
            yield Verdict(f"determinism ({lane})",
                          outcome.problem or f"exit code {outcome.exit_code}, see {place / 'ktap'}")
            return
    differ = _differences(runs[0], runs[1])
    yield Verdict(f"same seed, same bytes, on a busy host ({lane})",
                  f"differ: {', '.join(differ)} in {runs[0]} and {runs[1]}" if differ else "")
    # Not the files: dmesg and the readers' output name the seed.
    yield Verdict(f"another seed, other measurements ({lane})",
                  "" if metrics[0] != metrics[2] else "seeds 7 and 8 gave the same")


# The least that x86-64 may be: what programs choose by the CPU, they choose otherwise here.
LEAST_CPU = "qemu64"


def _same_on_another_cpu() -> Iterator[Verdict]:
    """A guest of the fast lane on this machine, and inside QEMU on LEAST_CPU."""
    if upstream.default_line() == upstream.MAINLINE:
        # arch_task_struct_size, um_arch.c
        print("     left out: another CPU; a task of its User Mode Linux is as large as the host's registers",
              flush=True)
        return
    guest = _reads("fast", 7, {"disk": "fifo", "mib": "256", "runtime": "1"})
    here, there = (BUILD / "check" / f"determinism-cpu-{n}" for n in (1, 2))
    for place in (here, there):
        shutil.rmtree(place, ignore_errors=True)
    around = runner.prepare(RunSpec.of(_on_stock("wbdisk", 7))).kernel.image
    what = f"same bytes on another CPU, {LEAST_CPU} (fast)"
    for outcome in (qemu.run(guest, here, timeout_s=900),
                    nested.run(guest, around, LEAST_CPU, there, timeout_s=1800)):
        if outcome.exit_code != 0:
            yield Verdict(what, outcome.problem or f"exit code {outcome.exit_code}, see {here} and {there}")
            return
    differ = [name for name in _differences(here, there) if name != "console.log"]
    yield Verdict(what, f"differ: {', '.join(differ)} in {here} and {there}" if differ else "")


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep every CPU of this machine busy, with caches and page tables, too."""
    load = [subprocess.Popen([sys.executable, "-c", "while True: bytearray(1 << 22).find(1)"]) for _ in range(cpus())]
    try:
        yield
    finally:
        for one in load:
            one.kill()
            one.wait()


def _differences(a: Path, b: Path) -> list[str]:
    names = sorted({str(p.relative_to(d)) for d in (a, b) for p in d.rglob("*") if p.is_file()})
    return [n for n in names
            if not ((a / n).exists() and (b / n).exists() and filecmp.cmp(a / n, b / n, shallow=False))]


# Real drivers in real time: only the direction is certain.  A throttled disk
# with 32 large writes queued makes reads many times slower than an idle one.
FUNCTIONAL_RATIO = 2.0
# p99 shows it best; on a busy host its own pauses are in both p99s, and p90 shows it.
FUNCTIONAL_TAILS = ("read_p99", "read_p90")
# A busy host only ever adds latency, so the least of a few runs says most.
FUNCTIONAL_SEEDS = 3


def functional(seed: int) -> Iterator[Verdict]:
    """Real libata and nvme drivers on QEMU's AHCI and NVMe disks: cases pass, writeback hurts reads."""
    for device in ("ahci", "nvme"):
        idle, problem = _functional_reads("idle", seed, device, 1)
        yield Verdict(f"read-latency, idle writer, on {device}", problem)
        buffered, problem = _functional_reads("buffered", seed, device, FUNCTIONAL_SEEDS)
        yield Verdict(f"read-latency, buffered writer, on {device}", problem)
        for more in range(1, 2 * FUNCTIONAL_SEEDS):
            if slower(idle, buffered):
                break
            # The host was busy: give it one more chance to show an idle disk.
            again, _ = _functional_reads("idle", seed + more, device, 1)
            idle = {tail: min(idle[tail], again[tail]) for tail in idle}
        both = ", ".join(f"{tail} idle {idle[tail]:.0f} us, buffered {buffered[tail]:.0f} us" for tail in idle)
        yield Verdict(f"{device}: buffered writeback multiplies read latency",
                      "" if slower(idle, buffered) else both)
        for case in ("tune", "watch"):
            result, = _functional([_on_stock(case, seed)], device)
            yield Verdict(f"wb {case} on {device}", "" if result.status == "pass" else _why(result))


def slower(idle: dict[str, float], buffered: dict[str, float]) -> bool:
    """Whether one of the tails (us) is over FUNCTIONAL_RATIO times the idle one; a missing figure (0) is none."""
    return any(buffered[tail] > FUNCTIONAL_RATIO * idle[tail] > 0 for tail in idle)


def _functional(job_list: Sequence[Job], device: str) -> list[store.Result]:
    """Run ``job_list`` one at a time: side by side they would share the host's cores."""
    return runner.run_many(specs(job_list, lane="functional", on=device), parallel=1, force=True)


def _functional_reads(writer: str, seed: int, device: str, runs: int) -> tuple[dict[str, float], str]:
    """The least of each of FUNCTIONAL_TAILS (us) of ``runs`` runs beside ``writer``; why one did not pass."""
    found = _functional([_on_stock("read-latency", seed + i, mib="512", rate="200", wbt="off", writer=writer)
                         for i in range(runs)], device)
    bad = [r for r in found if r.status != "pass"]
    least = {tail: min(r.value(tail) or 0.0 for r in found) for tail in FUNCTIONAL_TAILS}
    return least, _why(bad[0]) if bad else ""


def boot(_seed: int) -> Iterator[Verdict]:
    """The Debian packages installed on a disk that boots under its own GRUB, tested and purged there."""
    yield from (Verdict(name, problem) for name, problem in boots.lines())


def _why(result: store.Result) -> str:
    """Why a run did not pass, in a few words."""
    failed = [t["name"] for t in result.tests if t["result"] == "fail"]
    return result.meta.get("problem") or ", ".join(failed) or result.status


TIERS: dict[str, Callable[[int], Iterator[Verdict]]] = {
    "lint": lint, "unit": unit, "cases": cases, "mainline": mainline, "kselftest": kselftest,
    "determinism": determinism, "functional": functional, "boot": boot,
}
