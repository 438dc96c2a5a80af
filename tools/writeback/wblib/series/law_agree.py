# SPDX-License-Identifier: GPL-2.0
"""``wb law --agree``: random disks in the simulator and with the whole kernel, side by side.

The simulator then does what read-latency.sh does: the readers' file is written first, the readers begin 0.4 s before
the writer and read for a given time, and their percentiles are of all of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wblib.catalog import axes as ax
from wblib.catalog.suites import Job
from wblib.kernel.simulator import AGAIN, Case, simulate
from wblib.results.store import Result
from wblib.run.bench import run_jobs
from wbtop.stats import median, short, table

# As close as this, and a latency that is less than so much apart, is the same.
TAIL, DRAIN = .15, .02
NEAR_MS = .05
LAYOUT_MIB = 64  # READ_FILE_MIB of read-latency.sh
# The simulator runs each disk with so many loads, which differ by chance.
LOADS = 9


@dataclass(frozen=True)
class Agreement:
    """One disk: p99.95 in ms and drain in s, of LOADS simulated loads and of the whole kernel."""

    case: Case
    tails: tuple[float, ...]
    drains: tuple[float, ...]
    tail: float
    drain: float

    def tail_agrees(self) -> bool:
        """Whether the median of the simulated tails is the kernel's."""
        return abs(median(self.tails) - self.tail) <= max(TAIL * self.tail, NEAR_MS)

    def drain_agrees(self) -> bool:
        """The same for the drain."""
        return abs(median(self.drains) / self.drain - 1) <= DRAIN

    def by_chance(self) -> bool:
        """Whether what does not agree lies between the simulator's own loads."""
        return ((self.tail_agrees() or min(self.tails) <= self.tail <= max(self.tails))
                and (self.drain_agrees() or min(self.drains) <= self.drain <= max(self.drains)))


def alike(case: Case) -> Case:
    """``case`` as both can run it: no step, nobody who syncs, and the one queue that a machine with one CPU uses."""
    load = {k: v for k, v in case.load.items() if k != "syncs"}
    return replace(case, disk={**case.disk, "queues": 1}, load=load, steps=())


def words(case: Case, law: str, runtime_s: int, load: int = 0) -> str:
    """The simulator's line; load: which of LOADS."""
    return case.words(law, "open=1", f"run_ms={1000 * runtime_s}", f"layout_mib={LAYOUT_MIB}",
                      f"seed={case.seed + load * AGAIN}")


def runtimes(program: Path, cases: Sequence[Case], law: str, jobs: int) -> list[int]:
    """How long the readers read, s: from before the writer begins to after it has ended."""
    found = simulate(program, [words(case, law, 3) for case in cases], jobs)
    return [max(3, int(r["drain_s"] + 1.5)) for r in found]


def axes(case: Case, runtime_s: int) -> dict[str, str]:
    """The same for read-latency."""
    disk = ",".join(f"{k}={v}" for k, v in case.disk.items())
    return ax.validate("read-latency", {
        "disk": case.axis(), "disk-set": disk, "writer": "buffered", "reader": "open", "mib": str(case.load["mib"]),
        "readers": str(case.load["readers"]), "rate": str(case.load["iops"]), "runtime": str(runtime_s)})


def agreement(case: Case, told: Sequence[dict[str, float]], result: Result) -> Agreement | None:
    """Both results of one disk; None if the kernel's run did not come to its end."""
    tail, drain = result.value("read_due_p99_95"), result.value("drain_s")
    if tail is None or drain is None:
        return None
    return Agreement(case, tuple(t["due_p9995"] for t in told), tuple(t["drain_s"] for t in told), tail / 1e3, drain)


def compare(program: Path, cases: Sequence[Case], kernel: str, jobs: int) -> list[Agreement]:
    """Run ``cases`` in both; the kernel's finished runs are kept, as those of ``wb bench``."""
    same = [alike(case) for case in cases]
    times = runtimes(program, same, "law", jobs)
    told = simulate(program, [words(c, "law", t, load) for c, t in zip(same, times, strict=True)
                              for load in range(LOADS)], jobs)
    found = run_jobs([Job("read-latency", axes(c, t), 1, kernel) for c, t in zip(same, times, strict=True)],
                     jobs, lane="fast")
    both = [agreement(c, told[i * LOADS:(i + 1) * LOADS], r) for i, (c, r) in enumerate(zip(same, found, strict=True))]
    return [one for one in both if one]


def report(found: Sequence[Agreement]) -> str:
    """A row for each disk, and how many agree."""
    rows = []
    for one in found:
        disk = one.case.disk
        bad = [n for n, ok in (("reads", one.tail_agrees()), ("drain", one.drain_agrees())) if not ok]
        rows.append([
            str(one.case.seed), one.case.kind, str(disk.get("link_mbps", "-")), str(disk["queue_depth"]),
            short(one.case.load["readers"] * one.case.load["iops"]),
            f"{short(median(one.tails))} ({short(min(one.tails))}-{short(max(one.tails))})", short(one.tail),
            f"{median(one.drains):.3f}", f"{one.drain:.3f}", f"{median(one.drains) / one.drain:.3f}",
            "yes" if not bad else " ".join([*bad, *(["by chance"] if one.by_chance() else [])])])
    head = ["disk", "kind", "MB/s", "tags", "IOPS", f"p99.95, ms ({LOADS} loads)", "kernel", "drain, s", "kernel",
            "ratio", f"within {TAIL:.0%} and {DRAIN:.0%}"]
    return "\n".join([
        table(head, rows, left=2),
        f"{sum(one.tail_agrees() and one.drain_agrees() for one in found)} of {len(found)} agree; reads "
        f"{sum(one.tail_agrees() for one in found)}, drain {sum(one.drain_agrees() for one in found)}; "
        f"{sum(one.by_chance() for one in found)} with what lies between the simulator's own loads"])
