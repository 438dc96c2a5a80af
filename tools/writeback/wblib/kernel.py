# SPDX-License-Identifier: GPL-2.0
"""``wb build``: kernels and the installed kselftests, cached by content, so that nothing builds twice."""

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import base as bases
from . import series
from .errors import WbError
from .paths import BUILD, CONFIGS, SELFTESTS
from .proc import need, run, say, sha256_file, sha256_text

VARIANTS = ("stock", "patched", "tree")
FLAVOURS = ("slim", "tracing", "debug")
# Raise when the way of building changes what comes out.
RECIPE = 1
# Fixed, so that the same source gives the same bytes on any machine.
STAMP = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026", "KBUILD_BUILD_USER": "wb", "KBUILD_BUILD_HOST": "wb",
    "KBUILD_BUILD_VERSION": "1", "LC_ALL": "C",
}
BUILD_GIB = 3
SELFTEST_MAKE = "tools/testing/selftests"
EXAMPLES = """\
examples:
  wb build                                 the stock kernel
  wb build --kernel patched                base + the series
  wb build --kernel tree --flavour debug   the working tree of 'wb series tree' with lockdep and KASAN
  BASE=~/linux-6.12.50 wb build            another base"""


@dataclass(frozen=True)
class Kernel:
    """A built kernel. kdir: object directory for modules; key: hash of everything that went in."""

    name: str
    key: str
    release: str
    image: Path
    config: Path
    kdir: Path
    config_hash: str
    patchset_hash: str
    flavour: str


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb build``."""
    p = sub.add_parser("build", help="build a kernel and its kselftests", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kernel", default="stock", help="stock, patched or tree (default stock)")
    p.add_argument("--flavour", default="slim", help="slim, tracing (BTF) or debug (lockdep, KASAN; default slim)")
    p.add_argument("-j", "--jobs", type=int, default=0, help="parallel compilers (default: one per core)")
    p.add_argument("--tar", metavar="FILE", help="also pack the installed kselftests into FILE (.tar.xz)")
    p.set_defaults(func=build_command)


def build_command(args: argparse.Namespace) -> int:
    """Build, and print where the products are."""
    built = build(args.kernel, args.flavour, args.jobs)
    installed = modules(built)
    print(f"kernel     {built.image}\nrelease    {built.release}\nconfig     {built.config}\n"
          f"selftests  {installed}\nkey        {built.key}")
    if args.tar:
        out = Path(args.tar)
        run(["tar", "-C", str(installed), "--sort=name", "--owner=0", "--group=0", "-cJf", str(out), "."],
            what="packing the kselftests", log=BUILD / "log" / "tar.log")
        print(f"tarball    {out}")
    return 0


def source(variant: str) -> Path:
    """The source tree of a variant, made or brought up to date if need be."""
    stock = bases.extract(bases.find(), BUILD / "src" / "stock")
    if variant == "stock" or (variant == "patched" and not series.patches()):
        return stock
    if variant == "tree":
        return series.working_tree()
    return series.patched_source(stock, BUILD / "src" / "patched")


def selftest_helpers() -> Path:
    """The stock tree's kselftest shell helpers (ktap_helpers.sh and so on)."""
    return source("stock") / SELFTEST_MAKE / "kselftest"


def _check(variant: str, flavour: str) -> None:
    if variant not in VARIANTS:
        raise WbError(f"unknown kernel '{variant}': choose from {', '.join(VARIANTS)}", 2)
    if flavour not in FLAVOURS:
        raise WbError(f"unknown flavour '{flavour}': choose from {', '.join(FLAVOURS)}", 2)


def fragments(flavour: str) -> str:
    """The configuration fragments of a flavour, concatenated: slim, and what the flavour adds."""
    names = ["slim"] if flavour == "slim" else ["slim", flavour]
    return "".join((CONFIGS / f"{n}.config").read_text() for n in names)


def build(variant: str, flavour: str = "slim", jobs: int = 0) -> Kernel:
    """The kernel of ``variant`` (stock, patched, tree) and ``flavour`` (slim, tracing, debug).

    Returns at once when the same base, patches, configuration and compiler
    were built before.  Raises WbError (code 2 for unknown names) with the log.
    """
    _check(variant, flavour)
    patchset = series.patchset_hash() if variant == "patched" else series.EMPTY_HASH
    if variant == "tree":
        patchset = series.tree_hash()
    compiler = run([need("gcc", "gcc"), "--version"]).stdout.splitlines()[0]
    wanted = fragments(flavour)
    key = sha256_text("\n".join([bases.find().ident, patchset, wanted, compiler, str(RECIPE)]))
    products = BUILD / "kernels" / key[:12]
    with _lock("kernel"):
        if not (products / "meta.json").exists():
            _build(variant, flavour, wanted, key, products, jobs)
    meta = json.loads((products / "meta.json").read_text())
    return Kernel(variant, key, meta["release"], products / "bzImage", products / "config",
                  source(variant) / f"out-{flavour}", sha256_file(products / "config"), patchset, flavour)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Two wb at a time must not build in one directory; the second waits."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".{name}.lock").open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  waiting for another wb that is building")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _make(tree: Path, out: Path, *args: str) -> list[str]:
    """kbuild in ``out`` below ``tree``: relative paths, the same from every tree, so ccache hits."""
    return ["make", "-C", str(tree), f"O={out.name}", "CC=ccache gcc" if shutil.which("ccache") else "CC=gcc", *args]


def _env() -> dict[str, str]:
    cache = os.environ.get("CCACHE_DIR", str(BUILD / "ccache"))
    return {**STAMP, "CCACHE_DIR": cache, "CCACHE_MAXSIZE": "5G", "CCACHE_NOHASHDIR": "1",
            "CCACHE_COMPILERCHECK": "content"}


def _configure(tree: Path, out: Path, wanted: str, log: Path) -> None:
    """allnoconfig + fragments; WbError names the options that did not take effect."""
    out.mkdir(exist_ok=True)
    merged = out / "fragments.config"
    merged.write_text(wanted)
    old = (out / ".config").read_text() if (out / ".config").exists() else None
    run(_make(tree, out, "-s", "allnoconfig"), env={**_env(), "KCONFIG_ALLCONFIG": str(merged)}, log=log,
        what="configuring")
    have = (out / ".config").read_text()
    lost = [line for line in effective(wanted) if not _took(line, have)]
    if lost:
        raise WbError(f"kernel options not taken: {', '.join(lost[:5])}: a dependency is missing in tools/writeback/config")
    if have == old:
        # Same content, older time: make would otherwise rebuild what depends on it.
        os.utime(out / ".config", (0, 0))


def effective(wanted: str) -> list[str]:
    """The option lines of concatenated fragments; a later line replaces an earlier one."""
    last: dict[str, str] = {}
    for line in wanted.splitlines():
        match = re.match(r"(?:# )?(CONFIG_\w+)(?:=| is not set)", line)
        if match:
            last[match.group(1)] = line
    return list(last.values())


def _took(line: str, have: str) -> bool:
    if line.endswith(" is not set"):
        return not re.search(rf"^{line.split()[1]}=", have, re.M)
    return re.search(rf"^{re.escape(line)}$", have, re.M) is not None


def _build(variant: str, flavour: str, wanted: str, key: str, products: Path, jobs: int) -> None:
    tree = source(variant)
    out = tree / f"out-{flavour}"
    if bases.free_gib(tree) < BUILD_GIB:
        raise WbError(f"building needs {BUILD_GIB} GiB below {BUILD}: free some or set WB_BUILD to another disk")
    log = BUILD / "log" / f"{variant}-{flavour}.log"
    log.unlink(missing_ok=True)
    say(f"  building the {variant} kernel ({flavour}); log: {log}")
    stamp = out / "wb-key"
    stamp.unlink(missing_ok=True)
    _configure(tree, out, wanted, log)
    run(_make(tree, out, f"-j{jobs or os.cpu_count()}", "bzImage", "modules"), env=_env(), log=log,
        what=f"building the {variant} kernel")
    release = (out / "include/config/kernel.release").read_text().strip()
    temp = products.with_suffix(".tmp")
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir(parents=True)
    shutil.copy(out / "arch/x86/boot/bzImage", temp / "bzImage")
    shutil.copy(out / ".config", temp / "config")
    shutil.copy(out / "Module.symvers", temp / "Module.symvers")
    (temp / "meta.json").write_text(json.dumps({"release": release, "key": key, "flavour": flavour}, indent=1) + "\n")
    shutil.rmtree(products, ignore_errors=True)
    temp.rename(products)
    stamp.write_text(key)


def _tree_hash(top: Path) -> str:
    """Hash of the sources below ``top``, build products and hidden files left out."""
    done = subprocess.run(["git", "-C", str(top), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                          check=True)
    files = [top / name for name in sorted(done.stdout.splitlines()) if (top / name).is_file()]
    return sha256_text("".join(f"{p.relative_to(top)} {os.access(p, os.X_OK)} {sha256_file(p)}\n" for p in files))


def modules(kernel: Kernel) -> Path:
    """The installed kselftest tree with wbdisk.ko for ``kernel``; cached by both contents."""
    key = sha256_text(f"{kernel.key} {_tree_hash(SELFTESTS)} {RECIPE}")[:12]
    dest = BUILD / "selftests" / key
    with _lock("kernel"):
        if dest.is_dir():
            return dest
        tree = source(kernel.name)
        out = tree / f"out-{kernel.flavour}"
        stamp = out / "wb-key"
        if not stamp.exists() or stamp.read_text() != kernel.key:
            # The object directory holds another kernel by now: bring this one back, through ccache.
            products = kernel.image.parent
            _build(kernel.name, kernel.flavour, fragments(kernel.flavour), kernel.key, products, 0)
        log = BUILD / "log" / f"selftests-{kernel.name}-{kernel.flavour}.log"
        log.unlink(missing_ok=True)
        mine = tree / SELFTEST_MAKE / "writeback"
        run(["rsync", "-a", "--delete", "--exclude=*.o", "--exclude=*.ko", "--exclude=*.cmd", "--exclude=*.mod*",
             "--exclude=Module.symvers", "--exclude=modules.order", f"{SELFTESTS}/", f"{mine}/"])
        temp = dest.with_suffix(".tmp")
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir(parents=True)
        run(["make", "-C", str(tree / SELFTEST_MAKE), "TARGETS=writeback", f"KDIR={out}", f"INSTALL_PATH={temp}",
             "install"], env=_env(), log=log, what="building the kselftests")
        if not (temp / "writeback" / "test_modules" / "wbdisk.ko").exists():
            raise WbError(f"the kselftests were installed without wbdisk.ko: see {log}")
        temp.rename(dest)
    return dest


