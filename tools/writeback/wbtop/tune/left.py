# SPDX-License-Identifier: GPL-2.0
"""Settings that a command changes for a while: as they were, in a file, so that they come back after a SIGKILL, too."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from wbtop.errors import WbError
from wbtop.machine import Machine
from wbtop.proc import say

from .apply import disk_in, identity_in, is_setting, replace

# Gone after a reboot, as the settings are.
RECORD = "/run/calm-writeback-field.json"
_BOOT = "/proc/sys/kernel/random/boot_id"


def value(machine: Machine, file: str) -> str:
    """What is in force in ``file``; empty when it cannot be read."""
    return machine.choice(file) or ""


def restore(machine: Machine, before: Mapping[str, str]) -> list[str]:
    """Write ``before``: the scheduler first, then nr_requests, as they reset others; of bytes and ratio what is not 0.

    What is so already is not written: a 0 that bfq shows for wbt_lat_usec is a default, written it is a decision.
    Returns "file=value" of what did not work.
    """
    failed = []
    for file in sorted(before, key=lambda f: (not f.endswith("/scheduler"), not f.endswith("/nr_requests"), f)):
        pair = re.fullmatch(r"(.*/dirty_(?:background_)?)(bytes|ratio)", file)
        twin = f"{pair[1]}{'ratio' if pair[2] == 'bytes' else 'bytes'}" if pair else ""
        # Of the two, one is 0 and follows from the other; if both are, the ratio is in force.
        if pair and before[file] == "0" and (pair[2] == "bytes" or before.get(twin, "0") != "0"):
            continue
        if value(machine, file) == before[file] and (not pair or value(machine, twin) == before.get(twin, "0")):
            continue
        try:
            if pair and value(machine, file) == before[file]:
                # The same again is ignored, and would leave the other in force.
                machine.path(file).write_text("1" if before[file] != "1" else "2")
            machine.path(file).write_text(before[file])
        except OSError:
            failed.append(f"{file}={before[file]}")
    if failed:
        say(f"wb: not put back: {', '.join(failed)}")
    return failed


def record(machine: Machine, before: Mapping[str, str], sides: Mapping[str, Mapping[str, str]]) -> None:
    """Keep ``before``, what the settings of ``sides`` replace; WbError when it cannot be kept."""
    values = {f: sorted({s[f] for s in sides.values() if f in s}) for s in sides.values() for f in s}
    disks = {name: identity for f in before if (name := disk_in(f)) and (identity := identity_in(machine, name))}
    text = json.dumps({"boot_id": machine.text(_BOOT), "before": dict(before), "set": values, "disks": disks}, indent=1)
    try:
        replace(machine.path(RECORD), text + "\n", parents=False)
    except OSError as exc:
        raise WbError(f"{RECORD}: {exc.strerror}: nothing was changed") from exc


def forget(machine: Machine) -> None:
    """Everything is as it was."""
    machine.path(RECORD).unlink(missing_ok=True)


def _load(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
        before, ours = dict(found["before"]), dict(found["set"])
        if not (all(is_setting(f) and isinstance(v, str) for f, v in before.items())
                and all(isinstance(v, list) for v in ours.values()) and isinstance(found["disks"], dict)):
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise WbError(f"{RECORD}: damaged: put back by hand what a killed wb field has set, and remove it") from exc
    return found


def restore_left(machine: Machine) -> None:
    """Put back what a killed run has left set; to be called with the lock.

    Not what somebody has changed since, nor on another disk of that name. WbError when it does not work.
    """
    text = machine.text(RECORD)
    if text is None:
        return
    if os.geteuid() and machine.root.samefile("/"):
        say(f"  {RECORD} is there: a wb field of root runs, or was killed, and its settings may be in force")
        return
    found = _load(text)
    if found.get("boot_id") != machine.text(_BOOT):
        forget(machine)
        return
    before: dict[str, str] = found["before"]
    gone = {n for n, identity in found["disks"].items() if identity_in(machine, n) != tuple(identity)}
    foreign = {f for f, ours in found["set"].items() if f in before and value(machine, f) not in [*ours, before[f]]}
    # What a scheduler resets is somebody else's where the scheduler is.
    queues = {f.rpartition("/")[0] for f in foreign if f.endswith("/scheduler")}
    mine = {f: v for f, v in before.items() if disk_in(f) not in gone and f not in foreign
            and not any(f.startswith(f"{q}/") for q in queues)}
    schedulers = {f: v for f, v in mine.items() if f.endswith("/scheduler") and machine.exists(f)}
    failed = restore(machine, schedulers)
    rest = {f: v for f, v in mine.items() if f not in schedulers and machine.exists(f)}
    if failed := failed + restore(machine, rest):
        raise WbError(f"a wb field that was killed has left other settings; not put back: {', '.join(failed)}: set "
                      f"them, and remove {RECORD}")
    back = {**schedulers, **rest}
    if back:
        say("  put back what a killed wb field had set: " + ", ".join(f"{f}={v}" for f, v in back.items()))
    if foreign:
        say(f"  left as it is, since it was changed after that: {', '.join(sorted(foreign))}")
    with contextlib.suppress(OSError):
        forget(machine)
