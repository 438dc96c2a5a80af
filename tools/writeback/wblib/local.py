# SPDX-License-Identifier: GPL-2.0
"""Cases on this machine instead of in a guest: in a directory, or on a raw device after --erase."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from . import axes as ax
from . import kernel as kernels
from . import ktap, qemu, results
from .errors import WbError
from .paths import RESULTS, SELFTESTS
from .proc import need, run, say, uninterrupted
from .runner import git_rev
from .suites import Job


def run_here(job: Job, given: dict[str, str], directory: str | None, device: str | None, *,
             erase: bool) -> "results.Result":
    """Run a case on this machine: in ``directory``, or on the raw ``device`` when ``erase`` says so.

    given: the axes the user named; the others are the case's business here.
    Raises WbError (code 2) when the place is not usable or not allowed.
    """
    if directory and device:
        raise WbError("--dir and --device exclude each other", 2)
    if device and not erase:
        raise WbError(f"refusing to overwrite {device}: everything on it would be lost; add --erase if you mean it", 2)
    if directory and not Path(directory).is_dir():
        raise WbError(f"--dir {directory}: no such directory", 2)
    if os.geteuid() != 0:
        raise WbError("the cases change sysctls and block settings of this machine: run as root")
    release = os.uname().release
    slug = f"{'dir' if directory else 'device'}-{ax.slug(job.case, job.axes)}"
    place = RESULTS / f"host-{release}" / job.case / slug / f"seed-{job.seed}"
    shutil.rmtree(place, ignore_errors=True)
    (place / "data").mkdir(parents=True)
    args = [f"--{k}={v}" for k, v in given.items() if k not in ("disk", "disk-set")] + [f"--seed={job.seed}"]
    args += [f"--dir={Path(directory).resolve()}"] if directory else [f"--disk=dev:{device}", "--erase"]
    with tempfile.TemporaryDirectory(prefix="wb-") as scratch:
        argv = [str(_tree(Path(scratch)) / f"{job.case}.sh"), *args]
        say(f"  running {job.case} on this machine")
        with (place / "ktap").open("w") as out:
            code = _run_case(argv, {**os.environ, "WB_OUT": str(place / "data")}, out)
    if code == 2:
        raise WbError(f"{job.case} refuses these options: see the line above", 2)
    report = ktap.parse((place / "ktap").read_text(errors="replace"))
    meta = {"release": release, "lane": "local", "host_cpu": qemu.host_cpu(), "command": " ".join(args),
            "git_rev": git_rev(), "exit_code": code, "dir": str(place)}
    result = results.Result(job.case, f"host-{release}", dict(job.axes), job.seed, report.metrics, meta,
                            results.status_of(report, code),
                            [{"name": t.name, "result": t.result} for t in report.tests])
    results.write(result, place / "result.json")
    return result


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
    for source in (selftests / "writeback").glob("*.c"):
        run([need("gcc", "gcc"), "-O2", "-o", str(source.with_suffix("")), str(source), "-lm"],
            what=f"building {source.name}")
    return selftests / "writeback"
