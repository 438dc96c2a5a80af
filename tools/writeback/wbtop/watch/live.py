# SPDX-License-Identifier: GPL-2.0
"""The terminal of the live view: keys, and waking up when its size changes."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty


class Keys:
    """While in it, keys come at once and are not shown; everything is put back at its end."""

    def __init__(self, wanted: bool = True) -> None:
        """Without a terminal, or when not ``wanted``, there are no keys: waiting is all."""
        self._fd = sys.stdin.fileno() if wanted and sys.stdin.isatty() and sys.stdout.isatty() else None
        self._old: list[object] | None = None
        self.resized = False

    def __enter__(self) -> Keys:
        """Take the terminal, if there is one that this process may read (not in the background)."""
        if self._fd is not None and os.tcgetpgrp(self._fd) == os.getpgrp():
            self._old = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
            signal.signal(signal.SIGWINCH, self._on_resize)
            signal.signal(signal.SIGTSTP, self._on_stop)
        return self

    def __exit__(self, *_exc: object) -> None:
        """Give it back."""
        if self._old is not None and self._fd is not None:
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            # A terminal that was closed takes nothing any more.
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._old)

    def _on_resize(self, *_: object) -> None:
        self.resized = True

    def _on_stop(self, *_: object) -> None:
        """Ctrl-Z: the shell gets the terminal as it was, and after fg it is taken again."""
        if self._fd is None or self._old is None:
            return
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._old)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_stop)
        if os.tcgetpgrp(self._fd) == os.getpgrp():  # not after bg
            tty.setcbreak(self._fd)
        self.resized = True

    def wait(self, seconds: float) -> str:
        """Until ``seconds`` are over (""), q is pressed ("q") or the size changes ("resize")."""
        end = time.monotonic() + seconds
        if self._old is None or self._fd is None:
            time.sleep(seconds)
            return ""
        while (left := end - time.monotonic()) > 0:
            if self.resized:
                self.resized = False
                return "resize"
            # A short wait: a signal does not end select() by itself.
            if select.select([self._fd], [], [], min(left, 0.2))[0] and os.read(self._fd, 16)[:1] in (b"q", b"Q", b""):
                return "q"
        return ""


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def height() -> int:
    """Lines of the terminal; 24 where there is none."""
    return shutil.get_terminal_size((80, 24)).lines
