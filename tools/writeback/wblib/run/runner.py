# SPDX-License-Identifier: GPL-2.0
"""Running jobs in guests, several side by side; finished results are kept and reused."""

import concurrent.futures
import functools
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wblib.base.fs import alone
from wblib.base.paths import RESULTS, ROOT
from wblib.base.proc import cpus, run, say, sha256_file
from wblib.base.progress import Progress
from wblib.catalog import axes as ax
from wblib.catalog.spec import DEVICES, RunSpec
from wblib.guest import initramfs as guests
from wblib.guest import qemu
from wblib.kernel import build as kernels
from wblib.kernel import kconfig
from wblib.results import ktap, store
from wbtop.errors import WbError

# Wall time allowed per case, as a multiple of its estimate on an idle core, and never less.
PATIENCE, PATIENCE_MIN_S = 20.0, 900.0
_stop = threading.Event()


@dataclass(frozen=True)
class Prepared:
    """What jobs of one kernel have in common."""

    kernel: kernels.Kernel
    initrd: Path
    initrd_hash: str


def prepare(spec: RunSpec) -> Prepared:
    """Build the kernel and the guest that ``spec`` needs; cheap when both exist."""
    case = ax.case(spec.case)
    built = kernels.build(spec.kernel, _flavour(spec))
    initrd = guests.initramfs(kernels.modules(built), flavour=spec.flavour, python=case.python, foreign=case.foreign)
    return Prepared(built, initrd, sha256_file(initrd)[:16])


def _flavour(spec: RunSpec) -> str:
    """The flavour of kernel that is built: the fast lane has kernels of its own."""
    if spec.lane != "fast":
        return spec.flavour
    of_lane = {"slim": kconfig.UML, "debug": kconfig.UML_DEBUG}
    if spec.flavour not in of_lane:
        raise WbError(f"the fast lane has no flavour {spec.flavour}: {' or '.join(of_lane)}", 2)
    return of_lane[spec.flavour]


def _cpus(spec: RunSpec) -> int:
    """Virtual CPUs: real drivers are used in parallel, and KCSAN looks for races of two."""
    if spec.lane == "functional" or spec.flavour == "kcsan":
        return 2
    return ax.case(spec.case).smp


def guest_of(spec: RunSpec, prepared: Prepared) -> qemu.Guest:
    """The guest of ``spec``."""
    axes = dict(spec.axes)
    if spec.on and "disk" in axes:
        axes["disk"] = f"dev:{DEVICES[spec.on]}"
    args = ax.guest_args(spec.case, axes, spec.seed)
    if spec.trace:
        args.append("--trace")
    memory_mib = int(axes.get("ram", ax.case(spec.case).guest_mib))
    return qemu.Guest(prepared.kernel.image, prepared.initrd, spec.case, tuple(args), spec.seed, memory_mib,
                      spec.lane, disk=spec.on or None, smp=_cpus(spec), cpu=spec.cpu,
                      kunit=spec.case.endswith("-kunit"))


def run_many(
    runs: Sequence[RunSpec], *, parallel: int | None = None, force: bool = False, timeout_s: float = 0.0,
) -> list[store.Result]:
    """Do ``runs``, ``parallel`` at a time (default: one per core); results in their order.

    A run with a complete result of the same kernel, guest and QEMU is not done
    again, unless ``force``.  A guest that dies gives a result with status "error";
    the other runs go on.  On Ctrl-C the running guests are killed, finished results
    stay.  timeout_s: wall seconds for each guest; 0: by its case.
    """
    parallel = parallel or cpus()
    kinds = [(r.kernel, r.lane == "fast", r.flavour, ax.case(r.case).python, ax.case(r.case).foreign) for r in runs]
    ready = {kind: prepare(r) for kind, r in dict(zip(kinds, runs, strict=True)).items()}
    done: dict[int, store.Result] = {}
    todo = []
    for index, (spec, kind) in enumerate(zip(runs, kinds, strict=True)):
        kept = None if force else _kept(spec, ready[kind])
        if kept:
            done[index] = kept
        else:
            todo.append(index)
    if done:
        say(f"  {len(done)} of {len(runs)} results are there already")
    if todo:
        _stop.clear()
        progress = Progress([ax.wall_s(runs[i].case, runs[i].axes) for i in todo], parallel)
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            futures = {pool.submit(_run_one, runs[i], ready[kinds[i]], progress, force=force, timeout_s=timeout_s): i
                       for i in todo}
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
    return [done[i] for i in range(len(runs))]


def place_of(spec: RunSpec, prepared: Prepared) -> Path:
    """The directory of the run's result."""
    return store.result_dir(prepared.kernel, spec)


def _identity(spec: RunSpec, prepared: Prepared) -> dict[str, Any]:
    """What makes two runs the same run."""
    argv = qemu.command(guest_of(spec, prepared), Path())
    return {"image_hash": prepared.kernel.key, "initrd_hash": prepared.initrd_hash,
            **({"qemu": qemu.version()} if spec.lane != "fast" else {}),
            "command": qemu.shown(argv).replace(str(ROOT), ".")}


def _kept(spec: RunSpec, prepared: Prepared) -> store.Result | None:
    path = place_of(spec, prepared) / "result.json"
    if not path.exists():
        return None
    try:
        old: store.Result = store.load(path)
    except WbError as exc:
        say(f"  {exc}; running it again")
        return None
    same = all(old.meta.get(k) == v for k, v in _identity(spec, prepared).items())
    return old if same and old.status != "error" else None


@functools.cache
def git_rev() -> str:
    """The checkout's commit, for the result's meta."""
    return run(["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False).stdout.strip() or "unknown"


def _run_one(spec: RunSpec, prepared: Prepared, progress: Progress, *, force: bool, timeout_s: float) -> store.Result:
    with alone(place_of(spec, prepared), _stop):
        # Another wb may have ended it meanwhile.
        kept = None if force else _kept(spec, prepared)
        return kept or _run_guest(spec, prepared, progress, timeout_s)


def _run_guest(spec: RunSpec, prepared: Prepared, progress: Progress, timeout_s: float) -> store.Result:
    place = place_of(spec, prepared)
    partial = place.with_name(place.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    guest = guest_of(spec, prepared)
    label = f"{spec.case} {place.parent.name} seed {spec.seed} on {spec.kernel}"
    limit = timeout_s or max(PATIENCE_MIN_S, PATIENCE * ax.wall_s(spec.case, spec.axes))
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
        **_identity(spec, prepared), "release": prepared.kernel.release,
        "config_hash": prepared.kernel.config_hash, "patchset_hash": prepared.kernel.patchset_hash,
        "script": ax.script_hash(spec.case),
        **spec.meta,
        **({"host_cpu": qemu.host_cpu()} if spec.lane == "functional" else {}),
        **({"accelerator": outcome.command[outcome.command.index("-accel") + 1]} if spec.lane != "fast" else {}),
        "module_params": _text(partial / "data" / "wbdisk-attributes"), "git_rev": git_rev(),
        **({"skip": report.skip} if report.skip and status == "skip" else {}),
        "wall_s": round(outcome.wall_s, 1), "exit_code": outcome.exit_code, "problem": outcome.problem,
        "dir": str(place.relative_to(RESULTS.parent) if place.is_relative_to(RESULTS.parent) else place),
    }
    result = store.Result(spec.case, spec.kernel, dict(spec.axes), spec.seed, report.metrics, meta, status,
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
