# SPDX-License-Identifier: GPL-2.0
"""The user's package on other kernels, booted in QEMU with ``wb`` as its users have it: distributions' and our own.

Real time, so what is looked at is whether each command sees what is there, not how fast it is.
"""

import json
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wblib.base.paths import BUILD
from wblib.base.proc import need, run, say
from wblib.guest import initramfs, qemu
from wbtop.errors import WbError

# What the guest's disk needs, and what has a backing device to name; built in where there is no such module.
MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "loop", "dm_mod", "fuse")
# How watch calls what the guest makes of these.
NAMED = {"loop": "/tmp/image", "device-mapper": "wb-mapped", "fuse": "fuse /fuse"}
DISK_MIB = 1536
# Slower than dd even on an emulated CPU that it shares with others, so that it sleeps.
DISK_BPS = 3_000_000
TIMEOUT_S = 600
MARK = "wb-guest-"
INIT = r"""#!/bin/bash
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /tmp /run /root /mnt /dev/shm
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
# Sleeps of single tasks are counted for those that start after this.
if [ -e /proc/sys/kernel/task_delayacct ]; then echo 1 > /proc/sys/kernel/task_delayacct; fi
for module in $(cat /modules/order); do insmod /modules/$module; done
exec > /dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw -echo
# part(name, command...) - its output and exit code, framed
part() {
	local name=$1 code
	shift
	echo "wb-guest-begin $name"
	"$@" < /dev/null 2> /tmp/err
	code=$?
	echo; echo "wb-guest-end $name $code"
	sed "s/^/wb-guest-err $name /" /tmp/err
}
# stop PID - until it stands still: it is not asleep in balance_dirty_pages() then
stop() {
	while kill -STOP $1 && ! grep -q '^State:.*stopped' /proc/$1/status; do sleep .1; done
}
# held - a report of watch that begins and ends while the writer stands still.  However long watch takes to read one
# counter after the other, each has the same sleeps then.
held() {
	local watch
	stop $writer
	wb watch --json --interval 5 --count 2 > /tmp/held &
	watch=$!
	while [ -e /proc/$watch ] && [ ! -s /tmp/held ]; do sleep .1; done
	stop $watch
	kill -CONT $writer
	sleep 5
	stop $writer
	kill -CONT $watch
	wait $watch && sed -n 2p /tmp/held
}
part mount sh -c 'mkfs.ext4 -q /dev/vda && mount /dev/vda /mnt'
# names - watch's report with a mapped disk over a loop, and a FUSE mount whose server never answers.
names() {
	truncate -s 8M /tmp/image
	losetup /dev/loop0 /tmp/image
	dmsetup create wb-mapped --table "0 16384 linear /dev/loop0 0"
	mkdir -p /fuse
	exec 3<> /dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 wb /fuse
	wb watch --once --json --interval .5
}
part version wb --version
part release uname -r
echo 8388608 > /proc/sys/vm/dirty_bytes
echo 4194304 > /proc/sys/vm/dirty_background_bytes
dd if=/dev/urandom of=/mnt/read bs=1M count=4 conv=fsync 2> /dev/null
dd if=/dev/zero of=/mnt/write bs=256k 2> /dev/null &
writer=$!
while :; do dd if=/mnt/read of=/dev/null bs=4k count=16 iflag=direct 2> /dev/null; sleep .1; done &
reader=$!
sleep 5
part watch wb watch --once --json --interval 5
part view wb watch --once --interval 1
part held held
kill $writer $reader
kill -CONT $writer
wait
for kind in loop device-mapper fuse; do
	if grep -qw $kind /proc/devices /proc/misc; then echo "wb-guest-has $kind"; fi
done
part names names
part left ls /sys/kernel/tracing/instances
rm -f /mnt/write
sync
part field wb field /mnt --repeats 1 --max-mib 16 --max-seconds 60 --out /tmp/field --json
part page head -c 15 /tmp/field/field.html
queue=/sys/block/vda/queue
bdi=/sys/class/bdi/$(cat /sys/block/vda/dev)
# state - what tune sets here
state() {
	local file
	for file in $queue/scheduler $queue/max_sectors_kb $queue/wbt_lat_usec $queue/wbt_policy $bdi/max_drain_ms \
			$bdi/max_ratio $bdi/strict_limit /proc/sys/vm/dirty_bytes; do
		if [ -e $file ]; then echo "${file##*/} $(cat $file)"; fi
	done
}
echo 67108864 > /proc/sys/vm/dirty_bytes
echo 33554432 > /proc/sys/vm/dirty_background_bytes
# A virtual disk says that it turns, for which wbt_policy counts for nothing.
echo 0 > $queue/rotational
if [ -e $queue/wbt_policy ]; then
	echo "wb-guest-series"
	echo requests > $queue/wbt_policy
fi
part before state
part tune wb tune /mnt --max-mib 16 --max-seconds 30 --save /tmp/m.json --json
for goal in read-latency unplug; do
	part apply-$goal wb tune /mnt --goal $goal --hold-seconds 2 --measured /tmp/m.json --apply
	part state-$goal state
done
part undo wb tune --undo
part after state
echo "wb-guest-writer $writer"
echo wb-guest-over
sync
poweroff -f
"""


def own(image: Path) -> str | None:
    """The release of a kernel that ``wb build`` has built; None for anything else."""
    release = image.with_name("release")
    return release.read_text().strip() if image.name == "bzImage" and release.is_file() else None


def unpack(debs: Sequence[Path], root: Path) -> tuple[str, Path]:
    """A kernel's packages below ``root``: its release and its image. WbError when they have not one."""
    for deb in debs:
        run([need("dpkg-deb", "dpkg"), "-x", deb, root], what=f"unpacking {deb.name}")
    images = sorted(root.glob("boot/vmlinuz-*")) + sorted(root.glob("usr/lib/modules/*/vmlinuz"))
    if len(images) != 1:
        raise WbError(f"{debs[0]}: not a package of one kernel's image", 2)
    release = images[0].parent.name if images[0].name == "vmlinuz" else images[0].name.removeprefix("vmlinuz-")
    return release, images[0]


def modules(root: Path, release: str) -> list[tuple[str, bytes]]:
    """MODULES with what they depend on, in the order to load them; none for what is built in."""
    base = next((d for d in (root / "usr/lib/modules" / release, root / "lib/modules" / release) if d.is_dir()), None)
    if base is None:
        return []
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    run([need("depmod", "kmod"), "-b", root, release], what="depmod")
    found: dict[str, bytes] = {}
    for module in MODULES:
        done = subprocess.run([need("modprobe", "kmod"), "-d", str(root), "-S", release, "--show-depends", module],
                              capture_output=True, text=True, check=False)
        for path in re.findall(r"^insmod (\S+)", done.stdout, re.MULTILINE):
            data = Path(path).read_bytes()
            if path.endswith(".xz"):
                data = lzma.decompress(data)
            elif path.endswith(".zst"):
                data = subprocess.run([need("zstd", "zstd"), "-dc", path], capture_output=True, check=True).stdout
            found[re.sub(r"\.ko.*", ".ko", Path(path).name)] = data
    return list(found.items())


def initrd(wb: Path, loaded: list[tuple[str, bytes]], out: Path) -> None:
    """A root with python3 and the single file ``wb``, nothing of the rig in it."""
    stage = out.with_suffix(".stage")
    files = {name: src for name, src in initramfs._collect("slim", python=True).items()
             if not name.startswith("opt/wb/")}
    initramfs._stage(stage, files)
    shutil.copy(wb, stage / "usr/bin/wb")
    (stage / "init").write_text(INIT)
    (stage / "modules").mkdir()
    (stage / "modules/order").write_text("".join(f"{name}\n" for name, _ in loaded))
    for name, data in loaded:
        (stage / "modules" / name).write_bytes(data)
    for name in ("init", "usr/bin/wb"):
        (stage / name).chmod(0o755)
    initramfs._cpio(stage, out)
    shutil.rmtree(stage)


def boot(image: Path, initrd: Path, place: Path) -> str:
    """What the guest printed; WbError when it did not get to its end."""
    disk = place / "disk"
    with disk.open("wb") as f:
        f.truncate(DISK_MIB << 20)
    accelerator = ["-accel", "kvm", "-cpu", "host"] if qemu.kvm_works(image) else ["-accel", "tcg,thread=multi", "-cpu",
                                                                                  "max"]
    argv = [qemu.QEMU, "-nodefaults", "-no-user-config", "-machine", "q35", *accelerator, "-m", "1024M", "-smp", "1",
            "-serial", f"file:{place / 'console.log'}", "-serial", f"file:{place / 'out'}", "-display", "none",
            "-monitor", "none", "-no-reboot", "-kernel", str(image), "-initrd", str(initrd),
            "-append", "console=ttyS0 panic=-1 quiet", "-drive",
            f"file={disk},format=raw,if=none,id=d,cache=unsafe,throttling.bps-write={DISK_BPS}",
            "-device", "virtio-blk-pci,drive=d"]
    try:
        subprocess.run(argv, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pass
    finally:
        disk.unlink()
    text = (place / "out").read_text(errors="replace").replace("\r", "") if (place / "out").exists() else ""
    if f"{MARK}over" not in text:
        raise WbError(f"the guest did not get to its end: see {place}")
    return text


def part(text: str, name: str) -> tuple[str, int, str]:
    """Output, exit code and stderr of a part."""
    match = re.search(rf"^{MARK}begin {name}\n(.*?)\n{MARK}end {name} (\d+)$", text, re.MULTILINE | re.DOTALL)
    errors = "\n".join(re.findall(rf"^{MARK}err {name} (.*)$", text, re.MULTILINE))
    return (match[1].strip(), int(match[2]), errors) if match else ("", -1, errors)


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        return dict(json.loads(part(text, name)[0]))
    except ValueError:
        return {}


def judge(text: str, release: str, version: str) -> Iterator[tuple[str, str]]:
    """Name and problem (or nothing) of each thing that must hold."""
    for name in ("mount", "version", "watch", "view", "field", "page"):
        _, code, errors = part(text, name)
        yield f"{name} ends well", "" if code == 0 and "Traceback" not in errors else f"exit code {code}: {errors}"
    yield "it is that kernel", "" if part(text, "release")[0] == release else part(text, "release")[0]
    yield "version", "" if part(text, "version")[0] == f"wb {version}" else part(text, "version")[0]
    watch = _json(text, "watch")
    writer = int((re.search(rf"^{MARK}writer (\d+)$", text, re.MULTILINE) or ["", "0"])[1])
    notes = watch.get("notes", ["no report"])
    blind = [n for n in notes if "not understood" in n or "missing" in n or "not known" in n or "no report" in n]
    yield "every event is understood", "; ".join(blind)
    task = next((t for t in watch.get("tasks", []) if t["pid"] == writer), None)
    yield "the writer is seen to sleep", "" if task and task["slept_ms"] > 100 else f"{watch.get('throttle')}"
    yield "for the system's limit", "" if task and task["cause"] == "global" else f"{task}"
    disk = next((d for d in watch.get("devices", []) if d["name"] == "vda"), {})
    yield "its rate is that of the disk", "" if 0.3 < (disk.get("write_rate") or 0) / DISK_BPS < 1.3 else \
        f"{disk.get('write_rate')}"
    yield "reads have times", "" if ((disk.get("read") or {}).get("max_us") or 0) > 0 else f"{disk.get('read')}"
    yield "dirty memory of the disk is known", "" if disk.get("dirty") is not None else f"{disk}"
    yield "no instance of tracing is left", part(text, "left")[0]
    whats = {device.get("what") for device in _json(text, "names").get("devices", [])}
    for kind, what in NAMED.items():
        has = f"{MARK}has {kind}\n" in text
        yield f"a device of {kind} is named" + ("" if has else " (skipped: not in this kernel)"), \
            "" if what in whats or not has else f"{sorted(map(str, whats))}"
    yield from _judge_tune(text, watch, writer)
    field = _json(text, "field")
    facts = field.get("facts", {})
    yield "field measured on ext4 of vda", "" if facts.get("fs") == "ext4" and \
        field.get("medians", {}).get("A", {}).get("drain_s", 0) > 0 else f"{facts}"


def _judge_tune(text: str, watch: dict[str, Any], writer: int) -> Iterator[tuple[str, str]]:
    """tune's apply and undo; on a kernel with the series that its knobs are set and its counters read."""
    for name in ("tune", "apply-read-latency", "apply-unplug", "undo"):
        _, code, errors = part(text, name)
        yield f"{name} ends well", "" if code == 0 and "Traceback" not in errors else f"exit code {code}: {errors}"
    before, after = part(text, "before")[0], part(text, "after")[0]
    yield "everything is as it was after undo", "" if before and before == after else f"{before} -> {after}"
    reads, unplug = part(text, "state-read-latency")[0], part(text, "state-unplug")[0]
    if f"{MARK}series" not in text:
        yield "max_sectors_kb is set for reads", "" if "max_sectors_kb 128" in reads.splitlines() else reads
        known = "strict_limit" in before  # from 6.2 on
        yield "strict_limit is set for unplugging", "" if "strict_limit 1" in unplug.splitlines() or not known \
            else unplug
        return
    yield "wbt_policy is set for reads", "" if re.search(r"^wbt_policy .*\[bytes\]", reads, re.MULTILINE) else reads
    yield "max_drain_ms is set for unplugging", "" if "max_drain_ms 2000" in unplug.splitlines() else unplug
    yield "watch reads the kernel's counters", "" if watch.get("source") == "counters" else f"{watch.get('source')}"
    disk = next((d for d in watch.get("devices", []) if d["name"] == "vda"), {})
    yield "bytes in flight are the kernel's own", "" if disk.get("inflight_estimated") is False else f"{disk}"
    yield "task, disk and system count the same sleep", _same_sleep(_json(text, "held"), writer)


def _same_sleep(held: dict[str, Any], writer: int) -> str:
    """What differs between three counters of the only sleeper, in a report that begins and ends while it is stopped."""
    task = next((t for t in held.get("tasks", []) if t["pid"] == writer), {})
    disk = next((d for d in held.get("devices", []) if d["name"] == "vda"), {})
    system = held.get("throttle") or {}
    slept = [counter.get("slept_ms", 0) for counter in (task, disk, system)]
    # The system's counts whole microseconds of each sleep, the others nanoseconds.
    rounding_ms = 1e-3 * (system.get("sleeps", 0) + 1)
    same = max(slept) - min(slept) < rounding_ms and task.get("sleeps") == system.get("sleeps")
    return "" if same and min(slept) > 100 else f"{slept} ms in {task.get('sleeps')} and {system.get('sleeps')} sleeps"


def try_kernel(debs: Sequence[Path], wb: Path, version: str) -> Iterator[tuple[str, str]]:
    """Boot the kernel of a package with ``wb``; yields the release with what must hold, and problems."""
    with tempfile.TemporaryDirectory(prefix="wb-guest-") as scratch:
        root = Path(scratch) / "root"
        release, image = (built, debs[0]) if (built := own(debs[0])) else unpack(debs, root)
        place = BUILD / "package" / f"guest-{release}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        image_root = Path(scratch) / "initrd"
        initrd(wb, modules(root, release), image_root)
        say(f"  {release}: booting")
        text = boot(image, image_root, place)
        for name, problem in judge(text, release, version):
            yield f"{release}: {name}", problem


def main(debs: list[str], wb: Path, version: str) -> int:
    """Each kernel in turn; a line per result, and the closing line of ``wb check``."""
    passed = failed = 0
    kernels = [[Path(name) for name in deb.split(",")] for deb in debs]
    for deb in (d for k in kernels for d in k):
        if not deb.is_file() or not os.access(deb, os.R_OK):
            raise WbError(f"--guest {deb}: no such file; apt-get download linux-image-...", 2)
    for kernel in kernels:
        try:
            found = list(try_kernel(kernel, wb, version))
        except WbError as exc:
            if exc.code == 2:
                raise
            found = [(kernel[0].name, str(exc))]
        for name, problem in found:
            print(f"{'FAIL' if problem else 'ok  '} {name}" + (f": {problem}" if problem else ""), flush=True)
            passed, failed = passed + (not problem), failed + bool(problem)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
