# SPDX-License-Identifier: GPL-2.0
"""The kernel source everything starts from: found, checked, extracted once.

Order: ``BASE=`` (a tree or a tarball), the installed Debian source package, the
same package downloaded with ``apt-get download`` (no root needed).
"""

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import WbError
from .paths import BUILD, TOOLS
from .proc import run, say, sha256_file, sha256_text

SERIES_OF = "6.12"  # the only kernel series the patches are for
SRC = BUILD / "src"
STOCK = SRC / "stock"
STAMP = ".wb-base.json"  # in an extracted tree: written last, so it exists <=> the tree is complete
EXTRACT_GIB = 3  # measured: 1.6 GiB in 87,000 files, plus room for one object directory


@dataclass(frozen=True)
class Base:
    """A kernel source: ``ident`` changes when its content does."""

    path: Path
    ident: str
    pinned: bool

    @property
    def is_tree(self) -> bool:
        """True for a directory, False for a tarball."""
        return self.path.is_dir()


@functools.cache
def pins() -> dict[str, str]:
    """BASE_PACKAGE, BASE_VERSION and BASE_SHA256 from tools/writeback/base."""
    text = (TOOLS / "base").read_text()
    found = dict(re.findall(r"^(BASE_\w+)=(\S+)$", text, re.M))
    if missing := {"BASE_PACKAGE", "BASE_VERSION", "BASE_SHA256"} - found.keys():
        raise WbError(f"{TOOLS / 'base'}: no {' '.join(sorted(missing))}")
    return found


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold build/.lock-NAME: two wb commands never write the same tree."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".lock-{name}").open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another wb that is using {name}")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def need_space(where: Path, gib: float, what: str) -> None:
    """WbError unless ``gib`` GiB are free where ``where`` will be."""
    probe = where
    while not probe.exists():
        probe = probe.parent
    free = shutil.disk_usage(probe).free / 2**30
    if free < gib:
        raise WbError(f"{what} needs {gib:g} GiB in {probe}, {free:.1f} GiB are free: free some, or set WB_BUILD")


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


def check_version(tree: Path, source: Path) -> str:
    """The version of ``tree``, or a WbError that ``source`` is not Linux 6.12.y."""
    version = kernel_version(tree)
    if not version.startswith(SERIES_OF + "."):
        raise WbError(f"{source} is Linux {version}, the series is for {SERIES_OF}.y: set BASE= to such a source")
    return version


def locate(spec: str | None = None) -> Base:
    """The source to use, downloaded if need be; one notice when it is not the tested one.

    spec: what BASE= says; None reads the environment.
    """
    return _locate(os.environ.get("BASE", "") if spec is None else spec)


@functools.cache
def _locate(spec: str) -> Base:
    if spec:
        path = Path(spec).expanduser().absolute()
        if path.is_dir():
            return Base(path, _tree_ident(path), False)
        if not path.is_file():
            raise WbError(f"BASE={spec}: no such file or directory", 2)
    else:
        package = pins()["BASE_PACKAGE"]
        path = Path("/usr/src") / f"{package}.tar.xz"
        if not path.is_file():
            path = _download(package)
    digest = _digest(path)
    pinned = digest == pins()["BASE_SHA256"]
    if not pinned:
        say(f"notice: {path} is not the tested {pins()['BASE_PACKAGE']} {pins()['BASE_VERSION']}; "
            "results may differ from the reference")
    return Base(path, digest, pinned)


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
    write_atomic(memo, f"{key} {digest}")
    return digest


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    tmp.write_text(text)
    tmp.replace(path)


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


def _download(package: str) -> Path:
    """The package's tarball by ``apt-get download``: the pinned version, else the archive's candidate."""
    store = BUILD / "dl"
    tarball = store / f"{package}.tar.xz"
    if tarball.is_file():
        return tarball
    need_space(store, 1, "the kernel source package")
    with unpacked(package, 150, f"run 'make deps' (needs Debian 12), or set BASE=/path/to/linux-{SERIES_OF}.y tree "
                  "or tarball") as files:
        (files / "usr/src" / tarball.name).replace(tarball)
    return tarball


@contextlib.contextmanager
def unpacked(package: str, size_mb: int, advice: str) -> Iterator[Path]:
    """The files of a Debian package of the base's source, downloaded below build/dl; gone afterwards.

    The pinned version, else the archive's candidate.  WbError ending in ``advice`` when apt has none.
    """
    work = BUILD / "dl" / f"tmp.{os.getpid()}"
    remove(work)
    work.mkdir(parents=True)
    try:
        for name in (f"{package}={pins()['BASE_VERSION']}", package):
            say(f"downloading {name} (about {size_mb} MB)")
            if run(["apt-get", "download", "-q", name], cwd=work, check=False).returncode == 0:
                break
        debs = list(work.glob("*.deb"))
        if not debs:
            raise WbError(f"no {package} in the apt sources: {advice}")
        run(["dpkg-deb", "-x", debs[0], work / "x"], what=f"unpacking {debs[0].name}")
        yield work / "x"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def stamp(tree: Path) -> dict[str, str]:
    """What an extracted tree was made from; empty when it is absent or incomplete."""
    try:
        data = json.loads((tree / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def stock(base: Base | None = None) -> Path:
    """build/src/stock, the pristine tree of ``base``, extracted when it is not there yet."""
    base = base or locate()
    if stamp(STOCK).get("ident") == base.ident:
        return STOCK
    with lock("src-stock"):
        if stamp(STOCK).get("ident") == base.ident:
            return STOCK
        need_space(SRC, EXTRACT_GIB, "the kernel source")
        new = SRC / "stock.new"
        remove(new)
        new.mkdir(parents=True)
        what = f"extracting {base.path.name}"
        try:
            if base.is_tree:
                run(["cp", "-a", "--reflink=auto", f"{base.path}/.", new], what=what)
                remove(new / ".git")
            else:
                say(what)
                run(["tar", "-xf", base.path, "--strip-components=1", "-C", new], what=what)
            version = check_version(new, base.path)
        except BaseException:
            remove(new)
            raise
        write_atomic(new / STAMP, json.dumps({"ident": base.ident, "version": version, "source": base.path.name}))
        remove(STOCK)
        new.rename(STOCK)
    return STOCK


def fetch(base: Base, names: Sequence[str], into: Path) -> None:
    """Copy those of ``names`` that exist in the base to ``into`` (a new file of a patch does not).

    Needs no extracted tree: from a tarball only these members are read.
    """
    into.mkdir(parents=True, exist_ok=True)
    tree = base.path if base.is_tree else STOCK
    if base.is_tree or stamp(STOCK).get("ident") == base.ident:
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


def remove(path: Path) -> None:
    """Delete a file or directory tree if it is there.

    A tree is renamed first: an interrupted delete must not leave a half tree under a name that means complete.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        doomed = path.with_name(f".del-{path.name}.{os.getpid()}")
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
