# SPDX-License-Identifier: GPL-2.0
"""A guest for one foreign test: User Mode Linux in real time, with the host's files below an overlay."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wblib.base.fs import remove
from wblib.base.paths import GUEST
from wblib.guest import qemu, uml
from wbtop.errors import WbError

from .foreign_suite import MODULES, USERS, Config, Suite, Verdict

# Sparse: TEST_DEV, SCRATCH_DEV, LOGWRITES_DEV.
DISKS_GIB = (6, 8, 6)
# What the disks may really take while a test runs.
DISKS_MIB = 4096
# Not a result of a case, so not named as one: both are below results/.
VERDICT = "verdict.json"
# As in functions.sh, but for what tests provoke: "Call Trace" of a shutdown of XFS.
SPLAT = re.compile(r"BUG:|WARNING:|Oops|general protection fault|INFO: task .* blocked|KASAN|UBSAN|possible circular"
                   r"|possible recursive|self-detected stall|soft lockup|divide error|sleeping function called")


@dataclass(frozen=True)
class Task:
    """A run of one test."""

    suite: Suite
    tree: Path
    test: str
    fs: str
    config: Config
    image: Path
    modules: Path
    timeout_s: float


@dataclass(frozen=True)
class Ran:
    """What a run came to. splats: lines of the kernel's that must not be."""

    verdict: Verdict
    splats: list[str]
    wall_s: float


def users() -> dict[str, str]:
    """Name -> content of the files in /etc that say who xfstests's users are."""
    all_users = {"root": 0, "daemon": 1, "bin": 2, "nobody": 65534, **USERS}
    return {
        "passwd": "".join(f"{n}:x:{i}:{i}::{'/root' if n == 'root' else '/tmp'}:/bin/bash\n"
                          for n, i in all_users.items()),
        "group": "".join(f"{n}:x:{i}:\n" for n, i in {**all_users, "sys": 3, "tty": 5, "disk": 6}.items()),
        "shadow": "".join(f"{n}:*:20000:0:99999:7:::\n" for n in all_users),
    }


def command(image: Path, memory_mib: int, out: Path, disks: list[Path]) -> list[str]:
    """The command line; time is the host's, since tests count it while they compute."""
    init = GUEST / "foreign-init"
    for path in (init, out, *disks):
        if re.search(r"[\s,\"']", str(path)):
            raise WbError(f"{path}: a kernel's command line takes no white space, comma or quote: set WB_BUILD or "
                          "WB_RESULTS", 2)
    return [str(image), f"mem={memory_mib}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            f"init={init}", *(f"ubd{i}={disk}" for i, disk in enumerate(disks)), f"WB_OUT={out}",
            f"umid={uml.UMID}", f"uml_dir={out}/", "con=null", "con0=null,fd:2", "ssl=null", "console=tty0", "panic=-1",
            "norandmaps"]


@contextlib.contextmanager
def _disks(memory_mib: int) -> Iterator[list[Path]]:
    """Empty disks where the guest's memory goes, too."""
    with tempfile.TemporaryDirectory(prefix="wb-foreign-", dir=uml.memory_dir(memory_mib + DISKS_MIB)) as place:
        paths = [Path(place) / f"disk{i}" for i in range(len(DISKS_GIB))]
        for path, gib in zip(paths, DISKS_GIB, strict=True):
            with path.open("wb") as f:
                f.truncate(gib << 30)
        yield paths


def splats(text: str) -> list[str]:
    """The lines of a kernel's log that tell of a mistake of its own."""
    return list(dict.fromkeys(re.sub(r"^(?:<\d+>)?\[ *[\d.]+\] *", "", line).strip()
                              for line in text.splitlines() if SPLAT.search(line)))


def run(task: Task, out: Path, tick: Callable[[float], None] | None = None) -> Ran:
    """Run ``task`` with its files in ``out``, which is emptied; never raises for what the guest does."""
    remove(out)
    out.mkdir(parents=True)
    for name, text in users().items():
        (out / name).write_text(text)
    (out / "job").write_text(
        f"mount --bind {task.modules} {MODULES}\n" + task.suite.job(task.tree, task.test, task.fs, task.config))
    with _disks(task.suite.memory_mib) as disks, uml.one_cpu() as prefix:
        memory = uml.memory_dir(task.suite.memory_mib)
        argv = ["env", "-i", f"TMPDIR={memory}", "HOME=.", f"LD_PRELOAD={uml.shim()}", "UMLHOST_SEED=1", "sh", "-c",
                f"exec \"$0\" \"$@\" > {out}/console.log 2>&1 < /dev/null",
                *command(task.image, task.suite.memory_mib, out, disks)]
        # The console is what qemu.execute() watches for silence; a test says nothing there.
        problem, wall = qemu.execute([*prefix, *argv], out, timeout_s=task.timeout_s, tick=tick)
    uml.clean(out)
    console = qemu.text_of(out / "console.log")
    return Ran(_judge(task, out, problem), splats(console), round(wall, 1))


def _judge(task: Task, out: Path, problem: str) -> Verdict:
    if (out / "exit").exists():
        return task.suite.judge(out, task.test)
    if "still running" in problem or "hung" in problem:
        return Verdict("timeout", problem)
    return Verdict("died", qemu.why_dead(out / "console.log"))


def tidy(out: Path) -> None:
    """Of a test that passed or was not run, nothing but its result is kept."""
    for path in out.iterdir():
        if path.name != VERDICT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
