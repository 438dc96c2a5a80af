# SPDX-License-Identifier: GPL-2.0
"""The files that the series touches, built the ways that a maintainer's robots do, on the base and with the series.

What the base does not warn of, the series must not.  A way whose tool is missing is skipped with one line.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD
from wblib.base.proc import cpus, run, say
from wblib.kernel import build as kernels
from wblib.kernel import kconfig, patchqueue, sources, upstream
from wbtop.errors import WbError

from . import bisect

PLACE = BUILD / "build-check"
# Directories whose objects are part of a kernel.
_KERNEL = ("block/", "drivers/", "fs/", "kernel/", "lib/", "mm/")
_DOC_WARNING = re.compile(r"^(?:\./|.*?/(?=Documentation/))?([\w./+-]+?):\d+: "
                          r"((?:WARNING|ERROR|CRITICAL|warning|error): .*)$", re.M)
_ABSENT = re.compile(r"No rule to make target '([^']+\.o)'")


class Missing(WbError):
    """A tool that a way needs is not here; the message says which."""


@dataclass(frozen=True)
class Way:
    """How to build: what to give make, and its program or Missing."""

    what: str
    words: Callable[[Path], list[str]]


def _tool(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Missing(f"no {name}: install the package {package}")
    return path


def newest_clang(names: Sequence[str], least: int) -> str:
    """Of programs such as clang-19 the one with the greatest number, which must be ``least``."""
    found = sorted((int(n.rpartition("-")[2]), n) for n in names if re.fullmatch(r"clang-\d+", n))
    if not found or found[-1][0] < least:
        have = f"; {found[-1][1]} is too old" if found else ""
        raise Missing(f"no clang from {least} on{have}: install the package clang-19")
    return found[-1][1]


def _clang(tree: Path) -> list[str]:
    names = [p.name for d in ("/usr/bin", "/usr/local/bin") for p in Path(d).glob("clang-[0-9]*")]
    least = run([tree / "scripts/min-tool-version.sh", "llvm"], env={"SRCARCH": "x86"}).stdout
    return [f"CC={newest_clang(names, int(least.partition('.')[0]))}", "W=1"]


def _sparse(tree: Path) -> list[str]:
    _tool("sparse", "sparse")
    if command := bisect.sparse(tree):
        return ["C=2", f"CHECK={command}"]
    raise Missing(f"sparse cannot read {tree.name}: install one that passes its scripts/checker-valid.sh")


def _smatch(_tree: Path) -> list[str]:
    return ["C=2", f"CHECK={_tool('smatch', 'smatch')} -p=kernel"]


def _i386(_tree: Path) -> list[str]:
    return ["ARCH=i386", f"CC={_tool('i686-linux-gnu-gcc', 'gcc-i686-linux-gnu')}", "W=1"]


def _arm64(_tree: Path) -> list[str]:
    _tool("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
    return ["ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-", "CC=aarch64-linux-gnu-gcc", "W=1"]


WAYS = {
    "clang": Way("clang, W=1", _clang), "sparse": Way("sparse", _sparse), "smatch": Way("smatch", _smatch),
    "i386": Way("32-bit x86, W=1", _i386), "arm64": Way("arm64, W=1", _arm64),
}
DOCS = "docs"
ALL = (*WAYS, DOCS)


def chosen(names: str) -> list[str]:
    """The ways in "A,B"; WbError for one that there is not, or for none."""
    found = [n for n in names.split(",") if n]
    for name in found or [names]:
        if name not in ALL:
            raise WbError(f"--with {names}: '{name}' is none of {', '.join(ALL)}", 2)
    return list(dict.fromkeys(found))


def check(names: Sequence[str], jobs: int = 0) -> int:
    """Build each of ``names``, a line per result; the exit code."""
    origin = upstream.locate()
    files = patchqueue.patches(line=origin.line)
    touched = sorted({n for f in files for n in patchqueue.touched(f)})
    failed = 0
    with fs.lock("build-check"):
        for name in names:
            try:
                new, done = _docs(touched) if name == DOCS else _objects(name, touched, jobs)
            except Missing as exc:
                print(f"SKIP {name}: {exc}", flush=True)
                continue
            except WbError as exc:
                print(f"FAIL {name}: {exc}", flush=True)
                failed += 1
                continue
            for file, message in new:
                print(f"FAIL {name}: {file}: {message}")
            failed += bool(new)
            if not new:
                print(f"ok   {name}: {done}, no new warning", flush=True)
    return 1 if failed else 0


def _trees() -> list[Path]:
    """The base's tree and the series' one."""
    line = upstream.default_line()
    return [sources.prepare(sources.describe(upstream.in_line(v, line))) for v in ("stock", "patched")]


# ---- objects ----------------------------------------------------------------

def objects(touched: Sequence[str], tree: Path) -> list[str]:
    """The objects of touched files of a kernel that ``tree`` has, but of those that others include."""
    files = [n for n in touched if n.startswith(_KERNEL) and n.endswith(".c") and (tree / n).is_file()]
    included = {f"{Path(n).parent}/{other}" for n in files
                for other in re.findall(r'^#include "([^"]+\.c)"', (tree / n).read_text(errors="replace"), re.M)}
    return [f"{n[:-2]}.o" for n in files if n not in included]


def _objects(name: str, touched: list[str], jobs: int) -> tuple[list[tuple[str, str]], str]:
    known: set[tuple[str, str]] = set()
    found, built, absent = known, 0, 0
    for tree in _trees():
        words = WAYS[name].words(tree)
        known = found
        found, built, absent = _build(tree, PLACE / f"{tree.name}-{name}", words, objects(touched, tree), jobs)
    more = f" ({absent} are not in this configuration)" if absent else ""
    return sorted(w for w in found - known if w[0] in touched), f"{WAYS[name].what}, {built} objects{more}"


def _build(tree: Path, out: Path, words: list[str], wanted: list[str],
           jobs: int) -> tuple[set[tuple[str, str]], int, int]:
    """Warnings, and how many of ``wanted`` were built, and how many there are not; WbError for one that fails."""
    log = BUILD / "log" / f"build-check-{out.name}.log"
    log.unlink(missing_ok=True)
    fs.remove(out)
    out.mkdir(parents=True)
    fragments = out / "wb-fragments.config"
    # The series' options for the base too, which knows some of them: the base's KUnit tests build with theirs only.
    fragments.write_text(kconfig.fragments("slim", series=True, line=upstream.default_line()))
    argv = [word for word in kernels.make(tree, out) if not word.startswith("CC=")] if "CC=" in " ".join(words) else \
        kernels.make(tree, out)
    env = {**kernels.make_env(), "KCONFIG_ALLCONFIG": str(fragments)}
    run([*argv, *words, "-s", "allnoconfig"], env=env, log=log, what="configuring")
    run([*argv, *words, "-k", f"-j{jobs or cpus()}", *wanted], env=kernels.make_env(), log=log, check=False,
        what=f"building {out.name}")
    text = log.read_text(errors="replace").replace(f"{tree}/", "")
    if unfit := re.search(r"C=\d specified, but .* is not available or not up to date", text):
        raise Missing(f"kbuild checked nothing: {unfit[0]}")
    absent = set(_ABSENT.findall(text))
    failed = [o for o in wanted if not (out / o).is_file() and o not in absent]
    if failed:
        first = re.search(r"^(.*\berror\b.*)$", text, re.M | re.I)
        raise WbError(f"{failed[0]} does not build in {out.name}: {first[1] if first else ''}: see {log}")
    return bisect.warnings(text), sum((out / o).is_file() for o in wanted), len(absent)


# ---- documentation ----------------------------------------------------------

def _docs(touched: list[str]) -> tuple[list[tuple[str, str]], str]:
    _tool("sphinx-build", "python3-sphinx")
    pages = [n for n in touched if n.startswith("Documentation/") and n.endswith(".rst")]
    stock, patched = _trees()
    known = doc_warnings(_html(stock, pages))
    found = doc_warnings(_html(patched, pages))
    return sorted(w for w in found - known if not elsewhere(w[1], patched)), f"{len(pages)} pages"


def doc_warnings(log: str) -> set[tuple[str, str]]:
    """(file, message) of what sphinx and kernel-doc say."""
    return {(m[1], m[2]) for m in _DOC_WARNING.finditer(log)}


def elsewhere(message: str, tree: Path) -> bool:
    """Whether a warning is only of a label or a page that is not among those built, but in the tree."""
    if label := re.search(r"undefined label: '?([\w-]+)", message):
        found = run(["grep", "-rqF", f".. _{label[1]}:", tree / "Documentation"], check=False)
        return found.returncode == 0
    page = re.search(r"(?:unknown document|nonexisting document):? '?([\w./-]+)", message)
    return bool(page) and (tree / "Documentation" / f"{page[1].lstrip('/')}.rst").is_file()


def _html(tree: Path, pages: list[str]) -> str:
    """Make the ``pages`` of ``tree`` alone: the whole of their directories would take half an hour."""
    place = PLACE / f"{tree.name}-docs"
    log = BUILD / "log" / f"build-check-{place.name}.log"
    log.unlink(missing_ok=True)
    fs.remove(place)
    docs = place / "Documentation"
    # Where 6.12 makes pages of its own, none of them ours.
    for name in ("networking/netlink_spec", "userspace-api/media"):
        (docs / name).mkdir(parents=True)
    (docs / "userspace-api/media/Makefile").write_text("html:\n\t@:\n")
    for path in tree.iterdir():
        if path.name != docs.name and not path.name.startswith((".", "out-")):
            (place / path.name).symlink_to(path)
    for path in (tree / docs.name).iterdir():
        if path.is_file() or path.name.startswith(("sphinx", "ABI")):
            (docs / path.name).symlink_to(path)
    (docs / "index.rst").unlink()
    here = [p for p in pages if (tree / p).is_file()]
    lines = "".join(f"   {p.removeprefix('Documentation/').removesuffix('.rst')}\n" for p in here)
    (docs / "index.rst").write_text(f"Touched\n=======\n\n.. toctree::\n\n{lines}")
    for page in here:
        (place / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / page, place / page)
    run(["make", "-C", place, f"O={place / 'out'}", "SPHINXOPTS=-j1", "htmldocs"], env=kernels.make_env(), log=log,
        what=f"making the pages of {tree.name}")
    say(f"  pages: {place}/out/Documentation/output")
    return log.read_text(errors="replace")
