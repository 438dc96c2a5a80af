# SPDX-License-Identifier: GPL-2.0
"""Where to put the names of points so that they cover neither each other nor a point."""

import itertools
import math
from collections.abc import Iterable, Sequence

Box = tuple[float, float, float, float]  # left, bottom, right, top


def _common(a: Box, b: Box) -> float:
    """The area that two boxes share."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def labels(points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], mark: float,
           area: Box) -> list[tuple[float, float]]:
    """Centres of the labels of ``points``, all in the same unit as ``area``, the place there is.

    sizes: width and height of each label; mark: radius of a point.  One label
    after the other takes the place around its point, the nearest first, that
    covers least of points, of earlier labels, and of what is outside.
    """
    taken: list[Box] = [(x - mark, y - mark, x + mark, y + mark) for x, y in points]
    centres = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        best: tuple[float, float, float] | None = None
        for dx, dy in _around(mark, width, height):
            box = (x + dx - width / 2, y + dy - height / 2, x + dx + width / 2, y + dy + height / 2)
            outside = width * height - _common(box, area)
            cost = sum(_common(box, t) for t in taken) + 10 * outside
            if best is None or cost < best[0] - 1e-9:
                best = (cost, x + dx, y + dy)
            if cost <= 0:
                break
        assert best is not None
        centres.append(best[1:])
        taken.append((best[1] - width / 2, best[2] - height / 2, best[1] + width / 2, best[2] + height / 2))
    return centres


def _around(mark: float, width: float, height: float) -> Iterable[tuple[float, float]]:
    """Offsets around a point, in rings."""
    for ring, step in itertools.product((1.15, 2.0, 3.0, 4.0), range(16)):
        angle = 2 * math.pi * step / 16 + math.pi / 4
        yield (mark + width / 2) * ring * math.cos(angle), (mark + height / 2) * ring * math.sin(angle)
