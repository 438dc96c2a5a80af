# SPDX-License-Identifier: GPL-2.0
"""The command line of the user's part alone; in a checkout ``wb`` has these commands beside those of the rig."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable

from . import VERSION
from .errors import WbError

MODULES = ("watch.command", "tune.command", "field.command")
EXAMPLES = """\
examples:
  sudo wb watch                  who is throttled now, by which limit, and what helps
  sudo wb tune /srv              measure the disk below /srv and recommend settings; changes nothing
  sudo wb field /srv             prove it on this machine: A against B, one page and one JSON to send
every command has its own --help with examples"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="wb", description="See, measure and cure writeback stalls on this machine, whatever its kernel.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"wb {VERSION}")
    sub = top.add_subparsers(metavar="COMMAND", required=True)
    for name in MODULES:
        importlib.import_module(f".{name}", __package__).register(sub)
    return top


def _one_line(text: str) -> str:
    """``text`` with what a terminal would act on, such as a line end in a file's name, as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _standard_files() -> None:
    """Make what the caller has closed (wb ... >&-) a /dev/null, or the next file opened would be written to as that."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    # Paths and tasks have names that the locale cannot print.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def given(args: argparse.Namespace, *names: str) -> list[str]:
    """Which of the options are not as by default, whose values ``args.default`` has."""
    return ["DIR" if n == "dir" else f"--{n.replace('_', '-')}" for n in names
            if getattr(args, n, None) != args.default(n)]


def guarded(call: Callable[[], int], hint: str = "", kept: str = "") -> int:
    """Run ``call`` and turn what it raises into one line on stderr and an exit code.

    hint: behind an OSError; kept: behind "interrupted".
    """
    _standard_files()
    # A closed pipe (wb ... | head), a kill or a closed terminal ends quietly, with the same clean-up as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        code = call()
        sys.stdout.flush()  # a full disk is an error here, and not in the interpreter's last words
        return code
    except WbError as exc:
        print(f"wb: {_one_line(str(exc))}", file=sys.stderr)
        return exc.code
    except KeyboardInterrupt:
        print(f"wb: interrupted{kept}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        print(f"wb: {where}{exc.strerror or exc}{hint}", file=sys.stderr)
        return 1


def main(argv: list[str] | None = None) -> int:
    """Run it; returns the exit code (0 ok, 1 failed, 2 wrong usage, 130 interrupted)."""
    def call() -> int:
        args = parser().parse_args(argv)
        return int(args.func(args))

    return guarded(call)
