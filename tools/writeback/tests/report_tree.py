# SPDX-License-Identifier: GPL-2.0
"""A small result tree with everything a report can show, invented but in the real formats."""

import json
import math
from pathlib import Path

from wblib.catalog import axes
from wblib.catalog.suites import cell
from wblib.results import published, store

IMAGE = {"stock": "1111aaaa" + "0" * 56, "patched": "2222bbbb" + "0" * 56}
READ_MS = {"idle": 0.12, "direct": 2.6, "buffered": 30.0}
Value = tuple[float, str]


def place(root: Path, words: str, kernel: str, seed: int, metrics: dict[str, Value], status: str = "pass",
          image: str = "", **meta: object) -> Path:
    """Write the result of "CASE axis=value ..."; returns the directory of its data."""
    one = cell(words)
    image = image or IMAGE[kernel]
    where = root / f"{kernel}-{image[:8]}" / one.case / axes.slug(one.case, one.axes) / f"seed-{seed}"
    about = {"release": "6.12.117", "lane": "exact", "image_hash": image, "git_rev": "abc1234", **meta}
    store.write(store.Result(one.case, kernel, one.axes, seed,
                                 {n: {"value": v, "unit": u} for n, (v, u) in metrics.items()}, about, status,
                                 [{"name": "it ran", "result": "pass" if status == "pass" else "fail"}]),
                  where / "result.json")
    (where / "data").mkdir()
    return where / "data"


def read_latency(root: Path, words: str, kernel: str, seed: int, ms: float, mbps: float = 500.0) -> Path:
    """A run of read-latency with its bins."""
    points = {"read_p50": 0.11, "read_p99": ms / 4, "read_p99_9": ms / 2, "read_p99_95": ms, "read_p99_99": 1.1 * ms,
              "read_max": 1.2 * ms}
    metrics: dict[str, Value] = {n: (1000 * v + seed, "us") for n, v in points.items()}
    data = place(root, f"read-latency {words}", kernel, seed,
                 metrics | {"write_mbps": (mbps + seed, "MB/s"), "drain_s": (1000 / mbps, "s")})
    bins = {110_000: 15000, int(1e6 * ms / 4): 300, int(1e6 * ms): 20, int(1.2e6 * ms): 2}
    (data / "fio.json").write_text(json.dumps({"jobs": [{"read": {"clat_ns": {"bins": bins}}}]}))
    return data


def recording(data: Path, ms: float, *, limit: bool) -> None:
    """What --trace-control 1 keeps: 2 s of dd, 1 s of sync."""
    lines = ["0.9,mark,start", *(f"{1 + n / 50:.3f},writer,{n * 10_000_000}" for n in range(101))]
    for n in range(100):
        lines += [f"{1.2 + n / 50:.3f},queue,1048576,0", f"{1.21 + n / 50:.3f},complete,1048576,9000000"]
        if limit:
            lines.append(f"{1.2 + n / 50:.3f},wbt_bytes,limit=655360,active=1")
    (data / "control.csv").write_text("\n".join([*lines, "3.0,mark,written", "4.0,mark,synced", ""]))
    (data / "control-read_clat.log").write_text("".join(
        f"{800 + n}, {int(1e6 * (ms if n % 100 == 50 else 0.12))}, 0, 4096, 0\n" for n in range(3500)))


def dirty_limits(root: Path, kernel: str) -> Path:
    """A run of dirty-limits with two rows of samples."""
    metrics: dict[str, Value] = {f"{n}_{r}": (v * 1e6, "bytes") for r in axes.DIRTY_ROWS
                                 for n, v in (("max_dirty", 96.0), ("thresh", 100.0), ("freerun", 75.0))}
    data = place(root, "dirty-limits", kernel, 1, metrics)
    for row in ("10_20", "100mb_50mb"):
        lines = ["seconds,nr_dirty,nr_writeback,nr_dirty_threshold,nr_dirty_background_threshold,nr_free_pages"]
        lines += [f"{n / 100:.3f},{min(n * 500, 17000 + int(900 * math.sin(n / 5)))},{3000 if n > 30 else 0},24415,"
                  "12208,900000" for n in range(200)]
        (data / f"dirty_{row}.csv").write_text("\n".join([*lines, ""]))
    return data


def dirty_ratio(root: Path, kernel: str) -> Path:
    """A run of dirty-ratio-dd whose dd slept ten times at ratio 20."""
    data = place(root, "dirty-ratio-dd", kernel, 1, {
        **{f"write_mbps_{k}": (v, "MB/s") for k, v in published.SUSE_MBPS.items()},
        "throttled_s_40": (0, "s"), "throttled_s_20": (0.145, "s")})
    (data / "throttle_40.txt").touch()
    (data / "throttle_20.txt").write_text("".join(
        f"  dd-156 [000] ..... {4.5 + n / 10:.6f}: balance_dirty_pages: bdi 259:0: limit=86868 setpoint=75996 "
        f"dirty=65536 dirty_ratelimit={102400 + n} task_ratelimit={201100 - 9000 * n} dirtied=128 paused=0 "
        f"pause={10 + n} period=2 think=-4 cgroup_ino=1\n" for n in range(10)))
    return data


def dirty_time(root: Path, kernel: str) -> Path:
    """A run of dirty-time with the disk that becomes slower."""
    data = place(root, "dirty-time", kernel, 1, {"step_s": (12.0, "s")})
    rows = [f"{n / 10:.3f},{10000 - n * 30},3000,24415,12208,900000" for n in range(200)]
    (data / "dirty_step.csv").write_text("\n".join(
        ["seconds,nr_dirty,nr_writeback,nr_dirty_threshold,nr_dirty_background_threshold,nr_free_pages", *rows, ""]))
    (data / "step.marks").write_text("sampler 100.00\nslower 106.00\n")
    (data / "throttle_step.txt").write_text("".join(
        f"  dd-156 [000] ..... {101 + n / 5:.6f}: balance_dirty_pages: bdi 259:0: limit=86868 setpoint=75996 "
        f"dirty=65536 bdi_setpoint={13000 - 100 * n} bdi_dirty={12000 - 90 * n} dirty_ratelimit=102400 "
        f"task_ratelimit={51200 - 500 * n} dirtied=256 paused=0 pause={10 + n} period=2 think=-4 cgroup_ino=1\n"
        for n in range(90)))
    return data


def ext4(root: Path, kernel: str) -> Path:
    """A run of ext4-nodelalloc."""
    return place(root, "ext4-nodelalloc", kernel, 1, {f"{n}_{m}": (v, u) for m in published.MOUNTS for n, v, u in (
        ("cp_mbps", 83.0, "MB/s"), ("write_mbps", 312.0 if m == "delalloc" else 80.7, "MB/s"),
        ("cpu_ns_per_page", 2500, "ns"), ("mean_request_kib", 1024, "KiB"), ("extents", 5, "count"))})


def make(root: Path) -> Path:
    """The whole tree: stock and patched."""
    for kernel, factor in (("stock", 1.0), ("patched", 0.07)):
        for seed in (1, 2, 3):
            read_latency(root, "disk=fifo", kernel, seed, 30 * factor + seed / 10)
        read_latency(root, "disk=fifo probe=fsync", kernel, 1, 30 * factor)
        recording(read_latency(root, "disk=fifo trace-control=1", kernel, 1, 30 * factor), 30 * factor,
                  limit=kernel == "patched")
        dirty_limits(root, kernel)
        dirty_ratio(root, kernel)
        ext4(root, kernel)
    dirty_time(root, "patched")
    for writer in ("idle", "direct"):
        read_latency(root, f"disk=fifo writer={writer}", "stock", 1, READ_MS[writer])
    read_latency(root, "disk=fifo wbt=off", "stock", 1, 60, 510)
    read_latency(root, "disk=fifo sched=bfq max-sectors-kb=128", "stock", 1, 1.2, 190)
    read_latency(root, "disk=fifo sched=mq-deadline", "stock", 1, 80, 390)
    return root
