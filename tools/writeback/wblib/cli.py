# SPDX-License-Identifier: GPL-2.0
"""The command ``wb``: one subcommand per module that has a ``register``."""

import argparse
import importlib
import os
import sys

from wblib.base import venv
from wblib.kernel import upstream
from wbtop import VERSION
from wbtop.cli import guarded

MODULES = ("run.command", "run.bench", "run.lanes", "results.compare", "run.demo", "report.plot", "report.command",
           "check.tiers", "check.stress", "check.foreign", "guest.shell", "kernel.build", "ship.deb", "series.command",
           "series.law", "figures.command", "wbtop.watch.command", "run.tune", "wbtop.field.command", "ship.package",
           "results.lab")
# The user's part, which keeps no results to go on from and writes to neither of the rig's places.
USER = ("watch", "tune", "field")
# Commands for any machine, which know no base.
NO_BASE = (*USER, "figures", "package", "compare", "plot", "report")
EXAMPLES = """\
examples:
  wb list                                      the cases and their axes
  wb run read-latency --disk fifo --wbt off    one case on the stock kernel
  wb run read-latency --writer direct --json - the same, result as JSON on stdout
  wb bench reference --seeds 5                 a suite, five seeds each
  wb run read-latency --base 7.3               the same on the mainline kernel
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
        importlib.import_module(name if name.startswith("wbtop.") else f".{name}", __package__).register(sub)
    for name, command in sub.choices.items():
        if name not in NO_BASE:
            _add_base(command)
    return top


def _add_base(command: argparse.ArgumentParser) -> None:
    """Give ``command`` and its own commands the option --base."""
    below = [a for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for child in dict.fromkeys(action.choices.values()):
            _add_base(child)
    if not below:
        command.add_argument("--base", metavar="LINE|PATH", default=argparse.SUPPRESS,
                             help=f"kernel line {' or '.join(upstream.LINES)}, or a tree or tarball of one; "
                             f"the same as BASE= (default {upstream.LTS})")


def main(argv: list[str] | None = None) -> int:
    """Run ``wb``; returns its exit code (0 ok, 1 failed, 2 wrong usage, 130 interrupted)."""
    def call() -> int:
        args = parser().parse_args(argv)
        venv.has("jsonschema")  # what reads or writes a result needs it: go on in the venv before any work
        if "base" in args:
            os.environ["BASE"] = args.base
        return int(args.func(args))

    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in USER:
        return guarded(call)
    return guarded(call, " (WB_BUILD and WB_RESULTS say where wb writes)",
                   "; finished results are kept, run the same command again to go on")
