# SPDX-License-Identifier: GPL-2.0
"""The command that repeats a result."""

from collections.abc import Mapping
from dataclasses import replace

from wblib.results import identity
from wblib.results.store import Result

from .collect import Cell


def run_command(result: Result, axes: Mapping[str, str]) -> str:
    """``wb run ...`` for one run. A build of its own is rebuilt from the revision in its ``meta``."""
    return replace(identity.spec_of(result), axes=dict(axes)).command()


def command(cell: Cell) -> str:
    """``wb run ...`` for the seeds of a cell: one line of shell."""
    one = run_command(cell.runs[0], cell.axes)
    seeds = [str(r.seed) for r in cell.runs]
    if len(seeds) == 1:
        return one
    return f"for s in {' '.join(seeds)}; do {one.rsplit(' ', 1)[0]} $s; done"
