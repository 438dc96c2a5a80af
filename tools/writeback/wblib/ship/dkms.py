# SPDX-License-Identifier: GPL-2.0
"""The modelled disk as a DKMS package: wbdisk.ko on any 6.12 or 7.x kernel whose headers are installed."""

import os
import re
import shutil
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD, ROOT, SELFTESTS
from wblib.base.proc import run, sha256_text
from wblib.kernel.build import EPOCH, GENERATED

NAME = "wbdisk"
PACKAGE = f"{NAME}-dkms"
SOURCES = SELFTESTS / "test_modules"
# Name and address in the packages.
MAINTAINER = ("calm-writeback", "maintainers@users.noreply.a-seed-50f54269.example")
# KUnit tests stay with the kselftests: they need CONFIG_KUNIT.
CONF = """\
PACKAGE_NAME="{name}"
PACKAGE_VERSION="{version}"
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build wbdisk.ko"
CLEAN="make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build clean"
BUILT_MODULE_NAME[0]="wbdisk"
DEST_MODULE_LOCATION[0]="/updates/dkms"
BUILD_EXCLUSIVE_KERNEL="^(6\\.12|7\\.[0-9]+)\\."
AUTOINSTALL="yes"
"""
# libelf: objtool in the headers that bindeb-pkg makes, which declare no dependency.
CONTROL = """\
Package: {package}
Version: {version}
Architecture: all
Maintainer: {maintainer}
Section: kernel
Priority: optional
Depends: dkms (>= 2.8), libelf1t64 | libelf1
Installed-Size: {size}
Description: block device whose timing is a model (DKMS)
 wbdisk behaves like a SATA, NVMe, hard or USB disk of known speed, keeps no
 pages of zeros and injects faults; configured through configfs.  The writeback
 kselftests measure on it.
"""
# common.postinst comes with dkms and builds for every kernel with headers.
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
	/usr/lib/dkms/common.postinst {name} {version} /usr/share/{package} "" "$2"
fi
"""
PRERM = """\
#!/bin/sh
set -e
case $1 in
remove | upgrade | deconfigure)
	if [ -e /var/lib/dkms/{name}/{version} ]; then
		dkms remove -m {name} -v {version} --all
	fi
	;;
esac
"""


def files() -> list[Path]:
    """The module's sources: what wbdisk.ko is made of, without the KUnit tests."""
    every = sorted(p for p in SOURCES.rglob("*") if p.is_file() and not p.name.endswith(GENERATED))
    return [p for p in every if "kunit" not in p.name]


def makefile(text: str) -> str:
    """The part of the selftest's Makefile that kbuild reads for wbdisk.ko."""
    kept = [block for block in re.split(r"\n\n", text)
            if block.startswith(("# SPDX", "obj-m", "ccflags-y", "# define_trace")) or "wbdisk-y" in block]
    return "\n\n".join(kept).rstrip() + "\n"


def version() -> str:
    """Version of the package: changes with the module's sources."""
    text = "".join(f"{p.relative_to(SOURCES)} {p.read_text()}" for p in files())
    return f"1+{sha256_text(text + CONF + POSTINST + PRERM)[:8]}"


def build() -> Path:
    """The package build/deb/wbdisk-dkms_VERSION_all.deb, made when it is not there yet."""
    number = version()
    done = BUILD / "deb" / f"{PACKAGE}_{number}_all.deb"
    if done.exists():
        return done
    stage = BUILD / "deb" / f".{PACKAGE}.{os.getpid()}"
    fs.remove(stage)
    try:
        _stage(stage, number)
        temp = stage.with_suffix(".deb")
        run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", stage, temp], env={"SOURCE_DATE_EPOCH": EPOCH},
            what=f"packing {PACKAGE}")
        temp.replace(done)
    finally:
        fs.remove(stage)
    return done


def _stage(stage: Path, number: str) -> None:
    words = {"name": NAME, "package": PACKAGE, "version": number}
    source, doc = stage / f"usr/src/{NAME}-{number}", stage / f"usr/share/doc/{PACKAGE}"
    for place in (source, doc, stage / "DEBIAN"):
        place.mkdir(parents=True)
    for path in files():
        there = source / path.relative_to(SOURCES)
        there.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, there)
    (source / "Makefile").write_text(makefile((SOURCES / "Makefile").read_text()))
    (source / "dkms.conf").write_text(CONF.replace("{name}", NAME).replace("{version}", number))
    shutil.copyfile(ROOT / "COPYING", doc / "copyright")
    size = sum(p.stat().st_size for p in stage.rglob("*") if p.is_file()) // 1024 + 1
    (stage / "DEBIAN/control").write_text(CONTROL.format(**words, size=size, maintainer="{} <{}>".format(*MAINTAINER)))
    for name, text in (("postinst", POSTINST), ("prerm", PRERM)):
        (stage / "DEBIAN" / name).write_text(text.format(**words))
    for path in [stage, *stage.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.name in ("postinst", "prerm") else 0o644)
        os.utime(path, (int(EPOCH), int(EPOCH)))
