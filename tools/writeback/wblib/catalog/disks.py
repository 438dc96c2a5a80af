# SPDX-License-Identifier: GPL-2.0
"""The modelled disks, from the module's own table, and what follows from their numbers."""

import re
import subprocess
from dataclasses import dataclass
from functools import cache

from wblib.base.paths import SELFTESTS
from wblib.base.proc import need
from wbtop.errors import WbError

TABLE = SELFTESTS / "test_modules" / "model" / "wbdisk_profiles.h"
READ = 4096


@dataclass(frozen=True)
class Disk:
    """One profile. word: what --disk calls it; name: what the module does; numbers: all that its entry sets."""

    word: str
    name: str
    model: str
    numbers: dict[str, int]

    def __getitem__(self, number: str) -> int:
        return self.numbers.get(number, 0)

    @property
    def rotational(self) -> bool:
        """Whether its media rotate."""
        return bool(self["rotational"])

    @property
    def write_mbps(self) -> float:
        """Sequential writes of its largest size, in MB/s."""
        link = float(self["link_mbps"])
        if self.model == "hdd":
            return min(link, self["media_mbps_outer"])
        if self.model == "fifo":
            return link
        flash = self["channels"] * self["dies_per_channel"] * self["prog_kib"] * 1024e3 / self["t_prog_ns"]
        if self["queue_depth"] > 1 or self["write_cache"]:
            return min(link, flash)
        size = self["max_io_kib"] * 1024
        return size / (size / link + size / flash + self["latency_ns"] / 1e3)

    @property
    def read_us(self) -> float:
        """A random read of 4 KiB on the idle disk."""
        us = self["latency_ns"] / 1e3 + READ / self["link_mbps"]
        if self.model == "ssd":
            us += self["t_read_ns"] / 1e3 + READ / self["channel_mbps"]
        if self.model == "hdd":
            us += self["seek_avg_ns"] / 1e3 + 30e6 / self["rpm"] + READ / self["media_mbps_outer"]
        return us


@cache
def disks() -> dict[str, Disk]:
    """Every disk of the table by its word, in its order."""
    done = subprocess.run([need("cc", "gcc"), "-E", "-P", "-x", "c", str(TABLE)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise WbError(f"{TABLE.name}: {done.stderr.strip().splitlines()[-1:]}")
    found = {}
    for word, name, body in re.findall(r'WBD_PROFILE\(\s*(\w+),\s*"([^"]+)",([^)]*)\)', done.stdout):
        model = re.search(r"\.model = WBD_MODEL_(\w+)", body)
        numbers = {k: int(v, 0) for k, v in re.findall(r"\.(\w+) = (\d\w*)", body)}
        found[word] = Disk(word, name, model[1].lower() if model else "fifo", numbers)
    return found
