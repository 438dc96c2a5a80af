# SPDX-License-Identifier: GPL-2.0
"""The command ``wb``: one subcommand per module that has a ``register``."""

import argparse
import importlib
import os
import signal
import sys

from .errors import WbError

MODULES = ("runcmd", "bench", "compare", "demo", "plot", "report", "check", "stress", "shell", "kernel", "deb",
           "series", "law", "watch", "tune", "lab")
EXAMPLES = """\
examples:
  wb list                                      the cases and their axes
  wb run read-latency --disk fifo --wbt off    one case on the stock kernel
  wb run read-latency --writer direct --json - the same, result as JSON on stdout
  wb bench reference --seeds 5                 a suite, five seeds each
  wb compare results/stock-* results/patched-* the A/B table
  wb report                                    all results as one page with pictures
  wb shell                                     a shell in the test kernel
every subcommand has its own --help with examples"""


def parser() -> argparse.ArgumentParser:
    """The whole command line of ``wb``."""
    top = argparse.ArgumentParser(
        prog="wb", description="Build the test kernels, replay writeback incidents in QEMU, compare the results.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub = top.add_subparsers(metavar="COMMAND", required=True)
    for name in MODULES:
        importlib.import_module(f".{name}", __package__).register(sub)
    return top


def _one_line(text: str) -> str:
    """``text`` with what a terminal would act on, such as a line end in a file's name, as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def main(argv: list[str] | None = None) -> int:
    """Run ``wb``; returns its exit code (0 ok, 1 failed, 2 wrong usage, 130 interrupted)."""
    # A closed pipe (wb ... | head), a kill or a closed terminal ends quietly, with the same clean-up as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        args = parser().parse_args(argv)
        return int(args.func(args))
    except WbError as exc:
        print(f"wb: {_one_line(str(exc))}", file=sys.stderr)
        return exc.code
    except KeyboardInterrupt:
        print("wb: interrupted; finished results are kept, run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        print(f"wb: {where}{exc.strerror or exc} (WB_BUILD and WB_RESULTS say where wb writes)", file=sys.stderr)
        return 1
