# SPDX-License-Identifier: GPL-2.0
"""What every command needs of the terminal and of signals."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from .errors import WbError

# Held by who changes settings of this machine.
LOCK = "/run/calm-writeback.lock"


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C, a kill or a closed terminal waits for the end of the block.

    A thread started inside keeps them blocked, so that they reach the main thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock ``path``, of :data:`LOCK`; WbError when another wb has it.

    Where it cannot be made, as without /run or for who is not root, there is none.
    """
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.EACCES, errno.EROFS):
            raise
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WbError(f"another wb changes settings of this machine now ({path}): wait for its end") from None
        yield
    finally:
        os.close(lock)


def say(text: str) -> None:
    """Print one progress line to stderr, so that stdout stays parseable."""
    print(text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print to stdout before there is more to do, which is done also for a reader that has gone (wb ... | head)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
