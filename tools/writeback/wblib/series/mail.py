# SPDX-License-Identifier: GPL-2.0
"""``wb series mail``: a set of patches as ``git send-email`` would send it.  It never sends.

A set is the patches of one hundred, 0105 to 0195, and the cover letter DIR/0100-NAME.cover:
its subject, a blank line and its text.  In the text, "Depends-on: NAME" names a set that has to
be applied before, the lines between @TABLE and @END are cells of a table, "LABEL: CASE axis=value ...",
and those between @LINE 6.12 and @END are for mails to that kernel line only.
"""

import argparse
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wblib.base.paths import BUILD, PATCH_DIRS, ROOT, SELFTESTS
from wblib.base.proc import need, run, say
from wblib.catalog import suites
from wblib.kernel import patchqueue, upstream
from wblib.kernel.patchqueue import git
from wblib.results import compare
from wblib.run import bench
from wbtop import ranges
from wbtop.errors import WbError
from wbtop.stats import short, summary, table

from . import worktree

EXAMPLES = """\
examples:
  wb series mail                        the sets
  wb series mail block-fixes --dry-run  its mails, for mainline, into build/mail/block-fixes
  wb series mail mm-fixes --dry-run --base 6.12     for the stable tree
  wb series mail selftests --dry-run    the kselftests as patches
Nothing is ever sent: look at the files, then 'git send-email build/mail/NAME/*.patch'.
A table's runs (fast lane, stock and patched of the line) are made when they are not there yet."""
SELF = "selftests"
COLUMNS = 72
# How many lines a patch may add besides tests and documentation: what one sitting can review.
ADDED_MAX = 300
_TEST = re.compile(r"^(?:Documentation/|tools/testing/)|(?:[-_](?:kunit|test)\.[ch]|-tests?\.c|_kunit\w*\.c)$")
_OURS = re.compile(r"^\s*(wb (?:run|bench|law|check|stress|lanes|demo)\b.*)$", re.M)
# What the kselftests are as patches: subject, text, and the folders of the files that it adds; "" is what is left.
SELF_TEXT = """\
Tests of writeback as its users notice it. Some replay published problems:
readers beside a buffered dd, dd at different values of vm.dirty_ratio,
ext4 without delayed allocation. Others check what the kernel promises:
the limits of dirty memory, who is throttled, what is on disk after a
power cut or an error.

They run on wbdisk, a module that comes with them (1 to 3): a blk-mq disk
whose timing is a model, so that an SSD, a USB stick or a cloud volume can
be had on any machine. It is built as an external module and is not part
of the kernel.

The set depends on no other. Tests of wbt_policy, and of other interfaces
that are proposed in sets of their own, are skipped where the kernel does
not have them.
"""
SELF_PARTS = (
    ("selftests/writeback: add models of disks",
     "Bandwidth, latency, queue depth, a cache, flash dies that program, an\n"
     "arm that seeks: when each command ends on a disk with these. Arithmetic,\n"
     "without a clock or locks; the module follows.", ("test_modules/model/",)),
    ("selftests/writeback: add wbdisk, a modelled disk",
     "A blk-mq driver with a model of a disk behind it. Requests complete when\n"
     "the model says so, by an hrtimer, so that what writeback does to readers\n"
     "on an SSD, a USB stick or a cloud volume can be seen on any machine. It\n"
     "is configured by configfs, as null_blk, and can fail, stall and lose\n"
     "power. Pages of zeros are not stored, so that a small guest can write\n"
     "gigabytes.\n"
     "\n"
     "null_blk completes each request after one constant time; it has no flash\n"
     "dies, no arm, and no power cut that loses what was not flushed.",
     ("test_modules/data/", "test_modules/driver/")),
    ("selftests/writeback: build and test wbdisk",
     "The module's Makefile, and KUnit tests of the models and of what is\n"
     "stored.", ("test_modules/",)),
    ("selftests/writeback: add what the cases share",
     "Options, disks, cgroups, readers, and what is measured.", ("lib/",)),
    ("selftests/writeback: add programs",
     "open_reader issues each read when it is due, so that a disk that stalls\n"
     "is still asked; a sampler of vmstat; and programs that write and verify\n"
     "what a power cut must not lose.", ("src/",)),
    ("selftests/writeback: add readers beside a writer",
     "How long reads wait behind buffered writeback, and how long that takes.",
     ("block/read-", "block/wbt-hog", "block/wbt-random")),
    ("selftests/writeback: add cases of writeback throttling",
     "What wbt promises: bounds, order, accounting, and what it costs.", ("block/",)),
    ("selftests/writeback: add cases of dirty memory",
     "Its limits, who is throttled, and how long.", ("mm/",)),
    ("selftests/writeback: add cases of ext4 and I/O errors",
     "What fsync() tells, and what is there, after errors at the end of I/O.", ("ext4/ext4-endio",)),
    ("selftests/writeback: add cases of ext4",
     "Without delayed allocation, inline data, power cuts.", ("ext4/",)),
    ("selftests/writeback: add power cuts, faults and races",
     "What fsync acknowledged is there after a power cut, errors are reported,\n"
     "nothing hangs.", ("crash/",)),
    ("selftests/writeback: build, run and maintain it",
     "Makefile, config, README, the tests of wbdisk itself, the target in\n"
     "tools/testing/selftests/Makefile, and an entry in MAINTAINERS.", ("",)),
)
# Not for the kernel's tree: patches for an old kernel, the program of 'wb law', and cases that test wb.
SELF_NOT = ("replay/", "law/", "tools/")
SELF_LISTS = ("linux-fsdevel@vger.kernel.org", "linux-block@vger.kernel.org", "linux-kselftest@vger.kernel.org")


@dataclass(frozen=True)
class Set:
    """A set of patches. number: the hundred of its patches' numbers; name: of its cover letter."""

    number: int
    name: str
    cover: Path

    @property
    def subject(self) -> str:
        """The first line of the cover letter."""
        return self.cover.read_text().partition("\n")[0]

    @property
    def depends(self) -> list[str]:
        """Names of the sets that have to be applied before."""
        return re.findall(r"^Depends-on: (\S+)$", self.cover.read_text(), re.M)

    def patches(self, line: str) -> list[Path]:
        """Its patches for a kernel line, in order."""
        return [p for p in patchqueue.patches(line=line) if patchqueue.number(p) // 100 == self.number]


def sets(root: Path = ROOT) -> list[Set]:
    """All sets, in order; WbError for a cover letter with a bad name."""
    found = []
    for path in (p for d in PATCH_DIRS for p in (root / d).glob("*.cover")):
        match = re.fullmatch(r"(\d\d)00-([a-z0-9-]+)\.cover", path.name)
        if not match:
            raise WbError(f"{path.relative_to(root)}: a cover letter is named NN00-NAME.cover")
        found.append(Set(int(match[1]), match[2], path))
    return sorted(found, key=lambda s: s.number)


def needed(one: Set, every: Sequence[Set], line: str) -> list[Path]:
    """The patches that have to be applied before those of ``one``, in order; WbError for a set that there is not."""
    by_name = {s.name: s for s in every}
    todo, seen = list(one.depends), set()
    while todo:
        name = todo.pop()
        if name not in by_name:
            raise WbError(f"{one.cover.name}: depends on '{name}', which is no set: {', '.join(by_name)}")
        if name not in seen:
            seen.add(name)
            todo += by_name[name].depends
    return [p for s in every if s.name in seen for p in s.patches(line)]


def added(patch: Path) -> int:
    """How many lines a patch adds, tests and documentation aside."""
    count, name = 0, ""
    for line in patch.read_text(errors="replace").partition("\ndiff --git ")[2].splitlines():
        if line.startswith("+++ "):
            name = line[6:]
        elif line.startswith("+") and not _TEST.search(name):
            count += 1
    return count


def lint() -> Iterator[tuple[str, str]]:
    """(check, problem): every set applies with nothing but what it says it depends on, every patch is of a set."""
    every = sets()
    if not every:
        return
    numbers = {s.number for s in every}
    for line in upstream.LINES:
        for patch in patchqueue.patches(line=line):
            if patchqueue.number(patch) // 100 not in numbers:
                yield f"{line}: {patch.name}", "is of no set: no cover letter has its hundred"
            if (count := added(patch)) > ADDED_MAX:
                yield f"{line}: {patch.name}", f"adds {count} lines besides tests and documentation: split it"
            if ours := _OURS.search(patch.read_text(errors="replace").partition("\n---\n")[0]):
                yield f"{line}: {patch.name}", f"names a command that a reader of the list has not: {ours[1]}"
        try:
            origin = upstream.of_line(line)
        except upstream.NoBase as exc:
            say(f"{line}: SKIPPED: {exc}")
            continue
        for one in every:
            try:
                with tempfile.TemporaryDirectory(dir=BUILD, prefix="set-") as temp:
                    patchqueue.scratch_repo(origin, needed(one, every, line) + one.patches(line), Path(temp))
                yield f"{line}: set {one.name} applies by itself", ""
            except upstream.NoBase as exc:
                say(f"{line}: SKIPPED: {exc}")
                break
            except WbError as exc:
                yield f"{line}: set {one.name} applies by itself", str(exc)


# ---- tables -----------------------------------------------------------------

def filled(text: str, line: str, *, measure: bool) -> str:
    """``text`` for ``line``, tables filled, without the markers of ``wb figures``; one that is not run is a remark."""
    def one(match: re.Match[str]) -> str:
        words = dict(w.split("=", 1) for w in match[1].split())
        columns = [_column(text) for text in words.get("metrics", "read_p50,read_p99_95,drain_s").split(",")]
        lines = [text.rpartition(": ") for text in match[2].splitlines() if text.strip()]
        cells = [suites.cell(words) for _, _, words in lines]
        kernels = [upstream.in_line(k, line) for k in ("stock", "patched")]
        if not measure:
            return f"[table of {len(cells)} cells: without --no-table]"
        jobs = [j for j in (suites.in_lane("fast", j) for j in suites.jobs(cells, kernels, [1])) if j]
        found = bench.run_jobs(jobs, bench.check_jobs(None), lane=words.get("lane", "fast"))
        rows = []
        for (label, _, said), cell in zip(lines, cells, strict=True):
            mine = [r for r in found if r.case == cell.case and _is(r.axes, cell.axes)]
            row = [label or said]
            for metric, _, divisor in columns:
                got = [compare.values([r for r in mine if r.kernel == kernel], metric) for kernel in kernels]
                row.append(" -> ".join(short(summary(v).median / divisor if v else None) for v in got))
            rows.append(row)
        return "stock -> patched\n\n" + table(["", *(heading for _, heading, _ in columns)], rows).rstrip("\n")

    text = re.sub(r"^<!-- (?:figures: \S+|end) -->\n", "", text, flags=re.M)
    text = re.sub(r"^@LINE (\S+)\n((?:.*\n)*?)@END\n", lambda m: m[2] if m[1] == line else "", text, flags=re.M)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return re.sub(r"^@TABLE *(.*)\n((?:.*\n)*?)@END$", one, text, flags=re.M)


def by_subject(text: str, every: Sequence[Set]) -> str:
    """``text`` with the subjects of the sets that it depends on: nobody on a list knows our names for them."""
    subjects = {s.name: s.subject for s in every}
    return re.sub(r"^Depends-on: (\S+)$", lambda m: textwrap.fill(f'On top of the set "{subjects[m[1]]}".', COLUMNS),
                  text, flags=re.M)


def _column(text: str) -> tuple[str, str, float]:
    """Metric, heading and divisor of "METRIC[:HEADING[:DIVISOR]]"."""
    metric, heading, divisor, *_ = [*text.split(":"), "", ""]
    return metric, heading.replace("-", " ") or metric, float(divisor or 1)


def _is(have: dict[str, str], want: dict[str, str]) -> bool:
    """Whether axes are those of a cell; the lane may have chosen another reader."""
    return all(have.get(k) == v for k, v in want.items() if k != "reader")


# ---- mails ------------------------------------------------------------------

def recipients(patches: Sequence[Path], line: str) -> tuple[list[str], list[str]]:
    """To (maintainers) and Cc (reviewers, lists), by scripts/get_maintainer.pl of the line's tree."""
    tree = upstream.stock(upstream.of_line(line))
    # Without a patch's new files, which only the tree after it has.
    names = sorted({n for p in patches for n in patchqueue.touched(p)})
    done = run([need("perl", "perl"), "scripts/get_maintainer.pl", "--no-git", "--no-git-fallback", "--rolestats",
                *[word for n in names if (tree / n).exists() for word in ("-f", n)]], cwd=tree, check=False)
    to, cc = [], []
    for text in done.stdout.splitlines():
        match = re.fullmatch(r"(.+?) \((\w[\w ]*)(?::.*)?\)", text)
        if match:
            (to if match[2] in ("maintainer", "supporter") else cc).append(match[1])
    return to, [c for c in cc if c not in to]


def _headers(ident: str, to: Sequence[str], cc: Sequence[str], reply: str = "") -> str:
    lines = [f"Message-ID: <{ident}>"]
    if reply:
        lines += [f"In-Reply-To: <{reply}>", f"References: <{reply}>"]
    lines += [f"{name}: " + ",\n    ".join(who) for name, who in (("To", to), ("Cc", cc)) if who]
    return "\n".join(lines)


def _patch_mails(repo: Path, count: int, out: Path, prefix: str) -> list[Path]:
    git(repo, "format-patch", "-q", "-n", f"--subject-prefix={prefix}", "--no-signature", "--stat=72", "-o", str(out),
        f"HEAD~{count}..HEAD")
    return sorted(out.glob("[0-9]*.patch"))


def write(name: str, subject: str, text: str, repo: Path, count: int, line: str, version: int,
          more_cc: Sequence[str] = ()) -> Path:
    """The mails of the last ``count`` commits of ``repo`` and their cover letter; returns their directory."""
    out = BUILD / "mail" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    prefix = "PATCH" + (f" v{version}" if version > 1 else "")
    mails = _patch_mails(repo, count, out, prefix)
    to, cc = recipients(mails, line)
    cc += [c for c in more_cc if c not in cc]
    head = git(repo, "rev-parse", "HEAD").strip()[:12]
    author = git(repo, "log", "-1", "--format=%an <%ae>").strip()
    date = git(repo, "log", "-1", "--format=%aD").strip()
    ident = f"calm-writeback-{name}-v{version}-{{}}-{head}@{author.rpartition('@')[2].rstrip('>')}"
    for n, mail in enumerate(mails, 1):
        before, _, after = mail.read_text(errors="surrogateescape").partition("\nSubject: ")
        more = _headers(ident.format(n), to, cc, ident.format(0))
        mail.write_text(f"{before}\n{more}\nSubject: {after}", errors="surrogateescape")
    stat = git(repo, "diff", "--stat=72", f"HEAD~{count}", "HEAD")
    log = git(repo, "shortlog", "-w72,2,4", f"HEAD~{count}..HEAD")
    version_of = upstream.stamp(upstream.stock_dir(line)).get("version", line)
    width = len(str(count))
    cover = (f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: {author}\nDate: {date}\n"
             f"{_headers(ident.format(0), to, cc)}\nSubject: [{prefix} {0:0{width}}/{count}] {subject}\n\n"
             f"{text.strip()}\n\nApplies to Linux {version_of}.\n\n{log.strip()}\n\n{stat}\n")
    (out / "0000-cover-letter.patch").write_text(cover)
    return out


def selftest_parts() -> list[list[str]]:
    """The kselftests' files that are mailed, as git tracks them, for each of SELF_PARTS."""
    top = SELFTESTS.relative_to(ROOT)
    left = [n for n in git(ROOT, "ls-files", "--", str(top)).splitlines()
            if not n.startswith(tuple(f"{top}/{folder}" for folder in SELF_NOT))]
    parts = []
    for _, _, folders in SELF_PARTS:
        parts.append([n for n in left if n.startswith(tuple(f"{top}/{folder}" for folder in folders))])
        left = [n for n in left if n not in parts[-1]]
    return parts


def selftest_repo(origin: upstream.Base, repo: Path) -> int:
    """The kselftests as commits on what they touch of ``origin``; returns how many."""
    makefile = SELFTESTS.relative_to(ROOT).parent / "Makefile"
    upstream.fetch(origin, ["MAINTAINERS", str(makefile)], repo)
    patchqueue.new_repo(repo)
    author = patchqueue.IDENTITY | git_author()
    for (subject, text, _), names in zip(SELF_PARTS, selftest_parts(), strict=True):
        for name in names:
            (repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, repo / name)
        if subject == SELF_PARTS[-1][0]:
            _join(repo / makefile, repo / "MAINTAINERS", f"{author['GIT_AUTHOR_NAME']} <{author['GIT_AUTHOR_EMAIL']}>")
        git(repo, "add", "-f", "-A")
        signed = f"Signed-off-by: {author['GIT_AUTHOR_NAME']} <{author['GIT_AUTHOR_EMAIL']}>"
        git(repo, "commit", "-q", "-m", f"{subject}\n\n{text}\n\n{signed}", env=author)
    return len(SELF_PARTS)


def git_author() -> dict[str, str]:
    """Who the newest patch of the series is by, for git."""
    for patch in patchqueue.patches(line=upstream.MAINLINE)[-1:]:
        head = re.sub(r"\n[ \t]+", " ", patch.read_text(errors="replace").partition("\n\n")[0])
        if match := re.search(r"^From: (.*) <(\S+)>$", head, re.M):
            return {"GIT_AUTHOR_NAME": match[1], "GIT_AUTHOR_EMAIL": match[2]}
    return {}


def _join(makefile: Path, maintainers: Path, who: str) -> None:
    """Add the target and the entry where the alphabet puts them."""
    lines = makefile.read_text().splitlines(keepends=True)
    at = next(i for i, s in enumerate(lines) if s.startswith("TARGETS += ") and s.split()[2] > "writeback")
    makefile.write_text("".join([*lines[:at], "TARGETS += writeback\n", *lines[at:]]))
    entry = (f"WRITEBACK SELFTESTS\nM:\t{who}\n" + "".join(f"L:\t{name}\n" for name in SELF_LISTS)
             + "S:\tMaintained\nF:\ttools/testing/selftests/writeback/\n\n")
    text = maintainers.read_text()
    start = text.index("\n3C59X ") + 1
    at = next(m.start() for m in re.finditer(r"(?<=\n\n)[A-Z0-9].*(?=\n[A-Z]:\t)", text)
              if m.start() > start and m.group() > "WRITEBACK SELFTESTS")
    maintainers.write_text(f"{text[:at]}{entry}{text[at:]}")


def register(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb series mail``."""
    add = verbs.add_parser("mail", help="a set as it would be mailed; never sends", epilog=EXAMPLES,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    add.add_argument("set", metavar="SET", nargs="?", help=f"a set's name or number, or {SELF}; without: list them")
    add.add_argument("--dry-run", action="store_true", help="write the mails; there is nothing else to do here")
    add.add_argument("-v", "--reroll", type=ranges.whole(1, 99), default=1, metavar="N",
                     help="version of the set (1..99, default 1)")
    add.add_argument("--no-table", action="store_true", help="leave tables out instead of running their cells")
    add.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    """``wb series mail``."""
    every = sets()
    line = upstream.default_line() if "base" in args else upstream.MAINLINE
    if args.set is None:
        rows = [[f"{s.number:02}", s.name, str(len(s.patches(line))), s.subject] for s in every]
        print(table(["set", "name", f"for {line}", "subject"], rows, left=4))
        return 0
    one = next((s for s in every if args.set in (s.name, f"{s.number:02}")), None)
    if one is None and args.set != SELF:
        raise WbError(f"no set '{args.set}': choose from {', '.join([*(s.name for s in every), SELF])}", 2)
    if not args.dry_run:
        raise WbError("wb never sends mail: --dry-run writes it, git send-email sends it", 2)
    origin = upstream.of_line(line)
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="mail-") as temp:
        repo = Path(temp)
        if one is None:
            count = selftest_repo(origin, repo)
            out = write(SELF, "selftests: writeback: incidents as tests, on a modelled disk", SELF_TEXT, repo,
                        count, line, args.reroll, SELF_LISTS)
        else:
            mine = one.patches(line)
            if not mine:
                raise WbError(f"set {one.name} has no patches for {line}")
            patchqueue.scratch_repo(origin, [*needed(one, every, line), *mine], repo)
            subject, _, text = one.cover.read_text().partition("\n")
            text = by_subject(text, every)
            out = write(one.name, subject, filled(text, line, measure=not args.no_table), repo, len(mine), line,
                        args.reroll)
    for mail in sorted(out.glob("*.patch")):
        print(f"{mail.relative_to(BUILD.parent) if mail.is_relative_to(BUILD.parent) else mail}  "
              f"{worktree.subject(mail)}")
    say(f"nothing was sent; to send it: git send-email {out}/*.patch")
    return 0
