# SPDX-License-Identifier: GPL-2.0
"""The source trees kernels are built from: stock, patched (base + series), replay and the working tree.

replay: base + the selftests' own patches, which bring old behaviour back for a test; not part of the series.
"""

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import base, kconfig, patchqueue
from .errors import WbError
from .paths import BUILD, SELFTESTS
from .proc import run, sha256_file, sha256_text

PATCHED = base.SRC / "patched"
TREE = BUILD / "tree"
# What a build adds to a source tree; never part of its content.
ADDED = (*(f"out-{flavour}" for flavour in kconfig.FLAVOURS), "out-deb-slim", "out-deb-other",
         "tools/testing/selftests/writeback")
# checkpatch's cache, at the top of a tree that is no git repository.
CHECKPATCH_CACHE = ".checkpatch-camelcase."
REPLAY = base.SRC / "replay"
VARIANTS = ("stock", "patched", "tree", "replay")


@dataclass(frozen=True)
class Source:
    """A source tree: ``content`` is a hash of what differs from the base, "" for nothing."""

    variant: str
    tree: Path
    base: base.Base
    content: str
    patchset: str

    @property
    def series(self) -> bool:
        """True if the series is in it."""
        return bool(self.content) and self.variant != "replay"


def describe(variant: str) -> Source:
    """What ``variant`` (one of VARIANTS) would be built from; makes no tree."""
    if variant not in VARIANTS:
        raise WbError(f"unknown kernel '{variant}': choose from {', '.join(VARIANTS)}", 2)
    origin = base.locate()
    if variant == "stock":
        return Source(variant, base.STOCK, origin, "", "")
    if variant == "patched":
        patchset = patchqueue.patchset_hash()
        content = _content(origin, patchset, patchqueue.patches(), BUILD / "series-content")
        return Source(variant, PATCHED if content else base.STOCK, origin, content, patchset)
    if variant == "replay":
        patchset = patchqueue.patchset_hash(_replay_patches())
        return Source(variant, REPLAY, origin,
                      _content(origin, patchset, _replay_patches(), BUILD / "replay-content"), patchset)
    return Source(variant, working_tree(), origin, _tree_content(), patchqueue.patchset_hash())


def prepare(source: Source) -> Path:
    """Make or update the tree of ``source`` on disk."""
    if source.tree == TREE:
        return TREE
    stock = base.stock(source.base)
    if source.tree in (PATCHED, REPLAY):
        files = _replay_patches() if source.tree == REPLAY else patchqueue.patches()
        with base.lock(f"src-{source.tree.name}"):
            sync_patched(source.base, stock, source.tree, files)
    return source.tree


def _replay_patches() -> list[Path]:
    return sorted((SELFTESTS / "replay").glob("*.patch"))


def working_tree() -> Path:
    """build/tree; WbError when 'make tree' has not made it."""
    if not (TREE / ".git").is_dir():
        raise WbError(f"no working tree in {TREE}: run 'make tree' first")
    return TREE


def content_hash(names: Iterable[str], top: Path) -> str:
    """Hash of the named files below ``top`` (mode and bytes, or absent); "" for no names."""
    lines = []
    for name in sorted(names):
        path = top / name
        lines.append(f"{name} {_mode(path)} {sha256_file(path)}" if path.is_file() else f"{name} -")
    return sha256_text("\n".join(lines)) if lines else ""


def _mode(path: Path) -> str:
    return "x" if path.stat().st_mode & stat.S_IXUSR else "-"


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A directory on the build disk that is gone afterwards."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="series-", dir=BUILD) as name:
        yield Path(name)


def changed(repo: Path, tree: str = "HEAD") -> list[str]:
    """Files of ``repo`` in which ``tree`` differs from the base."""
    return patchqueue.git(repo, "diff", "--no-renames", "--name-only", "-z", "base", tree).split("\0")[:-1]


def _content(origin: base.Base, patchset: str, files: list[Path], memo: Path) -> str:
    """Content hash of base + ``files``; remembered in ``memo``, as finding it means applying them."""
    if not patchset:
        return ""
    with contextlib.suppress(OSError, ValueError):
        ident, known, content = memo.read_text().split()
        if (ident, known) == (origin.ident, patchset):
            return content
    with _scratch() as repo:
        patchqueue.scratch_repo(origin, files, repo)
        content = content_hash(changed(repo), repo)
    base.write_atomic(memo, f"{origin.ident} {patchset} {content}")
    return content


def excluded() -> str:
    """What is never a source file of a tree, as lines of a .gitignore."""
    return "".join(f"/{name}\n" for name in (*ADDED, base.STAMP, f"{CHECKPATCH_CACHE}*"))


def untracked(tree: Path) -> list[str]:
    """New source files of ``tree`` that no commit knows.

    Debian's .gitignore ends with /*: to git, every new file is a build product.
    This goes by the kernel's own patterns, those before.  What builds add is asked for
    now: the tree may be older than a flavour.
    """
    own = (tree / ".gitignore").read_text().split("# Debian packaging", 1)[0]
    with _scratch() as temp:
        (temp / "ignore").write_text(f"{own}\n{excluded()}")
        return patchqueue.git(tree, "ls-files", "-z", "--others", "-X", str(temp / "ignore")).split("\0")[:-1]


def _tree_content() -> str:
    """Content hash of build/tree as it is on disk, committed or not."""
    with _scratch() as temp:
        index = temp / "index"
        shutil.copy2(TREE / ".git/index", index)
        env = {"GIT_INDEX_FILE": str(index)}
        patchqueue.git(TREE, "add", "-A", env=env)
        if new := untracked(TREE):
            patchqueue.git(TREE, "add", "-f", "--", *new, env=env)
        return content_hash(changed(TREE, patchqueue.git(TREE, "write-tree", env=env).strip()), TREE)


def sync_patched(origin: base.Base, stock: Path, dest: Path, files: list[Path]) -> None:
    """Bring ``dest`` to ``stock`` + ``files``; files that stay the same keep their time, so make rebuilds little.

    Unchanged files are hard links to the pristine ones: they must only ever be replaced, not written to.
    """
    want = {"ident": origin.ident, "patchset": patchqueue.sha256_text("".join(sha256_file(p) for p in files))}
    have = base.stamp(dest)
    if have and all(have.get(k) == v for k, v in want.items()):
        return
    with _scratch() as repo:
        names = patchqueue.scratch_repo(origin, files, repo)
        if have.get("ident") != origin.ident:
            clone(stock, dest)
            have = {}
        # Interrupted from here on, the next run must look at these files again.
        both = sorted({*names, *have.get("files", "").split()})
        _stamp(dest, {"ident": origin.ident, "patchset": "", "files": " ".join(both)})
        for name in both:
            replace(repo / name if name in names else stock / name, dest / name)
    _stamp(dest, {**want, "files": " ".join(names)})


def _stamp(tree: Path, data: dict[str, str]) -> None:
    base.write_atomic(tree / base.STAMP, json.dumps(data))


def clone(stock: Path, dest: Path, *, link: bool = True) -> None:
    """Copy a pristine tree to ``dest`` without what builds added; link: hard links, which cost no space."""
    new = dest.with_name(dest.name + ".new")
    base.remove(new)
    new.mkdir(parents=True)
    try:
        mode = ["-al"] if link else ["-a", "--reflink=auto"]
        skip = {base.STAMP, *ADDED}
        run(["cp", *mode, "-t", new, *[p for p in sorted(stock.iterdir())
                                       if p.name not in skip and not p.name.startswith(CHECKPATCH_CACHE)]],
            what=f"copying the source to {dest.name}")
        for name in ADDED:
            base.remove(new / name)
        base.remove(dest)
        new.rename(dest)
    except BaseException:
        base.remove(new)
        raise


def replace(new: Path, old: Path) -> None:
    """Make ``old`` like ``new`` (absent: delete), by rename, with a fresh time; nothing if equal."""
    if not new.is_file():
        old.unlink(missing_ok=True)
        return
    if old.is_file() and _mode(old) == _mode(new) and old.read_bytes() == new.read_bytes():
        return
    old.parent.mkdir(parents=True, exist_ok=True)
    temp = old.with_name(f".{old.name}.{os.getpid()}")
    shutil.copyfile(new, temp)
    shutil.copymode(new, temp)
    temp.replace(old)
