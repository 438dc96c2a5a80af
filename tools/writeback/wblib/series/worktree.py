# SPDX-License-Identifier: GPL-2.0
"""build/tree, the series as git commits to work on, and the way back to patch files.

There is one for each kernel line, build/tree and build/tree@7.3.
The files are the source; the tree is derived.  refs/wb/synced remembers which
commit and which files agreed last, so that neither side's work is lost.
"""

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD, PATCH_DIRS, ROOT
from wblib.base.proc import say
from wblib.kernel import patchqueue, sources, upstream
from wblib.kernel.patchqueue import git
from wbtop.errors import WbError

SYNCED = "refs/wb/synced"
# First word of a subject -> directory; where it says nothing, the touched files decide.
BY_SUBJECT = (("mm", "mm"), ("writeback", "mm"), ("ext4", "fs/ext4"), ("jbd2", "fs/ext4"), ("block", "block"),
              ("blk", "block"))
BY_FILE = (("mm/", "mm"), ("fs/ext4/", "fs/ext4"), ("fs/jbd2/", "fs/ext4"), ("block/", "block"), ("drivers/", "block"),
           ("fs/fs-writeback.c", "mm"))
FORMAT = ("format-patch", "-q", "-N", "--zero-commit", "--no-signature", "--full-index", "--no-cover-letter",
          "--no-thread", "--no-attach", "--no-base", "--suffix=.patch", "--diff-algorithm=myers", "--find-renames=50%",
          "-U3", "--stat=72")


def subject(patch: Path) -> str:
    """Subject of a patch file without [PATCH], unfolded."""
    head = patch.read_text(errors="replace").split("\n\n", 1)[0]
    found = re.search(r"^Subject: (.*(?:\n[ \t].*)*)", head, re.M)
    return re.sub(r"^\[PATCH[^\]]*\] *", "", re.sub(r"\n[ \t]", " ", found.group(1))) if found else ""


def directory(patch: Path) -> str:
    """The directory a new patch belongs to: by its subject's prefix, else by its files."""
    title = subject(patch)
    prefix = re.match(r"\w+", title)
    for word, where in BY_SUBJECT:
        if prefix and prefix.group() == word:
            return where
    votes = Counter(where for name in patchqueue.touched(patch) for start, where in BY_FILE if name.startswith(start))
    if not votes:
        raise WbError(f"commit '{title}' is in no known directory: start its subject with mm:, ext4: or block:")
    return votes.most_common(1)[0][0]


def numbers(known: list[int | None]) -> list[int]:
    """The numbers of commits whose files have ``known`` ones, None for a new commit.

    A file keeps its number, so that one that two lines share keeps its place in both; where commits
    changed places, or a new one finds no free number, those behind it move up.
    """
    have = [n for n in known if n is not None]
    if len(have) == len(known):
        return sorted(have)
    done: list[int] = []
    for n in known:
        behind = done[-1] if done else 0
        n = n if n is not None and n > behind else behind + 1
        done.append(n + 1 if n % 100 == 0 else n)
    return done


def export_to(repo: Path, root: Path, line: str, old: Sequence[Path] = ()) -> list[Path]:
    """Write the commits base.. of ``repo`` as patch files below ``root``, in order; returns them.

    old: the files of the series as it is, in order.  A commit keeps the number and the directory of its file;
    a new one whose number another line has for one of its own is for ``line`` alone.
    A file of both lines is kept as it is when ``line`` is not LTS and only blob ids and line numbers differ.
    """
    of_subject: dict[str, list[Path]] = {}
    for path in old:
        of_subject.setdefault(subject(path), []).append(path)
    count = len(git(repo, "rev-list", "base..HEAD").split())
    if git(repo, "rev-list", "--merges", "base..HEAD"):
        raise WbError(f"{repo} has a merge after the base: rebase it into a line of commits")
    if count and git(repo, "merge-base", "base", "HEAD").strip() != git(repo, "rev-parse", "base^{commit}").strip():
        raise WbError(f"{repo}: HEAD does not start at the tag base: rebase onto base")
    done = []
    with tempfile.TemporaryDirectory(dir=root if root.exists() else None, prefix=".export-") as temp:
        if count:
            git(repo, *FORMAT, "-o", temp, "base..HEAD")
        made = sorted(Path(temp).glob("*.patch"))
        if len(made) != count:
            raise WbError(f"{repo}: {count} commits gave {len(made)} patches: drop the empty commit")
        files = [same.pop(0) if (same := of_subject.get(subject(patch))) else None for patch in made]
        numbered = numbers([f and patchqueue.number(f) for f in files])
        others = [o for o in upstream.LINES if o != line and _others_exist(line)]
        taken = {patchqueue.number(p) for o in others for p in _all_files(o)}
        for patch, before, number in zip(made, files, numbered, strict=True):
            place = directory(patch)
            if before:
                place = _top(before)
                if _only(before):
                    place = f"{place}/{before.parent.name}"
                elif line != upstream.LTS and patchqueue.essence(before) != patchqueue.essence(patch):
                    place = f"{place}/{line}"
                elif line != upstream.LTS:
                    patch.write_bytes(before.read_bytes())
            elif number in taken:
                place = f"{place}/{line}"
            target = root / place / f"{number:04}{patch.name[4:]}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(patch, target)
            done.append(target)
    return done


def _only(patch: Path) -> bool:
    """Whether a patch file is for one line."""
    return patch.parent.name in upstream.LINES


def _top(patch: Path) -> str:
    """Which of PATCH_DIRS a patch file is in."""
    parent = patch.parent.parent if _only(patch) else patch.parent
    return next(name for name in PATCH_DIRS if parent.as_posix().endswith(name))


def _in_progress(tree: Path) -> str:
    for name, what in (("rebase-merge", "rebase"), ("rebase-apply", "rebase or am"), ("MERGE_HEAD", "merge"),
                       ("CHERRY_PICK_HEAD", "cherry-pick")):
        if (tree / ".git" / name).exists():
            return what
    return ""


def _agrees(tree: Path, line: str) -> bool:
    """Whether the commits of ``tree`` are what the patch files say, byte for byte."""
    files = patchqueue.patches(line=line)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="agree-") as temp:
        made = export_to(tree, Path(temp), line, files)
        return ([(p.relative_to(temp), p.read_bytes()) for p in made]
                == [(p.relative_to(ROOT), p.read_bytes()) for p in files])


def _unexported(tree: Path, line: str) -> str:
    """What ``tree`` holds that the patch files do not, in words; "" for nothing."""
    if not (tree / ".git").is_dir():
        return ""
    if what := _in_progress(tree):
        return f"a {what} in progress"
    if new := sources.untracked(tree):
        return f"files that 'git add -f' has yet to add ({new[0]}{' and more' if len(new) > 1 else ''})"
    if dirty := git(tree, "status", "--porcelain").splitlines():
        return f"uncommitted changes ({dirty[0][3:]}{' and more' if len(dirty) > 1 else ''})"
    head = git(tree, "rev-parse", "HEAD").strip()
    if git(tree, "rev-parse", "-q", "--verify", SYNCED, check=False).strip() != head and not _agrees(tree, line):
        return "commits that were not exported"
    return ""


def make_tree(force: bool = False) -> Path:
    """build/tree of the default line: the base as one commit tagged base, and the series on top, a commit each.

    Refuses to overwrite work that is not in the patch files, unless ``force``.
    """
    line = upstream.default_line()
    tree = sources.tree_of("tree", line)
    if not force and (work := _unexported(tree, line)):
        raise WbError(f"{tree} has {work}: 'make export' keeps them, 'wb series tree --force' drops them")
    files = patchqueue.patches(line=line)
    origin = upstream.locate()
    with fs.lock("tree"):
        if upstream.stamp(tree).get("ident") != origin.ident or not (tree / ".git").is_dir():
            _make_base(origin, tree)
        if what := _in_progress(tree):
            say(f"dropping a {what} in progress")
            for name in ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD"):
                fs.remove(tree / ".git" / name)
        git(tree, "checkout", "-q", "-f", "-B", "series", "base")
        git(tree, "clean", "-q", "-f", "-d")
        git(tree, "update-ref", "-d", SYNCED)
        patchqueue.am(tree, files)
        _synced(tree, line)
    return tree


def _make_base(origin: upstream.Base, tree: Path) -> None:
    stock = upstream.stock(origin)
    fs.need_space(BUILD, 2 * upstream.EXTRACT_GIB, "the working tree")
    new = tree.with_name(f"{tree.name}.new")
    say("making the base commit (about a minute, once per base)")
    sources.clone(stock, new, link=False)
    patchqueue.new_repo(new, bulk=True)
    # What a build leaves in the tree, and our own stamp, are not work.
    (new / ".git/info/exclude").write_text(sources.excluded())
    shutil.copy(stock / upstream.STAMP, new / upstream.STAMP)
    fs.remove(tree)
    new.rename(tree)


def _synced(tree: Path, line: str) -> None:
    git(tree, "update-ref", SYNCED, "HEAD")
    git(tree, "config", "wb.patchset", patchqueue.patchset_hash(patchqueue.patches(line=line)))


def export(force: bool = False) -> list[Path]:
    """Write the commits of the default line's tree back to the patch files.

    Refuses when the files changed since 'make tree' (a pull, an edit): these
    changes are not in the tree and would be lost; ``force`` drops them.
    A patch of both lines that was changed for a line other than LTS becomes two.
    """
    line = upstream.default_line()
    tree = sources.working_tree(line)
    if what := _in_progress(tree):
        raise WbError(f"{tree} has a {what} in progress: finish or abort it first")
    if git(tree, "status", "--porcelain", "-uno"):
        raise WbError(f"{tree} has uncommitted changes: commit or drop them first")
    known = git(tree, "config", "wb.patchset", check=False).strip()
    try:
        old = patchqueue.patches(line=line)
        changed = known != patchqueue.patchset_hash(old)
    except WbError:
        old, changed = [], True
    if changed and not force and not _agrees_safely(tree, line):
        raise WbError("the patch files changed since 'make tree': 'make tree' takes them, "
                      "'wb series export --force' drops them")
    # All new files exist before the first old one goes.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".export-") as temp:
        made = export_to(tree, Path(temp), line, old)
        keep = set()
        for patch in made:
            target = ROOT / patch.relative_to(temp)
            keep.add(target)
            if not target.exists() or target.read_bytes() != patch.read_bytes():
                target.parent.mkdir(exist_ok=True)
                patch.replace(target)
                target.chmod(0o644)
        for stale in old or _all_files(line):
            if stale not in keep:
                _retire(stale, line)
    _synced(tree, line)
    return patchqueue.patches(line=line)


def _all_files(line: str) -> list[Path]:
    found = [p for name in PATCH_DIRS for where in (ROOT / name, ROOT / name / line)
             for p in where.glob("[0-9][0-9][0-9][0-9]-*.patch")]
    return [p for p in found if p.name[2:4] != "00"]


def _others_exist(line: str) -> bool:
    """Whether there are patches for another line than ``line``."""
    return line != upstream.LTS or any((ROOT / name / o).is_dir() for name in PATCH_DIRS for o in upstream.LINES)


def _retire(patch: Path, line: str) -> None:
    """Take a patch file out of ``line``: one of both lines stays with the other, if that has patches of its own."""
    if _only(patch) or not _others_exist(line):
        patch.unlink()
        return
    other = next(o for o in upstream.LINES if o != line)
    (patch.parent / other).mkdir(exist_ok=True)
    patch.rename(patch.parent / other / patch.name)


def _agrees_safely(tree: Path, line: str) -> bool:
    try:
        return _agrees(tree, line)
    except WbError:
        return False


def round_trip(root: Path = ROOT, line: str | None = None) -> str:
    """Apply and export a line's series in a scratch repository; "" when the files come back byte for byte.

    Needs neither build/tree nor an extracted base, and nothing at all for an empty series.
    """
    line = line or upstream.default_line()
    files = patchqueue.patches(root, line)
    if not files:
        return ""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="trip-") as temp:
        repo, out = Path(temp) / "repo", Path(temp) / "out"
        out.mkdir()
        patchqueue.scratch_repo(upstream.of_line(line), files, repo)
        made = export_to(repo, out, line, files)
        for old, new in zip(files, made, strict=False):
            if old.relative_to(root) != new.relative_to(out):
                return f"{old.relative_to(root)} would be exported as {new.relative_to(out)}: run 'make tree export'"
            if old.read_bytes() != new.read_bytes():
                return f"{old.relative_to(root)} is not as exported: run 'make tree export' and look at the diff"
    return "" if len(files) == len(made) else f"{len(files)} files, {len(made)} commits"
