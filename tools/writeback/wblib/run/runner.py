# SPDX-License-Identifier: GPL-2.0
"""Running jobs in guests, several side by side; finished results are kept and reused."""

import concurrent.futures
import contextlib
import fcntl
import functools
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from wblib.base.paths import RESULTS, ROOT
from wblib.base.proc import cpus, run, say, sha256_file
from wblib.base.progress import Progress
from wblib.catalog import axes as ax
from wblib.catalog.suites import Job
from wblib.guest import initramfs as guests
from wblib.guest import qemu
from wblib.kernel import build as kernels
from wblib.kernel import kconfig
from wblib.results import ktap, store
from wbtop.errors import WbError

# Wall time allowed per case, as a multiple of its estimate on an idle core, and never less.
PATIENCE, PATIENCE_MIN_S = 20.0, 900.0
LANES = ("exact", "fast", "functional")
_stop = threading.Event()


@dataclass(frozen=True)
class Options:
    """How jobs are run. lane: one of LANES; on: functional lane's disk; cpu: exact lane's CPU model."""

    lane: str = "exact"
    on: str = "ahci"
    force: bool = False
    timeout_s: float = 0.0
    flavour: str = "slim"
    trace: bool = False
    cpu: str = qemu.CPU


@dataclass(frozen=True)
class Prepared:
    """What jobs of one kernel have in common."""

    kernel: kernels.Kernel
    initrd: Path
    initrd_hash: str


def prepare(variant: str, options: Options, *, python: bool = False, foreign: bool = False) -> Prepared:
    """Build the kernel and the guest that jobs on ``variant`` need; cheap when both exist.

    python: the guest has python3 and wb.  foreign: it has the programs that only some cases need.
    """
    built = kernels.build(variant, _flavour(options))
    initrd = guests.initramfs(kernels.modules(built), flavour=options.flavour, python=python, foreign=foreign)
    return Prepared(built, initrd, sha256_file(initrd)[:16])


def _flavour(options: Options) -> str:
    """The kernel's flavour: the fast lane has kernels of its own."""
    if options.lane != "fast":
        return options.flavour
    of_lane = {"slim": kconfig.UML, "debug": kconfig.UML_DEBUG}
    if options.flavour not in of_lane:
        raise WbError(f"the fast lane has no flavour {options.flavour}: {' or '.join(of_lane)}", 2)
    return of_lane[options.flavour]


def _cpus(job: Job, options: Options) -> int:
    """Virtual CPUs: real drivers are used in parallel, and KCSAN looks for races of two."""
    if options.lane == "functional" or options.flavour == "kcsan":
        return 2
    return ax.case(job.case).smp


def guest_of(job: Job, prepared: Prepared, options: Options) -> qemu.Guest:
    """The guest of ``job``."""
    axes = dict(job.axes)
    functional = options.lane == "functional"
    if functional and "disk" in axes:
        axes["disk"] = f"dev:{qemu.DEVICES[options.on]}"
    args = ax.guest_args(job.case, axes, job.seed)
    if options.trace:
        args.append("--trace")
    memory_mib = int(axes.get("ram", ax.case(job.case).guest_mib))
    return qemu.Guest(prepared.kernel.image, prepared.initrd, job.case, tuple(args), job.seed, memory_mib,
                      options.lane, disk=options.on if functional else None,
                      smp=_cpus(job, options), cpu=options.cpu,
                      kunit=job.case.endswith("-kunit"))


def run_many(
    jobs: Sequence[Job], *, parallel: int | None = None, options: Options | None = None,
) -> list[store.Result]:
    """Run ``jobs``, ``parallel`` at a time (default: one per core); results in the order of ``jobs``.

    A job with a complete result of the same kernel, guest and QEMU is not run
    again.  A guest that dies gives a result with status "error"; the other
    jobs go on.  On Ctrl-C the running guests are killed, finished results stay.
    """
    options = options or Options()
    parallel = parallel or cpus()
    kinds = [(j.kernel, ax.case(j.case).python, ax.case(j.case).foreign) for j in jobs]
    prepared = {kind: prepare(kind[0], options, python=kind[1], foreign=kind[2]) for kind in dict.fromkeys(kinds)}
    of = dict(enumerate(prepared[kind] for kind in kinds))
    done: dict[int, store.Result] = {}
    todo = []
    for index, job in enumerate(jobs):
        kept = None if options.force else _kept(job, of[index], options)
        if kept:
            done[index] = kept
        else:
            todo.append(index)
    if done:
        say(f"  {len(done)} of {len(jobs)} results are there already")
    if todo:
        _stop.clear()
        progress = Progress([ax.wall_s(jobs[i].case, jobs[i].axes) for i in todo], parallel)
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            futures = {pool.submit(_run_one, jobs[i], of[i], options, progress): i for i in todo}
            try:
                waiting = set(futures)
                while waiting:
                    finished, waiting = concurrent.futures.wait(waiting, timeout=1)
                    for future in finished:
                        done[futures[future]] = future.result()
                    progress.show()
            except BaseException:
                _stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                progress.end()
    return [done[i] for i in range(len(jobs))]


def place_of(job: Job, prepared: Prepared, options: Options) -> Path:
    """The directory of the job's result; other lanes and CPUs than the default ones are kept apart."""
    place: Path = store.result_dir(prepared.kernel, job.case, job.axes, job.seed)
    if options.lane != "exact":
        lane = options.on if options.lane == "functional" else options.lane
        place = place.parent.with_name(f"{lane}-{place.parent.name}") / place.name
    if options.trace:
        place = place.parent.with_name(f"{place.parent.name}-trace") / place.name
    if options.cpu != qemu.CPU:
        place = place.parent.with_name(f"{place.parent.name}-cpu-{ax.word(options.cpu)}") / place.name
    return place


def _identity(job: Job, prepared: Prepared, options: Options) -> dict[str, Any]:
    """What makes two runs the same run."""
    argv = qemu.command(guest_of(job, prepared, options), Path())
    return {"image_hash": prepared.kernel.key, "initrd_hash": prepared.initrd_hash,
            **({"qemu": qemu.version()} if options.lane != "fast" else {}),
            "command": qemu.shown(argv).replace(str(ROOT), ".")}


def _kept(job: Job, prepared: Prepared, options: Options) -> store.Result | None:
    path = place_of(job, prepared, options) / "result.json"
    if not path.exists():
        return None
    try:
        old: store.Result = store.load(path)
    except WbError as exc:
        say(f"  {exc}; running it again")
        return None
    same = all(old.meta.get(k) == v for k, v in _identity(job, prepared, options).items())
    return old if same and old.status != "error" else None


def _kind(job: Job, options: Options) -> dict[str, Any]:
    """What else keeps times apart, for the result's meta; btrfs: only that kernel has it, as the axis says."""
    implied = "btrfs" if job.axes.get("fs") == "btrfs" else "slim"
    return {**({"flavour": options.flavour} if options.flavour not in ("slim", implied) else {}),
            **({"trace": True} if options.trace else {})}


@functools.cache
def git_rev() -> str:
    """The checkout's commit, for the result's meta."""
    return run(["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False).stdout.strip() or "unknown"


def _locked(f: TextIO, path: Path) -> bool:
    """Lock ``f``, unless another has it, or has removed its ``path`` since it was opened."""
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(f.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep other wb commands from a result's directories; the lock's file is gone afterwards."""
    place.parent.mkdir(parents=True, exist_ok=True)
    path = place.with_name(f".{place.name}.lock")
    said = False
    while True:
        with path.open("w") as f:
            if _locked(f, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        if not said:
            say(f"  waiting for another wb that runs {place.parent.name} {place.name}")
            said = True
        if _stop.wait(0.2):
            raise KeyboardInterrupt


def _run_one(job: Job, prepared: Prepared, options: Options, progress: "Progress") -> store.Result:
    with _alone(place_of(job, prepared, options)):
        # Another wb may have ended it meanwhile.
        kept = None if options.force else _kept(job, prepared, options)
        return kept or _run_guest(job, prepared, options, progress)


def _run_guest(job: Job, prepared: Prepared, options: Options, progress: "Progress") -> store.Result:
    place = place_of(job, prepared, options)
    partial = place.with_name(place.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    guest = guest_of(job, prepared, options)
    label = f"{job.case} {place.parent.name} seed {job.seed} on {job.kernel}"
    limit = options.timeout_s or max(PATIENCE_MIN_S, PATIENCE * ax.wall_s(job.case, job.axes))
    progress.start(label)

    def tick(_elapsed: float) -> None:
        if _stop.is_set():
            raise KeyboardInterrupt

    try:
        outcome = qemu.run(guest, partial, timeout_s=limit, tick=tick)
    finally:
        progress.stop(label)
    report = ktap.parse(outcome.ktap)
    status = store.status_of(report, outcome.exit_code)
    if outcome.problem:
        status = "error"
    meta = {
        **_identity(job, prepared, options), "release": prepared.kernel.release,
        "config_hash": prepared.kernel.config_hash, "patchset_hash": prepared.kernel.patchset_hash,
        "lane": options.lane, **_kind(job, options), **({"cpu": options.cpu} if options.cpu != qemu.CPU else {}),
        **({"host_cpu": qemu.host_cpu()} if options.lane == "functional" else {}),
        **({"accelerator": outcome.command[outcome.command.index("-accel") + 1]} if options.lane != "fast" else {}),
        "module_params": _text(partial / "data" / "wbdisk-attributes"), "git_rev": git_rev(),
        **({"skip": report.skip} if report.skip and status == "skip" else {}),
        "wall_s": round(outcome.wall_s, 1), "exit_code": outcome.exit_code, "problem": outcome.problem,
        "dir": str(place.relative_to(RESULTS.parent) if place.is_relative_to(RESULTS.parent) else place),
    }
    result = store.Result(job.case, job.kernel, dict(job.axes), job.seed, report.metrics, meta, status,
                            [{"name": t.name, "result": t.result} for t in report.tests])
    if status == "error":
        meta["dir"] = str(partial)
        say(f"  {label}: {outcome.problem}; serial log: {partial / 'console.log'}")
        say(f"  repeat with: {qemu.shown(outcome.command)}")
        return result
    store.write(result, partial / "result.json")
    if place.exists():
        shutil.rmtree(place)
    partial.rename(place)
    if status == "fail":
        failed = ", ".join(t.name for t in report.tests if t.result == "fail") or f"exit code {outcome.exit_code}"
        say(f"  {label}: FAILED: {failed}; see {place / 'ktap'}")
    return result


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
