# SPDX-License-Identifier: GPL-2.0
"""Cases on this machine instead of in a guest: in a directory, or on a raw device after --erase."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from wblib.base.paths import RESULTS, SELFTESTS
from wblib.base.proc import need, run, say, uninterrupted
from wblib.catalog import axes as ax
from wblib.catalog import describe
from wblib.catalog.suites import Job
from wblib.guest import qemu
from wblib.kernel import build as kernels
from wblib.results import ktap, store
from wbtop import ranksum
from wbtop.errors import WbError
from wbtop.machine import Machine
from wbtop.stats import median, number, table
from wbtop.tune import facts as tune_facts

from .runner import git_rev

# Axes that say what a guest is made of.
GUEST_AXES = ("disk", "disk-set", "fs", "ram")
# Repeats of a suite unless told: the fewest of which a rank-sum test with Holm's correction can decide two things.
SUITE_REPEATS = 5
# What a suite compares: case -> metric of the one, of the other, and what is to be expected of it.
CONTRASTS = {
    "read-latency": (
        ("read_p99_95_idle", "read_p99_95_direct", "read p99.95 next to a direct writer is above idle"),
        ("read_p99_95_direct", "read_p99_95_buffered_wbt_off",
         "read p99.95 next to a buffered writer without wbt is above that next to a direct one"),
    ),
}


def check_place(directory: str | None, device: str | None, *, erase: bool) -> None:
    """WbError (code 2) when the place of a run on this machine is not usable or not allowed."""
    if directory and device:
        raise WbError("--dir and --device exclude each other", 2)
    if device and not erase:
        raise WbError(f"refusing to overwrite {device}: everything on it would be lost; add --erase if you mean it", 2)
    if device and not Path(device).is_block_device():
        raise WbError(f"--device {device}: not a block device", 2)
    if directory and not Path(directory).is_dir():
        raise WbError(f"--dir {directory}: no such directory", 2)


def run_here(job: Job, given: dict[str, str], directory: str | None, device: str | None) -> store.Result:
    """Run a case on this machine: in ``directory``, or on the raw ``device``, which check_place() has checked.

    given: the axes the user named; the others are the case's business here.
    """
    if os.geteuid() != 0:
        raise WbError("the cases change sysctls and block settings of this machine: run as root")
    release = os.uname().release
    machine = Machine()
    truth = true_axes(machine, Path(directory)) if directory else {"disk": Path(device or "").name}
    known = {**job.axes, **{k: v for k, v in truth.items() if k in job.axes}}
    job = replace(job, axes=known)
    slug = f"{'dir' if directory else 'device'}-{ax.slug(job.case, job.axes)}"
    place = new_place(RESULTS / f"host-{release}" / job.case / slug, job.seed)
    args = words(given, job.seed, directory, device)
    with tempfile.TemporaryDirectory(prefix="wb-") as scratch:
        argv = [str(_tree(Path(scratch)) / describe.script(job.case)), *args]
        say(f"  running {job.case} on this machine")
        with (place / "ktap").open("w") as out:
            code = _run_case(argv, {**os.environ, "WB_OUT": str(place / "data")}, out)
    if code == 2:
        raise WbError(f"{job.case} refuses these options: see the line above", 2)
    report = ktap.parse((place / "ktap").read_text(errors="replace"))
    meta = {"release": release, "lane": "local", "host_cpu": qemu.host_cpu(), "command": " ".join(args),
            "git_rev": git_rev(), "exit_code": code, "dir": str(place),
            "machine": environment(machine, Path(directory) if directory else None)}
    result = store.Result(job.case, f"host-{release}", dict(job.axes), job.seed, report.metrics, meta,
                          store.status_of(report, code),
                          [{"name": t.name, "result": t.result} for t in report.tests])
    store.write(result, place / "result.json")
    return result


def verdicts(case: str, runs: Sequence[store.Result]) -> list[dict[str, Any]]:
    """What the suite of ``case`` says over all ``runs``: yes, no or undecided, each with what it is from.

    One run in real time decides nothing: the same machine gave both answers.
    """
    sides: dict[str, tuple[list[float], list[float]]] = {}
    texts = {}
    for low, high, text in CONTRASTS.get(case, ()):
        pairs = [(a, b) for r in runs if (a := r.value(low)) is not None and (b := r.value(high)) is not None]
        if pairs:
            sides[high], texts[high] = ([a for a, _ in pairs], [b for _, b in pairs]), text
    found = ranksum.compare({k: v[0] for k, v in sides.items()}, {k: v[1] for k, v in sides.items()})
    # Lower is better there, so that "worse" is what is expected here.
    said = {"worse": "yes", "better": "no"}
    return [{"text": texts[v.metric], "verdict": said.get(v.verdict, "undecided"), "runs": len(runs), "low": v.a,
             "high": v.b, "ratio": v.ratio, "interval": [v.low, v.high], "confidence": v.confidence,
             "why": "" if v.verdict in said else v.verdict} for v in found]


def render(runs: Sequence[store.Result], found: Sequence[Mapping[str, Any]]) -> str:
    """The repeats for a reader: medians with their spread, and what may be said of them."""
    rows = []
    for name, metric in runs[0].metrics.items():
        values = [v for r in runs if (v := r.value(name)) is not None]
        rows.append([name, str(metric["unit"]), number(median(values)), number(min(values)), number(max(values)),
                     str(len(values))])
    lines = [table(["metric", "unit", "median", "least", "most", "runs"], rows, left=2)]
    for v in found:
        ratio = "" if v["interval"][0] is None else \
            f", ratio {v['ratio']:.2f} (95 %: {v['interval'][0]:.2f} to {v['interval'][1]:.2f})"
        why = f"; {v['why']}: more --repeats, or stop what else this machine does" if v["why"] else ""
        lines.append(f"{v['verdict']:9} {v['text']}: {number(v['low'])} and {number(v['high'])} us{ratio}{why}")
    if len(runs) == 1:
        lines.append("one run in real time: its figures have no spread, and no verdict follows; --repeats N")
    return "\n".join(lines)


def words(given: Mapping[str, str], seed: int, directory: str | None, device: str | None) -> list[str]:
    """The case's arguments."""
    args = [*(f"--{k}={v}" for k, v in given.items()), f"--seed={seed}"]
    return args + ([f"--dir={Path(directory).resolve()}"] if directory else [f"--disk=dev:{device}", "--erase"])


def refuse(given: Mapping[str, str], named: Mapping[str, bool]) -> None:
    """WbError (code 2) for what only a guest can do: this machine has its own kernel, disk and file system.

    named: option -> whether the user gave it.
    """
    wrong = [f"--{a}" for a in GUEST_AXES if a in given] + [o for o, there in named.items() if there]
    if wrong:
        raise WbError(f"{', '.join(wrong)}: of a guest; --dir and --device take this machine's own", 2)


def true_axes(machine: Machine, directory: Path) -> dict[str, str]:
    """What the axes disk, fs, sched and wbt really are below ``directory``; only what is known."""
    facts = tune_facts.read(machine, str(directory.resolve()), None)
    disk = facts.disks[0]
    found = {"disk": "+".join(d.name for d in facts.disks), "fs": facts.fs, "sched": disk.scheduler or "none"}
    if disk.wbt_lat_usec is not None:
        found["wbt"] = "off" if disk.wbt_lat_usec == 0 else "default"
    return found


def environment(machine: Machine, directory: Path | None) -> dict[str, Any]:
    """Hardware, mount and settings, for the result's meta."""
    found = tune_facts.read(machine, str(directory.resolve()), None).to_json() if directory else {}
    words = ["findmnt", "-n", "-o", "OPTIONS", "-T", str(directory)]
    mount = run(words, check=False).stdout.strip() if directory else ""
    return {**found, "mount_options": mount, "memory_kib": machine.keyed("/proc/meminfo").get("MemTotal"),
            "vm": {n: machine.text(f"/proc/sys/vm/{n}") for n in machine.names("/proc/sys/vm")
                   if n.startswith("dirty")}}


def new_place(parent: Path, seed: int) -> Path:
    """A directory for one more run of ``seed``; an earlier one stays: seed-1, seed-1.2, seed-1.3."""
    count = 1
    while True:
        place = parent / (f"seed-{seed}" if count == 1 else f"seed-{seed}.{count}")
        try:
            place.mkdir(parents=True)
            (place / "data").mkdir()
            return place
        except FileExistsError:
            count += 1


def _run_case(argv: list[str], env: dict[str, str], out: IO[str]) -> int:
    """The exit code of a case; when interrupted, only after the case has put back the machine's settings."""
    case = None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        with uninterrupted():
            # A session of its own: the case hears of Ctrl-C once, from here, together with what it waits for.
            case = subprocess.Popen(argv, env=env, stdout=out, start_new_session=True,
                                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
        return case.wait()
    except BaseException:
        with uninterrupted():
            if case is not None and case.poll() is None:
                say("  interrupted; the case puts back what it changed")
                os.killpg(case.pid, signal.SIGTERM)
                case.wait()
        raise


def _tree(scratch: Path) -> Path:
    """The selftests beside the kselftest helpers they source, with their C helper built."""
    selftests = scratch / "selftests"
    stock = kernels.source("stock") / "tools" / "testing" / "selftests"
    shutil.copytree(SELFTESTS, selftests / "writeback")
    shutil.copytree(stock / "kselftest", selftests / "kselftest")
    shutil.copy(stock / "kselftest.h", selftests)
    for source in (selftests / "writeback" / "src").glob("*.c"):
        run([need("gcc", "gcc"), "-O2", "-o", str(selftests / "writeback" / source.stem), str(source), "-lm"],
            what=f"building {source.name}")
    return selftests / "writeback"
