# SPDX-License-Identifier: GPL-2.0
"""The command that repeats a result."""

import shlex
from collections.abc import Mapping

from wblib.catalog import axes as ax
from wblib.results import identity
from wblib.results.store import Result

from .collect import Cell


def run_command(result: Result, axes: Mapping[str, str]) -> str:
    """``wb run ...`` for one run. A build of its own is rebuilt from the revision in its ``meta``."""
    words = ["wb", "run", result.case]
    lane, cpu = str(result.meta.get("lane", "exact")), identity.cpu_of(result)
    if lane == "local":
        words += ["--dir", "DIRECTORY"]
    else:
        words += ["--kernel", result.kernel]
    words += ax.options(result.case, axes)
    if lane == "functional":
        words += ["--lane", "functional", *(["--on", device] if (device := identity.device_of(result)) else [])]
    elif lane == "exact" and cpu:
        words += ["--cpu", cpu]
    if result.meta.get("trace"):
        words.append("--trace")
    elif flavour := identity.flavour_of(result):
        words += ["--flavour", flavour]
    return shlex.join([*words, "--seed", str(result.seed)])


def command(cell: Cell) -> str:
    """``wb run ...`` for the seeds of a cell: one line of shell."""
    one = run_command(cell.runs[0], cell.axes)
    seeds = [str(r.seed) for r in cell.runs]
    if len(seeds) == 1:
        return one
    return f"for s in {' '.join(seeds)}; do {one.rsplit(' ', 1)[0]} $s; done"
