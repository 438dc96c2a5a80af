# SPDX-License-Identifier: GPL-2.0
"""Which runs are of the same thing: what may be put in one cell, and runs of several machines as one set."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wblib.catalog import axes as ax
from wblib.catalog.spec import CPU, DEVICES, RunSpec, implied

from .store import Result


def spec_of(result: Result) -> RunSpec:
    """The run that ``result`` is of."""
    meta = result.meta
    lane = str(meta.get("lane", "exact"))
    cpu, on = str(meta.get("cpu") or ""), str(meta.get("on") or "")
    if not cpu and lane == "exact":
        # The first results say it in QEMU's command only.
        told = re.search(r" -cpu (\S+)", str(meta.get("command", "")))
        cpu = told[1] if told else CPU
    if not on and lane == "functional":
        # Those of before it was told: in the name of their directory.
        first = Path(str(meta.get("dir", ""))).parent.name.split("-")[0]
        on = first if first in DEVICES else ""
    return RunSpec(result.case, result.axes, result.seed, result.kernel, lane, on,
                   str(meta.get("flavour") or implied(result.axes)), bool(meta.get("trace")), cpu or CPU)


def lane(result: Result) -> str:
    """The lane with everything that keeps times from being mixed.

    The kernel's flavour, and whether the case's tracers ran beside it.  In the exact lane
    also the guest's CPU model, whatever machine it ran on; in
    the others the device, the host's CPU, and whether KVM ran the guest.
    """
    spec = spec_of(result)
    if spec.lane == "exact":
        words = {"cpu": spec.told_cpu}
    else:
        accelerator = str(result.meta.get("accelerator", ""))
        words = {"on": spec.on, "host": str(result.meta.get("host_cpu", "")),
                 "accel": accelerator if accelerator == "kvm" else ""}
    words |= {"flavour": spec.told_flavour, "trace": "yes" if spec.trace else ""}
    return " ".join([spec.lane, *(f"{k}={v}" for k, v in words.items() if v)])


def all_axes(result: Result) -> dict[str, str]:
    """The axes of a run in the case's order, with the defaults of those the rig did not have when it ran."""
    known = ax.CASES[result.case].axes if result.case in ax.CASES else ()
    mine = {a.name: result.axes.get(a.name, a.default) for a in known if not a.main or a.name in result.axes}
    return mine | result.axes


def notable(case: str, axes: Mapping[str, str]) -> list[str]:
    """The main axes and what differs from the default, as "name=value"."""
    known = {a.name: a for a in ax.CASES[case].axes} if case in ax.CASES else {}
    return [f"{k}={v}" for k, v in axes.items() if k not in known or known[k].main or v != known[k].default]


def line(case: str, lane: str, axes: Mapping[str, str]) -> str:
    """The case with ``notable`` axes, and the lane if it is another than the exact one."""
    return " ".join([case, *notable(case, axes), *([f"lane={lane}"] if lane != "exact" else [])])


def merge(found: Iterable[Result]) -> tuple[list[Result], list[str]]:
    """Results of several machines, each run once; a line for each that has two outcomes.

    In the exact lane the same kernel, guest, QEMU and command give the same
    metrics anywhere.  Of two that differ none can be believed, so both go.  Runs
    that do not say what they were made with all stay.
    """
    runs: dict[tuple[Any, ...], list[Result]] = {}
    for r in found:
        made_with = tuple(r.meta.get(k) for k in ("image_hash", "initrd_hash", "qemu"))
        key = (r.case, lane(r), tuple(sorted(all_axes(r).items())), r.kernel, r.seed,
               made_with if all(made_with) else id(r))
        runs.setdefault(key, []).append(r)
    kept, notes = [], []
    for same in runs.values():
        first = same[0]
        if lane(first).startswith("exact") and any((r.metrics, r.status) != (first.metrics, first.status)
                                                   for r in same):
            notes.append(f"left out, {len(same)} results of the same run differ: {first.kernel} "
                         f"{line(first.case, lane(first), all_axes(first))} seed {first.seed}")
        elif lane(first).startswith("exact"):
            kept.append(same[-1])
        else:
            kept += same
    return kept, notes
