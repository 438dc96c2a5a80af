# SPDX-License-Identifier: GPL-2.0
"""What every command needs of the terminal and of signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


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


def say(text: str) -> None:
    """Print one progress line to stderr, so that stdout stays parseable."""
    print(text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print to stdout before there is more to do, which is done also for a reader that has gone (wb ... | head)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
