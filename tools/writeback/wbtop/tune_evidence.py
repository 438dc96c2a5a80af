# SPDX-License-Identifier: GPL-2.0
"""What the rig measured, as ``wb tune`` cites it. A test compares every number with the page it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """One measured effect. command repeats it; numbers are those that ``page`` (in Documentation/) must hold."""

    text: str
    command: str
    page: str
    numbers: tuple[str, ...]


EVIDENCE = {
    "max_sectors": Evidence(
        "stock kernel, modelled disk of 450 MB/s: read p99.95 30.3 -> 8.45 ms, drain 2.68 -> 2.65 s",
        "wb run read-latency --kernel stock --disk fifo --max-sectors-kb 128", "block.md",
        ("30.3", "8.45", "2.68", "2.65")),
    "none_stock": Evidence(
        "stock's policy, modelled SATA SSD: read p99.95 121 -> 68.7 ms, drain 2.187 -> 2.197 s",
        "wb run read-latency --lane fast --reader open --disk sata --policy requests --sched mq-deadline (and none)",
        "block.md", ("121", "68.7", "2.187", "2.197")),
    "sched_patched": Evidence(
        "with wbt_policy bytes, modelled SATA SSD: read p99.95 1.86 ms under mq-deadline, and 1.86 under none",
        "wb run read-latency --lane fast --reader open --disk sata --sched mq-deadline (and none)", "block.md",
        ("1.86",)),
    "bytes": Evidence(
        "modelled SATA SSD: read p99.95 68.7 -> 1.86 ms, drain 2.197 -> 2.094 s",
        "wb run read-latency --lane fast --reader open --disk sata (and --policy requests)", "block.md",
        ("68.7", "1.86", "2.197", "2.094")),
    "bytes_fsync": Evidence(
        "4-KiB append + fsync beside readers and dd: p99.95 of the reads 80.8 -> 2.35 ms",
        "wb run read-latency --lane fast --reader open --disk fifo --probe fsync (and --policy requests)", "block.md",
        ("80.8", "2.35")),
    "dirty_small": Evidence(
        "stock kernel, modelled disk of 450 MB/s, limit of 64 instead of 384 MiB: read p99 1.17 -> 26.3 ms, p99.95 "
        "85.5 -> 50.6 ms, drain 3.47 -> 3.49 s",
        "wb run tune-replay --mib 1024, lists in Documentation/tune.md", "tune.md",
        ("1.17", "26.3", "85.5", "50.6", "3.47", "3.49")),
    "database": Evidence(
        "stock kernel, modelled disk of 450 MB/s, all that this goal changes: p99 of fsync 131 -> 16.1 ms, p50 0.26 -> "
        "5.1 ms, drain 3.57 -> 2.68 s",
        "wb run tune --goal database", "tune.md", ("131", "16.1", "0.26", "5.1", "3.57", "2.68")),
    "unplug": Evidence(
        "Modelled USB stick, stock kernel: sync after a copy of 64 MiB 7.26 -> 2.36 s, copy and sync together 7.35 "
        "-> 7.31 s",
        "wb run tune --goal unplug --disk usb --mib 64", "tune.md", ("7.26", "2.36", "7.35", "7.31")),
    "wbt_off": Evidence(
        "stock kernel, modelled disk of 450 MB/s: read p99.95 82 ms without wbt, 33.2 with it; drain 2.63 and 2.75 s",
        "wb bench reference", "rig.md", ("82", "33.2", "2.63", "2.75")),
    "bfq": Evidence(
        "stock kernel, modelled disk of 450 MB/s: bfq 193 MB/s with read p99.95 3.03 ms, none 506 MB/s with 30.3 ms",
        "wb run read-latency --kernel stock --disk fifo --sched bfq (and none)", "block.md",
        ("193", "3.03", "506", "30.3")),
}


def cite(name: str) -> str:
    """An effect with its command, as one sentence."""
    e = EVIDENCE[name]
    return f"{e.text} ({e.command})"
