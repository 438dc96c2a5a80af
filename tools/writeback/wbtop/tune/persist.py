# SPDX-License-Identifier: GPL-2.0
"""What ``wb tune --apply`` sets at the next boot: a sysctl.d file and udev rules, that of earlier calls kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from wbtop.machine import dev_name, nvme_head

from .facts import Facts
from .profiles import twin
from .rules import Advice

HEAD = "# Written by 'wb tune --apply'; 'wb tune --undo' removes it and restores every value.\n"
TUNED_HEAD = "# Written by 'wb tune --tuned'; tuned-adm puts the values back when another profile is chosen.\n"
_RULE = 'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", '
_ATTRIBUTE = r'ATTR\{([a-z_/]+)\}="([^"]*)"'


def sysctl_text(changes: Sequence[Advice], before: str | None = None) -> str:
    """The sysctl.d file with what ours (``before``) sets already; empty when no sysctl is changed."""
    new = {a.key: f"# {a.reason}\n{a.key} = {a.value}\n" for a in changes if a.key.startswith("vm.")}
    if not new:
        return ""
    kept: dict[str, str] = {}
    if before is not None and before.startswith(HEAD):
        for match in re.finditer(r"(?:^#.*\n)?^(vm\.[a-z_]+) = .*\n", before[len(HEAD):], re.MULTILINE):
            if match[1] not in new and twin(match[1]) not in new:
                kept[match[1]] = match[0]
    return HEAD + "".join([*kept.values(), *new.values()])


def _match(facts: Facts, disk: str) -> str:
    """The part of a rule that picks a disk."""
    found = next((d for d in facts.disks if d.name == disk), None)
    if found is not None and found.identity is not None:
        return f'ENV{{{found.identity[0]}}}=="{found.identity[1]}"'
    # device_set_sysname_and_sysnum() of systemd has the name as in /dev before it is compared.
    return f'KERNEL=="{dev_name(disk)}"'


def _rules(before: str | None) -> dict[str, dict[str, str]]:
    """What our file sets: the part of a rule that picks a disk -> attribute -> value."""
    found: dict[str, dict[str, str]] = {}
    if before is not None and before.startswith(HEAD):
        for line in before.splitlines():
            match = re.fullmatch(rf'{re.escape(_RULE)}([A-Z_{{}}]+=="[^"]*"), ({_ATTRIBUTE}(?:, {_ATTRIBUTE})*)', line)
            if match:
                found.setdefault(match[1], {}).update(re.findall(_ATTRIBUTE, match[2]))
    return found


def udev_text(facts: Facts, changes: Sequence[Advice], before: str | None = None) -> str:
    """The udev rules with those of our file (``before``); empty when nothing of a disk is changed."""
    new: dict[str, dict[str, str]] = {}
    for a in changes:
        if a.key.startswith("queue."):
            disk, name = a.key.split(".", 1)[1].rsplit(".", 1)
            if nvme_head(disk):
                continue  # hidden: no uevent; that of its head comes before other paths are there, or come back
            new.setdefault(_match(facts, disk), {})[f"queue/{name}"] = str(a.value)
        elif a.key.startswith("bdi."):
            name = a.key.split(".", 1)[1]
            # A bdi belongs to the disk that the file system is on, which has it as bdi/.
            where = _match(facts, facts.disks[0].name) if len(facts.disks) == 1 else None
            if where is not None and facts.bdi is not None and facts.bdi.name == facts.disks[0].dev:
                new.setdefault(where, {})[f"bdi/{name}"] = str(a.value)
    if not new:
        return ""
    rules = _rules(before)
    for match, attributes in new.items():
        # The scheduler first: it resets others.
        both = rules.get(match, {}) | attributes
        rules[match] = dict(sorted(both.items(), key=lambda item: item[0] != "queue/scheduler"))
    lines = [f"{_RULE}{match}, " + ", ".join(f'ATTR{{{k}}}="{v}"' for k, v in attributes.items()) + "\n"
             for match, attributes in rules.items()]
    by_name = "# By kernel name, for want of a serial number: check it after hardware changes.\n" \
        if any("KERNEL==" in line for line in lines) else ""
    return HEAD + by_name + "".join(lines)


def for_tuned(facts: Facts, change: Advice) -> Advice:
    """``change`` as a setting that tuned can verify and put back.

    A stock kernel keeps max_bytes as a share of the dirty limit: it reads as another
    number soon, and what it read may be refused later.  max_ratio_fine is that share.
    """
    bdi, limit = facts.bdi, facts.now.limit
    if change.key != "bdi.max_bytes" or bdi is None or bdi.exact_bytes or bdi.max_ratio_fine is None or not limit:
        return change
    share = max(1, min(1_000_000, int(change.value or 0) * 1_000_000 // limit))
    return replace(change, key="bdi.max_ratio_fine", file=bdi.file("max_ratio_fine"), current=str(bdi.max_ratio_fine),
                   value=str(share))


def _tuned_vm(changes: Sequence[Advice], plugin: bool) -> list[str]:
    """The section that sets vm.*.

    tuned puts back what it has read before it wrote, and the kernel refuses to take
    0 bytes back where a ratio was in force.  Its plugin vm knows that; "drop" is for
    the ratios of an included profile, which would be in force beside ours for it.  As
    sysctls, "<1" makes tuned keep the ratio, too, which is restored first; that is of
    no effect once bytes are set, so that tuned-adm verify finds nothing wrong.
    """
    ours = [a for a in changes if a.key.startswith("vm.")]
    if not ours:
        return []
    if plugin and all(a.key.endswith(("bytes", "ratio")) for a in ours):
        names = [a.key.removeprefix("vm.") for a in ours]
        return ["\n[vm]\n", f"drop={','.join(map(twin, names))}\n",
                *(f"{name}={a.value}\n" for name, a in zip(names, ours))]
    return ["\n[sysctl]\n", *(line for a in ours for line in
                              ([f"{twin(a.key)}=<1\n"] if a.key.endswith("_bytes") else [])
                              + [f"{a.key}={a.value}\n"])]


def tuned_text(changes: Sequence[Advice], summary: str, include: str = "", *, vm_plugin: bool = False) -> str:
    """A profile for tuned: what is active now and these values. Disks are named as the kernel does now."""
    # The scheduler first: it resets others.
    files = sorted((a for a in changes if not a.key.startswith("vm.")), key=lambda a: not a.key.endswith(".scheduler"))
    parts = [TUNED_HEAD, "[main]\n", f"summary={' '.join(summary.split())}\n"]
    parts += [f"include={include}\n"] if include else []
    parts += _tuned_vm(changes, vm_plugin)
    parts += ["\n[sysfs]\n", *(f"{a.file}={a.value}\n" for a in files)] if files else []
    return "".join(parts)
