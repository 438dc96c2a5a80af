# SPDX-License-Identifier: GPL-2.0
"""Cases on this machine instead of in a guest: a directory, or a raw device after --erase."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import kernel as kernels
from . import ktap, results
from .errors import WbError
from .paths import SELFTESTS
from .runner import git_rev
from .suites import Job


def run(job: Job, given: dict[str, str], directory: str | None, device: str | None, *, erase: bool) -> "results.Result":
    """Run a case on this machine: in ``directory``, or on the raw ``device`` when ``erase`` says so."""
    if device and not erase:
        raise WbError(f"refusing to overwrite {device}: everything on it would be lost; add --erase if you mean it", 2)
    if directory and not Path(directory).is_dir():
        raise WbError(f"{directory} is not a directory", 2)
    if os.geteuid() != 0:
        raise WbError("the cases change sysctls and block settings: run as root")
    own = {k: v for k, v in given.items() if k not in ("disk", "fs" if directory else "disk")}
    args = [f"--{k}={v}" for k, v in own.items()] + [f"--seed={job.seed}"]
    args += [f"--dir={Path(directory).resolve()}"] if directory else [f"--disk=dev:{device}", "--erase"]
    with tempfile.TemporaryDirectory(prefix="wb-") as out:
        tree = _local_tree(Path(out))
        done = subprocess.run([str(tree / f"{job.case}.sh"), *args], env={**os.environ, "WB_OUT": out},
                              stdout=subprocess.PIPE, text=True, check=False)
    report = ktap.parse(done.stdout)
    meta = {"release": os.uname().release, "lane": "local", "command": " ".join(args), "git_rev": git_rev(),
            "exit_code": done.returncode}
    return results.Result(job.case, f"host-{os.uname().release}", dict(job.axes), job.seed, report.metrics, meta,
                          results.status_of(report, done.returncode),
                          [{"name": t.name, "result": t.result} for t in report.tests])


def _local_tree(scratch: Path) -> Path:
    """The selftests beside the kselftest helpers they source, with their C helpers built."""
    stock = kernels.selftest_helpers()
    tree = scratch / "selftests"
    shutil.copytree(SELFTESTS, tree / "writeback")
    shutil.copytree(stock, tree / "kselftest")
    for source in (tree / "writeback").glob("*.c"):
        subprocess.run(["cc", "-O2", "-o", str(source.with_suffix("")), str(source)], check=True)
    return tree / "writeback"
