# SPDX-License-Identifier: GPL-2.0
"""Applying advice: values now, a sysctl.d and a udev file for the next boot, a backup first; and undoing it.

The backup holds every value and file as it was before the first --apply that was
not undone; it is on the disk before anything is changed, and goes when everything
is as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wbtop.errors import WbError
from wbtop.machine import Machine, nvme_head
from wbtop.proc import uninterrupted

from .facts import VM, Bdi, Facts, identity_of, identity_of_disk, reset_by_scheduler
from .persist import sysctl_text, udev_text
from .profiles import SYSCTL_FILE, UDEV_FILE
from .rules import Advice

BACKUP = "/var/lib/calm-writeback/tune-backup.json"
VERSION = 1
# What a value in a backup may be: nothing there is ever run, only written to these files.
SETTING = re.compile(r"/proc/sys/vm/dirty_[a-z_]+|/sys/block/[^/]+/queue/(iosched/)?[a-z_]+"
                     r"|/sys/class/bdi/[^/]+/[a-z_]+")


@dataclass
class Backup:
    """What to put back.

    values: (file, value), in the order applied; files: path -> content, None if
    it was not there; disks: name in these files -> udev's property and its value.
    """

    values: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, str | None] = field(default_factory=dict)
    disks: dict[str, tuple[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What is in the backup's file."""
        return {"version": VERSION, "values": [list(v) for v in self.values], "files": self.files,
                "disks": {name: list(identity) for name, identity in self.disks.items()}}


def load_backup(machine: Machine) -> Backup | None:
    """The backup on this machine; None without one; WbError when it is damaged."""
    text = machine.text(BACKUP)
    if text is None:
        if machine.exists(BACKUP):
            raise WbError(f"{BACKUP}: cannot be read: run as root")
        return None
    try:
        data = json.loads(text)
        backup = Backup([(str(f), str(v)) for f, v in data["values"]], dict(data["files"]),
                        {str(name): (str(k), str(v)) for name, (k, v) in dict(data.get("disks", {})).items()})
        good = data["version"] == VERSION and all(is_setting(f) for f, _ in backup.values) \
            and backup.files.keys() <= {SYSCTL_FILE, UDEV_FILE} \
            and all(c is None or isinstance(c, str) for c in backup.files.values())
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise WbError(f"{BACKUP}: damaged ({exc}): restore the values by hand, then remove it") from exc
    if not good:
        raise WbError(f"{BACKUP}: not a backup of this wb: restore the values by hand, then remove it")
    return backup


def is_setting(file: str) -> bool:
    """Whether ``file`` is one that a value may be written back to."""
    return SETTING.fullmatch(file) is not None and ".." not in file


def disk_in(file: str) -> str:
    """The disk in a file's path: its name, or for a bdi its number; empty for vm.*."""
    match = re.match(r"/sys/(?:block|class/bdi)/([^/]+)/", file)
    return match[1] if match else ""


def identity_in(machine: Machine, name: str) -> tuple[str, str] | None:
    """What stays with the disk that has this name or number now."""
    return identity_of(machine, name) if ":" in name else identity_of_disk(machine, name)


def _check_disks(machine: Machine, backup: Backup) -> None:
    """WbError when a name in ``backup`` is that of another disk now; one that is gone is no problem."""
    for name, known in backup.disks.items():
        if machine.exists(f"/sys/{'class/bdi' if ':' in name else 'block'}/{name}"):
            now = identity_in(machine, name)
            if now != known:
                raise WbError(f"{name} was the disk with {'='.join(known)} and has {'='.join(now) if now else 'none'} "
                              f"now: nothing was changed; {BACKUP} has its values, to restore them by hand")


def replace(path: Path, text: str, *, parents: bool = True) -> None:
    """Write ``text`` so that after a crash either the old or the new file is there.

    parents: make directories that are missing.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.new")
    try:
        temp.unlink(missing_ok=True)  # of a run that was killed
        with temp.open("x") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        temp.rename(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temp.unlink()
        raise OSError(exc.errno, exc.strerror, str(path)) from exc  # a full disk names no file
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(machine: Machine, file: str, value: str) -> None:
    with machine.path(file).open("w") as f:
        f.write(value)


# ---- values -------------------------------------------------------------------

def _before(machine: Machine, advice: Advice, bdi: Bdi | None) -> tuple[str, str]:
    """The file and the value that bring back what ``advice`` changes."""
    name = advice.file.rsplit("/", 1)[1]
    if advice.key.startswith("vm.") and name.endswith("bytes"):
        ratio = name.replace("bytes", "ratio")
        if (machine.number(f"{VM}/{name}") or 0) == 0:
            return f"{VM}/{ratio}", machine.text(f"{VM}/{ratio}") or "0"
    if name == "max_bytes" and bdi is not None and bdi.max_ratio_fine is not None \
            and not (bdi.exact_bytes and bdi.max_ratio_fine < 1_000_000):
        # Kept as a share in parts per million, of which the bytes are only a view.
        share = machine.number(bdi.file("max_ratio_fine"))
        return bdi.file("max_ratio_fine"), str(bdi.max_ratio_fine if share is None else share)
    value = machine.choice(advice.file) if name in ("scheduler", "wbt_policy") else machine.text(advice.file)
    if value is None:
        raise WbError(f"{advice.file}: cannot be read, so that it could not be restored: nothing was changed")
    return advice.file, value.strip()


def _reset_by(machine: Machine, advice: Advice) -> list[tuple[str, str]]:
    """What a switch of the scheduler sets to its defaults, in the order in which to restore it afterwards."""
    if not advice.file.endswith("/queue/scheduler"):
        return []
    files = reset_by_scheduler(machine, advice.file.rsplit("/", 1)[0])
    return [(f, value.strip()) for f in files if is_setting(f) and (value := machine.text(f))]


def _restore(machine: Machine, file: str, value: str) -> None:
    """Write ``value`` back. The same ratio again is ignored by the kernel and would leave the bytes in force."""
    if file.startswith(f"{VM}/") and file.endswith("ratio") and machine.text(file) == value:
        _write(machine, file, "1" if value != "1" else "2")
    _write(machine, file, value)


def _matches(machine: Machine, file: str, value: str) -> bool:
    name = file.rsplit("/", 1)[1]
    if name == "max_bytes":
        now = machine.number(file)
        # Kept as parts per million of the dirty limit, or in whole pages.
        return now is not None and abs(now - int(value)) <= max(8192, int(value) // 100)
    now_text = machine.choice(file) if name in ("scheduler", "wbt_policy") else machine.text(file)
    return now_text is not None and now_text.strip() == value


# ---- apply and undo ------------------------------------------------------------------

def apply(machine: Machine, facts: Facts, advice: Sequence[Advice]) -> list[str]:
    """Set what ``advice`` changes, for now and for the next boot; returns what was done, one line each.

    When the kernel refuses a value, everything is put back as it was before this
    call, which may be after an earlier one, and WbError raised.
    """
    changes = [a for a in advice if a.value is not None]
    if not changes:
        return ["nothing to change"]
    old = load_backup(machine)
    backup = load_backup(machine) or Backup()
    _check_disks(machine, backup)
    now = Backup()
    known = {f for f, _ in backup.values} | {f.replace("ratio", "bytes") for f, _ in backup.values if f.startswith(VM)}
    if any(f.endswith("max_ratio_fine") for f, _ in backup.values):
        known |= {f.replace("max_ratio_fine", "max_bytes") for f, _ in backup.values}
    for a in changes:
        values = [_before(machine, a, facts.bdi), *_reset_by(machine, a)]
        now.values += values
        if a.file not in known:
            backup.values += values
    texts = {SYSCTL_FILE: sysctl_text(changes, _content(machine, SYSCTL_FILE)),
             UDEV_FILE: udev_text(facts, changes, _content(machine, UDEV_FILE))}
    for file, text in texts.items():
        if text:
            now.files[file] = _content(machine, file)
    backup.files = now.files | backup.files
    identities = {name: d.identity for d in facts.disks if d.identity for name in (d.name, d.dev) if name}
    for name in map(disk_in, (f for f, _ in now.values)):
        if name in identities:
            backup.disks.setdefault(name, identities[name])
    try:
        _keep(machine, backup)
    except OSError as exc:
        raise WbError(f"{exc.filename}: {exc.strerror}: nothing was changed") from exc
    done = []
    try:
        for a in changes:
            _write(machine, a.file, str(a.value))
            if not _matches(machine, a.file, str(a.value)):
                raise OSError(0, f"reads {machine.text(a.file)} after {a.value} was written", a.file)
            done.append(f"{a.file}: {a.current} -> {a.value}")
        for file, text in texts.items():
            if text:
                replace(machine.path(file), text)
                done.append(f"{file}: written")
        if any(a.key.startswith("bdi.") for a in changes) and "ATTR{bdi/" not in udev_text(facts, changes):
            done.append("the bdi is not that of one disk: its settings are for now only, no udev rule finds it")
        if hidden := sorted({name for a in changes if nvme_head(name := disk_in(a.file))}):
            done.append(f"{', '.join(hidden)}: a path of a multipath NVMe, which udev does not see: its settings are "
                        "for now only, and gone when the path comes back")
    except BaseException as exc:
        with uninterrupted():
            problems = _put_back(machine, now)[1]
            if not problems:
                _keep(machine, old)
        why = "; not restored: " + ", ".join(problems) if problems else "; every value is as it was"
        if isinstance(exc, KeyboardInterrupt):
            raise WbError(f"interrupted{why}", 130) from None
        if isinstance(exc, OSError):
            raise WbError(f"{exc.filename}: {exc.strerror or exc}{why}") from exc
        raise
    return done


def _keep(machine: Machine, backup: Backup | None) -> None:
    """Make ``backup`` the one on this machine; None: there is nothing to undo."""
    if backup is None:
        machine.path(BACKUP).unlink(missing_ok=True)
    else:
        replace(machine.path(BACKUP), json.dumps(backup.to_json(), indent=1) + "\n")


def _content(machine: Machine, file: str) -> str | None:
    try:
        return machine.path(file).read_text()
    except FileNotFoundError:
        return None


def _try_restore(machine: Machine, file: str, value: str) -> bool:
    try:
        if machine.exists(file):
            _restore(machine, file, value)
    except OSError:
        return False
    return True


def undo(machine: Machine) -> tuple[list[str], list[str]]:
    """Restore every value and file of the backup, the last change first; returns what was done, and what failed.

    A file of a disk that is gone needs no value.  The backup stays while something
    failed, so that undo can be run again.  WbError when there is no backup, or
    when one of its disks has the name of another.
    """
    backup = load_backup(machine)
    if backup is None:
        raise WbError(f"no {BACKUP}: nothing was applied, or it was undone")
    _check_disks(machine, backup)
    with uninterrupted():
        done, failed = _put_back(machine, backup)
        if not failed:
            _keep(machine, None)
    return done, failed


def _put_back(machine: Machine, backup: Backup) -> tuple[list[str], list[str]]:
    """What ``undo`` does, without the backup's file."""
    done, failed = [], []
    for file, value in reversed(backup.values):
        _try_restore(machine, file, value)
    # One value may have changed another, as a scheduler does with wbt and nr_requests: look at all of them now.
    for file, value in backup.values:
        if not machine.exists(file):
            done.append(f"{file}: gone with its disk")
        elif _matches(machine, file, value) or (_try_restore(machine, file, value) and _matches(machine, file, value)):
            done.append(f"{file}: {value} again")
        else:
            failed.append(f"{file} = {value} (reads {machine.text(file)})")
    for file, text in backup.files.items():
        try:
            # On a full or read-only disk a file that was never written cannot be put back, and need not.
            if _content(machine, file) == text:
                done.append(f"{file}: as before")
            elif text is None:
                machine.path(file).unlink()
                done.append(f"{file}: removed")
            else:
                replace(machine.path(file), text)
                done.append(f"{file}: as before")
        except OSError as exc:
            failed.append(f"{file} ({exc.strerror})")
    return done, failed
