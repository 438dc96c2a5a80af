# SPDX-License-Identifier: GPL-2.0
"""The guest's root: one self-contained initramfs, the same bytes from the same inputs.

It is made from the host's own programs and their libraries.  It is not
compressed: unpacking gzip would cost the guest seconds of virtual CPU.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from wblib.base.fs import lock
from wblib.base.paths import BUILD, GUEST, TOOLS
from wblib.base.proc import need, say, sha256_file, sha256_text
from wblib.catalog import axes as ax
from wbtop.errors import WbError

# What init and the helpers of the cases use, and what some cases name: program -> Debian package that has it.
PROGRAMS = {
    "bash": "bash", "mawk": "mawk", "busybox": "busybox-static", "fio": "fio", "jq": "jq",
    "mke2fs": "e2fsprogs", "e2fsck": "e2fsprogs", "debugfs": "e2fsprogs", "filefrag": "e2fsprogs",
    "tune2fs": "e2fsprogs", "dumpe2fs": "e2fsprogs", "mkfs.xfs": "xfsprogs",
    "xfs_repair": "xfsprogs", "xfs_io": "xfsprogs", "xfs_quota": "xfsprogs",
    "mount": "mount", "umount": "mount", "losetup": "mount", "dmesg": "util-linux", "flock": "util-linux",
    "chrt": "util-linux", "taskset": "util-linux", "setsid": "util-linux", "blockdev": "util-linux",
    "ionice": "util-linux", "findmnt": "util-linux", "swapon": "mount", "swapoff": "mount", "mkswap": "util-linux",
    "setpriv": "util-linux", "blkdiscard": "util-linux", "fallocate": "util-linux", "fsfreeze": "util-linux",
    "mountpoint": "util-linux", "prlimit": "util-linux",
    "kmod": "kmod", "grep": "grep", "sed": "sed", "tar": "tar", "find": "findutils", "xargs": "findutils",
    "cmp": "diffutils", "diff": "diffutils", "ps": "procps", "pgrep": "procps", "pkill": "procps",
    "sysctl": "procps", "gzip": "gzip", "dmsetup": "dmsetup", "mdadm": "mdadm",
}
COREUTILS = (
    "[", "basename", "cat", "chmod", "chown", "cksum", "comm", "cp", "cut", "date", "dd", "df", "dirname", "du", "echo",
    "env", "expr", "false", "fold", "head", "id", "join", "kill", "ln", "ls", "md5sum", "mkdir", "mkfifo", "mknod",
    "mktemp", "mv", "nice", "nl", "nohup", "nproc", "od", "paste", "printf", "pwd", "readlink", "realpath", "rm",
    "rmdir", "seq", "sha256sum", "shuf", "sleep", "sort", "split", "stat", "stdbuf", "stty", "sync", "tac", "tail",
    "tee", "test", "timeout", "touch", "tr", "true", "truncate", "tsort", "tty", "uname", "uniq", "yes",
)
LINKS = {
    "usr/bin/sh": "bash", "usr/bin/awk": "mawk", "usr/sbin/mkfs.ext4": "mke2fs", "usr/sbin/mkfs.ext2": "mke2fs",
    "usr/sbin/fsck.ext4": "e2fsck", "usr/sbin/insmod": "../bin/kmod", "usr/sbin/rmmod": "../bin/kmod",
    "usr/sbin/modprobe": "../bin/kmod", "usr/sbin/modinfo": "../bin/kmod", "usr/sbin/lsmod": "../bin/kmod",
    "usr/sbin/poweroff": "../bin/busybox", "usr/bin/vi": "busybox", "usr/bin/clear": "busybox",
    "usr/bin/less": "busybox", "usr/bin/top": "busybox",
    # That of coreutils has code for several CPUs, and chooses.
    "usr/bin/wc": "busybox",
    "bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64",
}
LINKED = {path.rpartition("/")[2] for path in LINKS}
# Only in the tracing guest: CO-RE tools, and perf for software events.
TRACERS = {"xfsdist": "libbpf-tools", "ext4dist": "libbpf-tools", "biolatency": "libbpf-tools",
           "biosnoop": "libbpf-tools", "perf": "linux-perf", "bpftrace": "bpftrace"}
# Only in the guest of the flavour btrfs.
BTRFS = {"mkfs.btrfs": "btrfs-progs"}
# Packages that are not called like their program.
PACKAGES = {"fs_mark": "fsmark", "getfattr": "attr", "setfattr": "attr"}
DBENCH_LOAD = "/usr/share/dbench/client.txt"
STDBUF_LIB = "/usr/libexec/coreutils/libstdbuf.so"
MIN_FREE_GIB = 2
KEEP_DAYS = 2


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """Shared objects that ``programs`` need, as the paths the loader looks for."""
    libs: set[Path] = set()
    for program in programs:
        done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
        if "not found" in done.stdout:
            raise WbError(f"{program} lacks a library: {done.stdout.strip()}")
        for line in done.stdout.splitlines():
            match = re.search(r"(?:=> )?(/\S+) \(0x", line)
            if match:
                libs.add(Path(match.group(1)))
    return libs


def _merged(path: Path) -> str:
    """Where ``path`` goes in a usr-merged root."""
    text = str(path).lstrip("/")
    return text if text.startswith("usr/") else f"usr/{text}"


# Prints the files of the standard library that wb imports, encodings of text files included.
_PYTHON_FILES = """
import sys
sys.path.insert(0, sys.argv[1])
import encodings.ascii, encodings.latin_1, encodings.utf_8
import wblib.cli
wblib.cli.parser()
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""
PYTHON = "/usr/bin/python3"


def _python() -> dict[str, Path]:
    """python3 with what wb imports of its standard library, and wb itself as /opt/wb/wb."""
    if not Path(PYTHON).exists():
        raise WbError(f"no {PYTHON}: install python3")
    done = subprocess.run([PYTHON, "-I", "-B", "-c", _PYTHON_FILES, str(TOOLS)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise WbError(f"{PYTHON} does not import wb: {done.stderr.strip().splitlines()[-1:]}")
    files = {PYTHON.lstrip("/"): Path(PYTHON).resolve()}
    for line in done.stdout.split():
        if line.startswith("/usr/lib/python3") and "/dist-packages/" not in line:
            files[line.lstrip("/")] = Path(line).resolve()
    for path in [TOOLS / "wb", *sorted((TOOLS / "wblib").rglob("*.py")),
                 *sorted((TOOLS / "wbtop").rglob("*.py"))]:
        files[f"opt/wb/{path.relative_to(TOOLS)}"] = path
    return files


def _collect(flavour: str, python: bool = False, foreign: bool = False) -> dict[str, Path]:
    """Path in the guest -> host file with its content."""
    files: dict[str, Path] = {}
    tracing = flavour == "tracing"
    named = {p for c in ax.CASES.values() for p in (*c.programs, *(c.own_programs if foreign else ()))}
    wanted = {p: PACKAGES.get(p, p) for p in named if p not in LINKED and p != "python3"}
    wanted |= PROGRAMS | dict.fromkeys(COREUTILS, "coreutils") | (TRACERS if tracing else {})
    wanted |= BTRFS if flavour == "btrfs" else {}
    for name, package in wanted.items():
        # Not the caller's PATH first: the guest has no other directories.
        found = Path(need(name, package, first="/usr/sbin:/usr/bin:/sbin:/bin"))
        files[_merged(found)] = found.resolve()
    if tracing:
        # Debian's /usr/bin/perf is a script that looks for the running kernel's version.
        real = sorted(Path("/usr/bin").glob("perf_*"))
        if real:
            files["usr/bin/perf"] = real[-1]
    binaries = list(files.values())
    if python:
        files |= (wanted_by_python := _python())
        binaries += [p for n, p in wanted_by_python.items() if n == PYTHON.lstrip("/") or p.suffix == ".so"]
    libs = _libraries(binaries)
    stdbuf = Path(STDBUF_LIB)
    if stdbuf.exists():
        libs.add(stdbuf)
    if foreign:
        files[DBENCH_LOAD.lstrip("/")] = Path(DBENCH_LOAD)
    for lib in libs:
        files[_merged(lib)] = lib.resolve()
    return files


def initramfs(selftests: Path, *, flavour: str = "slim", python: bool = False, foreign: bool = False) -> Path:
    """Return the initramfs with ``selftests`` (an installed kselftest tree) at /kselftest.

    flavour: of the kernel; tracing: also TRACERS, btrfs: also BTRFS.
    python: also python3 and wb.  foreign: also what a case has of its own.
    Without them the bytes are the same as ever.

    Cached by content below build/guest; of two wb commands that need the same
    one, the second waits and finds it made.  Raises WbError when a program is
    missing or the disk is full.
    """
    files = _collect(flavour, python, foreign)
    files["init"] = GUEST / "init"
    for path in sorted(p for p in selftests.rglob("*") if p.is_file()):
        files[f"kselftest/{path.relative_to(selftests)}"] = path
    listing = "".join(
        f"{name} {os.access(src, os.X_OK)} {sha256_file(src)}\n" for name, src in sorted(files.items())
    ) + repr(sorted(LINKS.items()))
    key = sha256_text(listing)[:12]
    out = BUILD / "guest" / f"initramfs-{key}.cpio"
    out.parent.mkdir(parents=True, exist_ok=True)
    with lock("guest"):
        if not out.exists():
            _prune(out.parent)
            _pack(files, out)
        out.touch()
    return out


def _prune(directory: Path) -> None:
    """Remove what no run has asked for in KEEP_DAYS: every change of a script makes another initramfs."""
    for old in directory.glob("initramfs-*.cpio"):
        if time.time() - old.stat().st_mtime > KEEP_DAYS * 86400:
            old.unlink(missing_ok=True)


def _pack(files: dict[str, Path], out: Path) -> None:
    if shutil.disk_usage(out.parent).free < MIN_FREE_GIB << 30:
        raise WbError(f"less than {MIN_FREE_GIB} GiB free below {out.parent}: free some, or set WB_BUILD elsewhere")
    say("  packing the guest's initramfs")
    stage = out.with_suffix(".stage")
    shutil.rmtree(stage, ignore_errors=True)
    try:
        _stage(stage, files)
        cpio(stage, out)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _stage(stage: Path, files: dict[str, Path]) -> None:
    for name in ("proc", "sys", "dev", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc"):
        (stage / name).mkdir(parents=True, exist_ok=True)
    for name, src in files.items():
        dest = stage / name
        dest.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(src, dest)
        dest.chmod(0o755 if os.access(src, os.X_OK) else 0o644)
    for name, target in LINKS.items():
        dest = stage / name
        if not dest.is_symlink() and not dest.exists():
            dest.symlink_to(target)
    (stage / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
    (stage / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (stage / "etc/mtab").symlink_to("/proc/mounts")
    for path in [stage, *stage.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        elif path.is_file() and not path.is_symlink():
            path.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
        os.utime(path, (0, 0), follow_symlinks=False)


def cpio(stage: Path, out: Path) -> None:
    """Write the tree ``stage`` to the cpio archive ``out``; WbError if that fails."""
    names = sorted(str(p.relative_to(stage)) for p in stage.rglob("*"))
    temp = out.with_suffix(".tmp")
    with temp.open("wb") as f:
        done = subprocess.run(
            [need("cpio", "cpio"), "-o", "-H", "newc", "--reproducible", "--quiet", "-R", "0:0"],
            input="\n".join(names).encode(), stdout=f, stderr=subprocess.PIPE, cwd=stage, check=False,
        )
    if done.returncode != 0:
        temp.unlink(missing_ok=True)
        raise WbError(f"packing the initramfs failed: {done.stderr.decode().strip()}")
    temp.rename(out)
