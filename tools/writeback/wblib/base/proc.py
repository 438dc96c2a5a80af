# SPDX-License-Identifier: GPL-2.0
"""Running other programs: one place for logging, errors and progress."""

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wbtop.errors import WbError
from wbtop.proc import say, uninterrupted

__all__ = ["cpus", "need", "run", "say", "sha256_file", "sha256_text", "uninterrupted"]


def need(tool: str, package: str, first: str = "") -> str:
    """Return the path of ``tool``; WbError names the Debian ``package`` when it is missing.

    first: directories to look in before those of PATH, separated by colons.
    """
    path = shutil.which(tool, path=":".join(filter(None, [first, os.environ.get("PATH"), "/usr/sbin:/sbin"])))
    if path is None:
        raise WbError(f"{tool} not found: run 'make deps' or install the package {package}")
    return path


def cpus(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """CPUs this process may use, at least 1: its affinity, and its container's ``quota`` (cgroup v2), rounded up."""
    allowed = len(os.sched_getaffinity(0))
    try:
        share, period = map(int, quota.read_text().split())
    except (OSError, ValueError):  # none, or "max"
        return allowed
    return max(1, min(allowed, -(-share // period)))


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    what: str | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run ``argv``; output is captured, or appended to ``log``.

    what: a phrase such as "building the stock kernel"; when given, progress is
    shown for commands that take longer than 5 s, and errors start with it.
    Raises WbError with the last line of output (or the log's name) on failure.
    """
    words = [os.fspath(a) for a in argv]
    full_env = {**os.environ, **env} if env else None
    start = time.monotonic()
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            out.write(f"$ {shlex.join(words)}\n")
            out.flush()
            # A session of its own: dpkg-buildpackage, ended alone, would leave its make and compilers running.
            proc = subprocess.Popen(words, cwd=cwd, env=full_env, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                    start_new_session=True)
            try:
                _wait_with_progress(proc, what, start, log)
            except BaseException:
                _end_group(proc.pid)
                proc.wait()
                raise
        done = subprocess.CompletedProcess(words, proc.returncode, "", "")
    else:
        try:
            done = subprocess.run(words, cwd=cwd, env=full_env, capture_output=True, text=True, check=False)
        except FileNotFoundError as exc:
            raise WbError(f"{words[0]} not found: run 'make deps'") from exc
    if check and done.returncode != 0:
        tail = f"see {log}" if log else (done.stderr or done.stdout).strip().splitlines()[-1:]
        detail = tail if isinstance(tail, str) else " ".join(tail)
        raise WbError(f"{what or shlex.join(words[:4])} failed ({done.returncode}): {detail}")
    return done


def _end_group(group: int) -> None:
    """SIGTERM to a command and all it started; what runs under sudo is root's."""
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        subprocess.run([need("sudo", "sudo"), "-n", "kill", "-TERM", "--", f"-{group}"], capture_output=True,
                       check=False)


def _wait_with_progress(proc: subprocess.Popen[bytes], what: str | None, start: float, log: Path) -> None:
    shown = 0.0
    while True:
        try:
            proc.wait(timeout=1)
            break
        except subprocess.TimeoutExpired:
            now = time.monotonic() - start
            if what and now > 5 and now - shown >= (1 if sys.stderr.isatty() else 30):
                shown = now
                end = "\r" if sys.stderr.isatty() else "\n"
                print(f"  {what}: {now:.0f} s, {_lines(log)} log lines", end=end, file=sys.stderr, flush=True)
    if what and shown and sys.stderr.isatty():
        print(file=sys.stderr)


def _lines(log: Path) -> int:
    with log.open("rb") as f:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: f.read(1 << 16), b""))


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        for chunk in iter(lambda: f.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_text(text: str) -> str:
    """Hex sha256 of a string."""
    return hashlib.sha256(text.encode()).hexdigest()
