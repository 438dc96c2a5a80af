# SPDX-License-Identifier: GPL-2.0
"""The kernel sources everything starts from: found, checked, extracted once.

There are two lines of kernels, LTS and MAINLINE.  ``BASE=`` names one of them, or a
tree or a tarball of one.  The source of a line is the installed Debian source package,
or the same package downloaded (no root needed).
"""

import contextlib
import functools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs
from wblib.base.lines import LINES, LTS, MAINLINE
from wblib.base.paths import BUILD, TOOLS
from wblib.base.proc import run, say, sha256_file, sha256_text
from wbtop.errors import WbError

# What the pins of a line are called in tools/writeback/base.
_PINS = {LTS: "BASE", MAINLINE: "MAINLINE"}
SRC = BUILD / "src"
STAMP = ".wb-base.json"  # in an extracted tree: written last, so it exists <=> the tree is complete
EXTRACT_GIB = 3  # measured: 1.6 GiB in 87,000 files, plus room for one object directory


@dataclass(frozen=True)
class Base:
    """A kernel source: ``ident`` changes when its content does; ``line`` is one of LINES.

    substitute: what Debian has in the place of mainline's pinned one, which nobody asked for by its path.
    """

    path: Path
    ident: str
    pinned: bool
    line: str = LTS
    substitute: bool = False

    @property
    def is_tree(self) -> bool:
        """True for a directory, False for a tarball."""
        return self.path.is_dir()


class NoBase(WbError):
    """No source of a kernel line can be had here, or none that the series applies to; the message says what to do."""


@functools.cache
def pins(line: str = LTS) -> dict[str, str]:
    """PACKAGE, VERSION, SHA256 (and SUITE) of ``line`` from tools/writeback/base."""
    text = (TOOLS / "base").read_text()
    found = dict(re.findall(rf"^{_PINS[line]}_(\w+)=(\S+)$", text, re.M))
    if missing := {"PACKAGE", "VERSION", "SHA256"} - found.keys():
        raise WbError(f"{TOOLS / 'base'}: no {' '.join(f'{_PINS[line]}_{name}' for name in sorted(missing))}")
    return found


def in_line(name: str, line: str) -> str:
    """``name`` of a directory or a kernel for ``line``: the default line's has no suffix."""
    return name if line == LTS else f"{name}@{line}"


def stock_dir(line: str = LTS) -> Path:
    """Where the pristine tree of ``line`` is, when it has been extracted."""
    return SRC / in_line("stock", line)


def default_line() -> str:
    """The line that ``BASE=`` says: by its name, or by the version of its tree or tarball; else LTS."""
    spec = os.environ.get("BASE", "")
    if spec in ("", *LINES):
        return spec or LTS
    try:
        return locate(spec).line
    except WbError:
        return LTS  # whoever needs the source finds out why


def kernel_version(tree: Path) -> str:
    """``VERSION.PATCHLEVEL.SUBLEVEL`` of a kernel tree; WbError if it is not one."""
    try:
        head = (tree / "Makefile").read_text(errors="replace")[:2000]
    except OSError:
        head = ""
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) *= *(\d+)", head, re.M))
    if not {"VERSION", "PATCHLEVEL"} <= found.keys():
        raise WbError(f"{tree} is not a Linux source tree (no VERSION in its Makefile): set BASE=/path/to/linux-6.12.y")
    return f"{found['VERSION']}.{found['PATCHLEVEL']}.{found.get('SUBLEVEL', '0')}"


def line_of(version: str) -> str | None:
    """The line that a kernel of ``version`` belongs to: 6.12.y or any 7.x; None for another."""
    if version.startswith(f"{LTS}."):
        return LTS
    return MAINLINE if version.split(".")[0] == MAINLINE.split(".")[0] else None


def check_version(tree: Path, source: Path) -> tuple[str, str]:
    """The version of ``tree`` and its line, or a WbError that ``source`` is of none."""
    version = kernel_version(tree)
    line = line_of(version)
    if line is None:
        raise WbError(f"{source} is Linux {version}, the series is for {LTS}.y and {MAINLINE}.y: "
                      "set BASE= to such a source")
    return version, line


def locate(spec: str | None = None) -> Base:
    """The source to use, downloaded if need be; one notice when it is not the tested one.

    spec: what BASE= says, one of LINES, a tree or a tarball; None reads the environment.
    """
    return _locate(os.environ.get("BASE", "") if spec is None else spec)


def of_line(line: str) -> Base:
    """The source of ``line``: what BASE= says if it is of that line, else Debian's."""
    spec = os.environ.get("BASE", "")
    if spec not in ("", *LINES):
        mine = locate(spec)
        if mine.line == line:
            return mine
    return locate(line)


@functools.cache
def _locate(spec: str) -> Base:
    line = spec or LTS
    if line not in LINES:
        path = Path(spec).expanduser().absolute()
        if path.is_dir():
            return Base(path, _tree_ident(path), False, check_version(path, path)[1])
        if not path.is_file():
            raise WbError(f"BASE={spec}: no such file or directory; it is {' or '.join(LINES)}, "
                          "or the path of a tree or a tarball", 2)
        line = _tarball_line(path)
    else:
        package = pins(line)["PACKAGE"]
        path = Path("/usr/src") / f"{package}.tar.xz"
        if not path.is_file():
            path = _download(line)
    digest = _digest(path)
    pinned = digest == pins(line)["SHA256"]
    if not pinned:
        say(f"notice: {path} is not the tested {pins(line)['PACKAGE']} {pins(line)['VERSION']}; "
            "results may differ from the reference")
    return Base(path, digest, pinned, line, substitute=not pinned and line == MAINLINE and spec == line)


def _tarball_line(path: Path) -> str:
    """The line of the kernel in the tarball ``path``, by its top Makefile."""
    with tempfile.TemporaryDirectory() as temp:
        run(["tar", "-xf", path, "--strip-components=1", "-C", temp, "--occurrence=1", "--wildcards",
             "--no-wildcards-match-slash", "[!/]*/Makefile"], check=False)
        if not (Path(temp) / "Makefile").is_file():
            raise WbError(f"{path} is damaged, or not the source of a kernel: set BASE= to another")
        return check_version(Path(temp), path)[1]


def _digest(path: Path) -> str:
    """sha256 of the tarball, remembered for as long as its size and mtime stay."""
    stat = path.stat()
    key = f"{path} {stat.st_size} {stat.st_mtime_ns}"
    memo = BUILD / "base-sha256"
    with contextlib.suppress(OSError, ValueError):
        known, digest = memo.read_text().rsplit(" ", 1)
        if known == key:
            return digest
    digest = sha256_file(path)
    fs.write_atomic(memo, f"{key} {digest}")
    return digest


def _tree_ident(tree: Path) -> str:
    """Identity of a source directory, from names, sizes and mtimes: reading 1.6 GB each time would be slow."""
    check_version(tree, tree)
    for sign in (".config", "include/config/auto.conf", "arch/x86/include/generated"):
        if (tree / sign).exists():
            raise WbError(f"{tree} has been built in ({sign}): run 'make mrproper' there, or use a fresh copy")
    lines = []
    for folder, dirs, files in os.walk(tree):
        dirs[:] = sorted(d for d in dirs if d != ".git")
        for name in sorted(files):
            stat = os.lstat(os.path.join(folder, name))
            lines.append(f"{os.path.relpath(folder, tree)}/{name} {stat.st_size} {stat.st_mtime_ns}")
    return sha256_text("\n".join(lines))


def _download(line: str) -> Path:
    """The tarball of a line's package: the pinned version, else the archive's newest of the line."""
    store = BUILD / "dl"
    name = pins(line)["PACKAGE"]
    if (store / f"{name}.tar.xz").is_file():
        return store / f"{name}.tar.xz"
    if line == MAINLINE and (there := newest(path.name for path in store.glob("linux-source-7*.xz"))):
        return store / there[0]
    fs.need_space(store, 1, "the kernel source package")
    with unpacked(name, 150, f"run 'make deps' (needs Debian 12), or set BASE=/path/to/linux-{line}.y tree "
                  "or tarball", line=line) as files:
        found = next(iter((files / "usr/src").glob("linux-source-*.tar.xz")))
        found.replace(store / found.name)
    return store / found.name


@contextlib.contextmanager
def unpacked(package: str, size_mb: int, advice: str, *, line: str = LTS) -> Iterator[Path]:
    """The files of a Debian package of a line's source, downloaded below build/dl; gone afterwards.

    The pinned version, else the archive's candidate, else, of mainline, its newest kernel source.
    NoBase ending in ``advice`` when apt has none.
    """
    work = BUILD / "dl" / f"tmp.{os.getpid()}"
    fs.remove(work)
    work.mkdir(parents=True)
    try:
        apt: list[str] = []
        names = [f"{package}={pins(line)['VERSION']}", package]
        if suite := pins(line).get("SUITE"):
            apt = _own_apt(work / "apt", suite)
            names += _other_sources(apt)
        for name in names:
            say(f"downloading {name} (about {size_mb} MB)")
            if run(["apt-get", *apt, "download", "-q", name], cwd=work, check=False).returncode == 0:
                break
        debs = list(work.glob("*.deb"))
        if not debs:
            raise NoBase(f"no {package} in the apt sources: {advice}")
        run(["dpkg-deb", "-x", debs[0], work / "x"], what=f"unpacking {debs[0].name}")
        yield work / "x"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _own_apt(where: Path, suite: str) -> list[str]:
    """Options of apt-get for ``suite`` alone, from the mirror that this machine uses, with lists below ``where``.

    The machine's own sources and lists stay as they are.
    """
    for name in ("lists/partial", "cache/archives/partial"):
        (where / name).mkdir(parents=True)
    said = run(["apt-get", "indextargets", "--format", "$(SITE) $(LABEL)", "Created-By: Packages"], check=False).stdout
    sites = [line.split()[0] for line in said.splitlines() if re.fullmatch(r"\S+ Debian", line)]
    if not sites:
        raise NoBase(f"no package lists of Debian here: run 'make deps', or set BASE=/path/to/linux-{MAINLINE}.y")
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (where / "sources.list").write_text(f"deb [signed-by={keyring}] {sites[0]} {suite} main\n")
    options = [word for option in (f"Dir::Etc::sourcelist={where / 'sources.list'}", "Dir::Etc::sourceparts=/dev/null",
                                   f"Dir::State::lists={where / 'lists'}", f"Dir::Cache={where / 'cache'}")
               for word in ("-o", option)]
    run(["apt-get", *options, "update", "-qq"], check=False, what=f"reading the package lists of {suite}")
    return options


def _other_sources(apt: list[str]) -> list[str]:
    """The kernel sources of mainline's major version that apt offers, newest first."""
    major = MAINLINE.split(".")[0]
    said = run(["apt-cache", *apt, "search", "--names-only", rf"^linux-source-{major}\."], check=False).stdout
    return newest(line.split()[0] for line in said.splitlines() if line)


def newest(names: Iterable[str]) -> list[str]:
    """Names with a version in them, the greatest first: numbers, not letters, so 7.10 is greater than 7.9."""
    return sorted(set(names), reverse=True, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])


def stamp(tree: Path) -> dict[str, str]:
    """What an extracted tree was made from; empty when it is absent or incomplete."""
    try:
        data = json.loads((tree / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def stock(base: Base | None = None) -> Path:
    """The pristine tree of ``base`` in build/src, extracted when it is not there yet."""
    base = base or locate()
    tree = stock_dir(base.line)
    if stamp(tree).get("ident") == base.ident:
        return tree
    with fs.lock(f"src-{tree.name}"):
        if stamp(tree).get("ident") == base.ident:
            return tree
        fs.need_space(SRC, EXTRACT_GIB, "the kernel source")
        new = SRC / f"{tree.name}.new"
        fs.remove(new)
        new.mkdir(parents=True)
        what = f"extracting {base.path.name}"
        try:
            if base.is_tree:
                run(["cp", "-a", "--reflink=auto", f"{base.path}/.", new], what=what)
                fs.remove(new / ".git")
            else:
                say(what)
                run(["tar", "-xf", base.path, "--strip-components=1", "-C", new], what=what)
            version, _ = check_version(new, base.path)
        except BaseException:
            fs.remove(new)
            raise
        fs.write_atomic(new / STAMP, json.dumps({"ident": base.ident, "version": version, "source": base.path.name}))
        fs.remove(tree)
        new.rename(tree)
    return tree


def fetch(base: Base, names: Sequence[str], into: Path) -> None:
    """Copy those of ``names`` that exist in the base to ``into`` (a new file of a patch does not).

    Needs no extracted tree: from a tarball only these members are read.
    """
    into.mkdir(parents=True, exist_ok=True)
    tree = base.path if base.is_tree else stock_dir(base.line)
    if base.is_tree or stamp(tree).get("ident") == base.ident:
        for name in names:
            if (tree / name).is_file():
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, into / name)
        return
    if names:
        # One leading component of unknown name; missing members are not an error.
        patterns = ["[!/]*/" + name for name in names]
        run(["tar", "-xf", base.path, "--strip-components=1", "-C", into, "--wildcards", "--no-wildcards-match-slash",
             *patterns], check=False)
