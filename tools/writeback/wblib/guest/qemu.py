# SPDX-License-Identifier: GPL-2.0
"""The command lines of the lanes, QEMU's and User Mode Linux's, and running one guest until it is done or dead."""

import contextlib
import functools
import os
import re
import shlex
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from wblib.base.paths import BUILD
from wblib.base.proc import need, say
from wblib.catalog.spec import CPU
from wbtop.errors import WbError

from . import uml

QEMU = "qemu-system-x86_64"
# A guest whose case is silent for so many seconds of QEMU's CPU time is dead, the
# slowest case prints far more often; or of wall time, with next to nothing executed.
# Wall time alone would depend on what else the host does.
SILENT_S = 900
SILENT_IDLE = 0.01
BASE_ARGS = "console=ttyS0 quiet panic=-1 nokaslr norandmaps mitigations=off tsc=reliable"
# One instruction is a nanosecond, and idle time is skipped.  rr=record is there for its
# lock, which keeps the main loop from the clock while the virtual CPU executes; nothing is
# to be replayed.  Without it, the main loop can find the CPU halted before the CPU's thread
# has counted its last instructions, three or so, and skip that much too far.  QEMU has
# it for one virtual CPU only.
ICOUNT = "shift=0,sleep=off"
ICOUNT_LOCK = ",rr=record,rrfile=/dev/null"
# For guests whose clock is the host's: on a busy host the kernel sees no tick in the
# time it waits for one and panics, "IO-APIC + timer doesn't work!"; and a host that stops
# QEMU for longer than 21 s is no stall of RCU.
WALL_CLOCK_ARGS = "no_timer_check rcupdate.rcu_cpu_stall_timeout=300"
# Throttles of the functional lane's disks (bytes/s), the SATA disk of the published incidents.
DRIVE_BPS = 400_000_000
# A model and features of it, for -cpu; never another option of QEMU.
_CPU_MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}(,[a-z0-9][a-z0-9._-]{0,40}=(on|off|[0-9]{1,10})){0,16}"


@dataclass(frozen=True)
class Guest:
    """One guest to run: what boots, with which case, in which lane."""

    image: Path
    initrd: Path
    case: str
    args: tuple[str, ...]
    seed: int = 1
    memory_mib: int = 2048
    lane: str = "exact"
    smp: int = 1
    disk: str | None = None  # functional lane: "ahci" or "nvme"
    disk_gib: int = 8
    # KUnit suites at boot scatter free memory: ext4's cost an O_DIRECT writer 1.5 %.
    kunit: bool = False
    cpu: str = CPU  # exact lane, and nested: what it can do decides which copy routines the kernel takes


@dataclass
class Outcome:
    """What a guest left behind; ``exit_code`` is None when it died before its case ended."""

    exit_code: int | None
    ktap: str
    wall_s: float
    problem: str = ""
    command: list[str] = field(default_factory=list)


def check_cpu(model: str, lane: str = "exact") -> str:
    """Return ``model``, a value for QEMU's -cpu; WbError (code 2) for anything else, or in another lane."""
    if not re.fullmatch(_CPU_MODEL, model):
        raise WbError(f"--cpu {model or repr('')}: must be MODEL[,FEATURE=on|off|NUMBER,...], such as max,erms=off", 2)
    if model != CPU and lane != "exact":
        raise WbError(f"--cpu is for the exact lane: the {lane} lane runs on the CPU it finds", 2)
    return model


def version() -> str:
    """QEMU's version string, for the result's meta."""
    return subprocess.run([need(QEMU, "qemu-system-x86"), "--version"], capture_output=True, text=True,
                          check=False).stdout.splitlines()[0]


def host_cpu() -> str:
    """The CPU model of this machine, which decides times outside the exact lane; "unknown" if it does not say."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    found = re.search(r"^(?:model name|cpu model|Processor)\s*:\s*(.+)$", text, re.M)
    return " ".join(found[1].split()) if found else "unknown"


def _accelerator(guest: Guest) -> list[str]:
    if guest.lane == "exact":
        icount = ICOUNT + (ICOUNT_LOCK if guest.smp == 1 else "")
        return ["-accel", "tcg", "-cpu", guest.cpu, "-icount", icount, "-seed", str(guest.seed),
                "-rtc", "base=2026-01-01,clock=vm"]
    if guest.lane == "nested":
        return ["-accel", "tcg,thread=multi", "-cpu", guest.cpu]
    if kvm_works(guest.image):
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def _disk_args(guest: Guest, out: Path) -> list[str]:
    if guest.disk is None:
        return []
    drive = (f"file={out / 'disk.img'},if=none,id=d0,format=raw,cache=unsafe,discard=unmap,"
             f"throttling.bps-total={DRIVE_BPS},throttling.iops-total=20000")
    device = {"ahci": ["-device", "ich9-ahci,id=ahci0", "-device", "ide-hd,drive=d0,bus=ahci0.0"],
              "nvme": ["-device", "nvme,drive=d0,serial=wb0"]}
    if guest.disk not in device:
        raise WbError(f"unknown functional disk '{guest.disk}': ahci or nvme", 2)
    return ["-drive", drive, *device[guest.disk]]


def command(guest: Guest, out: Path) -> list[str]:
    """The exact command line of the guest; its console and serial ports 1 and 2 go to files in ``out``."""
    words = ["wb-case", guest.case, *guest.args]
    if guest.lane == "fast":
        return uml.command(guest.image, guest.initrd, words, out, seed=guest.seed, memory_mib=guest.memory_mib,
                           kunit=guest.kunit)
    append = " ".join(filter(None, [BASE_ARGS, "rdinit=/nested/init" if guest.lane == "nested" else "",
                                    WALL_CLOCK_ARGS if guest.lane != "exact" else "",
                                    "kunit.enable=1" if guest.kunit else "", "--", *words]))
    return [
        QEMU, "-nodefaults", "-no-user-config", "-machine", "q35", *_accelerator(guest),
        "-m", f"{guest.memory_mib}M", "-smp", str(guest.smp),
        "-serial", f"file:{out / 'console.log'}", "-serial", f"file:{out / 'ktap'}",
        "-serial", f"file:{out / 'data.tar'}",
        *_disk_args(guest, out), "-display", "none", "-monitor", "none", "-no-reboot",
        "-kernel", str(guest.image), "-initrd", str(guest.initrd), "-append", append,
    ]


def run(guest: Guest, out: Path, *, timeout_s: float, tick: Callable[[float], None] | None = None,
        preload: Path | None = None) -> Outcome:
    """Run ``guest`` with its files in ``out``; never raises for what the guest does.

    timeout_s: wall seconds after which the guest is killed.  tick: called about
    once a second with the elapsed wall seconds.  preload: into QEMU; the fast lane has its own.
    """
    out.mkdir(parents=True, exist_ok=True)
    if guest.disk is not None:
        with (out / "disk.img").open("wb") as f:
            f.truncate(guest.disk_gib << 30)
    argv = command(guest, out)
    if preload is not None:
        argv = ["env", f"LD_PRELOAD={preload}", *argv]
    try:
        with uml.one_cpu() if guest.lane == "fast" else contextlib.nullcontext([]) as prefix:
            problem, wall = execute([*prefix, *argv], out, timeout_s=timeout_s, tick=tick)
    finally:
        (out / "disk.img").unlink(missing_ok=True)
        uml.clean(out)
    code = _unpack(out)
    if code is None and (not problem or (guest.lane == "fast" and "signal 6" in problem)):
        # A User Mode Linux that panics aborts.
        problem = why_dead(out / "console.log")
    ktap = text_of(out / "ktap")
    return Outcome(code, ktap, wall, problem, argv)


def execute(argv: list[str], out: Path, *, timeout_s: float,
            tick: Callable[[float], None] | None = None) -> tuple[str, float]:
    """Run a guest whose serial ports are files in ``out``; what went wrong ("" for nothing), and the wall seconds."""
    start = time.monotonic()
    # A guest must not outlive wb, however wb dies.
    proc = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    problem = ""
    try:
        problem = _watch(proc, out, start, timeout_s, tick)
    finally:
        if proc.poll() is None:
            proc.kill()
        _, stderr = proc.communicate()
    wall = time.monotonic() - start
    if not problem and proc.returncode != 0:
        lines = (stderr or "").strip().splitlines()
        how = f"signal {-proc.returncode}" if proc.returncode < 0 else f"status {proc.returncode}"
        problem = f"{_program(argv)} ended with {how}" + (f": {lines[-1]}" if lines else "")
    return problem, wall


def _program(argv: list[str]) -> str:
    return "User Mode Linux" if "time-travel=inf-cpu" in argv else "QEMU"


def _watch(proc: "subprocess.Popen[str]", out: Path, start: float, timeout_s: float,
           tick: Callable[[float], None] | None) -> str:
    seen, since, since_cpu = -1, start, 0.0
    while True:
        try:
            proc.wait(timeout=1)
            return ""
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        if tick:
            tick(now - start)
        size = sum(_size(out / n) for n in ("console.log", "ktap", "data.tar"))
        cpu = _cpu_s(proc.pid)
        if size != seen:
            seen, since, since_cpu = size, now, cpu
        if now - start > timeout_s:
            return f"still running after {timeout_s:.0f} s and killed (raise --timeout on a slow host)"
        quiet, executed = now - since, cpu - since_cpu
        if quiet > SILENT_S and not quiet * SILENT_IDLE < executed < SILENT_S:
            return f"hung: silent for {quiet:.0f} s and killed"


def _cpu_s(pid: int) -> float:
    """Seconds of CPU time of a process; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    # utime and stime, fields 14 and 15 of proc(5).
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def text_of(path: Path) -> str:
    """What a serial port wrote into ``path``, with plain newlines; "" if there is no file."""
    return path.read_bytes().decode(errors="replace").replace("\r\n", "\n") if path.exists() else ""


def _unpack(out: Path) -> int | None:
    """Unpack the guest's tar into ``out``/data; its exit code, or None if the tar is not whole."""
    tar = out / "data.tar"
    try:
        with tarfile.open(tar) as archive:
            # Debian 12's Python 3.11.2 has no filters yet; the tar is our own guest's.
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(out / "data", **safe)  # type: ignore[arg-type]
        tar.unlink()
        return int((out / "data" / "exit").read_text())
    except (FileNotFoundError, tarfile.TarError, ValueError, EOFError):
        return None
    except OSError as exc:
        raise WbError(f"cannot write {out}: {exc.strerror}; free some disk space and run again") from exc


def why_dead(console: Path) -> str:
    """What the kernel last said on ``console``, in a few words."""
    text = text_of(console)
    for pattern, what in (
        (r"INFO: task (.*) blocked for more than", "hung task"),
        (r"watchdog: BUG: soft lockup.*", "soft lockup"),
        (r"(?:BUG|Oops|general protection fault|kernel BUG).*", "oops"),
        (r"Kernel panic - not syncing: (.*)", "kernel panic"),
        (r"Out of memory: (.*)", "out of memory"),
    ):
        match = re.search(pattern, text)
        if match:
            return f"guest died ({what}: {match.group(0)[:100]})"
    return "guest ended before its case did"


@functools.cache
def kvm_works(image: Path) -> bool:
    """True if KVM boots ``image`` within 20 s.

    /dev/kvm that opens proves nothing: on some hosts an unmodified kernel never
    leaves its decompressor.  So boot it without a root and wait for its panic.
    """
    if os.environ.get("WB_NO_KVM") or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    BUILD.mkdir(parents=True, exist_ok=True)
    # A log of its own: another probe's may tell of a kernel that booted.
    with tempfile.TemporaryDirectory(prefix="kvm-probe-", dir=BUILD) as place:
        log = Path(place) / "console.log"
        argv = [QEMU, "-nodefaults", "-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256M", "-display",
                "none", "-monitor", "none", "-no-reboot", "-serial", f"file:{log}", "-kernel", str(image), "-append",
                "console=ttyS0 panic=-1"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(argv, timeout=20, capture_output=True, check=False)
        works = "Linux version" in text_of(log)
    say(f"  KVM: {'works' if works else 'does not boot a kernel here, using TCG'}")
    return works


def shown(argv: list[str]) -> str:
    """``argv`` as one line to paste into a shell."""
    return shlex.join(argv)
