# SPDX-License-Identifier: GPL-2.0
"""The packages on a real disk: a Debian boots them under its own GRUB, tests them, and boots without them again."""

import time
from collections.abc import Iterator
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD
from wblib.base.proc import say
from wblib.base.progress import Progress
from wblib.guest import qemu
from wblib.kernel import build as kernels
from wblib.kernel import upstream
from wblib.results import ktap

from . import bootdisk, deb, dkms

OUT = BUILD / "check" / "boot"
# Those that do not judge by the clock: this guest's is the host's.
TESTS = ("wbdisk-kunit", "wbt-kunit")
# The set ext4-nodelalloc, as it is on each line.
EXT4_TEST = {upstream.LTS: "ext4-shape", upstream.MAINLINE: "ext4-nodelalloc"}
# Measured below 150 s on an idle core; the rest is patience with a loaded host.
TIMEOUT_S = 3600.0
BOOT_S = {"first": 120.0, "second": 40.0}


def lines() -> Iterator[tuple[str, str]]:
    """Build, install, boot twice: (name, problem) per result, problem "" when it passed.

    The first boot must be the package's kernel; it ends with the packages
    purged.  The second one must be Debian's.  Serial logs stay in build/check/boot.
    """
    made = deb.build("patched")
    names = (f"linux-image-{made.release}", dkms.PACKAGE, f"linux-headers-{made.release}")
    image = OUT / "disk.img"
    fs.remove(OUT)
    OUT.mkdir(parents=True)
    begin = time.monotonic()
    content = bootdisk.Content(made.headers, dkms.build(), made.image, names, made.release,
                               kernels.modules(made.kernel), (*TESTS, EXT4_TEST[upstream.default_line()]))
    try:
        fallback = bootdisk.make(content, image, BUILD / "log" / "boot-disk.log")
        say(f"  disk with {made.release} and Debian's {fallback}: {time.monotonic() - begin:.0f} s")
        yield f"the packages of {made.release} install", ""
        problem = _boot(image, "first", made.release) or _boot(image, "second", fallback)
    finally:
        image.unlink(missing_ok=True)
    report = ktap.parse(qemu.text_of(OUT / "first/ktap") + qemu.text_of(OUT / "second/ktap"))
    for test in report.tests:
        failed = test.result == "fail"
        yield f"boot: {test.name}" + (" (skipped)" if test.result == "skip" else ""), _see("ktap") if failed else ""
    if problem or report.status == "error":
        yield "boot", f"{problem or '; '.join(report.problems)}, {_see('console.log')}"


def _see(name: str) -> str:
    return f"see {OUT}/*/{name}"


def _boot(image: Path, which: str, release: str) -> str:
    """Boot the disk until it resets or powers off; what went wrong, "" if it came to its check."""
    out = OUT / which
    out.mkdir()
    argv = bootdisk.command(image, out, qemu.kvm_works(kernels.build("patched").image))
    say(f"  booting {release}; console: {out / 'console.log'}")
    progress = Progress([BOOT_S[which]], 1)
    progress.start(f"{which} boot, {release}")
    try:
        problem, wall = qemu.execute(argv, out, timeout_s=TIMEOUT_S, tick=lambda _s: progress.show())
    finally:
        progress.end()
    # The firmware writes to that port, too.
    if not problem and not ktap.parse(qemu.text_of(out / "ktap")).tests:
        problem = qemu.why_dead(out / "console.log")
    say(f"  {which} boot: {wall:.0f} s")
    return problem
