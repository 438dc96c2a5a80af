# SPDX-License-Identifier: GPL-2.0
"""What the rig measured, as ``wb tune`` cites it; ``wb figures`` writes the entries (figures.toml: evidence)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """One measured effect. command repeats it."""

    text: str
    command: str


EVIDENCE = {
    # figures: evidence
    "max_sectors": Evidence(
        "stock kernel, modelled disk of 450 MB/s: read p99.95 91.7 -> 17.2 ms, written in 2.48 -> 2.48 s",
        "wb run read-latency --lane fast --disk fifo (and --max-sectors-kb 128)"),
    "none_stock": Evidence(
        "stock kernel, modelled SATA SSD: read p99.95 117 -> 79.1 ms, written in 2.19 -> 2.19 s",
        "wb run read-latency --lane fast --disk sata --sched mq-deadline (and none)"),
    "sched_patched": Evidence(
        "with wbt_policy bytes, modelled SATA SSD: read p99.95 1.04 ms under mq-deadline, and 1.04 under none",
        "wb run read-latency --lane fast --kernel patched --disk sata --sched mq-deadline (and none)"),
    "bytes": Evidence(
        "modelled SATA SSD: read p99.95 79.1 -> 1.04 ms, written in 2.19 -> 2.09 s",
        "wb run read-latency --lane fast --disk sata (and --kernel patched)"),
    "bytes_fsync": Evidence(
        "4-KiB append + fsync beside readers and dd: p99.95 of the reads 93.7 -> 2.39 ms",
        "wb run read-latency --lane fast --disk fifo --probe fsync (and --kernel patched)"),
    "bfq": Evidence(
        "stock kernel, modelled disk of 450 MB/s: bfq 209 MB/s with read p99.95 1110 ms, none 589 MB/s with "
        "91.7 ms",
        "wb run read-latency --lane fast --disk fifo --sched bfq (and none)"),
    # end
    # figures: evidence-exact
    "dirty_small": Evidence(
        "stock kernel, modelled disk of 450 MB/s, limit of 48 MiB instead of 20 %: read p99 8.72 -> 8.72 ms, "
        "p99.95 35.9 -> 37.5 ms, written in 2.53 -> 2.47 s",
        "wb run tune-replay, Documentation/guide.md"),
    "wbt_off": Evidence(
        "stock kernel, modelled SATA SSD in QEMU: read p99.95 59.5 ms without wbt, 57.9 with it; written in "
        "2.1 and 2.26 s",
        "wb run read-latency --wbt off (and default)"),
    "database": Evidence(
        "stock kernel, modelled disk of 450 MB/s, requests of 128 KiB: p99 of fsync 68.7 -> 13.7 ms, p50 "
        "0.202 -> 7.05 ms, written in 2.48 -> 2.48 s",
        "wb run read-latency --lane fast --disk fifo --probe fsync (and --max-sectors-kb 128)"),
    "unplug": Evidence(
        "modelled USB stick, stock kernel, a copy of 64 MiB with max_bytes of 27 MiB and strict_limit: sync "
        "7.28 -> 2.48 s, copy and sync together 7.31 -> 7.3 s",
        "wb run tune-replay --disk usb --readers 0 --mib 64, Documentation/guide.md"),
    # end
}


def cite(name: str) -> str:
    """An effect with its command, as one sentence."""
    e = EVIDENCE[name]
    return f"{e.text} ({e.command})"
