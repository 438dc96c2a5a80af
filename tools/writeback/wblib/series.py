# SPDX-License-Identifier: GPL-2.0
"""The patch series as files: order, hash, and applying it to a source tree without fuzz.

A patch is mm/NNNN-*.patch, fs/ext4/NNNN-*.patch or block/NNNN-*.patch; NNNN is
unique over all directories and gives the order.
"""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from .errors import WbError
from .paths import BUILD, PATCH_DIRS, ROOT
from .proc import need, run, sha256_text

EMPTY_HASH = sha256_text("")
TREE = BUILD / "tree"
_NAME = re.compile(r"(\d{4})-.+\.patch")


def patches(root: Path = ROOT) -> list[Path]:
    """The patch files in apply order; WbError for a bad name or a number used twice."""
    seen: dict[str, Path] = {}
    for directory in PATCH_DIRS:
        for path in (root / directory).glob("*.patch"):
            match = _NAME.fullmatch(path.name)
            if not match:
                raise WbError(f"{path.relative_to(root)}: a patch is named NNNN-subject.patch")
            number = match.group(1)
            if number in seen:
                raise WbError(f"number {number} is used twice: {seen[number].relative_to(root)} and {path.relative_to(root)}")
            seen[number] = path
    return [seen[n] for n in sorted(seen)]


def patchset_hash(root: Path = ROOT) -> str:
    """KCIDB's patchset hash: sha256 of the patches' sha256, one per line in order."""
    files = patches(root)
    if not files:
        return EMPTY_HASH
    return sha256_text("".join(hashlib.sha256(p.read_bytes()).hexdigest() + "\n" for p in files))


def working_tree() -> Path:
    """build/tree; WbError when it has not been made."""
    if not (TREE / ".git").is_dir():
        raise WbError("there is no build/tree yet: run 'make tree' first")
    return TREE


def git(tree: Path, *args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """git in ``tree``."""
    return run([need("git", "git"), "-C", str(tree), *args], check=check)


def tree_hash() -> str:
    """Hash of what build/tree changes against the base, committed or not."""
    tree = working_tree()
    text = git(tree, "diff", "--full-index", "base").stdout
    for name in sorted(git(tree, "ls-files", "-o", "--exclude-standard").stdout.splitlines()):
        text += f"{name} {hashlib.sha256((tree / name).read_bytes()).hexdigest()}\n"
    return sha256_text(text) if text else EMPTY_HASH


def touched(patch: Path) -> set[str]:
    """Files that a patch changes, creates or deletes, relative to the tree."""
    names = re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)$", patch.read_text(errors="replace"), re.M)
    names += re.findall(r"^rename (?:from|to) (\S+)$", patch.read_text(errors="replace"), re.M)
    return set(names)


def apply_all(pristine: Path, files: list[Path], scratch: Path) -> set[str]:
    """Apply ``files`` in order to copies of what they touch, in ``scratch``; return the touched names.

    git apply takes no fuzz: a hunk whose context differs is an error, which
    names the patch and the file.
    """
    names: set[str] = set().union(*(touched(p) for p in files)) if files else set()
    for name in names:
        if (pristine / name).exists():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(pristine / name, scratch / name)
    for patch in files:
        # --unsafe-paths and a ceiling: scratch is inside this checkout, which git apply must not see.
        done = run(["env", f"GIT_CEILING_DIRECTORIES={scratch.parent}", need("git", "git"), "apply", "--whitespace=nowarn",
                    str(patch)], cwd=scratch, check=False)
        if done.returncode != 0:
            where = re.search(r"error: (?:patch failed: )?([^:\n]+)", done.stderr)
            raise WbError(f"{patch.parent.name}/{patch.name} does not apply to this base"
                          f" ({where.group(1) if where else 'see git apply'}): use the base pinned in tools/writeback/base")
    return names


def patched_source(stock: Path, dest: Path) -> Path:
    """``stock`` with the series, in ``dest``; files that stay the same keep their time, so make is incremental."""
    stamp = dest.with_name(dest.name + ".stamp")
    ident = f"{stock.with_name(stock.name + '.stamp').read_text()} {patchset_hash()}"
    if dest.is_dir() and stamp.exists() and stamp.read_text().partition("\n")[0] == ident:
        return dest
    scratch = dest.with_name(dest.name + ".apply")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        names = apply_all(stock, patches(), scratch)
        same_base = stamp.exists() and stamp.read_text().startswith(ident.split()[0])
        before = set(stamp.read_text().splitlines()[1:]) if same_base and dest.is_dir() else set()
        stamp.unlink(missing_ok=True)
        if not same_base or not dest.is_dir():
            shutil.rmtree(dest, ignore_errors=True)
            run(["rsync", "-a", "--exclude=/out-*", f"{stock}/", f"{dest}/"], log=BUILD / "log" / "patched.log",
                what="copying the source for the series")
        for name in names | before:
            _update(scratch / name if name in names else stock / name, dest / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    stamp.write_text("\n".join([ident, *sorted(names)]) + "\n")
    return dest


def _update(new: Path, old: Path) -> None:
    if not new.exists():
        old.unlink(missing_ok=True)
    elif not old.exists() or old.read_bytes() != new.read_bytes():
        old.parent.mkdir(parents=True, exist_ok=True)
        # copyfile, not copy2: make must see a fresh time
        shutil.copyfile(new, old)
        shutil.copymode(new, old)
