# SPDX-License-Identifier: GPL-2.0
"""xfstests and blktests as ``wb foreign`` needs them: the checkout, its tests, a job for a guest, what came of it."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wblib.base.fs import lock, need_space, remove, write_atomic
from wblib.base.paths import BUILD
from wblib.base.proc import cpus, need, run, say, sha256_text
from wblib.kernel.build import CALLER
from wbtop.errors import WbError

# program -> Debian package, for a guest that has the host's files
PROGRAMS = {"bash": "bash", "busybox": "busybox-static", "awk": "gawk", "bc": "bc", "mke2fs": "e2fsprogs",
            "xfs_io": "xfsprogs", "dmsetup": "dmsetup", "fio": "fio", "rsync": "rsync"}
FSTESTS = {"perl": "perl", "getfattr": "attr", "getfacl": "acl", "quota": "quota",
           "libtoolize": "libtool", "autoconf": "autoconf", "automake": "automake"}
FILESYSTEMS = ("ext4", "xfs")
# What xfstests expects of users (its README); "*": no password.
USERS = {"fsgqa": 1000, "123456-fsgqa": 1001, "fsgqa2": 1002}
TEST = re.compile(r"[a-z0-9_]+/[0-9]{3,4}")
MODULES = "/usr/lib/modules"


@dataclass(frozen=True)
class Config:
    """How file systems are made and mounted. name: of its results' directory."""

    name: str
    mount: str = ""
    mkfs: str = ""


@dataclass(frozen=True)
class Verdict:
    """What one run of a test came to: one of VERDICTS, and why in a line."""

    what: str
    why: str = ""


VERDICTS = ("pass", "fail", "notrun", "timeout", "died")


@dataclass(frozen=True)
class Suite:
    """One of SUITES. marks: files by which its checkout is known; memory_mib: of a guest."""

    name: str
    marks: tuple[str, ...]
    programs: dict[str, str]
    groups: Callable[[Path, str], dict[str, set[str]]]
    job: Callable[[Path, str, str, Config], str]
    judge: Callable[[Path, str], Verdict]
    memory_mib: int = 1024


def config(text: str) -> Config:
    """``MOUNT[:MKFS]``, such as "default", "nodelalloc,dioread_nolock", "default:-b 1024"."""
    mount, _, mkfs = text.partition(":")
    if not re.fullmatch(r"[a-z0-9_=,]+", mount) or not re.fullmatch(r"[A-Za-z0-9_=,^ -]*", mkfs):
        raise WbError(f"--config '{text}': MOUNT[:MKFS], such as nodelalloc or 'default:-b 1024'", 2)
    # No comma: a directory of that name is an option of mount in the guest.
    name = re.sub(r"[^A-Za-z0-9_=^]+", "_", text).strip("_")
    return Config(name, "" if mount == "default" else mount, mkfs)


# ---- xfstests ---------------------------------------------------------------

def _fstests_groups(tree: Path, fs: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for folder in ("generic", fs):
        try:
            lines = (tree / "tests" / folder / "group.list").read_text().splitlines()
        except OSError as exc:
            raise WbError(f"{tree}/tests/{folder} has no group.list: not built, or not an xfstests for {fs}") from exc
        for line in lines:
            words = line.split()
            if words and words[0].isdigit():
                found[f"{folder}/{words[0]}"] = set(words[1:])
    return found


def _fstests_job(tree: Path, test: str, fs: str, how: Config) -> str:
    option = f"-o {how.mount}" if how.mount else ""
    values = {"FSTYP": fs, "TEST_DEV": "/dev/ubda", "TEST_DIR": "/wb/test", "SCRATCH_DEV": "/dev/ubdb",
              "SCRATCH_MNT": "/wb/scratch", "LOGWRITES_DEV": "/dev/ubdc", "MOUNT_OPTIONS": option,
              "TEST_FS_MOUNT_OPTS": option, "MKFS_OPTIONS": how.mkfs, "RESULT_BASE": "/wb/results",
              "HOST_OPTIONS": "/wb/local.config"}
    mkfs = f"mkfs.ext4 -q -F {how.mkfs}" if fs == "ext4" else f"mkfs.xfs -q -f {how.mkfs}"
    return "".join([
        # Xfstests's own file, not its environment: check would look for one named after the host.
        "cat > /wb/local.config <<'END'\n",
        *(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()), "END\n",
        "export HOST_OPTIONS=/wb/local.config\n",
        f"cd {shlex.quote(str(tree))} || return\n",
        # Without udevd nobody loads it when "mount -o loop" asks for /dev/loop-control.
        "modprobe loop\n",
        f"{mkfs} /dev/ubda || return\n",
        f"./check {test}\n",
    ])


def _fstests_judge(out: Path, test: str) -> Verdict:
    text = (out / "output").read_text(errors="replace") if (out / "output").exists() else ""
    reason = out / "results" / f"{test}.notrun"
    if reason.exists():
        return Verdict("notrun", _line(reason.read_text(errors="replace")))
    if re.search(r"^Failures:.*\b" + re.escape(test) + r"\b", text, re.M):
        said = re.search(r"^" + re.escape(test) + r"\b.*?(\[failed.*|- output mismatch|_check_.*)", text, re.M)
        bad = out / "results" / f"{test}.out.bad"
        last = bad.read_text(errors="replace").splitlines()[1:] if bad.exists() else []
        return Verdict("fail", _line(" ".join([said[1] if said else "", *last[:2]])) or "see its output")
    if re.search(r"^Passed all [1-9]", text, re.M):
        return Verdict("pass")
    return Verdict("died", _line("\n".join(text.splitlines()[-2:])) or "it said nothing")


# ---- blktests ---------------------------------------------------------------

def _blktests_groups(tree: Path, _fs: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in sorted(tree.glob("tests/*/[0-9][0-9][0-9]")):
        quick = re.search(r"^QUICK=1", path.read_text(errors="replace"), re.M)
        found[f"{path.parent.name}/{path.name}"] = {path.parent.name, "auto", *(["quick"] if quick else [])}
    return found


def _blktests_job(tree: Path, test: str, _fs: str, _how: Config) -> str:
    # The checks of its own before a test ask for modules, hence a look at what is there.
    return "".join([
        "echo 'TEST_DEVS=(/dev/ubdb)' > /wb/config\n",
        f"cd {shlex.quote(str(tree))} || return\n",
        f"./check --config=/wb/config --output=/wb/results {test}\n",
    ])


def _blktests_judge(out: Path, test: str) -> Verdict:
    found = []
    for path in sorted((out / "results").rglob(test)):
        fields = dict(line.split("\t", 1) for line in path.read_text(errors="replace").splitlines() if "\t" in line)
        found.append((fields.get("status", ""), fields.get("reason", "") or fields.get("exit_status", "")))
    for status, what in (("fail", "fail"), ("pass", "pass"), ("not run", "notrun")):
        for got, why in found:
            if got == status:
                return Verdict(what, _line(why) if what != "pass" else "")
    text = (out / "output").read_text(errors="replace") if (out / "output").exists() else ""
    if re.search(r"\[not run\]", text):
        return Verdict("notrun", _line(text.partition("[not run]")[2]))
    return Verdict("died", _line("\n".join(text.splitlines()[-2:])) or "it said nothing")


SUITES = {s.name: s for s in (
    Suite("fstests", ("check", "common/rc", "tests/generic"), FSTESTS,
          _fstests_groups, _fstests_job, _fstests_judge),
    Suite("blktests", ("check", "common/rc", "tests/block"), {},
          _blktests_groups, _blktests_job, _blktests_judge, memory_mib=3072),  # throtl has a scsi_debug of 1 GiB
)}


def _line(text: str) -> str:
    """``text`` on one line of bearable length."""
    return " ".join(text.split())[:160]


# ---- the checkout -----------------------------------------------------------

def _ident(source: Path) -> str:
    """Of a checkout, by names, sizes and mtimes; git's own files do not count."""
    lines = []
    for folder, dirs, files in os.walk(source):
        dirs[:] = sorted(d for d in dirs if d != ".git")
        for name in sorted(files):
            stat = os.lstat(os.path.join(folder, name))
            lines.append(f"{os.path.relpath(folder, source)}/{name} {stat.st_size} {stat.st_mtime_ns}")
    return sha256_text("\n".join(lines))


def prepare(suite: Suite, source: Path) -> tuple[Path, str]:
    """A built copy of the checkout below build/foreign, and its ident; WbError if it is none or does not build."""
    if not source.is_dir():
        raise WbError(f"--source {source}: no such directory", 2)
    if missing := [m for m in suite.marks if not (source / m).exists()]:
        raise WbError(f"--source {source} is not a checkout of {suite.name}: it has no {missing[0]}", 2)
    for tool, package in (PROGRAMS | suite.programs).items():
        need(tool, package)
    ident = _ident(source)
    tree = BUILD / "foreign" / suite.name
    stamp = tree / ".wb-ident"
    with lock(f"foreign-{suite.name}"):
        if stamp.is_file() and stamp.read_text() == ident:
            return tree, ident
        need_space(tree, 1, f"building {suite.name}")
        # What an earlier checkout left there would be taken for its own.
        remove(tree)
        tree.mkdir(parents=True)
        run(["rsync", "-a", "--exclude=/.git", f"{source}/", f"{tree}/"], what=f"copying {source}")
        log = BUILD / "log" / f"foreign-{suite.name}.log"
        log.unlink(missing_ok=True)
        say(f"building {suite.name}; log: {log}")
        unset = [word for name in CALLER for word in ("-u", name)]
        try:
            run(["env", *unset, "make", "-C", tree, f"-j{cpus()}"], log=log, what=f"building {suite.name}")
        except WbError as exc:
            fatal = re.search(r"^FATAL ERROR: .*|^.*fatal error: .*", log.read_text(errors="replace"), re.M)
            why = f"building {suite.name} failed: {fatal[0].strip()}: see {log}" if fatal else str(exc)
            raise WbError(why) from exc
        write_atomic(stamp, ident)
    return tree, ident


def chosen(suite: Suite, tree: Path, fs: str, *, groups: Sequence[str] = (), without: Sequence[str] = (),
           tests: Sequence[str] = ()) -> list[str]:
    """The tests that are of one of ``groups`` and of none ``without``, and those named; WbError for unknown ones."""
    known = suite.groups(tree, fs)
    there = set().union(*known.values()) if known else set()
    for group in (*groups, *without):
        if group not in there:
            raise WbError(f"{suite.name} has no group '{group}' for {fs}", 2)
    for test in tests:
        if test not in known:
            raise WbError(f"{suite.name} has no test '{test}' for {fs}", 2)
    return [t for t, of in known.items() if t in tests or (of & set(groups) and not of & set(without))]
