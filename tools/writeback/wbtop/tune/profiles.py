# SPDX-License-Identifier: GPL-2.0
"""Who else sets what ``wb tune`` sets: tuned's profiles, other sysctl.d and udev files."""

from __future__ import annotations

import configparser
import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wbtop.machine import Machine

SYSCTL_FILE = "/etc/sysctl.d/90-calm-writeback.conf"
UDEV_FILE = "/etc/udev/rules.d/90-calm-writeback.rules"

# The values of tuned 2bfa4423586b, for a profile whose file is not readable. Ratios in %, times in cs.
_SLOW = {"vm.dirty_expire_centisecs": "500", "vm.dirty_writeback_centisecs": "100"}
TUNED = {
    "throughput-performance": {"vm.dirty_ratio": "40", "vm.dirty_background_ratio": "10"},
    "latency-performance": {"vm.dirty_ratio": "10", "vm.dirty_background_ratio": "3"},
    "virtual-guest": {"vm.dirty_ratio": "30"},
    "virtual-host": {"vm.dirty_background_ratio": "5"},
    "oracle": {"vm.dirty_ratio": "40", "vm.dirty_background_ratio": "3", **_SLOW},
    "mssql": {"vm.dirty_ratio": "80", "vm.dirty_background_ratio": "3", **_SLOW},
    "postgresql": {"vm.dirty_bytes": "536870912", "vm.dirty_background_bytes": "67108864"},
    "spindown-disk": {"vm.dirty_ratio": "60", "vm.dirty_expire_centisecs": "9000",
                      "vm.dirty_writeback_centisecs": "6000"},
    "powersave": {"vm.dirty_writeback_centisecs": "1500"},
}
_PROFILE_DIRS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
# Where tuned looks for the administrator's profiles, by where its own are: from 2.23 on below profiles/.
_HOMES = (("/usr/lib/tuned/profiles", "/etc/tuned/profiles"), ("/usr/lib/tuned", "/etc/tuned"))
_MAX_INCLUDES = 16
_SYSCTL_DIRS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
_UDEV_DIRS = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")


@dataclass(frozen=True)
class Conflict:
    """Somebody else's setting of a key that is to be set. wins: it is applied after ours."""

    who: str
    setting: str
    wins: bool

    def __str__(self) -> str:
        """One line for the report."""
        return f"{self.who} sets {self.setting}" + (" and is applied later: it will win" if self.wins else "")


def twin(name: str) -> str:
    """The same limit as a ratio, or in bytes."""
    return name.replace("bytes", "ratio") if name.endswith("bytes") else name.replace("ratio", "bytes")


def active_profile(machine: Machine) -> list[str]:
    """The names in /etc/tuned/active_profile; none without tuned, or when it is off."""
    return (machine.text("/etc/tuned/active_profile") or "").split()


def profile_home(machine: Machine) -> str | None:
    """The directory of the administrator's profiles; None where tuned is not installed."""
    return next((home for own, home in _HOMES if machine.exists(own)), None)


def has_vm_plugin(machine: Machine) -> bool:
    """Whether this tuned sets dirty limits by its plugin vm, as its own profiles then do (2.25), not as sysctls."""
    text = machine.text("/usr/lib/tuned/profiles/throughput-performance/tuned.conf") or ""
    return re.search(r"^\[vm\]\n(?:[^\[].*\n|\n)*dirty_ratio\b", text + "\n", re.MULTILINE) is not None


def profile_settings(machine: Machine, name: str, _seen: frozenset[str] = frozenset()) -> dict[str, str]:
    """vm.dirty_* and elevator of a tuned profile, with those it includes; the known values without its file.

    The section vm of tuned 2.25 has them without the "vm.".
    """
    if name in _seen or len(_seen) > _MAX_INCLUDES:
        return {}
    for directory in _PROFILE_DIRS:
        text = machine.text(f"{directory}/{name}/tuned.conf") if "/" not in name else None
        if text is not None:
            return _parse(machine, text, _seen | {name})
    return dict(TUNED.get(name, {}))


def _parse(machine: Machine, text: str, seen: frozenset[str]) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    found: dict[str, str] = {}
    for parent in re.split(r"[,\s]+", parser.get("main", "include", fallback="") or ""):
        if parent:
            found |= profile_settings(machine, parent, seen)
    for section in parser.sections():
        for key, value in parser.items(section):
            plugin = parser.get(section, "type", fallback=section)
            name = ("vm." if plugin == "vm" else "") + key.replace("/", ".")
            if value and (name.startswith("vm.dirty_") or name == "elevator"):
                # tuned reads vm.dirty_bytes = 40% as vm.dirty_ratio = 40.
                if name.endswith("bytes") and value.strip().endswith("%"):
                    name, value = name.replace("bytes", "ratio"), value.strip().rstrip("%")
                # wb's own "<1" sets nothing: see tuned_text().
                if not value.strip().startswith("<"):
                    found.pop(twin(name), None)  # of a profile that is included: this one clears it
                    found[name] = value.strip()
    return found


def _same(key: str, other: str) -> bool:
    """True if ``other`` sets ``key``, or its twin, which clears it."""
    twin = key.replace("bytes", "ratio") if key.endswith("bytes") else key
    return other in (key, twin)


def _files(machine: Machine, directories: Iterable[str], suffix: str) -> list[str]:
    """Files in the order in which they are applied: by name; of two with one name the first directory's."""
    found: dict[str, str] = {}
    for directory in directories:
        for name in machine.names(directory):
            if name.endswith(suffix):
                found.setdefault(name, f"{directory}/{name}")
    return [found[name] for name in sorted(found)]


_TOKEN = re.compile(r'([A-Z_]+(?:\{[^}]*\})?)\s*(==|!=|[-+:]?=)\s*"([^"]*)"')


def _holds(machine: Machine, disk: str, key: str, patterns: str) -> bool | None:
    """Whether ``key`` of a disk's event matches, as in udev(7); None for what only udev knows. disk: "", if unknown."""
    if not disk:
        return None
    if key.startswith("ATTR{"):
        value = machine.text(f"/sys/block/{disk}/{key[5:-1]}")
        if value is None and not machine.exists(f"/sys/block/{disk}"):
            return None
    else:
        if key == "ACTION" and {"add", "change"} & set(patterns.split("|")):
            return None  # both come, one after the other
        value = {"KERNEL": disk, "SUBSYSTEM": "block", "ACTION": "add", "ENV{DEVTYPE}": "disk"}.get(key)
        if value is None:
            return None
    return value is not None and any(fnmatch.fnmatchcase(value, p) for p in patterns.split("|"))


def _udev_sets(machine: Machine, text: str, disk: str) -> Iterator[tuple[str, str]]:
    """Attributes that rules may set for a disk, with their values; what only udev knows counts as matching."""
    label = None
    for line in re.sub(r"\\\n", " ", text).splitlines():
        tokens = _TOKEN.findall("" if line.lstrip().startswith("#") else line)
        if label and ("LABEL", "=", label) not in tokens:
            continue
        label = None
        held = [_holds(machine, disk, key, value) if op == "==" else
                None if (found := _holds(machine, disk, key, value)) is None else not found
                for key, op, value in tokens if op in ("==", "!=")]
        if False in held:
            continue
        if None not in held:
            label = next((value for key, op, value in tokens if key == "GOTO"), None)
        yield from ((key[5:-1], value) for key, op, value in tokens if key.startswith("ATTR{") and op in ("=", ":="))


def conflicts(machine: Machine, keys: Iterable[str]) -> list[Conflict]:
    """Everybody else who sets one of ``keys`` (vm.dirty_bytes, queue.sda.scheduler, bdi.max_bytes)."""
    wanted = list(keys)
    found: list[Conflict] = []
    queue = {k.rsplit(".", 1)[1] for k in wanted if k.startswith("queue.")}
    # The bdi's own name tells no disk.
    disks = sorted({k[len("queue."):].rpartition(".")[0] for k in wanted if k.startswith("queue.")}) or [""]
    bdi = {k.rsplit(".", 1)[1] for k in wanted if k.startswith("bdi.")}
    # By default tuned applies sysctl.d again after its own values, so that sysctl.d wins.
    again = re.search(r"^\s*reapply_sysctl\s*=\s*(0|false|no)\b", machine.text("/etc/tuned/tuned-main.conf") or "",
                      re.MULTILINE | re.IGNORECASE) is None
    for profile in active_profile(machine):
        for name, value in profile_settings(machine, profile).items():
            if any(_same(k, name) for k in wanted) or (name == "elevator" and "scheduler" in queue):
                # It starts after systemd-sysctl and udev.
                found.append(Conflict(f"tuned's active profile {profile}", f"{name} = {value}",
                                      wins=not again or name == "elevator"))
    # systemd reads /etc/sysctl.conf only by the link 99-sysctl.conf, which Debian 13 does not have any more.
    systemd = any(machine.exists(f"{d}/systemd/systemd-sysctl") for d in ("/usr/lib", "/lib"))
    files = _files(machine, _SYSCTL_DIRS, ".conf")
    for file in files if systemd else [*files, "/etc/sysctl.conf"]:
        if file == SYSCTL_FILE:
            continue
        for line in (machine.text(file) or "").splitlines():
            match = re.match(r"\s*-?\s*([A-Za-z0-9_./]+)\s*=\s*(\S+)", line)
            name = match.group(1).replace("/", ".") if match else ""
            if match and any(_same(k, name) for k in wanted):
                later = file == "/etc/sysctl.conf" or file.rsplit("/", 1)[1] > SYSCTL_FILE.rsplit("/", 1)[1]
                found.append(Conflict(file, f"{name} = {match.group(2)}", wins=later))
    for file in _files(machine, _UDEV_DIRS, ".rules"):
        if file == UDEV_FILE:
            continue
        text = machine.text(file) or ""
        for attribute, value in dict.fromkeys(s for d in disks for s in _udev_sets(machine, text, d)):
            kind, _, name = attribute.partition("/")
            if name in {"queue": queue, "bdi": bdi}.get(kind, ()):
                later = file.rsplit("/", 1)[1] > UDEV_FILE.rsplit("/", 1)[1]
                found.append(Conflict(file, f"{kind}/{name} = {value}, for some disks", wins=later))
    return found
