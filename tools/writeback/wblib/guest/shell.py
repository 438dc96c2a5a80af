# SPDX-License-Identifier: GPL-2.0
"""``wb shell``: an interactive guest with the host's files, through virtme-ng."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from wblib.base.paths import BUILD
from wblib.kernel import build as kernels
from wblib.kernel import kconfig
from wbtop.errors import WbError

from . import qemu

EXAMPLES = """\
examples:
  wb shell                          a root shell on the stock kernel; the host's files are read-only
  wb shell --kernel patched --disk 4  the same on the series, with a 4-GiB scratch disk (/dev/vda)
  wb shell --dry-run                print the virtme-ng command
the shell starts in the installed kselftests: writeback/wbdisk.sh runs one,
./run_kselftest.sh -c writeback all; leave with exit or Ctrl-A x"""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb shell``."""
    p = sub.add_parser("shell", help="a shell in the test kernel (virtme-ng)", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kernel", default="stock", help="stock, patched, tree or replay (default stock)")
    kconfig.add_flavour(p)
    p.add_argument("--memory", default="2G", help="guest memory (default 2G)")
    p.add_argument("--disk", type=int, default=0, metavar="GIB", help="add a scratch disk of GIB GiB (default none)")
    p.add_argument("--exec", default=None, metavar="CMD", help="run CMD instead of a shell")
    p.add_argument("--dry-run", action="store_true", help="build what it needs, and print the command")
    p.set_defaults(func=shell)


def _vng() -> str:
    for place in (BUILD / "venv" / "bin" / "vng", shutil.which("vng")):
        if place and Path(place).exists():
            return str(place)
    raise WbError("vng (virtme-ng) not found: run 'make deps'")


def shell(args: argparse.Namespace) -> int:
    """Boot the kernel with the host's root read-only; returns the guest's status."""
    built = kernels.build(args.kernel, args.flavour)
    installed = kernels.modules(built)
    argv = [_vng(), "--run", str(built.image), "--force-9p", "--memory", args.memory, "--cpus", "2",
            "--user", "root", "--cwd", str(installed), "--append", "kunit.enable=1"]
    if not qemu.kvm_works(built.image):
        argv.append("--disable-kvm")
    image = BUILD / "shell-disk.img"
    if args.disk:
        image.touch()
        os.truncate(image, args.disk << 30)
        argv += ["--disk", str(image)]
    if args.exec:
        argv += ["--exec", args.exec]
    if args.dry_run:
        print(qemu.shown(argv))
        return 0
    try:
        # vng calls virtme-run, which lies beside it.
        path = f"{Path(argv[0]).parent}:{os.environ.get('PATH', '')}"
        return subprocess.run(argv, env={**os.environ, "PATH": path}, check=False).returncode
    finally:
        image.unlink(missing_ok=True)
