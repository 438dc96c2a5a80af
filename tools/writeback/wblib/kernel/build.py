# SPDX-License-Identifier: GPL-2.0
"""``wb build``: kernels and the installed kselftests, cached by content, so that nothing builds twice."""

import argparse
import contextlib
import functools
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD, SELFTESTS, TOOLS
from wblib.base.proc import cpus, need, run, say, sha256_file, sha256_text
from wbtop.errors import WbError

from . import kconfig, sources

# Raise when the way of building changes what comes out.
RECIPE = 2
# 2026-01-01, the time of every build in seconds, as SOURCE_DATE_EPOCH has it.
EPOCH = "1767225600"
# Fixed, so that the same source gives the same bytes, and stock and patched the same /proc/version.
FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026", "KBUILD_BUILD_USER": "wb", "KBUILD_BUILD_HOST": "wb",
    "KBUILD_BUILD_VERSION": "1", "LOCALVERSION": "", "LC_ALL": "C",
}
# Variables of the caller (often make itself: K=, O=, -j) that would reach kbuild.
CALLER = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARCH", "CROSS_COMPILE", "KBUILD_OUTPUT", "O", "K", "V",
          "W", "C", "CC", "KCFLAGS", "KDIR", "TARGETS", "INSTALL_PATH")
# Object directory plus room to link: measured 0.4 GiB slim; DWARF is what makes the others big.
NEED_GIB = dict.fromkeys(kconfig.FLAVOURS, 1.0) | {"tracing": 5.0, "debug": 3.0, "kcsan": 2.0,
                                                     kconfig.UML_DEBUG: 3.0}
KSELFTEST = "tools/testing/selftests"
GENERATED = (".o", ".ko", ".mod", ".mod.c", ".cmd", ".order", ".symvers")
EXAMPLES = """\
examples:
  wb build                                 the stock kernel
  wb build --kernel patched                base + the series
  wb build --kernel replay                 base + what brings 4.19's ext4 back (ext4-nodelalloc)
  wb build --kernel tree --flavour debug   the working tree of 'make tree', with lockdep and KASAN
  wb build --flavour uml                   the kernel of the fast lane (uml-debug: with lockdep and KASAN)
  wb build --tar /tmp/ksft.tar.xz          also pack the kselftests (for a real machine with this kernel)
  wb build --kernel patched --base 7.3     on the mainline kernel; the same as --kernel patched@7.3
  BASE=~/linux-6.12.50 wb build            another base
The object directory is build/src/*/out-FLAVOUR; ccache is in ~/.cache/calm-writeback unless CCACHE_DIR is set."""


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
    flavour: str = "slim"


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb build``."""
    p = sub.add_parser("build", help="build a kernel and its kselftests", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kernel", default="stock", help="stock, patched, tree or replay (default stock)")
    kconfig.add_flavour(p)
    p.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="compilers at once (default 0: one per core)")
    p.add_argument("--tar", metavar="FILE", help="also pack the installed kselftests into FILE (.tar.gz, .tar.xz)")
    p.set_defaults(func=build_command)


def build_command(args: argparse.Namespace) -> int:
    """Build, and print where the products are."""
    if args.jobs < 0:
        raise WbError(f"-j {args.jobs}: a number of compilers, at least 1", 2)
    built = build(args.kernel, args.flavour, args.jobs)
    installed = modules(built)
    print(f"kernel     {built.image}\nrelease    {built.release}\nconfig     {built.config}\n"
          f"selftests  {installed}\nkey        {built.key}")
    if args.tar:
        print(f"tarball    {gen_tar(built, Path(args.tar))}")
    return 0


def source(variant: str) -> Path:
    """The source tree of a variant, made or brought up to date if need be."""
    return sources.prepare(sources.describe(variant))


@functools.cache
def compiler() -> str:
    """First line of ``gcc --version``: part of what a kernel is made from."""
    return run([need("gcc", "gcc"), "--version"]).stdout.splitlines()[0]


def build(variant: str, flavour: str = "slim", jobs: int = 0) -> Kernel:
    """The kernel of ``variant`` (stock, patched, tree, replay) and ``flavour`` (one of kconfig.FLAVOURS).

    jobs: parallel compilers, 0 = one per core.  Returns at once when the same
    base, content, configuration and compiler were built before; patched and
    tree with an empty series are the stock kernel.  WbError names the log.
    """
    what = sources.describe(variant)
    wanted = kconfig.fragments(flavour, series=what.series, line=what.base.line)
    key = _key(what, wanted)
    products = BUILD / "kernels" / key[:12]
    out = what.tree / f"out-{flavour}"
    if not (products / "meta.json").exists():
        with lock(out):
            if not (products / "meta.json").exists():
                _compile(what, flavour, wanted, key, jobs)
    try:
        release = json.loads((products / "meta.json").read_text())["release"]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise WbError(f"{products / 'meta.json'} is damaged: remove {products} to build that kernel again") from exc
    config = products / "config"
    image = products / Path(_image(flavour)[0]).name
    return Kernel(what.variant, key, release, image, config, out, sha256_file(config), what.patchset, flavour)


def lock(out: Path) -> contextlib.AbstractContextManager[None]:
    """Keep other wb commands from building in the object directory ``out``."""
    return fs.lock(f"{out.parent.name}-{out.name}")


def _image(flavour: str) -> tuple[str, list[str]]:
    """What boots, below the object directory, and the targets that make it."""
    return ("linux", ["linux"]) if kconfig.is_uml(flavour) else ("arch/x86/boot/bzImage", ["bzImage"])


def _key(what: sources.Source, wanted: str) -> str:
    """Hash of everything that goes into a kernel."""
    return sha256_text("\n".join([what.base.ident, what.content, wanted, compiler(), str(RECIPE)]))


def _check_unchanged(what: sources.Source) -> None:
    """WbError when the source is no longer ``what``: its key would name another kernel."""
    if sources.describe(what.variant).content != what.content:
        raise WbError("the tree changed while it was built: run it again")


def make(tree: Path, out: Path, *args: str) -> list[str]:
    """The command line of kbuild for ``out``, a direct subdirectory of ``tree`` with a flavour in its name.

    kbuild then uses relative paths that are the same from every tree, so ccache hits.
    """
    unset = [word for name in CALLER for word in ("-u", name)]
    return ["env", *unset, "make", "-C", str(tree), f"O={out}", f"CC={_cc()}", f"HOSTCC={_cc()}", *_arch(out), *args]


def _is_uml(out: Path) -> bool:
    return kconfig.is_uml(out.name.removeprefix("out-"))


def _arch(out: Path) -> list[str]:
    return ["ARCH=um", f"KBUILD_KCONFIG={out / 'wb-Kconfig'}"] if _is_uml(out) else []


def _cc() -> str:
    return str(TOOLS / "cc") if shutil.which("ccache") else "gcc"


def _cache() -> Path:
    """Where ccache keeps its objects: all checkouts of a user share them; in a checkout where there is no home."""
    home = Path(os.environ.get("HOME") or "/nonexistent")
    shared = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "calm-writeback" / "ccache"
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError:
        return BUILD / "ccache"
    return shared if os.access(shared, os.W_OK) else BUILD / "ccache"


def make_env() -> dict[str, str]:
    """Environment of every kbuild run: fixed stamps, and ccache shared by all trees."""
    cache = os.environ.get("CCACHE_DIR", str(_cache()))
    return {**FIXED, "CCACHE_DIR": cache, "CCACHE_MAXSIZE": "5G", "CCACHE_NOHASHDIR": "1"}


def compile_in(argv: list[str], log: Path, what: str, env: dict[str, str] | None = None) -> None:
    """Run kbuild, with ``env`` besides; a failure is a WbError with the compiler's first error and the log."""
    try:
        run(argv, env={**make_env(), **(env or {})}, log=log, what=what)
    except WbError as exc:
        text = log.read_text(errors="replace")
        if "No space left on device" in text:
            raise WbError(f"{what} failed: no space left below {BUILD}: free some, or set WB_BUILD") from exc
        first = re.search(r"^(?:\.\./)?(\S+:\d+.*\b(?:error|undefined reference)\b.*)$", text, re.M)
        raise WbError(f"{what} failed: {first.group(1)}: see {log}" if first else str(exc)) from exc


def configure(tree: Path, out: Path, wanted: str, log: Path) -> None:
    """allnoconfig + fragments; WbError names the options that did not take effect."""
    out.mkdir(exist_ok=True)
    merged = out / "wb-fragments.config"
    merged.write_text(wanted)
    if _is_uml(out):
        (out / "wb-Kconfig").write_text(kconfig.with_hz((tree / "Kconfig").read_text()))
    run(make(tree, out, "-s", "allnoconfig"), env={**make_env(), "KCONFIG_ALLCONFIG": str(merged)}, log=log,
        what="configuring the kernel")
    kconfig.check(wanted, out / ".config")


def _compile(what: sources.Source, flavour: str, wanted: str, key: str, jobs: int) -> None:
    """Build and keep the products; build/kernels/KEY appears complete or not at all."""
    _check_unchanged(what)  # the caller may have waited for the lock
    tree = sources.prepare(what)
    out = tree / f"out-{flavour}"
    fs.need_space(out, NEED_GIB[flavour], f"building the {flavour} kernel")
    log = BUILD / "log" / f"kernel-{what.variant}-{flavour}.log"
    log.unlink(missing_ok=True)
    say(f"building the {what.variant} kernel ({flavour}); log: {log}")
    start = time.monotonic()
    stamp = out / "wb-key"
    stamp.unlink(missing_ok=True)
    configure(tree, out, wanted, log)
    image, targets = _image(flavour)
    compile_in(make(tree, out, f"-j{jobs or cpus()}", *targets, "modules"), log,
               f"building the {what.variant} kernel")
    _check_unchanged(what)
    release = (out / "include/config/kernel.release").read_text().strip()
    products = BUILD / "kernels" / key[:12]
    new = products.with_suffix(".new")
    fs.remove(new)
    new.mkdir(parents=True)
    for name in (image, "Module.symvers", "System.map"):
        shutil.copy(out / name, new)
    shutil.copy(out / ".config", new / "config")
    (new / "release").write_text(release + "\n")
    meta = {"key": key, "release": release, "flavour": flavour, "built_as": what.variant, "base": what.base.ident,
            "content": what.content, "compiler": compiler(), "recipe": RECIPE,
            "wall_s": round(time.monotonic() - start)}
    (new / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    fs.remove(products)
    new.rename(products)
    stamp.write_text(key)
    say(f"built the {what.variant} kernel ({flavour}) in {meta['wall_s']} s")


def _objects(kernel: Kernel) -> None:
    """Make sure kernel.kdir holds this kernel's objects: a later build may have replaced them."""
    what = sources.describe(kernel.name)
    stamp = kernel.kdir / "wb-key"
    if stamp.is_file() and stamp.read_text() == kernel.key:
        sources.prepare(what)
        return
    # Not before: that of a package has a key of its own.
    wanted = kconfig.fragments(kernel.flavour, series=what.series, line=what.base.line)
    if _key(what, wanted) != kernel.key:
        raise WbError("the tree changed while it was built: run it again")
    _compile(what, kernel.flavour, wanted, kernel.key, 0)


def selftests_hash() -> str:
    """Hash of the kselftest directory's sources, file modes included."""
    files = [p for p in SELFTESTS.rglob("*") if p.is_file() and not p.name.endswith(GENERATED)]
    return sources.content_hash([str(p.relative_to(SELFTESTS)) for p in files], SELFTESTS)


def modules(kernel: Kernel) -> Path:
    """The installed kselftest tree with wbdisk.ko for ``kernel``; cached by both contents.

    It holds run_kselftest.sh, kselftest-list.txt, kselftest/ and writeback/.
    """
    dest = BUILD / "selftests" / sha256_text(f"{kernel.key} {selftests_hash()} {RECIPE}")[:12]
    if dest.is_dir():
        return dest
    # The sources are copied to one place of the tree, for all flavours.
    with lock(kernel.kdir), fs.lock(f"selftests-{kernel.kdir.parent.name}"):
        if dest.is_dir():
            return dest
        _objects(kernel)
        kselftest = kernel.kdir.parent / KSELFTEST
        log = BUILD / "log" / f"selftests-{kernel.name}-{kernel.flavour}.log"
        log.unlink(missing_ok=True)
        # Without what an earlier build left there: its objects belong to another kernel.
        skip = [f"--exclude=*{suffix}" for suffix in GENERATED]
        run([need("rsync", "rsync"), "-a", "--delete", "--delete-excluded", *skip, f"{SELFTESTS}/",
             f"{kselftest / 'writeback'}/"])
        new = dest.with_suffix(".new")
        fs.remove(new)
        new.mkdir(parents=True)
        unset = [word for name in CALLER for word in ("-u", name)]
        arch = ["ARCH=um"] if kconfig.is_uml(kernel.flavour) else []
        compile_in(["env", *unset, "make", "-C", str(kselftest), "TARGETS=writeback", "FORCE_TARGETS=1",
                    f"KDIR={kernel.kdir}", f"INSTALL_PATH={new}", *arch, "install"], log, "building the kselftests")
        if not (new / "writeback/test_modules/wbdisk.ko").exists():
            raise WbError(f"the kselftests were installed without wbdisk.ko: see {log}")
        new.rename(dest)
    return dest


def install_modules(kernel: Kernel) -> Path:
    """/lib/modules for ``kernel``: a directory with one of its release; cached by its key."""
    dest = BUILD / "modules" / kernel.key[:12]
    if dest.is_dir():
        return dest
    with lock(kernel.kdir):
        if dest.is_dir():
            return dest
        _objects(kernel)
        new = dest.with_suffix(".new")
        fs.remove(new)
        new.mkdir(parents=True)
        log = BUILD / "log" / f"modules-{kernel.name}-{kernel.flavour}.log"
        log.unlink(missing_ok=True)
        compile_in(make(kernel.kdir.parent, kernel.kdir, f"INSTALL_MOD_PATH={new}", "INSTALL_MOD_STRIP=1",
                        "modules_install"), log, "installing the modules")
        # The two links lead to the object directory.
        (new / "lib/modules").rename(dest)
        fs.remove(new)
    return dest


def gen_tar(kernel: Kernel, tarball: Path) -> Path:
    """Pack the installed kselftests into ``tarball`` as 'make gen_tar' does; the suffix picks the compression."""
    temp = tarball.with_name(f".{os.getpid()}.{tarball.name}")
    try:
        run(["tar", "-C", modules(kernel), "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-caf", temp,
             "."], what=f"packing {tarball}")
        temp.replace(tarball)
    finally:
        temp.unlink(missing_ok=True)
    return tarball
