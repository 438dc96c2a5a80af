# SPDX-License-Identifier: GPL-2.0
"""A guest of the fast lane inside QEMU, which shows it a CPU that this machine may not have.

User Mode Linux's programs see the CPU that they run on: the same bytes on two of
them say that nothing depends on it.
"""

import shlex
import shutil
import tempfile
from pathlib import Path

from wblib.base.paths import GUEST

from . import initramfs, qemu, uml

# What is around the guest's own memory: the two initramfs, unpacked and as files.
AROUND_MIB = 2048


def run(guest: qemu.Guest, around: Path, cpu: str, out: Path, *, timeout_s: float) -> qemu.Outcome:
    """Run ``guest``, one of the fast lane, below the kernel image ``around`` on QEMU's CPU ``cpu``.

    Its files are in ``out`` as qemu.run() leaves them, but console.log is that of ``around``.
    """
    inside = Path("/nested")
    words = ["wb-case", guest.case, *guest.args]
    argv = uml.command(inside / "linux", inside / "initrd", words, Path("/out"), seed=guest.seed,
                       memory_mib=guest.memory_mib, kunit=guest.kunit, preload=inside / "shim.so", memory="/dev/shm")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as temp:
        stage = Path(temp) / "stage"
        (stage / "nested").mkdir(parents=True)
        shutil.copy(guest.image, stage / "nested/linux")
        shutil.copy(guest.initrd, stage / "nested/initrd")
        shutil.copy(uml.shim(), stage / "nested/shim.so")
        shutil.copy(GUEST / "nested-init", stage / "nested/init")
        (stage / "nested/run").write_text(shlex.join(argv) + "\n")
        more = Path(temp) / "more.cpio"
        initramfs.cpio(stage, more)
        # The kernel unpacks one archive after the other: the guest's own has bash and libc.
        with (Path(temp) / "initrd").open("wb") as initrd:
            for part in (guest.initrd, more):
                with part.open("rb") as f:
                    shutil.copyfileobj(f, initrd)
        return qemu.run(qemu.Guest(around, Path(temp) / "initrd", guest.case, lane="nested", cpu=cpu, args=(),
                                   memory_mib=guest.memory_mib + AROUND_MIB), out, timeout_s=timeout_s)
