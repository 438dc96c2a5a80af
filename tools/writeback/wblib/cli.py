# SPDX-License-Identifier: GPL-2.0
"""The command ``wb``: one subcommand per module that has a ``register``."""

import argparse
import importlib

from wbtop import VERSION
from wbtop.cli import guarded

MODULES = ("runcmd", "bench", "lanes", "compare", "demo", "plot", "report", "check", "stress", "foreign", "shell",
           "kernel", "deb", "series", "law", "watch", "tune", "field", "package", "lab")
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
    top.add_argument("--version", action="version", version=f"wb {VERSION}")
    sub = top.add_subparsers(metavar="COMMAND", required=True)
    for name in MODULES:
        importlib.import_module(f".{name}", __package__).register(sub)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run ``wb``; returns its exit code (0 ok, 1 failed, 2 wrong usage, 130 interrupted)."""
    def call() -> int:
        args = parser().parse_args(argv)
        return int(args.func(args))

    return guarded(call, " (WB_BUILD and WB_RESULTS say where wb writes)")
