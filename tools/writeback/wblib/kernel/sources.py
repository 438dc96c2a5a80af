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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD, SELFTESTS
from wblib.base.proc import run, sha256_file, sha256_text
from wblib.catalog import axes as ax
from wbtop.errors import WbError

from . import kconfig, patchqueue, upstream

# What a build adds to a source tree; never part of its content.
ADDED = (*(f"out-{flavour}" for flavour in kconfig.FLAVOURS), "out-deb-slim", "out-deb-other",
         "tools/testing/selftests/writeback")
# checkpatch's cache, at the top of a tree that is no git repository.
CHECKPATCH_CACHE = ".checkpatch-camelcase."
VARIANTS = ("stock", "patched", "tree", "replay")


@dataclass(frozen=True)
class Source:
    """A source tree: ``content`` is a hash of what differs from the base, "" for nothing.

    variant: one of VARIANTS, with "@LINE" behind it for another kernel line than the default one.
    """

    variant: str
    tree: Path
    base: upstream.Base
    content: str
    patchset: str

    @property
    def series(self) -> bool:
        """True if the series is in it."""
        return bool(self.content) and split(self.variant)[0] != "replay"


def split(variant: str) -> tuple[str, str]:
    """The name and the kernel line of "NAME" or "NAME@LINE"; WbError for a line that there is not."""
    name, at, line = variant.partition("@")
    if at and line not in upstream.LINES:
        raise WbError(f"unknown kernel '{variant}': behind @ choose from {', '.join(upstream.LINES)}", 2)
    return name, line or upstream.default_line()


def named(variant: str) -> str:
    """``variant`` as results call it: with its line, unless that is LTS."""
    return upstream.in_line(*split(variant))


def chosen(variant: str, names: Sequence[str] = VARIANTS) -> str:
    """``variant`` as results call it; WbError with the nearest name when it is none of ``names``."""
    if split(variant)[0] not in names:
        raise ax.unknown("kernel", variant, names)
    return named(variant)


def is_stock(variant: str) -> bool:
    """Whether a kernel has nothing of ours."""
    return variant.partition("@")[0] == "stock"


def tree_of(name: str, line: str) -> Path:
    """Where the tree of a variant is."""
    return (BUILD if name == "tree" else upstream.SRC) / upstream.in_line(name, line)


def describe(variant: str) -> Source:
    """What ``variant`` (one of VARIANTS, with or without @LINE) would be built from; makes no tree."""
    variant = chosen(variant)
    name, line = split(variant)
    origin = upstream.of_line(line)
    stock, tree = upstream.stock_dir(line), tree_of(name, line)
    if name == "stock":
        return Source(variant, stock, origin, "", "")
    files = _replay_patches(line) if name == "replay" else patchqueue.patches(line=line)
    patchset = patchqueue.patchset_hash(files)
    if name == "tree":
        return Source(variant, working_tree(line), origin, _tree_content(tree), patchset)
    memo = BUILD / f"{upstream.in_line('series' if name == 'patched' else name, line)}-content"
    content = _content(origin, patchset, files, memo)
    return Source(variant, tree if content else stock, origin, content, patchset)


def prepare(source: Source) -> Path:
    """Make or update the tree of ``source`` on disk."""
    name, line = split(source.variant)
    if name == "tree":
        return source.tree
    stock = upstream.stock(source.base)
    if source.tree != stock:
        files = _replay_patches(line) if name == "replay" else patchqueue.patches(line=line)
        with fs.lock(f"src-{source.tree.name}"):
            sync_patched(source.base, stock, source.tree, files)
    return source.tree


def _replay_patches(line: str) -> list[Path]:
    """They bring back what 4.19 did, on the line that is nearest to it."""
    if line != upstream.LTS:
        raise WbError(f"there is no replay of an old kernel for {line}: use --base {upstream.LTS}", 2)
    return sorted((SELFTESTS / "replay").glob("*.patch"))


def working_tree(line: str | None = None) -> Path:
    """The tree of 'make tree' for ``line`` (None: the default one); WbError when it is not there."""
    tree = tree_of("tree", line or upstream.default_line())
    if not (tree / ".git").is_dir():
        raise WbError(f"no working tree in {tree}: run 'make tree' first")
    return tree


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


def _content(origin: upstream.Base, patchset: str, files: list[Path], memo: Path) -> str:
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
    fs.write_atomic(memo, f"{origin.ident} {patchset} {content}")
    return content


def excluded() -> str:
    """What is never a source file of a tree, as lines of a .gitignore."""
    return "".join(f"/{name}\n" for name in (*ADDED, upstream.STAMP, f"{CHECKPATCH_CACHE}*"))


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


def _tree_content(tree: Path) -> str:
    """Content hash of a working tree as it is on disk, committed or not."""
    with _scratch() as temp:
        index = temp / "index"
        shutil.copy2(tree / ".git/index", index)
        env = {"GIT_INDEX_FILE": str(index)}
        patchqueue.git(tree, "add", "-A", env=env)
        if new := untracked(tree):
            patchqueue.git(tree, "add", "-f", "--", *new, env=env)
        return content_hash(changed(tree, patchqueue.git(tree, "write-tree", env=env).strip()), tree)


def sync_patched(origin: upstream.Base, stock: Path, dest: Path, files: list[Path]) -> None:
    """Bring ``dest`` to ``stock`` + ``files``; files that stay the same keep their time, so make rebuilds little.

    Unchanged files are hard links to the pristine ones: they must only ever be replaced, not written to.
    """
    want = {"ident": origin.ident, "patchset": patchqueue.sha256_text("".join(sha256_file(p) for p in files))}
    have = upstream.stamp(dest)
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
    fs.write_atomic(tree / upstream.STAMP, json.dumps(data))


def clone(stock: Path, dest: Path, *, link: bool = True) -> None:
    """Copy a pristine tree to ``dest`` without what builds added; link: hard links, which cost no space."""
    new = dest.with_name(dest.name + ".new")
    fs.remove(new)
    new.mkdir(parents=True)
    try:
        mode = ["-al"] if link else ["-a", "--reflink=auto"]
        skip = {upstream.STAMP, *ADDED}
        run(["cp", *mode, "-t", new, *[p for p in sorted(stock.iterdir())
                                       if p.name not in skip and not p.name.startswith(CHECKPATCH_CACHE)]],
            what=f"copying the source to {dest.name}")
        for name in ADDED:
            fs.remove(new / name)
        fs.remove(dest)
        new.rename(dest)
    except BaseException:
        fs.remove(new)
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
