# SPDX-License-Identifier: GPL-2.0
"""The fast lane: the kernel as a process (User Mode Linux) in virtual time, where computing costs nothing.

time-travel=inf-cpu: the clock stands still while anything computes and jumps
to the next timer when all sleep; reading it costs 256 ns (arch/um/kernel/time.c).
What the guest sees of the host is on its command line; guest/umlhost.c does the rest.
"""

import contextlib
import os
import shlex
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from wblib.base.fs import lock, remove
from wblib.base.paths import BUILD, GUEST
from wblib.base.proc import need, run, sha256_text
from wbtop.errors import WbError

# As guest/init expects them of QEMU: ttyS1 and ttyS2 are lines of files, and nothing is ever read.
# A terminal's size, and its changes, are the host's business.
SERIAL = "con=null con0=null,fd:2 ssl=null ssl0=null,fd:2 ssl1=null,fd:3 ssl2=null,fd:4"
# root and console: or UML adds its own behind the words for /init.
ARGS = "root=/dev/ram0 console=tty0 quiet panic=-1 norandmaps"
# The guest's programs see the host's CPU.  What glibc chooses by it - how memcpy() goes about its pages, how much
# stack the dynamic linker takes, how many directories it looks into - moves pages, and with them a limit of memory.
# All that names a choice (sysdeps/x86/cpu-features.c, cpu-tunables.c of glibc) is off, sizes of caches are 2 MiB.
HWCAPS = ("-SSE3,-SSSE3,-SSE4_1,-SSE4_2,-POPCNT,-CX16,-LZCNT,-MOVBE,-BMI,-BMI1,-BMI2,-FMA,-FMA4,-F16C,-AVX,-AVX2,"
          "-XSAVE,-XSAVEC,-XSAVEOPT,-ERMS,-FSRM,-RTM,-HLE,-LAHF64_SAHF64,-AVX512F,-AVX512CD,-AVX512ER,-AVX512PF,-AVX512BW,"
          "-AVX512DQ,-AVX512VL,-Slow_BSF,-Slow_SSE4_2,-Fast_Rep_String,-Fast_Copy_Backward,-Fast_Unaligned_Load,"
          "-Fast_Unaligned_Copy,-AVX_Fast_Unaligned_Load,-Prefer_PMINUB_for_stringop,-Prefer_No_VZEROUPPER,"
          "-Prefer_No_AVX512_Probing,-Prefer_ERMS,-Prefer_FSRM")
_CACHE = 2 << 20  # bytes
TUNABLES = ":".join([f"glibc.cpu.hwcaps={HWCAPS}",
                     *(f"glibc.cpu.x86_{what}={_CACHE}" for what in ("data_cache_size", "shared_cache_size",
                                                                     "non_temporal_threshold"))])
# 2026-01-01, as QEMU's -rtc base in the exact lane.
START_NS = 1767225600 * 10**9
UMID = "umid"
# The guest's memory is a file that is unlinked at once; on a tmpfs it is never written to a disk.
MEMORY_DIRS = ("/dev/shm", "/tmp")
_lock = threading.Lock()
_guests: Counter[int] = Counter()


def shim(name: str = "umlhost") -> Path:
    """guest/``name``.c, to be preloaded, as a shared object; built once for each content."""
    source = GUEST / f"{name}.c"
    made = BUILD / "guest" / f"{name}-{sha256_text(source.read_text())[:12]}.so"
    if not made.exists():
        with lock(name):
            made.parent.mkdir(parents=True, exist_ok=True)
            temp = made.with_suffix(".tmp")
            run([need("gcc", "gcc"), "-O2", "-Wall", "-shared", "-fPIC", "-o", temp, source, "-ldl"],
                what=f"building {name}.so")
            temp.replace(made)
    return made


def memory_dir(mib: int) -> str:
    """Where the guest's memory goes: a directory with room for ``mib`` that can be mapped executable."""
    for place in (*filter(None, [os.environ.get("TMPDIR")]), *MEMORY_DIRS):
        if os.access(place, os.W_OK) and shutil.disk_usage(place).free >= mib << 20 \
                and not os.statvfs(place).f_flag & os.ST_NOEXEC:
            return place
    raise WbError(f"the guest's memory needs {mib} MiB below {' or '.join(MEMORY_DIRS)}, not mounted noexec: "
                  "free some, or set TMPDIR")


def command(image: Path, initrd: Path, words: list[str], out: Path, *, seed: int, memory_mib: int,
            kunit: bool = False, preload: Path | None = None, memory: str = "") -> list[str]:
    """The command line of a guest whose console and serial lines 1 and 2 go to files in ``out``.

    words: what /init gets.  preload, memory: shim() and memory_dir() of where it will run, if not here.
    The environment is empty but for what is named, as UML hands it on.
    """
    # Paths in descriptors, not in the guest's command line: its bytes are the same wherever it runs.
    linux = [str(image), f"mem={memory_mib}M", "initrd=/proc/self/fd/5", "time-travel=inf-cpu",
             f"time-travel-start={START_NS}", f"umid={UMID}", "uml_dir=./", *SERIAL.split(), *ARGS.split(),
             f"GLIBC_TUNABLES={TUNABLES}", *(["kunit.enable=1"] if kunit else []), "--", *words]
    redirect = f"cd {shlex.quote(str(out))} && exec \"$0\" \"$@\" > console.log 2>&1 3> ktap 4> data.tar " \
               f"5< {shlex.quote(str(initrd))} < /dev/null"
    return ["env", "-i", f"TMPDIR={memory or memory_dir(memory_mib)}", "HOME=.", f"LD_PRELOAD={preload or shim()}",
            f"UMLHOST_SEED={seed}", "sh", "-c", redirect, *linux]


@contextlib.contextmanager
def one_cpu() -> Iterator[list[str]]:
    """The words that keep a guest on one CPU, that with the fewest of this wb's guests.

    The kernel and its guest's processes take turns; on two CPUs, each turn would wake
    the other one up: measured, 3.6 times slower on a virtual machine.
    """
    allowed = sorted(os.sched_getaffinity(0))
    first = os.getpid() % len(allowed)  # another wb begins elsewhere
    with _lock:
        cpu = min(allowed[first:] + allowed[:first], key=lambda c: _guests[c])
        _guests[cpu] += 1
    try:
        yield ["taskset", "-c", str(cpu)]
    finally:
        with _lock:
            _guests[cpu] -= 1


def clean(out: Path) -> None:
    """Remove what UML leaves in ``out`` for a management console."""
    remove(out / UMID)
