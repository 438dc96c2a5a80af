# SPDX-License-Identifier: GPL-2.0
"""A machine's /proc and /sys in a directory: one SATA disk with one partition, 4 GiB, defaults of the kernel."""

from pathlib import Path

from wbtop.machine import Machine
from wbtop.tune.measure import Measured

MIB = 1 << 20
DEV, PART = "8:0", "8:1"
# 20 % and 10 % of 3 GiB, in pages.
LIMIT, BACKGROUND = 157_286, 78_643
# Defaults that a switch to it sets: nr_requests, and what is below queue/iosched.
SCHEDULERS: dict[str, tuple[str, dict[str, str]]] = {
    "none": ("32", {}), "mq-deadline": ("256", {"fifo_batch": "16", "async_depth": "256"}),
    "kyber": ("256", {"read_lat_nsec": "2000000"}), "bfq": ("256", {"low_latency": "1"}),
}
ZONEINFO = """\
Node 0, zone      DMA
  pages free     3840
        high     100
        managed  3840
        protection: (0, 2000, 2000, 2000)
Node 0, zone    DMA32
  pages free     500000
        high     4000
        managed  700000
        protection: (0, 0, 0, 0)
  pagesets
    cpu: 0
              count:    300
              high:     49308
"""
VMSTAT = f"""\
nr_free_pages 503840
nr_inactive_file 200000
nr_active_file 100000
nr_dirty 1000
nr_writeback 200
nr_dirty_threshold {LIMIT}
nr_dirty_background_threshold {BACKGROUND}
"""


class FakeMachine:
    """Writes files below a root; ``machine`` reads them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = Machine(root)
        for name, text in {
            "/proc/zoneinfo": ZONEINFO, "/proc/vmstat": VMSTAT, "/proc/meminfo": "MemTotal:        4194304 kB\n",
            "/proc/self/mountinfo": f"30 1 {PART} / /srv rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
            "/proc/sys/kernel/osrelease": "6.12.117\n",
            "/proc/diskstats": "   8       0 sda 100 0 800 50 10 0 20480 30 0 40 80 0 0 0 0 0 0\n",
            "/sys/devices/sda/dev": f"{DEV}\n", "/sys/devices/sda/removable": "0\n",
            "/sys/devices/sda/inflight": "       0        4\n", "/sys/devices/sda/device/model": "Model 3 \n",
            "/sys/devices/sda/sda1/dev": f"{PART}\n", "/sys/devices/sda/sda1/partition": "1\n",
            "/run/udev/data/b8:0": "S:disk/by-id/x\nE:ID_SERIAL=Model_3_S1234\n",
        }.items():
            self.write(name, text)
        for name, value in {"ratio": 20, "bytes": 0, "background_ratio": 10, "background_bytes": 0,
                            "expire_centisecs": 3000, "writeback_centisecs": 500}.items():
            self.write(f"/proc/sys/vm/dirty_{name}", f"{value}\n")
        self.queue(rotational="0", scheduler="none [mq-deadline] kyber bfq", max_sectors_kb="1280",
                   max_hw_sectors_kb="32767", nr_requests="64", wbt_lat_usec="2000")
        # Not the defaults that SCHEDULERS have.
        self.queue(**{"iosched/fifo_batch": "8", "iosched/async_depth": "48"})
        self.bdi(max_bytes=str(LIMIT * 4096), max_ratio_fine="1000000", strict_limit="0", max_ratio="100")
        for link, target in {"/sys/block/sda": "../devices/sda", "/sys/dev/block/8:0": "../../devices/sda",
                             "/sys/dev/block/8:1": "../../devices/sda/sda1",
                             "/sys/class/block/sda": "../../devices/sda",
                             "/sys/class/block/sda1": "../../devices/sda/sda1"}.items():
            path = root / link.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)

    def write(self, name: str, text: str) -> None:
        """Write one file of the machine."""
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str) -> str:
        """One file of the machine."""
        return (self.root / name.lstrip("/")).read_text()

    def queue(self, **values: str) -> None:
        """Attributes of the disk's queue."""
        for name, value in values.items():
            self.write(f"/sys/devices/sda/queue/{name}", f"{value}\n")

    def switch(self, scheduler: str) -> None:
        """Another scheduler, with its own attributes and every default."""
        self.queue(scheduler=" ".join(SCHEDULERS).replace(scheduler, f"[{scheduler}]"))
        for path in (self.root / "sys/devices/sda/queue/iosched").glob("*"):
            path.unlink()
        depth, attributes = SCHEDULERS[scheduler]
        self.queue(nr_requests=depth, **{f"iosched/{k}": v for k, v in attributes.items()})

    def bdi(self, **values: str) -> None:
        """Attributes of the disk's backing device."""
        for name, value in values.items():
            self.write(f"/sys/class/bdi/{DEV}/{name}", f"{value}\n")

    def virtual(self) -> None:
        """The disk is a hypervisor's."""
        self.write("/sys/devices/sda/device/model", "QEMU HARDDISK\n")

    def disk(self, name: str, dev: str, **values: str) -> None:
        """One more disk, of NVMe."""
        for file, text in {**({"dev": dev} if dev else {}), "removable": "0", "device/model": "NVMe",
                           "queue/rotational": "0", "queue/scheduler": "[none] mq-deadline",
                           "queue/max_sectors_kb": "1280", "queue/wbt_lat_usec": "2000", **values}.items():
            self.write(f"/sys/devices/{name}/{file}", f"{text}\n")
        for link, target in {f"sys/block/{name}": f"../devices/{name}",
                             **({f"sys/dev/block/{dev}": f"../../devices/{name}"} if dev else {})}.items():
            (self.root / link).symlink_to(target)

    def stack(self, *lower: str) -> None:
        """dm-0 over the nodes ``lower``; nvme0n1 is made for it."""
        if "nvme0n1" in lower:
            self.disk("nvme0n1", "259:0")
        self.disk("dm-0", "253:0")
        for node in lower:
            link = self.root / f"sys/devices/dm-0/slaves/{node}"
            link.parent.mkdir(exist_ok=True)
            link.symlink_to("../../sda/sda1" if node == "sda1" else f"../../{node}")

    def patched(self, policy: str = "requests [bytes]") -> None:
        """A kernel with wbt_policy."""
        self.queue(wbt_policy=policy)

    def everything(self) -> dict[str, str]:
        """Every file below /proc, /sys, /etc and /var: what must be as before."""
        return {str(p.relative_to(self.root)): p.read_text() for p in sorted(self.root.rglob("*"))
                if p.is_file() and not p.is_symlink()}


def measured(write_mbps: float = 450.0, read_us: float = 110.0, p99_us: float | None = 150.0) -> Measured:
    """A measurement."""
    return Measured(256, 9.0, True, write_mbps, write_mbps, read_us, p99_us, 300.0, 900.0, 120.0, 30000.0, 80000.0,
                    write_mbps)
