# SPDX-License-Identifier: GPL-2.0
"""``wb deb``: Debian packages of the kernel (kbuild's bindeb-pkg) and of wbdisk (DKMS), cached by content."""

import argparse
import gzip
import json
import lzma
import os
import platform
import shlex
import shutil
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD, CONFIGS
from wblib.base.proc import cpus, need, run, say, sha256_file, sha256_text
from wblib.kernel import build as kernels
from wblib.kernel import kconfig, patchqueue, sources, upstream
from wbtop.errors import WbError

from . import dkms

# Raise when the way of packaging changes what comes out.
RECIPE = 1
# A whole configuration has some 300 KiB; a device may have no end.
CONFIG_MAX = 16 << 20
# uname -r is the version and this.
SUFFIX = {"stock": "-stock", "patched": "-calm", "tree": "-calm-tree"}
# mkdebian writes the time of the build; make would squeeze two spaces into one.
REDATE = r'sed -i "s/^ -- \(.*>\) .*/ -- \1\x20\x20Thu, 01 Jan 2026 00:00:00 +0000/" debian/changelog'
SOURCE = "linux-calm"
# Object directory, packages and room to link: slim is measured, the other an estimate without debug info.
NEED_GIB = {"slim": 1.5, "other": 8.0}
EXAMPLES = """\
examples:
  wb deb                          image and headers of base + series, the small configuration of the rig (QEMU only)
  wb deb --config debian-cloud    Debian's configuration for virtual machines
  wb deb --config running         the configuration of the running kernel, for this machine
  wb deb --config ./my.config     your own
  wb deb --kernel stock           the same without the series, as the control
  wb deb --dkms                   also the modelled disk as a DKMS package
Packages are in build/deb/KEY; how to install and to go back: Documentation/install.md."""


@dataclass(frozen=True)
class Packages:
    """What was built. release: uname -r of the image; kernel: for building modules against its objects."""

    release: str
    version: str
    image: Path
    headers: Path
    kernel: kernels.Kernel


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb deb``."""
    p = sub.add_parser("deb", help="Debian packages of the kernel and of wbdisk", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kernel", default="patched", help="stock, patched or tree (default patched)")
    p.add_argument("--config", default="slim", help="slim, debian-cloud, running or a file (default slim)")
    p.add_argument("--dkms", action="store_true", help="also wbdisk-dkms, the modelled disk for 6.12 and 7.x kernels")
    p.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="compilers at once (default 0: one per core)")
    p.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    """Build, and print where the packages are and how to install them."""
    if args.jobs < 0:
        raise WbError(f"-j {args.jobs}: a number of compilers, at least 1", 2)
    made = build(args.kernel, args.config, args.jobs)
    print(f"release    {made.release}\nversion    {made.version}\nimage      {made.image}\nheaders    {made.headers}")
    files = [made.image, made.headers]
    if args.dkms:
        files.append(dkms.build())
        print(f"dkms       {files[-1]}")
    print(f"install    sudo apt install {shlex.join(map(str, files))}")
    return 0


def build(variant: str, config: str = "slim", jobs: int = 0) -> Packages:
    """Image and headers packages of ``variant`` with ``config``; at once when they were built before.

    variant: a key of SUFFIX.  config: slim, debian-cloud, running or a file's name.  jobs: parallel
    compilers, 0 = one per core.  WbError names the log, or the missing configuration.
    """
    variant = sources.chosen(variant, tuple(SUFFIX))
    what = sources.describe(variant)
    kind = "slim" if config == "slim" else "other"
    wanted = wanted_config(config, what.series, what.base.line)
    key = sha256_text("\n".join([what.base.ident, what.content, wanted, variant, kernels.compiler(), str(RECIPE)]))
    products, out = BUILD / "deb" / key[:12], what.tree / f"out-deb-{kind}"
    if kind == "slim" and not out.exists():
        kernels.build(variant, jobs=jobs)
    with kernels.lock(out):
        stamp = out / "wb-key"
        if not ((products / "meta.json").exists() and stamp.is_file() and stamp.read_text() == key):
            if kind == "slim":
                seed(sources.prepare(what))
            _package(what, kind, wanted, key, jobs)
    return load(products, variant, out, what.patchset)


def load(products: Path, variant: str, out: Path, patchset: str) -> Packages:
    """The packages in ``products``, as ``build`` left them."""
    meta = json.loads((products / "meta.json").read_text())
    image, headers = (products / meta[k] for k in ("image", "headers"))
    config = products / "config"
    built = kernels.Kernel(variant, meta["key"], meta["release"], image, config, out, sha256_file(config), patchset)
    return Packages(meta["release"], meta["version"], image, headers, built)


def wanted_config(config: str, series: bool, line: str = "") -> str:
    """The options to build with: fragments for slim, a whole configuration and debian.config for the others."""
    if config == "slim":
        return kconfig.joined(["slim", "package", *(["patched"] if series else [])], line)
    return read_config(config) + "\n" + kconfig.merge([(CONFIGS / "debian.config").read_text()])


def read_config(config: str) -> str:
    """The text of the configuration that ``config`` names; WbError if there is none."""
    if config == "debian-cloud":
        return _debian_cloud()
    if config == "running":
        release = platform.release()
        places = [Path(f"/boot/config-{release}"), Path(f"/lib/modules/{release}/config"), Path("/proc/config.gz")]
    else:
        places = [Path(config)]
    for place in places:
        try:
            with gzip.open(place) if place.suffix == ".gz" else place.open("rb") as file:
                text = file.read(CONFIG_MAX).decode(errors="replace")
        except (OSError, EOFError, zlib.error):
            continue
        if "CONFIG_MODULES=y" not in text:
            raise WbError(f"{place} is not a kernel configuration with modules", 2)
        return text
    raise WbError(f"--config {config}: none of {', '.join(map(str, places))} can be read; give slim, debian-cloud, "
                  "running or a file", 2)


def _debian_cloud() -> str:
    """Debian's configuration of the base's cloud kernel, from the package linux-config-6.12 (2 MB)."""
    version = upstream.pins()["VERSION"]
    store = BUILD / "dl" / f"debian-cloud-{version}.config"
    if store.is_file():
        return store.read_text()
    package = f"linux-config-{upstream.LTS}"
    with upstream.unpacked(package, 2, "add bookworm-security to them, or give --config FILE") as files:
        found = list(files.glob("usr/src/*/config.amd64_none_cloud-amd64.xz"))
        if not found:
            raise WbError(f"{package} has no configuration of the cloud kernel: give --config FILE")
        text = lzma.decompress(found[0].read_bytes()).decode()
    fs.write_atomic(store, text)
    return text


def seed(tree: Path) -> None:
    """Start out-deb-slim as a copy of the measured kernel's objects: kbuild then compiles only what differs."""
    measured, out = tree / "out-slim", tree / "out-deb-slim"
    if out.exists() or not measured.exists():
        return
    new = out.with_suffix(".new")
    fs.remove(new)
    run(["cp", "-a", "--reflink=auto", measured, new], what="copying the objects of the slim kernel")
    (new / "wb-key").unlink(missing_ok=True)
    _rename_tools(new, str(measured), str(out))
    new.rename(out)


def _rename_tools(out: Path, old: str, new: str) -> None:
    """Tools' recorded commands name the object directory; with another name objtool, and then everything, is stale."""
    for path in (out / "tools").rglob(".*.cmd"):
        text = path.read_text()
        if old in text:
            stat = path.stat()
            path.write_text(text.replace(old, new))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _configure(tree: Path, out: Path, kind: str, wanted: str, log: Path) -> None:
    if kind == "slim":
        kernels.configure(tree, out, wanted, log)
        return
    out.mkdir(exist_ok=True)
    (out / ".config").write_text(wanted)
    run(kernels.make(tree, out, "-s", "olddefconfig"), env=kernels.make_env(), log=log, what="configuring the kernel")
    kconfig.check(kconfig.merge([(CONFIGS / "debian.config").read_text()]), out / ".config")


def _package(what: sources.Source, kind: str, wanted: str, key: str, jobs: int) -> None:
    """Run bindeb-pkg and keep its packages; build/deb/KEY appears complete or not at all."""
    need("dh_listpackages", "debhelper")
    tree = sources.prepare(what)
    out = tree / f"out-deb-{kind}"
    fs.need_space(tree, NEED_GIB[kind], f"the {what.variant} kernel's packages")
    log = BUILD / "log" / f"deb-{what.variant}-{kind}.log"
    log.unlink(missing_ok=True)
    say(f"building the packages of the {what.variant} kernel; log: {log}")
    start = time.monotonic()
    stamp = out / "wb-key"
    stamp.unlink(missing_ok=True)
    _configure(tree, out, kind, wanted, log)
    suffix = SUFFIX[sources.split(what.variant)[0]]
    count = len(patchqueue.patches(line=what.base.line)) if what.series else 0
    # Debian's revision part becomes the build number of uname -v.
    version = f"{upstream.kernel_version(tree)}-1+{suffix.lstrip('-').replace('-', '.')}{count}.{key[:8]}"
    for old in tree.glob(f"{SOURCE}_*"):
        old.unlink()
    argv = kernels.make(tree, out, f"-j{jobs or cpus()}", f"LOCALVERSION={suffix}",
                       f"DPKG_FLAGS=--hook-init='{REDATE}'", "bindeb-pkg")
    kernels.compile_in(argv, log, f"packaging the {what.variant} kernel", env=_env(version))
    _keep(tree, out, key, version, round(time.monotonic() - start))
    stamp.write_text(key)


def _env(version: str) -> dict[str, str]:
    """What mkdebian and debhelper read: the same names and stamps each time, and no linux-libc-dev."""
    name, mail = dkms.MAINTAINER
    return {"DEBFULLNAME": name, "DEBEMAIL": mail, "KDEB_PKGVERSION": version, "KDEB_SOURCENAME": SOURCE,
            "KDEB_CHANGELOG_DIST": "bookworm", "SOURCE_DATE_EPOCH": kernels.EPOCH, "DH_OPTIONS": "-Nlinux-libc-dev",
            "DEB_BUILD_OPTIONS": "terse", "KDEB_COMPRESS": "gzip"}


def _keep(tree: Path, out: Path, key: str, version: str, wall_s: int) -> None:
    release = (out / "include/config/kernel.release").read_text().strip()
    products = BUILD / "deb" / key[:12]
    new = products.with_suffix(".new")
    fs.remove(new)
    new.mkdir(parents=True)
    meta = {"key": key, "release": release, "version": version, "wall_s": wall_s}
    for kind in ("image", "headers"):
        name = f"linux-{kind}-{release}_{version}_amd64.deb"
        # kbuild puts them beside the object directory.
        shutil.move(tree / name, new / name)
        meta[kind] = name
    shutil.copy(out / ".config", new / "config")
    for rest in tree.glob(f"{SOURCE}_*"):
        rest.unlink()
    (new / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    fs.remove(products)
    new.rename(products)
    say(f"built {meta['image']} and its headers in {wall_s} s")
