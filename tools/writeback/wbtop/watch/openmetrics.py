# SPDX-License-Identifier: GPL-2.0
"""A report as an OpenMetrics text file, for node_exporter's textfile collector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _samples(r: dict[str, Any]) -> Iterator[tuple[str, str, float | None]]:
    """Metric, labels, value; all gauges, of the last interval."""
    for name, value in (r["dirty"] or {}).items():
        if name != "state":
            yield "wb_dirty_bytes" if name == "dirty" else f"wb_dirty_{name}_bytes", "", value
    yield "wb_slept_known", "", 0.0 if r["source"] == "none" else 1.0
    for cause, ms in ((r["throttle"] or {}).get("by_cause_ms") or {}).items():
        yield "wb_slept_ratio", f'cause="{cause}"', ms / max(r["interval_s"], 1e-3) / 1e3
    for d in r["devices"]:
        label = f'device="{_label(d["name"])}",bdi="{_label(d["bdi"])}"'
        read = d["read"] or {}
        for metric, value in (("wb_device_write_bytes_per_second", d["write_rate"]),
                              ("wb_device_dirty_bytes", d["dirty"]), ("wb_device_writeback_bytes", d["writeback"]),
                              ("wb_device_inflight_bytes", d["inflight_bytes"])):
            yield metric, label, value
        for q in ("p50", "p99", "max"):
            us = read.get(f"{q}_us")
            yield "wb_device_read_seconds", f'{label},quantile="{q}"', None if us is None else us / 1e6
    for resource, kinds in r["pressure"].items():
        for kind, pct in kinds.items():
            yield "wb_pressure_ratio", f'resource="{resource}",kind="{kind}"', pct / 100


def text(r: dict[str, Any]) -> str:
    """The whole file; a metric's samples stand together, as the format asks."""
    families: dict[str, list[str]] = {}
    for name, labels, value in _samples(r):
        if value is not None:
            families.setdefault(name, []).append(f"{name}{{{labels}}} {value:.10g}" if labels else
                                                 f"{name} {value:.10g}")
    return "".join(f"# TYPE {name} gauge\n" + "\n".join(lines) + "\n" for name, lines in families.items()) + "# EOF\n"


def write(path: Path, r: dict[str, Any]) -> None:
    """Replace ``path``, so that a scrape sees the old or the new file."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temp.write_text(text(r))
        temp.chmod(0o644)
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)
