# SPDX-License-Identifier: GPL-2.0
"""The tables of ``wb bench zoo``: each device before and after, beside its floor and the targets."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from wblib.base.paths import BUILD
from wblib.base.proc import cpus
from wblib.catalog.disks import disks
from wblib.catalog.zoo import Device, devices
from wblib.kernel import simulator, sources
from wblib.results.store import Result
from wbtop.stats import median, short, table

# The targets: drain over that of the other side, and p99.95 over the floor.
DRAIN, FLOORS = 1.03, 3.0
# A request is not shorter (WBT_MIN_IO of block/blk-wbt-law.c).
LEAST_KIB = 64
# Latencies of the table: metric without its prefix, and heading.
LATENCIES = (("p50", "p50"), ("p99", "p99"), ("p99_95", "p99.95"))


def side(result: Result) -> str:
    """"idle", or the kernel and policy of a run."""
    if result.axes["writer"] == "idle":
        return "idle"
    return result.kernel + (" requests" if result.axes["policy"] == "requests" else "")


def device_of(result: Result) -> Device | None:
    """The device that ``result`` is of."""
    free = {"writer": "", "policy": "", "reader": ""}
    return next((d for d in devices() if d.axes() | free == result.axes | free), None)


def latency(result: Result, name: str) -> float | None:
    """A percentile in ms: since each read was due where the readers do not wait for each other."""
    value = result.value(f"read_due_{name}")
    value = result.value(f"read_{name}") if value is None else value
    return None if value is None else value / 1e3


def floors(program: Path, some: Sequence[Device]) -> dict[str, float]:
    """What a read waits for anyhow beside the least of writes, ms: one write, then two requests at the disk's rate.

    By the simulator of ``wb law``, on the disk alone: 16 writes of LEAST_KIB one after the other, and 64 MiB at once.
    """
    cases = []
    for d in some:
        disk = " ".join([f"disk={disks()[d.disk].name}", *(f"{k}={v}" for k, v in d.set.items())])
        cases += [f"{disk} readers=0 mib=1 max_io_kib={LEAST_KIB} queue_depth=1 law=none",
                  f"{disk} readers=0 mib=64 law=none"]
    told = simulator.simulate(program, cases, min(cpus(), len(cases)))
    one = 1024 // LEAST_KIB
    return {d.name: 1e3 * (told[2 * i]["drain_s"] / one + 2 * LEAST_KIB / 65536 * told[2 * i + 1]["drain_s"])
            for i, d in enumerate(some)}


def _of(found: Iterable[Result], name: str) -> float | None:
    values = [v for r in found if (v := latency(r, name) if name != "drain" else r.value("drain_s")) is not None]
    return median(values) if values else None


def _pair(a: float | None, b: float | None) -> str:
    return f"{short(a)} → {short(b)}"


def _yes(value: float | None, limit: float) -> str:
    return "-" if value is None else "yes" if value <= limit else "NO"


def _row(device: Device, runs: dict[str, list[Result]], a: str, b: str, least: float) -> list[str]:
    before, after, idle = (runs.get(name, []) for name in (a, b, "idle"))
    rest = _of(idle, "p99_95")
    floor = None if rest is None else rest + least
    tail, drains = _of(after, "p99_95"), (_of(before, "drain"), _of(after, "drain"))
    ratio = drains[1] / drains[0] if drains[0] and drains[1] else None
    over = tail / floor if tail is not None and floor else None
    return [device.name, str(len(after)), *(_pair(_of(before, n), _of(after, n)) for n, _ in LATENCIES), _pair(*drains),
            short(ratio), _yes(ratio, DRAIN), short(floor), short(over), _yes(over, FLOORS)]


def _same(device: Device, runs: dict[str, list[Result]], a: str, b: str) -> list[str]:
    """Whether the medians of two sides differ by no more than the runs of one of them do."""
    cells, all_same = [device.name], True
    for name in ("p50", "p99_95", "drain"):
        values = [[v for r in runs.get(s, []) if (v := _of([r], name)) is not None] for s in (a, b)]
        if not all(values):
            return [*cells, *["-"] * (7 - len(cells))]
        between = abs(median(values[0]) - median(values[1]))
        spread = max(max(v) - min(v) for v in values)
        cells += [_pair(*map(median, values)), short(spread)]
        all_same &= between <= max(spread, .02 * median(values[0]))
    return [*cells, "yes" if all_same else "NO"]


def render(found: Sequence[Result]) -> str:
    """The tables: of each kernel line what the patched kernel's policy does against stock or ``requests``."""
    whole = [r for r in found if r.metrics]
    by_device: dict[str, dict[str, list[Result]]] = {}
    for r in whole:
        if device := device_of(r):
            by_device.setdefault(device.name, {}).setdefault(side(r), []).append(r)
    some = [d for d in devices() if d.name in by_device]
    if not some:
        return "no device has a result"
    place = BUILD / "zoo"
    least = floors(simulator.build(simulator.series_law(place), place), some)
    kernels = list(dict.fromkeys(r.kernel for r in whole))
    parts = [f"reads in ms, since they were due in the fast lane; floor: idle p99.95 + least write + two requests of "
             f"{LEAST_KIB} KiB"]
    for kernel in (k for k in kernels if not sources.is_stock(k)):
        line = kernel.partition("@")[2]
        stock = next((k for k in kernels if sources.is_stock(k) and k.partition("@")[2] == line), "")
        requests = f"{kernel} requests"
        a = stock or requests
        head = ["device", "n", *(h for _, h in LATENCIES), "drain, s", "ratio", f"≤ {DRAIN}", "floor", "p99.95/floor",
                f"≤ {FLOORS:g}"]
        rows = [_row(d, by_device[d.name], a, kernel, least[d.name]) for d in some]
        parts.append(f"{a} → {kernel}\n{table(head, rows)}\n{_tally(rows)}")
        if stock and any(requests in runs for runs in by_device.values()):
            head = ["device", "p50", "spread", "p99.95", "spread", "drain, s", "spread", "same"]
            same = [_same(d, by_device[d.name], stock, requests) for d in some]
            parts.append(f"{stock} → {requests}: medians within the spread of the seeds, or 2 %\n{table(head, same)}\n"
                         f"{sum(r[-1] == 'yes' for r in same)} of {sum(r[-1] != '-' for r in same)} the same")
    return "\n\n".join(parts)


def _tally(rows: Sequence[Sequence[str]]) -> str:
    def count(column: int) -> str:
        told = [r[column] for r in rows if r[column] != "-"]
        return f"{told.count('yes')} of {len(told)}"

    return f"drain ≤ {DRAIN} on {count(7)}; p99.95 ≤ {FLOORS:g} floors on {count(10)}"
