# SPDX-License-Identifier: GPL-2.0
"""Whether B differs from A: exact rank-sum test, the interval of the ratio, and what could have been seen at all."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .stats import iqr, median

ALPHA = 0.05
# Only an interval between these says that there is no difference worth the name; a wider one says nothing.
SAME = (1 / 1.5, 1.5)
# Less than this nobody notices, however certain it is.
SLIGHT = 0.02


def _counts(m: int, n: int) -> list[int]:
    """How many of the arrangements of m and n values have the rank sum U = 0, 1, ... m*n."""
    found: dict[tuple[int, int], list[int]] = {}
    for i, j in itertools.product(range(m + 1), range(n + 1)):
        if not i or not j:
            found[i, j] = [1]
            continue
        row = [0] * (i * j + 1)
        for u, c in enumerate(found[i - 1, j]):
            row[u + j] += c
        for u, c in enumerate(found[i, j - 1]):
            row[u] += c
        found[i, j] = row
    return found[m, n]


def p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided, exact, of the Mann-Whitney test; a tie counts as half, so ties make it less certain."""
    u = sum((x > y) + (x == y) / 2 for x in a for y in b)
    low = min(u, len(a) * len(b) - u)
    counts = _counts(len(a), len(b))
    # A half counts as the next whole number, which is on the safe side.
    return min(1.0, 2 * sum(counts[: int(low + 0.5) + 1]) / sum(counts))


def interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """The ratio b / a with 95 % confidence, from the ordered ratios of all pairs; None when there are too few runs."""
    counts, cut, below = _counts(len(a), len(b)), -1, 0
    for u, c in enumerate(counts):
        below += c
        if below / sum(counts) > ALPHA / 2:
            break
        cut = u
    if cut < 0 or min(a, default=0) <= 0:
        return None
    ratios = sorted(y / x for x in a for y in b)
    return ratios[cut], ratios[len(ratios) - 1 - cut]


@dataclass(frozen=True)
class Verdict:
    """One metric of A and B. verdict: better, worse, no difference seen, too noisy, too few runs."""

    metric: str
    a: float
    b: float
    a_spread: float
    b_spread: float
    ratio: float | None
    low: float | None
    high: float | None
    confidence: float | None
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def _holm(ps: Mapping[str, float]) -> dict[str, float]:
    """p values with Holm's correction: with eight metrics one in twenty would differ by chance."""
    found, worst = {}, 0.0
    for rank, name in enumerate(sorted(ps, key=lambda n: ps[n])):
        worst = max(worst, min(1.0, ps[name] * (len(ps) - rank)))
        found[name] = worst
    return found


def compare(a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]],
            higher: Sequence[str] = ()) -> list[Verdict]:
    """A verdict per metric that both have and that is never 0, which has no ratio. higher: more is better there."""
    names = [n for n in a if a[n] and b.get(n) and min(a[n]) > 0]
    ps = _holm({n: p_value(a[n], b[n]) for n in names})
    found = []
    for n in names:
        x, y = median(a[n]), median(b[n])
        ci = interval(a[n], b[n])
        if ci is None:
            verdict = "too few runs"
        elif ps[n] <= ALPHA and not (x and abs(y / x - 1) < SLIGHT):
            verdict = "better" if (y < x) != (n in higher) else "worse"
        else:
            verdict = "no difference seen" if SAME[0] <= ci[0] and ci[1] <= SAME[1] else "too noisy"
        found.append(Verdict(n, x, y, iqr(a[n]), iqr(b[n]), y / x if x else None, *(ci or (None, None)),
                             None if ci is None else round(1 - ps[n], 4), verdict))
    return found
