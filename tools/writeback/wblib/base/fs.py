# SPDX-License-Identifier: GPL-2.0
"""Files that several wb commands share: locks, space, and writing and deleting so that nothing half-done is seen."""

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from wbtop.errors import WbError

from .paths import BUILD
from .proc import say


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold build/.lock-NAME: two wb commands never write the same tree."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".lock-{name}").open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another wb that is using {name}")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _locked(f: TextIO, path: Path) -> bool:
    """Lock ``f``, unless another has it, or has removed its ``path`` since it was opened."""
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(f.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def alone(place: Path, stop: threading.Event) -> Iterator[None]:
    """Keep other wb commands from a result's directories; the lock's file is gone afterwards.

    KeyboardInterrupt if ``stop`` is set while another has it.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    path = place.with_name(f".{place.name}.lock")
    said = False
    while True:
        with path.open("w") as f:
            if _locked(f, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        if not said:
            say(f"  waiting for another wb that runs {place.parent.name} {place.name}")
            said = True
        if stop.wait(0.2):
            raise KeyboardInterrupt


def need_space(where: Path, gib: float, what: str) -> None:
    """WbError unless ``gib`` GiB are free where ``where`` will be."""
    probe = where
    while not probe.exists():
        probe = probe.parent
    free = shutil.disk_usage(probe).free / 2**30
    if free < gib:
        raise WbError(f"{what} needs {gib:g} GiB in {probe}, {free:.1f} GiB are free: free some, or set WB_BUILD")


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    tmp.write_text(text)
    tmp.replace(path)


def remove(path: Path) -> None:
    """Delete a file or directory tree if it is there.

    A tree is renamed first: an interrupted delete must not leave a half tree under a name that means complete.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        doomed = path.with_name(f".del-{path.name}.{os.getpid()}")
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
