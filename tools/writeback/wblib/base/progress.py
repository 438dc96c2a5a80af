# SPDX-License-Identifier: GPL-2.0
"""Progress of jobs that run side by side: what runs, how many are done, time left."""

import shutil
import sys
import threading
import time


class Progress:
    """One status line on a terminal, a line per minute elsewhere."""

    def __init__(self, estimates: list[float], parallel: int) -> None:
        self.total, self.finished, self.parallel = len(estimates), 0, parallel
        self.estimate = sum(estimates) / max(1, min(parallel, len(estimates)))
        self.running: list[str] = []
        self.begin = self.shown = time.monotonic()
        self.lock = threading.Lock()

    def start(self, label: str) -> None:
        with self.lock:
            self.running.append(label)

    def stop(self, label: str) -> None:
        with self.lock:
            self.running.remove(label)
            self.finished += 1

    def show(self) -> None:
        now = time.monotonic()
        tty = sys.stderr.isatty()
        if now - self.shown < (1 if tty else 60) or now - self.begin < 5:
            return
        self.shown = now
        elapsed = now - self.begin
        with self.lock:
            # The pace of the first few says little: jobs differ.  Until then, the table's estimate.
            paced = self.finished >= 2 * self.parallel
            whole = elapsed / self.finished * self.total if paced else max(self.estimate, elapsed)
            text = f"  {self.finished}/{self.total} done, about {max(0, whole - elapsed) / 60:.1f} min left"
            if self.running:
                more = len(self.running) - 1
                text += f"; running: {self.running[0]}" + (f" and {more} more" if more else "")
        width = shutil.get_terminal_size().columns - 1
        line = f"\r\033[K{text[:width]}" if tty else f"{text}\n"
        print(line, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.begin > 5:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
