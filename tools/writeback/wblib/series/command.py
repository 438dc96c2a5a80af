# SPDX-License-Identifier: GPL-2.0
"""``wb series``: the patch queue as files, as a git tree to work on, and its checks."""

import argparse
import concurrent.futures
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wblib.base.paths import ROOT
from wblib.base.proc import cpus, need, run, say
from wblib.kernel import patchqueue, upstream
from wblib.kernel.patchqueue import patches, patchset_hash
from wbtop.errors import WbError

from . import bisect, buildcheck, mail, worktree

__all__ = ["lint", "patches", "patchset_hash", "register"]

# Debian's; checkpatch's own search asks the first python3 in PATH, which may be another one.
CODESPELL = "/usr/lib/python3/dist-packages/codespell_lib/data/dictionary.txt"
# What codespell takes for typing errors: a term of the block layer, and one in the title of a commit that is cited.
TERMS = frozenset({"inflight", "spcae"})
EXAMPLES = """\
examples:
  wb series list                the patches in apply order
  wb series list --base 7.3     those for mainline; block/*.patch are for both lines, block/7.3/*.patch for one
  wb series tree                build/tree: git log base.. is the series; commit, rebase -i there
  wb series tree --base 7.3     the same for mainline, in build/tree@7.3
  wb series export              the commits of build/tree back to mm/ fs/ext4/ block/
  wb series round-trip          files -> commits -> files gives the same bytes (no build/tree needed)
  wb series checkpatch          scripts/checkpatch.pl --strict on each patch
  wb series mail SET --dry-run  a set as it would be mailed, with cover letter and recipients; never sends
  wb series bisect-check        each prefix builds with W=1 and sparse, without new warnings
  wb series build-check         touched files with clang, sparse, for other machines, touched pages: no new warning
A new commit goes to the directory its subject says (mm: ext4: block: blk-wbt:),
else to where most of its files are, and gets the first free number; the others keep
theirs.  A patch of both lines that was changed for 7.3 becomes one for each."""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb series`` and its commands."""
    p = sub.add_parser("series", help="the patch series: list, tree, export, checks", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(metavar="WHAT", required=True)
    raw = argparse.RawDescriptionHelpFormatter
    add = verbs.add_parser("list", help="the patches in apply order", epilog="example:\n  wb series list",
                           formatter_class=raw)
    add.add_argument("--hash", action="store_true", help="only the patchset hash (KCIDB form; empty without patches)")
    add.set_defaults(func=_list)
    for name, func, text in (("tree", _tree, "make build/tree from the patch files"),
                             ("export", _export, "write the commits of build/tree to the patch files")):
        add = verbs.add_parser(name, help=text, epilog=f"example:\n  wb series {name}", formatter_class=raw)
        add.add_argument("--force", action="store_true", help="drop work that only the overwritten side has")
        add.set_defaults(func=func)
    add = verbs.add_parser("bisect-check", help="each prefix builds with W=1 and sparse, without new warnings",
                           epilog="example:\n  wb series bisect-check -j 2", formatter_class=raw)
    add.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="compilers (default 0: one per core)")
    add.set_defaults(func=_bisect)
    add = verbs.add_parser("build-check", help="what is touched, built with clang, sparse, for i386 and arm64",
                           formatter_class=raw, epilog="examples:\n  wb series build-check\n  wb series build-check "
                           "--base 7.3 --with clang,arm64")
    add.add_argument("--with", dest="ways", metavar="A,B", default=",".join(buildcheck.ALL),
                     help=f"of {', '.join(buildcheck.ALL)} (default: all; what is not installed is skipped)")
    add.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="compilers (default 0: one per core)")
    add.set_defaults(func=_build_check)
    add = verbs.add_parser("checkpatch", help="checkpatch.pl --strict --codespell", formatter_class=raw,
                           epilog="examples:\n  wb series checkpatch\n  wb series checkpatch block/0004-*.patch")
    add.add_argument("patch", nargs="*", type=Path, help="patch files (default: the whole series)")
    add.set_defaults(func=_checkpatch)
    add = verbs.add_parser("round-trip", help="the files survive apply and export unchanged", formatter_class=raw,
                           epilog="example:\n  wb series round-trip")
    add.set_defaults(func=_round_trip)
    mail.register(verbs)


def _list(args: argparse.Namespace) -> int:
    if args.hash:
        print(patchset_hash())
        return 0
    files = patches()
    for path in files:
        print(f"{path.relative_to(ROOT)}  {worktree.subject(path)}")
    if not files:
        say("the series is empty: stock and patched are the same kernel")
    return 0


def _tree(args: argparse.Namespace) -> int:
    print(worktree.make_tree(args.force))
    return 0


def _export(args: argparse.Namespace) -> int:
    for path in worktree.export(args.force):
        print(path.relative_to(ROOT))
    return 0


def _bisect(args: argparse.Namespace) -> int:
    say(f"{bisect.check(args.jobs)} patches, each prefix builds without new warnings")
    return 0


def _build_check(args: argparse.Namespace) -> int:
    return buildcheck.check(buildcheck.chosen(args.ways), args.jobs)


def _checkpatch(args: argparse.Namespace) -> int:
    files = [p.absolute() for p in args.patch] or patches()
    for path in files:
        if not path.is_file():
            raise WbError(f"{path}: no such patch", 2)
    bad = 0
    for path in files:
        report = checkpatch(path)
        if report:
            bad += 1
            print(report)
    say(f"{len(files)} patches, {bad} with complaints")
    return 1 if bad else 0


def _round_trip(_args: argparse.Namespace) -> int:
    if problem := worktree.round_trip():
        raise WbError(problem)
    say(f"{len(patches())} patches, unchanged by apply and export")
    return 0


def checkpatch(patch: Path) -> str:
    """checkpatch's report about ``patch``, "" when it is clean."""
    need("codespell", "codespell")
    # MAINTAINERS has our directories as a whole; there is no history to look ids up in, and what is older than
    # any id that can be named has to go to stable all the same.
    ignore = ["FILE_PATH_CHANGES", "UNKNOWN_COMMIT_ID", "MISSING_FIXES_TAG"]
    if any(name.startswith("include/trace/") for name in patchqueue.touched(patch)):
        ignore += ["OPEN_ENDED_LINE", "PARENTHESIS_ALIGNMENT"]  # how every TRACE_EVENT is written
    if '"ext4: rework fast commit commit path"' in patch.read_text(errors="replace"):
        ignore.append("REPEATED_WORD")  # the title of a commit that is mended
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as words:
        words.writelines(line for line in Path(CODESPELL).read_text().splitlines(keepends=True)
                         if line.partition("->")[0] not in TERMS)
        words.flush()
        done = run([need("perl", "perl"), "scripts/checkpatch.pl", "-q", "--strict", "--codespell",
                    f"--codespellfile={words.name}", f"--ignore={','.join(ignore)}", "--color=never",
                    patch.absolute()], cwd=upstream.stock(), check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()


def lint() -> Iterator[tuple[str, str]]:
    """(check, problem) for 'make lint', problem "" when all is well; nothing to build.

    Every line's patches are looked at; those of a line whose source cannot be had are not applied.
    """
    seen: set[Path] = set()
    for line in upstream.LINES:
        try:
            files = patchqueue.patches(line=line)
        except WbError as exc:
            yield f"{line}: order", str(exc)
            continue
        yield f"{line}: order", ""
        try:
            # Or each set of this line reads all of the tarball for its few files.
            upstream.stock(upstream.of_line(line))
            yield f"{line}: round trip", worktree.round_trip(line=line)
        except upstream.NoBase as exc:
            say(f"{line}: SKIPPED: {exc}")
        except WbError as exc:
            yield f"{line}: round trip", str(exc)
        new = [path for path in files if path not in seen]
        seen.update(new)
        with concurrent.futures.ThreadPoolExecutor(cpus()) as pool:
            for path, report in zip(new, pool.map(checkpatch, new), strict=True):
                yield f"checkpatch {path.relative_to(ROOT)}", report.splitlines()[0] if report else ""
    yield from mail.lint()
