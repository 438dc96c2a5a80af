# SPDX-License-Identifier: GPL-2.0
"""Small statistics, and how numbers and tables are shown. No numpy: seeds are few."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles


def quantile(values: Iterable[float], p: float) -> float:
    """The p-quantile (0..1) by linear interpolation, as numpy's default; ValueError when empty.

    statistics.quantiles() knows only equal shares, no 0.9995, and before Python 3.13 no single value.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("quantile of nothing")
    if not 0 <= p <= 1:
        raise ValueError(f"quantile {p}: must be 0..1")
    position = p * (len(ordered) - 1)
    low = math.floor(position)
    high = math.ceil(position)
    # The two-product form never leaves the interval, whatever the rounding.
    part = position - low
    return ordered[low] if low == high else ordered[low] * (1 - part) + ordered[high] * part


def iqr(values: Iterable[float]) -> float:
    """Interquartile range, the spread shown beside every median; 0 for a single value."""
    got = list(values)
    if len(got) == 1:
        return 0
    low, _, high = quantiles(got, n=4, method="inclusive")
    return high - low


@dataclass(frozen=True)
class Summary:
    """Replicates of one metric. spread: the IQR, None for a single seed, which has none."""

    n: int
    median: float
    spread: float | None


def summary(values: Sequence[float]) -> Summary:
    """Median and spread of ``values``; ValueError when empty."""
    return Summary(len(values), median(values), iqr(values) if len(values) > 1 else None)


def number(value: float | None) -> str:
    """Four significant digits, with k, M, G from 100000 on; "-" for None."""
    if value is None:
        return "-"
    value = float(value)
    if value == 0:
        return "0"
    size = abs(value)
    # 99999.5 and up would show as six digits.
    if size < 99999.5:
        return f"{value:.0f}" if value.is_integer() or size >= 10000 else f"{value:#.4g}".removesuffix(".")
    divisor, suffix = (1e3, "k") if size < 999950 else (1e6, "M") if size < 999.95e6 else (1e9, "G")
    return f"{value / divisor:#.4g}".removesuffix(".") + suffix


def short(value: float | None) -> str:
    """Three significant digits, no trailing zeros and no exponent up to 10^15; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Aligned text: the first ``left`` columns to the left, the others to the right."""
    lines = [list(head), *[list(r) for r in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def one(line: Sequence[str]) -> str:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        return "  ".join(cells).rstrip()

    return "\n".join([one(lines[0]), "  ".join("-" * w for w in widths), *[one(line) for line in lines[1:]]])
