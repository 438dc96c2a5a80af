# SPDX-License-Identifier: GPL-2.0
"""Suites: named lists of (case, axes) that ``wb bench``, ``wb demo`` and the checks run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One run to do. axes: validated, all of them; kernel: stock, patched or tree."""

    case: str
    axes: dict[str, str]
    seed: int
    kernel: str
