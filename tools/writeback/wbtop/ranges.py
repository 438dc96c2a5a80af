# SPDX-License-Identifier: GPL-2.0
"""Numbers on the command line: types for argparse whose errors say what is allowed."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def number(low: float, high: float, *, above: bool = False) -> Callable[[str], float]:
    """A number from ``low`` to ``high``; above: more than ``low``."""
    allowed = f"above {low:.10g}, at most {high:.10g}" if above else f"from {low:.10g} to {high:.10g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or (above and value == low):
            raise argparse.ArgumentTypeError(f"must be a number {allowed}, not {text!r}")
        return value

    return parse


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from ``low`` to ``high``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}, not {text!r}")
        return value

    return parse


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add --timeout of a guest; 0.0 when it is not given."""
    parser.add_argument("--timeout", type=number(0, 1e7, above=True), default=0.0, metavar="S",
                        help="kill a guest after S wall seconds (above 0, at most 10000000; default: by its case)")
