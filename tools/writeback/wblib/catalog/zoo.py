# SPDX-License-Identifier: GPL-2.0
"""The zoo: devices that people have, and whether throttling does harm on any of them: ``wb bench zoo``.

``law/zoo.toml`` in the selftests is the one declaration of them.
"""

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from wblib.base.paths import SELFTESTS
from wbtop.errors import WbError

from . import axes as ax

SUITE = "zoo"
DECLARED = SELFTESTS / "law" / "zoo.toml"
# What each device is run with: nothing that writes, the kernel's own policy, and stock's.
RUNS = ("writer=idle", "writer=buffered", "writer=buffered policy=requests")
# The readers begin 0.4 s before the writer, and end after it on most devices, s.
RUNTIME = 3
_KEYS = {"name", "what", "disk", "set", "load", "source", "assumed"}


@dataclass(frozen=True)
class Device:
    """One device. set, load: attributes of the modelled disk, and axes of read-latency; assumed: what has no source."""

    name: str
    what: str
    disk: str
    set: dict[str, int]
    load: dict[str, int | str]
    source: str
    assumed: str = ""

    def words(self) -> str:
        """Its axes, as ``suites.cell`` takes them."""
        attributes = ",".join(f"{k}={v}" for k, v in self.set.items())
        return " ".join([f"disk={self.disk}", *([f"disk-set={attributes}"] if attributes else []),
                         *(f"{k}={v}" for k, v in ({"runtime": RUNTIME} | self.load).items())])

    def axes(self) -> dict[str, str]:
        """All axes of its runs, at their defaults where it says nothing."""
        return ax.validate("read-latency", dict(w.split("=", 1) for w in self.words().split()))

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.what}", f"    {self.words()}", f"    source: {self.source}"]
        return "\n".join([*lines, *([f"    assumed: {self.assumed}"] if self.assumed else [])])


def read(path: Path = DECLARED) -> tuple[Device, ...]:
    """The devices that ``path`` declares; WbError if one is not complete or there twice."""
    found = []
    for entry in tomllib.loads(path.read_text())["device"]:
        name = entry.get("name", "a device without a name")
        if missing := _KEYS - {"assumed"} - set(entry):
            raise WbError(f"{path}: {name}: no {', '.join(sorted(missing))}")
        if unknown := set(entry) - _KEYS:
            raise WbError(f"{path}: {name}: what is {', '.join(sorted(unknown))}?")
        if name in (d.name for d in found):
            raise WbError(f"{path}: {name} is there twice")
        found.append(Device(**entry))
    return tuple(found)


@functools.cache
def devices() -> tuple[Device, ...]:
    """The zoo."""
    return read()


def lines() -> list[str]:
    """Its cells, as ``suites.cell`` takes them."""
    # Where wb is installed without the selftests, there is no zoo.
    return [f"read-latency {d.words()} {run}" for d in devices() for run in RUNS] if DECLARED.exists() else []


def needed(axes: dict[str, str], kernel: str, *, first: bool, lane: str) -> bool:
    """Whether a run says anything; first: it is of the first seed and kernel.

    An idle disk is the same for all of them, stock has one policy, and only QEMU's kernels have btrfs.
    """
    if axes["fs"] == "btrfs" and lane == "fast":
        return False
    if axes["writer"] == "idle":
        return first
    return axes["policy"] == "default" or kernel.partition("@")[0] != "stock"
