# SPDX-License-Identifier: GPL-2.0
"""The four published incidents: their figures, and tables that put ours beside them.

Ours come from a modelled disk in a small guest.  What must agree is the shape
(ratios, which row is slow, which bound holds), not the absolute number.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wblib.catalog.axes import DIRTY_ROWS
from wbtop.stats import median, short, table

from .compare import values
from .store import Result

# "High IO latency during writeback", Ivan Babrou, linux-block 2017
# (http://mail.spinics.net/lists/linux-block/msg20004.html): Linux 4.9, XFS,
# Micron 1100 SATA SSD, fio 4k randread; ms.  p99.95 is the figure of the report.
READ_LATENCY_MS: dict[str, dict[str, float]] = {
    "idle": {"read_p99": 0.58, "read_p99_95": 0.82, "read_p99_99": 0.94, "read_max": 6.86},
    "direct": {"read_p99": 2.7, "read_p99_9": 4.4, "read_p99_95": 4.4, "read_p99_99": 4.8, "read_max": 14.0},
    "buffered": {"read_p99": 0.6, "read_p99_9": 1.0, "read_p99_95": 64.0, "read_p99_99": 75.0, "read_max": 129.0},
}
# SUSE TID 7015931: dd of 30 % of memory with vm.dirty_ratio 40 and 20; MB/s.
SUSE_MBPS = {"40": 313.0, "20": 247.0, "40_fdatasync": 119.0, "20_fdatasync": 115.0}
# Study of an OpenStreetMap import on a machine with 128 GB: peak of Dirty under
# seven settings of vm.dirty_*; MB.  The percent rows are the dirtyable memory
# they imply (72.0, 78.4, 69.1, 71.5 GB) times the kernel's factor for 20, 10, 4
# and 2 % (floor(r * 4096 / 100) / 4096); the others are .9927, .9635 and .9966
# of their limits.
OSM_MAX_DIRTY_MB = {
    "10_20": 14400.0, "5_10": 7830.0, "2_4": 2750.0, "1_2": 1414.0,
    "1000mb_500mb": 992.7, "500mb_250mb": 481.8, "100mb_50mb": 99.7,
}
# Alibaba Cloud Linux 2 case, 4.19: cp of a file of more than 2 GiB under
# nodelalloc,dioread_nolock; MB/s.
EXT4_MBPS = {"nodelalloc_dioread_nolock": 28.0}

MOUNTS = ("delalloc", "nodelalloc", "nodelalloc_dioread_nolock")
_CPU = "cpu_ns_per_page"
_EXT4_ROWS = (("cp_mbps", "cp, MB/s"), ("write_mbps", "dd, MB/s"), (_CPU, "CPU ns per page"),
              ("mean_request_kib", "KiB per request"), ("extents", "extents"))
_EXT4_NOTE = ("Published on 4.19, which wrote single 4-KiB extents; stock 6.12 and 7.3 ignore dioread_nolock here, so "
              "what remains is CPU time per page")
PERCENTILES = {"read_p99": "p99", "read_p99_9": "p99.9", "read_p99_95": "p99.95", "read_p99_99": "p99.99",
               "read_max": "max"}


@dataclass(frozen=True)
class Table:
    """Published beside ours. ours: kernel names; a row is label(s), published, then one value per kernel."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...]
    left: int = 1

    def render(self) -> str:
        """The table as text."""
        notes = "".join("\n" + textwrap.fill(n, 80) for n in self.notes)
        return f"{self.title}\n\n{table(self.head, self.rows, self.left)}\n{notes}"


Lookup = Callable[[str, str], float | None]


def _lookup(found: Sequence[Result], case: str, **axes: str) -> Lookup:
    """(kernel, metric) -> median over the seeds of the runs of ``case`` with ``axes``."""
    def look(kernel: str, metric: str) -> float | None:
        runs = [r for r in found if r.case == case and r.kernel == kernel
                and all(r.axes.get(k, v) == v for k, v in axes.items())]
        got = values(runs, metric)
        return median(got) if got else None
    return look


def _scaled(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def read_latency(found: Sequence[Result], kernels: Sequence[str]) -> Table:
    """Cloudflare 2017: read latency with an idle disk, a direct writer, and a buffered one."""
    rows = []
    for writer, wbt in (("idle", "default"), ("direct", "default"), ("buffered", "off"), ("buffered", "default")):
        look = _lookup(found, "read-latency", writer=writer, wbt=wbt)
        label = writer if writer != "buffered" else f"buffered, wbt {'off' if wbt == 'off' else 'on'}"
        for metric, point in PERCENTILES.items():
            ours = [short(_scaled(look(k, metric), 1000)) for k in kernels]
            rows.append((label, point, short(READ_LATENCY_MS[writer].get(metric)), *ours))
            label = ""
    first = next((r for r in found if r.case == "read-latency"), None)
    what = f" ({first.axes.get('disk')} disk, {first.axes.get('fs')})" if first else ""
    notes = []
    for kernel in kernels:
        peak = [_lookup(found, "read-latency", writer=w, wbt=b)(kernel, "read_p99_95")
                for w, b in (("direct", "default"), ("buffered", "off"), ("buffered", "default"))]
        off, on = (_ratio(p, peak[0]) for p in peak[1:])
        notes.append(f"p99.95, buffered over direct, {kernel}: {short(off)} without wbt, {short(on)} with "
                     f"(published {short(64 / 4.4)})")
    return Table(f"1. Read latency while a file is written, ms{what}", ("writer", "", "published", *kernels), rows,
                 (*notes, "Published: 2 GB beside 20 saturating readers, Linux 4.9 without wbt."), 2)


def dirty_ratio(found: Sequence[Result], kernels: Sequence[str]) -> Table:
    """SUSE: dd at two dirty ratios, with and without fdatasync."""
    look = _lookup(found, "dirty-ratio-dd")
    rows: list[tuple[str, ...]] = []
    for key, label in (("40", "dirty_ratio 40"), ("20", "dirty_ratio 20"),
                       ("40_fdatasync", "dirty_ratio 40, fdatasync"), ("20_fdatasync", "dirty_ratio 20, fdatasync")):
        rows.append((label, short(SUSE_MBPS[key]), *(short(look(k, f"write_mbps_{key}")) for k in kernels)))
    for suffix, label in (("", "20 over 40"), ("_fdatasync", "20 over 40, fdatasync")):
        ours = [_ratio(look(k, f"write_mbps_20{suffix}"), look(k, f"write_mbps_40{suffix}")) for k in kernels]
        rows.append((label, short(SUSE_MBPS["20" + suffix] / SUSE_MBPS["40" + suffix]), *map(short, ours)))
    for ratio in ("40", "20"):
        rows.append((f"s slept in throttling at {ratio}", "-",
                     *(short(look(k, f"throttled_s_{ratio}")) for k in kernels)))
    return Table("2. Speed that dd reports, MB/s", ("setting", "published", *kernels), rows,
                 ("fdatasync shows the disk: the ratio only decides how much of the file dd need not wait for.",))


def dirty_limits(found: Sequence[Result], kernels: Sequence[str]) -> Table:
    """OSM: peak of dirty memory under seven settings."""
    look = _lookup(found, "dirty-limits")
    rows = []
    for row in DIRTY_ROWS:
        a, b = row.replace("mb", "").split("_")
        label = f"{a}/{b} MB" if "mb" in row else f"{a}/{b} %"
        cells = []
        for k in kernels:
            peak, limit = look(k, f"max_dirty_{row}"), look(k, f"thresh_{row}")
            cells += [short(_scaled(peak, 1e6)), short(_scaled(limit, 1e6)), short(_ratio(peak, limit))]
        # Only the rows in bytes say what their limit was.
        limit_mb = float(a) if "mb" in row else None
        rows.append((label, short(OSM_MAX_DIRTY_MB[row]), short(_ratio(OSM_MAX_DIRTY_MB[row], limit_mb)), *cells))
    head = ["setting", "published", "/limit"]
    for k in kernels:
        head += [k, "limit", "/limit"]
    return Table("3. Peak of dirty memory, MB", tuple(head), rows, (
        "Published on 128 GB; a percentage is of dirtyable memory, so ours are smaller.",
        "Peak over limit must lie between 0.75 (nobody is throttled below) and 1.03.",
    ))


def ext4(found: Sequence[Result], kernels: Sequence[str]) -> Table:
    """Alibaba: ext4 under delalloc, nodelalloc, and nodelalloc,dioread_nolock."""
    look = _lookup(found, "ext4-nodelalloc")
    fast = any(r.meta.get("lane") == "fast" for r in found)
    rows = []
    for mount in MOUNTS:
        options = mount.replace("_", ",", 1)
        for metric, label in _EXT4_ROWS:
            if fast and metric == _CPU:
                continue
            published = EXT4_MBPS.get(mount) if metric == "cp_mbps" else None
            rows.append((options, label, short(published),
                         *(short(look(k, f"{metric}_{mount}")) for k in kernels)))
            options = ""
    notes = tuple(f"nodelalloc over delalloc, {k}: {short(_ratio(look(k, 'write_mbps_nodelalloc'), base))}"
                  for k in kernels if (base := look(k, "write_mbps_delalloc")))
    return Table("4. Writing a large file on ext4", ("mount options", "", "published", *kernels), rows,
                 (*notes, _EXT4_NOTE + (", which this lane does not have." if fast else ".")), 2)


def tables(found: Sequence[Result], kernels: Sequence[str]) -> list[Table]:
    """The four incidents, one column per kernel; without SUSE's, which the fast lane cannot replay, for its runs."""
    fast = any(r.meta.get("lane") == "fast" for r in found)
    replays = [read_latency, *([] if fast else [dirty_ratio]), dirty_limits, ext4]
    return [fn(found, kernels) for fn in replays]
