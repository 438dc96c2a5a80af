# SPDX-License-Identifier: GPL-2.0
"""build/tree, the series as git commits to work on, and the way back to patch files.

The files are the source; the tree is derived.  refs/wb/synced remembers which
commit and which files agreed last, so that neither side's work is lost.
"""

import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from . import base, patchqueue, sources
from .errors import WbError
from .patchqueue import git
from .paths import BUILD, PATCH_DIRS, ROOT
from .proc import say
from .sources import TREE

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


def directory(patch: Path, known: dict[str, str]) -> str:
    """The directory a patch belongs to: where its subject is now, else by subject prefix, else by its files."""
    title = subject(patch)
    if title in known:
        return known[title]
    prefix = re.match(r"\w+", title)
    for word, where in BY_SUBJECT:
        if prefix and prefix.group() == word:
            return where
    votes = Counter(where for name in patchqueue.touched(patch) for start, where in BY_FILE if name.startswith(start))
    if not votes:
        raise WbError(f"commit '{title}' is in no known directory: start its subject with mm:, ext4: or block:")
    return votes.most_common(1)[0][0]


def export_to(repo: Path, root: Path, known: dict[str, str]) -> list[Path]:
    """Write the commits base.. of ``repo`` as patch files below ``root``, numbered 0001 on; returns them."""
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
        for patch in made:
            target = root / directory(patch, known) / patch.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(patch, target)
            done.append(target)
    return done


def assignments(files: list[Path], root: Path = ROOT) -> dict[str, str]:
    """Subject -> directory of the existing patch files."""
    return {subject(f): str(f.parent.relative_to(root)) for f in files}


def _in_progress() -> str:
    for name, what in (("rebase-merge", "rebase"), ("rebase-apply", "rebase or am"), ("MERGE_HEAD", "merge"),
                       ("CHERRY_PICK_HEAD", "cherry-pick")):
        if (TREE / ".git" / name).exists():
            return what
    return ""


def _agrees() -> bool:
    """Whether the commits of build/tree are what the patch files say, byte for byte."""
    files = patchqueue.patches()
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="agree-") as temp:
        made = export_to(TREE, Path(temp), assignments(files))
        return ([(p.relative_to(temp), p.read_bytes()) for p in made]
                == [(p.relative_to(ROOT), p.read_bytes()) for p in files])


def unexported() -> str:
    """What build/tree holds that the patch files do not, in words; "" for nothing."""
    if not (TREE / ".git").is_dir():
        return ""
    if what := _in_progress():
        return f"a {what} in progress"
    if new := sources.untracked(TREE):
        return f"files that 'git add -f' has yet to add ({new[0]}{' and more' if len(new) > 1 else ''})"
    if dirty := git(TREE, "status", "--porcelain").splitlines():
        return f"uncommitted changes ({dirty[0][3:]}{' and more' if len(dirty) > 1 else ''})"
    head = git(TREE, "rev-parse", "HEAD").strip()
    if git(TREE, "rev-parse", "-q", "--verify", SYNCED, check=False).strip() != head and not _agrees():
        return "commits that were not exported"
    return ""


def make_tree(force: bool = False) -> Path:
    """build/tree: the base as one commit tagged base, and the series on top, a commit each.

    Refuses to overwrite work that is not in the patch files, unless ``force``.
    """
    if not force and (work := unexported()):
        raise WbError(f"{TREE} has {work}: 'make export' keeps them, 'wb series tree --force' drops them")
    files = patchqueue.patches()
    origin = base.locate()
    with base.lock("tree"):
        if base.stamp(TREE).get("ident") != origin.ident or not (TREE / ".git").is_dir():
            _make_base(origin)
        if what := _in_progress():
            say(f"dropping a {what} in progress")
            for name in ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD"):
                base.remove(TREE / ".git" / name)
        git(TREE, "checkout", "-q", "-f", "-B", "series", "base")
        git(TREE, "clean", "-q", "-f", "-d")
        git(TREE, "update-ref", "-d", SYNCED)
        patchqueue.am(TREE, files)
        _synced()
    return TREE


def _make_base(origin: base.Base) -> None:
    stock = base.stock(origin)
    base.need_space(BUILD, 2 * base.EXTRACT_GIB, "the working tree")
    new = TREE.with_name("tree.new")
    say("making the base commit (about a minute, once per base)")
    sources.clone(stock, new, link=False)
    patchqueue.new_repo(new, bulk=True)
    # What a build leaves in the tree, and our own stamp, are not work.
    (new / ".git/info/exclude").write_text(sources.excluded())
    shutil.copy(stock / base.STAMP, new / base.STAMP)
    base.remove(TREE)
    new.rename(TREE)


def _synced() -> None:
    git(TREE, "update-ref", SYNCED, "HEAD")
    git(TREE, "config", "wb.patchset", patchqueue.patchset_hash())


def export(force: bool = False) -> list[Path]:
    """Write the commits of build/tree back to the patch files.

    Refuses when the files changed since 'make tree' (a pull, an edit): these
    changes are not in the tree and would be lost; ``force`` drops them.
    """
    if not (TREE / ".git").is_dir():
        raise WbError(f"no working tree in {TREE}: run 'make tree' first")
    if what := _in_progress():
        raise WbError(f"{TREE} has a {what} in progress: finish or abort it first")
    if git(TREE, "status", "--porcelain", "-uno"):
        raise WbError(f"{TREE} has uncommitted changes: commit or drop them first")
    known = git(TREE, "config", "wb.patchset", check=False).strip()
    try:
        old = patchqueue.patches()
        changed = known != patchqueue.patchset_hash()
    except WbError:
        old, changed = [], True
    if changed and not force and not _agrees_safely():
        raise WbError("the patch files changed since 'make tree': 'make tree' takes them, "
                      "'wb series export --force' drops them")
    # All new files exist before the first old one goes.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".export-") as temp:
        made = export_to(TREE, Path(temp), assignments(old))
        keep = set()
        for patch in made:
            target = ROOT / patch.relative_to(temp)
            keep.add(target)
            if not target.exists() or target.read_bytes() != patch.read_bytes():
                patch.replace(target)
                target.chmod(0o644)
        for name in PATCH_DIRS:
            for stale in (ROOT / name).glob("[0-9][0-9][0-9][0-9]-*.patch"):
                if stale not in keep and not stale.name.startswith("0000-"):
                    stale.unlink()
    _synced()
    return patchqueue.patches()


def _agrees_safely() -> bool:
    try:
        return _agrees()
    except WbError:
        return False


def round_trip(root: Path = ROOT) -> str:
    """Apply and export the series in a scratch repository; "" when the files come back byte for byte.

    Needs neither build/tree nor an extracted base, and nothing at all for an empty series.
    """
    files = patchqueue.patches(root)
    if not files:
        return ""
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="trip-") as temp:
        repo, out = Path(temp) / "repo", Path(temp) / "out"
        out.mkdir()
        patchqueue.scratch_repo(base.locate(), files, repo)
        made = export_to(repo, out, assignments(files, root))
        for old, new in zip(files, made, strict=False):
            if old.relative_to(root) != new.relative_to(out):
                return f"{old.relative_to(root)} would be exported as {new.relative_to(out)}: run 'make tree export'"
            if old.read_bytes() != new.read_bytes():
                return f"{old.relative_to(root)} is not as exported: run 'make tree export' and look at the diff"
    return "" if len(files) == len(made) else f"{len(files)} files, {len(made)} commits"
