# SPDX-License-Identifier: GPL-2.0
"""What ``wb tune`` reads: the directory's file system and disks, memory, and the settings in force."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wbtop.errors import WbError
from wbtop.machine import PAGE, Dirty, Machine, dirty, dirtyable_pages, disk_of, lower_disks, nvme_head

VM = "/proc/sys/vm"
DIRTY_KNOBS = ("dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes",
               "dirty_expire_centisecs", "dirty_writeback_centisecs")


@dataclass(frozen=True)
class Disk:
    """One disk with its queue settings. None: this kernel or disk has no such setting."""

    name: str
    dev: str
    model: str
    identity: tuple[str, str] | None  # udev's property and its value, such as ID_SERIAL
    usb: bool
    rotational: bool
    removable: bool
    scheduler: str | None
    schedulers: tuple[str, ...]
    max_sectors_kb: int | None
    max_hw_sectors_kb: int | None
    nr_requests: int | None
    wbt_lat_usec: int | None
    wbt_policy: str | None
    zoned: str | None = None  # the kind of zones, such as host-managed; None: a disk without
    virtual: bool = False  # a hypervisor's, whose queue/rotational says nothing
    iocost: bool = False  # io.cost with QoS limits it, and has turned wbt off

    def queue(self, name: str) -> str:
        """Path of a queue attribute."""
        return f"/sys/block/{self.name}/queue/{name}"


def wbt_default_usec(*, rotating: bool) -> int:
    """wbt_default_latency_nsec() of block/blk-wbt.c: 75 ms with rotating media, else 2 ms."""
    return 75_000 if rotating else 2_000


@dataclass(frozen=True)
class Bdi:
    """The backing device of the file system: where dirty pages are counted and limited."""

    name: str
    max_bytes: int | None
    max_ratio_fine: int | None
    strict_limit: int | None
    max_drain_ms: str | None
    exact_bytes: bool  # the series: max_bytes stays what was written

    def file(self, name: str) -> str:
        """Path of an attribute."""
        return f"/sys/class/bdi/{self.name}/{name}"


@dataclass(frozen=True)
class Facts:
    """Everything the rules look at, besides the measurement. Sizes in bytes."""

    directory: str
    mountpoint: str
    fs: str
    source: str
    disks: tuple[Disk, ...]
    bdi: Bdi | None
    release: str
    ram: int
    dirtyable: int
    now: Dirty
    vm: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The facts for --json."""
        return asdict(self)


def identity_of(machine: Machine, dev: str) -> tuple[str, str] | None:
    """A property of udev that stays with the disk, from udev's database."""
    text = machine.text(f"/run/udev/data/b{dev}") or ""
    # The last is that of a multipath map, whose number can be another one's after a boot.
    for name in ("ID_SERIAL", "ID_WWN", "DM_UUID"):
        match = re.search(rf"^E:{name}=([A-Za-z0-9_.:+@%-]+)$", text, re.MULTILINE)
        if match:
            return name, match.group(1)
    return None


def identity_of_disk(machine: Machine, name: str) -> tuple[str, str] | None:
    """The same by the name in /sys/block; udev knows a hidden path of a multipath NVMe by its head only."""
    return identity_of(machine, machine.text(f"/sys/block/{nvme_head(name) or name}/dev") or "")


def _iocost(machine: Machine, dev: str) -> bool:
    """Whether io.cost.qos of cgroup v2, alone or beside v1, is on for the disk."""
    text = "\n".join(machine.text(f"/sys/fs/cgroup/{d}io.cost.qos") or "" for d in ("", "unified/"))
    return bool(dev) and re.search(rf"^{re.escape(dev)} (.* )?enable=1\b", text, re.MULTILINE) is not None


def _virtual(machine: Machine, name: str, model: str) -> bool:
    """A disk of virtio, Xen, VMware or Hyper-V: by its name, its model or the bus that it is on."""
    root, real = machine.root.resolve(), machine.path(f"/sys/block/{name}").resolve()
    place = f"/{real.relative_to(root)}/" if real.is_relative_to(root) else ""
    return re.fullmatch(r"x?vd[a-z]+", name) is not None \
        or re.match(r"QEMU|VBOX|VMware|Virtual[ _][Dd]isk", model) is not None \
        or re.search(r"/(virtio[0-9]+|vbd-[0-9]+|VMBUS:[0-9]+)/", place) is not None


def read_disk(machine: Machine, name: str) -> Disk:
    """The disk ``name`` of /sys/block."""
    base = f"/sys/block/{name}"
    queue = f"{base}/queue"
    dev = machine.text(f"{base}/dev") or ""
    real = str(machine.path(base).resolve())
    model = (machine.text(f"{base}/device/model") or "").strip()
    return Disk(
        name=name, dev=dev, model=model,
        identity=identity_of_disk(machine, name), usb="/usb" in real,
        rotational=machine.number(f"{queue}/rotational") == 1, removable=machine.number(f"{base}/removable") == 1,
        scheduler=machine.choice(f"{queue}/scheduler"), schedulers=machine.choices(f"{queue}/scheduler"),
        max_sectors_kb=machine.number(f"{queue}/max_sectors_kb"),
        max_hw_sectors_kb=machine.number(f"{queue}/max_hw_sectors_kb"),
        nr_requests=machine.number(f"{queue}/nr_requests"),
        wbt_lat_usec=machine.number(f"{queue}/wbt_lat_usec"), wbt_policy=machine.choice(f"{queue}/wbt_policy"),
        zoned=None if (zoned := machine.choice(f"{queue}/zoned")) == "none" else zoned,
        virtual=_virtual(machine, name, model), iocost=_iocost(machine, dev),
    )


def _read_bdi(machine: Machine, name: str) -> Bdi | None:
    base = f"/sys/class/bdi/{name}"
    if not machine.exists(base):
        return None
    return Bdi(name, machine.number(f"{base}/max_bytes"), machine.number(f"{base}/max_ratio_fine"),
               machine.number(f"{base}/strict_limit"), machine.text(f"{base}/max_drain_ms"),
               exact_bytes=machine.exists(f"{base}/dirty_throttled_usec"))


def _mounts(machine: Machine) -> Iterator[tuple[str, str, str, str, str]]:
    """Number, device number, mount point, type and source of each mount."""
    for line in (machine.text("/proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        if "-" in fields and len(fields) > 4:
            rest = fields[fields.index("-") + 1:]
            if len(rest) >= 2:
                yield fields[0], fields[2], fields[4], rest[0], rest[1]


def mount_of(machine: Machine, dev: str) -> tuple[str, str, str]:
    """Mount point, type and source of the file system with the device number ``dev``."""
    return next(((place, fs, source) for _, number, place, fs, source in _mounts(machine) if number == dev),
                ("", "", ""))


def device_number(machine: Machine, directory: str) -> str:
    """That of the mount of ``directory``: each subvolume of btrfs has another one, which no mount has."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        number = os.fstat(fd).st_dev
        match = re.search(r"^mnt_id:\s+([0-9]+)$", machine.text(f"/proc/self/fdinfo/{fd}") or "", re.MULTILINE)
    finally:
        os.close(fd)
    mine = next((dev for mount, dev, *_ in _mounts(machine) if match and mount == match[1]), None)
    return mine or f"{os.major(number)}:{os.minor(number)}"


def _disk_name(machine: Machine, dev: str, source: str) -> str | None:
    """The disk of a file system; by its source where it has a number of its own, as btrfs."""
    disk = disk_of(machine, dev)
    if disk is None and source.startswith("/dev/"):
        disk = _disk_of_node(machine, machine.path(source).resolve().name)
    return disk


def _disk_of_node(machine: Machine, node: str) -> str | None:
    number = machine.text(f"/sys/class/block/{node}/dev")
    return disk_of(machine, number) if number else None


def _btrfs(machine: Machine, source: str) -> tuple[str | None, list[str]]:
    """The bdi and the disks of the btrfs that has ``source`` among its devices; nothing before 5.10."""
    node = machine.path(source).resolve().name
    for one in machine.names("/sys/fs/btrfs"):
        nodes = machine.names(f"/sys/fs/btrfs/{one}/devices")
        if node in nodes:
            bdi = machine.path(f"/sys/fs/btrfs/{one}/bdi")
            return bdi.resolve().name if bdi.exists() else None, \
                [d for n in nodes if (d := _disk_of_node(machine, n)) is not None]
    return None, []


def read(machine: Machine, directory: str, dev: str | None = None) -> Facts:
    """The facts about ``directory``; dev: its device number, when not to be asked from the file system.

    Raises WbError when there is no local disk below it or /proc does not tell what is needed.
    """
    if dev is None:
        dev = device_number(machine, directory)
    mountpoint, fs, source = mount_of(machine, dev)
    sources = source.split(":") if fs == "bcachefs" else [source]  # of several devices: /dev/sda:/dev/sdb
    name = _disk_name(machine, dev, sources[0])
    if name is None:
        raise WbError(f"{directory}: no disk of this machine is below its file system "
                      f"({fs or 'unknown'}, {source or dev}): there is nothing to tune here"
                      + ("; in a container give a directory of a volume" if fs == "overlay" else ""))
    state, pages = dirty(machine), dirtyable_pages(machine)
    if state is None or pages is None:
        raise WbError("/proc/vmstat and /proc/zoneinfo do not tell the dirty limits: is /proc mounted?")
    vm = {k: v for k in DIRTY_KNOBS if (v := machine.number(f"{VM}/{k}")) is not None}
    total = machine.keyed("/proc/meminfo").get("MemTotal", 0) << 10
    disk_dev = machine.text(f"/sys/block/{name}/dev") or ""
    named, tops = _btrfs(machine, source) if fs == "btrfs" else \
        (None, [d for s in sources if (d := _disk_name(machine, dev, s)) is not None])
    # The file system's own before that of its disk: that is where its dirty pages are counted.
    bdi = (_read_bdi(machine, named) if named else None) or _read_bdi(machine, dev) or _named_bdi(machine, fs, dev) \
        or _read_bdi(machine, disk_dev)
    disks = dict.fromkeys(low for top in tops or [name] for low in lower_disks(machine, top))
    return Facts(
        directory=directory, mountpoint=mountpoint, fs=fs, source=source,
        disks=tuple(read_disk(machine, d) for d in disks), bdi=bdi,
        release=machine.text("/proc/sys/kernel/osrelease") or os.uname().release,
        ram=total, dirtyable=pages * PAGE, now=state, vm=vm,
    )


def reset_by_scheduler(machine: Machine, queue: str) -> list[str]:
    """What a switch of the scheduler sets to its defaults, in the order in which to restore it afterwards."""
    # nr_requests first: async_depth follows it, which is one of iosched's before 7.3.
    names = ("nr_requests", "async_depth", *(f"iosched/{name}" for name in machine.names(f"{queue}/iosched")))
    return [f"{queue}/{name}" for name in names]


def _named_bdi(machine: Machine, fs: str, dev: str) -> Bdi | None:
    """btrfs names its bdi itself; with one such file system there is no doubt which it is."""
    found = [n for n in machine.names("/sys/class/bdi") if n.startswith(f"{fs}-")] if dev.startswith("0:") else []
    return _read_bdi(machine, found[0]) if len(found) == 1 else None


def check_directory(directory: str) -> Path:
    """``directory`` as an absolute path; WbError (code 2) when it is not a writable directory."""
    path = Path(directory).absolute()
    if not path.is_dir():
        why = "not a directory: name one on the disk, such as its mount point" if path.exists() else "no such directory"
        raise WbError(f"{directory}: {why}", 2)
    if not os.access(path, os.W_OK):
        raise WbError(f"{directory}: cannot be written to, and the measurement needs a file there", 2)
    return path
