# SPDX-License-Identifier: GPL-2.0
"""Replaying a recommendation on the modelled disk that is most like the measured one: before and after."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wblib.catalog import axes as ax
from wblib.catalog.disks import Disk, disks
from wbtop.errors import WbError
from wbtop.stats import median, number, short, table
from wbtop.tune.facts import Facts
from wbtop.tune.measure import MIB, Measured
from wbtop.tune.rules import Advice, Case

GUEST_PAGE = 4096  # of x86, whatever this machine's is
KEYS = ("vm.dirty_bytes", "vm.dirty_background_bytes", "vm.dirty_ratio", "vm.dirty_background_ratio")
SHOWN = {
    "read-latency": ("read_p50", "read_p99", "read_p99_95", "read_max", "drain_s", "write_mbps"),
    "throughput": ("write_mbps", "drain_s", "read_p99_95"),
    "unplug": ("sync_s", "drain_s", "write_mbps"),
    "database": ("fsync_p50", "fsync_p99", "fsync_max", "read_p99_95", "sync_s", "drain_s", "write_mbps"),
}


@dataclass(frozen=True)
class Plan:
    """The axes of tune-replay, and what the model leaves out."""

    axes: dict[str, str]
    kernel: str
    notes: list[str] = field(default_factory=list)


def nearest(measured: Measured, *, rotating: bool) -> str:
    """The profile at the least distance in log(write rate) and log(read time), of those that rotate or do not."""
    def distance(disk: Disk) -> float:
        far = math.log(max(measured.write_mbps, 0.1) / disk.write_mbps) ** 2
        if measured.read_p50_us:
            far += math.log(measured.read_p50_us / disk.read_us) ** 2
        return far

    return min((d for d in disks().values() if d.rotational == rotating), key=distance).word


def _file_mib(disk: Disk) -> int:
    """What the writer writes: some seconds of the disk."""
    return 1024 if disk.write_mbps > 300 else 256 if disk.write_mbps > 100 else 64


def _sizes(before: dict[str, str], after: dict[str, str], file_mib: int, notes: list[str]) -> None:
    """Limits in bytes as the guest can have them.

    A writer must meet the recommended limit, so it is at most half of the file:
    when it is more, all sizes shrink by one factor.  A present limit above the file is none.
    """
    keys = [k for k in after if k.endswith("_bytes")]
    file = file_mib * MIB
    largest = max((int(after[k]) for k in keys if after[k] != before.get(k)), default=0)
    factor = min(1.0, file / 2 / largest) if largest else 1.0
    if factor < 1:
        notes.append(f"all limits are {short(factor)} of the real ones, as the guest is smaller; so are the times "
                     "they cause")
    for settings in (before, after):
        for key in [k for k in settings if k.endswith("_bytes")]:
            # Background at half of a limit that is above the file, as by default.
            most = file * (5 if not key.startswith("vm.dirty_background") else 2) // 4
            settings[key] = str(max(2 * GUEST_PAGE, min(int(int(settings[key]) * factor), most)))


def _request_size(settings: dict[str, str], model: Disk, notes: list[str]) -> None:
    """The largest request as the modelled disk takes it."""
    key, most = "queue.max_sectors_kb", model["max_io_kib"]
    if int(settings.get(key, "0")) > most:
        notes.append(f"{key}={settings[key]} is {most} in the guest, the most that the modelled disk takes")
        settings[key] = str(most)


def _present(facts: Facts) -> dict[str, str]:
    """The dirty limits in force, in bytes: a share of this machine's memory is not one of the guest's."""
    return {"vm.dirty_bytes": str(facts.now.limit), "vm.dirty_background_bytes": str(facts.now.background)}


def plan(facts: Facts, measured: Measured, advice: Sequence[Advice], goal: str, kernel: str | None) -> Plan:
    """How to replay ``advice``: every setting with its present and its recommended value, in one guest.

    kernel: stock or patched; None for what this machine has.  The guest has one
    disk, so that of several disks the first one's settings are taken.
    """
    disk = facts.disks[0]
    case = Case(goal, facts, measured, 0)
    notes: list[str] = []
    model = disks()[nearest(measured, rotating=case.rotating(disk))]
    chosen = kernel or ("patched" if disk.wbt_policy is not None else "stock")
    file_mib = _file_mib(model)
    limits = any(a.value is not None and not a.key.startswith("queue.") for a in advice)
    before = _present(facts) if limits else {}
    after = dict(before)
    for a in advice:
        prefix, name = a.key.split(".", 1)
        if prefix == "queue":
            if not name.startswith(f"{disk.name}."):
                continue
            name = name.rsplit(".", 1)[1]
        key = f"{prefix}.{name}"
        if (prefix == "vm" and not limits) or (key == "bdi.max_bytes" and a.value is None):
            continue
        if chosen == "stock" and name in ("wbt_policy", "max_drain_ms"):
            notes.append(f"{key} is left out: a stock kernel has none")
            continue
        if prefix != "vm":
            before[key] = a.current
        after[key] = a.current if a.value is None and prefix != "vm" else a.value or after.get(key, a.current)
    for key in [k for k in before if before[k] in ("None", "")]:
        before.pop(key), after.pop(key)
    if "bdi.max_bytes" in before:
        # A share of this machine's limit; the guest starts without one, too.
        before["bdi.max_ratio_fine"] = "1000000"
        del before["bdi.max_bytes"]
    _sizes(before, after, file_mib, notes)
    for settings in (before, after):
        _request_size(settings, model, notes)
    given = {"disk": model.word, "fs": facts.fs if facts.fs in ("xfs", "ext4") else "xfs", "mib": str(file_mib),
             "before": _list(before), "after": _list(after)}
    if facts.fs not in ("xfs", "ext4"):
        notes.append(f"{facts.fs} is replayed as xfs")
    # Where writes are as fast as the link, its rate can be set to what was measured.
    if model.write_mbps == model["link_mbps"]:
        rate = round(measured.write_mbps)
        if 1 <= rate < model["link_mbps"]:
            given["disk-set"] = f"link_mbps={rate}"
        elif rate > model["link_mbps"]:
            notes.append(f"this disk drains {rate} MB/s, the profile {model['link_mbps']}: "
                         "the guest's CPU does no more")
    if goal == "unplug":
        given["readers"] = "0"
    if goal == "database":
        given["probe"] = "fsync"
    notes.append(f"model: profile {model.word}, {model.write_mbps:.4g} MB/s and {model.read_us:.4g} us per read; "
                 f"measured: {measured.write_mbps:g} MB/s and {measured.read_p50_us or 0:g} us")
    return Plan(ax.validate("tune-replay", given), chosen, list(dict.fromkeys(notes)))


def _list(settings: dict[str, str]) -> str:
    """KEY=VALUE,...: the limit first, the scheduler before what it resets."""
    order = [*KEYS, "queue.scheduler", "queue.wbt_policy", "queue.wbt_lat_usec"]
    return ",".join(f"{k}={settings[k]}" for k in sorted(settings, key=lambda k: order.index(k) if k in order else 99))


def run(the_plan: Plan, goal: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Run the replay; returns medians of before and after over the seeds. WbError when a run fails."""
    from wblib.catalog.spec import specs
    from wblib.catalog.suites import Job

    from . import runner

    jobs = [Job("tune-replay", the_plan.axes, seed, the_plan.kernel) for seed in seeds]
    found = runner.run_many(specs(jobs), parallel=1)
    bad = [r for r in found if r.status != "pass"]
    if bad:
        raise WbError(f"the replay ended with status {bad[0].status}: see {bad[0].meta.get('dir')}")
    metrics: dict[str, Any] = {}
    for name in SHOWN[goal]:
        sides = [[v for r in found if (v := r.value(f"{name}_{phase}")) is not None] for phase in ("before", "after")]
        if all(sides):
            unit = str(found[0].metrics[f"{name}_before"]["unit"])
            metrics[name] = {"unit": unit, "before": median(sides[0]), "after": median(sides[1])}
    words = [f"--{k} {v}" for k, v in the_plan.axes.items() if v]
    return {"metrics": metrics, "kernel": the_plan.kernel, "seeds": list(seeds), "notes": the_plan.notes,
            "command": f"wb run tune-replay --kernel {the_plan.kernel} --seed {seeds[0]} {' '.join(words)}"}


def render(outcome: dict[str, Any]) -> str:
    """The before/after table."""
    rows = []
    for name, m in outcome["metrics"].items():
        change = f"{short(m['after'] / m['before'])} x" if m["before"] else "-"
        rows.append([name, m["unit"], number(m["before"]), number(m["after"]), change])
    head = f"replay on the modelled disk, {outcome['kernel']} kernel, seeds {', '.join(map(str, outcome['seeds']))}"
    return "\n".join([head, table(["metric", "unit", "before", "after", ""], rows, left=2),
                      *[f"  {n}" for n in outcome["notes"]], f"  {outcome['command']}"])
