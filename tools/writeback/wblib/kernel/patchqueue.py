# SPDX-License-Identifier: GPL-2.0
"""The series as files: order, hash, and applying it strictly.

A patch is ``mm/NNNN-*.patch``, ``fs/ext4/NNNN-*.patch`` or ``block/NNNN-*.patch``, and
for one kernel line only, ``mm/6.12/NNNN-*.patch``.  NN.. is the set it is mailed with,
NNNN is unique over all patches of a line and gives the order, so there is no second
file that could drift.  NN00 is a set's cover letter, no patch.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from wblib.base.paths import PATCH_DIRS, ROOT
from wblib.base.proc import need, sha256_file, sha256_text
from wbtop.errors import WbError

from . import upstream

_NAME = re.compile(r"(\d{4})-.+\.patch")
# Fixed author, committer and date: the base commit, and with it every id in
# build/tree, is the same on every machine.
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "calm-writeback"), ("EMAIL", "calm-writeback@localhost"), ("DATE", "1767225600 +0000"))
}


def patches(root: Path = ROOT, line: str | None = None) -> list[Path]:
    """The patch files of ``line`` (None: the default one) in apply order.

    WbError for a bad name or a number used twice.
    """
    line = line or upstream.default_line()
    seen: dict[str, Path] = {}
    for directory in PATCH_DIRS:
        for path in sorted([*(root / directory).glob("*.patch"), *(root / directory / line).glob("*.patch")]):
            match = _NAME.fullmatch(path.name)
            if not match:
                raise WbError(f"{path.relative_to(root)}: a patch is named NNNN-subject.patch; 'make export' names it")
            number = match.group(1)
            if number.endswith("00"):
                continue
            if number in seen:
                raise WbError(f"number {number} is used twice: {seen[number].relative_to(root)} and "
                              f"{path.relative_to(root)}; give one a free number")
            seen[number] = path
    return [seen[n] for n in sorted(seen)]


def number(patch: Path) -> int:
    """NNNN of a patch file."""
    return int(patch.name[:4])


def patchset_hash(files: Sequence[Path] | None = None) -> str:
    """KCIDB's patchset hash: sha256 of the patches' sha256 in order, one per line; "" for no patches.

    files: the patches, instead of the series.
    Source: kcidb-io schema v5, checkouts/patchset_hash ("empty string if no patches").
    """
    files = patches() if files is None else files
    return sha256_text("".join(sha256_file(p) + "\n" for p in files)) if files else ""


def essence(patch: Path) -> str:
    """The message and the changed and context lines of a patch file: what is the same where it applies to two lines.

    Blob ids and line numbers are not in it, nor the function that git names behind them.
    """
    lines = patch.read_text(errors="surrogateescape").splitlines()
    return "\n".join("@@" if line.startswith("@@ ") else line for line in lines if not line.startswith("index "))


def diff(patch: Path) -> str:
    """What a patch file does to the tree, without its message."""
    _, diff_line, rest = patch.read_text(errors="backslashreplace").partition("\ndiff --git ")
    return diff_line + rest


def touched(patch: Path) -> list[str]:
    """Files that a patch changes, creates, deletes or renames, relative to the tree."""
    names: set[str] = set()
    for match in re.finditer(r"^diff --git a/(\S+) b/(\S+)$", patch.read_text(errors="replace"), re.M):
        names.update(match.groups())
    return sorted(names)


def clean_env() -> dict[str, str]:
    """The environment without the user's, the host's or a hook's settings of git."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return clean | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(repo: Path, *args: str, env: Mapping[str, str] | None = None, check: bool = True) -> str:
    """Run git in ``repo`` without the user's or the host's configuration; return stdout.

    The output of format-patch must not depend on somebody's diff.noprefix.
    """
    done = _git(repo, args, env)
    if check and done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        why = next((line for line in lines if line.startswith("fatal: ")), lines[-1])
        raise WbError(f"git {args[0]} in {repo} failed: {why}")
    return done.stdout


def _git(repo: Path, args: Sequence[str], env: Mapping[str, str] | None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([need("git", "git"), "-C", os.fspath(repo), "-c", "safe.directory=*", *args],
                          env={**clean_env(), "LC_ALL": "C.UTF-8", **(env or {})}, capture_output=True, text=True,
                          errors="surrogateescape", check=False)


def new_repo(repo: Path, *, bulk: bool = False) -> None:
    """Make ``repo`` a git repository whose one commit, tagged base, holds all its files.

    bulk: for 87,000 files: write one pack instead of as many loose objects.
    """
    git(repo, "init", "-q", "-b", "series")
    for key, value in (("core.autocrlf", "false"), ("gc.auto", "0"), ("maintenance.auto", "false"),
                       ("core.fileMode", "true"), ("index.version", "4")):
        git(repo, "config", key, value)
    # As the kernel's own: function names in hunk headers must not depend on
    # whether .gitattributes is among the files.
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/attributes").write_text("*.[ch] diff=cpp\n*.dts diff=dts\n*.dts[io] diff=dts\n*.rs diff=rust\n")
    fast = ["-c", "core.bigFileThreshold=1", "-c", "core.compression=1"] if bulk else []
    # -f: the kernel's own .gitignore must not decide what the base holds.
    git(repo, *fast, "add", "-f", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "base", env=IDENTITY)
    git(repo, "tag", "base")


def am(repo: Path, files: Sequence[Path]) -> None:
    """Apply ``files`` as commits: no fuzz, no three-way merge; WbError names the patch and the file."""
    if not files:
        return
    committer = {k: v for k, v in IDENTITY.items() if k.startswith("GIT_COMMITTER")}
    done = _git(repo, ["am", "-q", "--no-3way", "--patch-format=mbox", "--keep-non-patch", "--no-scissors",
                       "--committer-date-is-author-date", *[os.fspath(f.absolute()) for f in files]], committer)
    if done.returncode == 0:
        return
    state = repo / ".git/rebase-apply/next"
    number = int(state.read_text()) if state.exists() else 1
    _git(repo, ["am", "--abort"], None)
    bad = files[min(number, len(files)) - 1]
    found = re.search(r"^error: (?:patch failed: )?([^\s:]+)(?::\d+)?(?::|$)", done.stderr, re.M)
    where = f"in {found.group(1)}" if found else (done.stderr + done.stdout).strip().splitlines()[0]
    raise WbError(f"{_shown(bad)} does not apply without fuzz: {where}; "
                  "use the base pinned in tools/writeback/base, or rework the patch")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def scratch_repo(source: upstream.Base, files: Sequence[Path], repo: Path) -> list[str]:
    """The series on top of only the files it touches, as a git repository; returns their names.

    Blob ids, and so the exported patches, are those of the full tree, at a
    hundredth of the cost.  NoBase when they do not apply to what stands in for the pinned source.
    """
    names = sorted({name for patch in files for name in touched(patch)})
    upstream.fetch(source, names, repo)
    new_repo(repo)
    try:
        am(repo, files)
    except WbError as exc:
        if not source.substitute:
            raise
        pins = upstream.pins(source.line)
        raise upstream.NoBase(f"{pins['PACKAGE']} {pins['VERSION']} cannot be had, and {source.path.name} is too "
                              f"different: {exc}; or set BASE=/path/to/linux-{source.line}.y") from exc
    return names
