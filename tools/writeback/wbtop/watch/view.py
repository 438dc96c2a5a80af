# SPDX-License-Identifier: GPL-2.0
"""The report as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from wbtop.stats import table

ROWS = 12
NAME = 15


def size(value: float | None) -> str:
    """Bytes in MiB; "-" when not known."""
    if value is None:
        return "-"
    mib = value / (1 << 20)
    return f"{mib:.0f}" if mib >= 100 or mib == int(mib) else f"{mib:.1f}"


def rate(value: float | None) -> str:
    """Bytes per second in MB/s of 10^6; "-" when not known."""
    if value is None:
        return "-"
    mb = value / 1e6
    return f"{mb:.0f}" if mb >= 100 or mb == int(mb) else f"{mb:.1f}"


def ms(us: float | None) -> str:
    """Microseconds in ms, three digits; "-" when not known."""
    return "-" if us is None else f"{us / 1e3:.3g}" if us < 1e6 else f"{us / 1e3:.0f}"


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "~"


def _tail(text: str, width: int) -> str:
    return text if len(text) <= width else "~" + text[-(width - 1):]


def _printable(text: str) -> str:
    """A task may have any name, escape sequences among them."""
    return "".join(c if c.isprintable() else "?" for c in text)


def active(device: dict[str, Any]) -> bool:
    """Whether there is anything to say of a device."""
    return bool(device["write_rate"] or device["dirty"] or device["writeback"] or device["read"] or device["slept_ms"])


def brief(r: dict[str, Any]) -> list[str]:
    """A line for each finding, with its time; none when nothing is wrong."""
    return [f"{r.get('time')} => {_printable(f['what'])}" for f in _findings(r) if f["fix"]]


def unknown(r: dict[str, Any]) -> str:
    """Why the report does not tell who slept; empty when it does."""
    return "" if r["source"] != "none" else next((str(n) for n in r["notes"]), "no tracing and no counters")


def _findings(r: dict[str, Any]) -> list[dict[str, str]]:
    """What is wrong, or that nothing is; recordings of earlier versions have the first one only."""
    return r.get("findings") or [d for d in [r.get("diagnosis")] if d]


def _bar(dirty: dict[str, Any], width: int = 40) -> str:
    """Dirty (#) and under writeback (+) up to the limit; b: background, f: freerun."""
    limit = max(dirty["limit"], 1)
    at = [min(width - 1, int(dirty[k] * width / limit)) for k in ("background", "freerun")]
    filled = min(width, round(dirty["dirty"] * width / limit))
    more = min(width, round((dirty["dirty"] + dirty["writeback"]) * width / limit))
    cells = ["#" if i < filled else "+" if i < more else "." for i in range(width)]
    for where, mark in zip(at, "bf"):
        cells[where] = mark
    return "".join(cells)


def render(r: dict[str, Any], columns: int = 80, rows: int | None = None) -> str:
    """The whole report, no line wider than ``columns``: tables lose columns from the right, text is wrapped.

    rows: with no more lines than this, for a terminal that cannot be scrolled back:
    what is wrong stays at the top, tables get shorter, then blank lines and the end go.
    """
    text = _render(r, columns, ROWS)
    for most in (ROWS // 2, 4, 3, 2, 1):
        if rows is None or len(text) <= rows:
            break
        text = _render(r, columns, most)
    if rows is not None and len(text) > rows:
        text = [line for line in text if line]
    if rows is not None and len(text) > rows:
        cut = len(text) - max(1, rows - 1)
        text = [*text[: max(1, rows - 1)], _clip(f"({cut} more lines: a taller window shows them)", columns)]
    return "\n".join(text)


def _render(r: dict[str, Any], columns: int, most: int) -> list[str]:
    """Its lines, with ``most`` rows in each table."""
    lines = [f"wb watch: {r['interval_s']:.1f} s, sleeps from {r['source']}"]
    for found in _findings(r):
        lines.append(f"=> {found['what']}")
        lines += [f"   helps: {found['fix']}"] if found["fix"] else []
    lines += [f"  note: {n}" for n in r["notes"]]
    d = r["dirty"]
    if d:
        lines += ["", f"dirty MiB  [{_bar(d, max(10, min(40, columns - 34)))}] {d['state']}",
                  f"  dirty {size(d['dirty'])} + writeback {size(d['writeback'])}; background {size(d['background'])}, "
                  f"freerun {size(d['freerun'])}, limit {size(d['limit'])}"]
    t = r["throttle"]
    if t:
        causes = ", ".join(f"{c} {v:.0f}" for c, v in t["by_cause_ms"].items() if v)
        lines.append(f"  slept in balance_dirty_pages: {t['slept_ms']:.0f} ms in {t['sleeps']} sleeps")
        lines += [f"  ms by limit: {causes}"] if causes else []
    pressure = [f"{name} {kinds.get('some', 0):g}/{kinds.get('full', 0):g}"
                for name, kinds in r.get("pressure", {}).items()]
    lines += [f"  stalled, % some/full: {', '.join(pressure)}"] if pressure else []
    wrapped = [w for line in lines for w in (textwrap.wrap(_printable(line), columns, subsequent_indent="     ",
                                                           break_on_hyphens=False) or [""])]
    parts = [*_tasks(r["tasks"], columns, most), *_writers(r.get("writers", []), columns, min(5, most)),
             *_cgroups(r["cgroups"], columns, most), *_devices(r["devices"], columns, most)]
    return [*wrapped, *(line for part in parts for line in part.split("\n"))]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int, left: int = 1) -> str:
    """The table with as many columns from the left as fit."""
    for count in range(len(head), 1, -1):
        text = table(head[:count], [r[:count] for r in rows], min(left, count))
        if max(len(line) for line in text.splitlines()) <= columns:
            return text
    return "\n".join(line[:columns] for line in text.splitlines())


def _writers(writers: list[dict[str, Any]], columns: int, most: int) -> list[str]:
    if not writers:
        return []
    rows = [[str(w["pid"]), _clip(_printable(w["comm"]), NAME), rate(w["dirty_rate"])] for w in writers[:most]]
    return ["", _table(["pid", "writer", "dirties MB/s"], rows, columns, left=2), *_more(writers, most)]


def _more(rows: Sequence[Any], shown: int) -> list[str]:
    return [f"  and {len(rows) - shown} more"] if len(rows) > shown else []


def _tasks(tasks: list[dict[str, Any]], columns: int, most: int) -> list[str]:
    if not tasks:
        return []
    rows = [[str(t["pid"]), _clip(_printable(t["comm"]), NAME), f"{t['slept_ms']:.0f}", f"{t['share_pct']:.0f}",
             str(t["sleeps"]), "-" if t["longest_ms"] is None else f"{t['longest_ms']:.0f}", t["cause"] or "-",
             _clip(",".join(t["devices"]) or "-", 10)] for t in tasks[:most]]
    return ["", _table(["pid", "task", "slept ms", "%", "sleeps", "max ms", "limit", "device"], rows, columns, left=2),
            *_more(tasks, most)]


def _cgroups(cgroups: list[dict[str, Any]], columns: int, most: int) -> list[str]:
    if not cgroups:
        return []
    rows = [[_tail(_printable(c["path"]), 36), f"{c['slept_ms']:.0f}", str(c["sleeps"]),
             *(f"{c['by_cause_ms'].get(k, 0):.0f}" for k in ("global", "cgroup", "device"))] for c in cgroups[:most]]
    return ["", _table(["cgroup", "slept ms", "sleeps", "global", "cgroup", "device"], rows, columns),
            *_more(cgroups, most)]


def _devices(devices: list[dict[str, Any]], columns: int, most: int) -> list[str]:
    busy = [d for d in devices if active(d)]
    if not busy:
        return ["", _clip("no device with reads, writes or dirty data", columns)]
    rows = []
    for d in busy[:most]:
        read = d["read"] or {}
        rows.append([_clip(d["name"], 10), rate(d["write_rate"]), rate(d["drain_rate"] or d["bandwidth"]),
                     size(d["dirty"]), size(d["writeback"]),
                     ("~" if d["inflight_estimated"] else "") + size(d["inflight_bytes"]), f"{d['slept_ms']:.0f}",
                     ms(read.get("p50_us") or read.get("mean_us")), ms(read.get("p99_us")), ms(read.get("max_us"))])
    head = ["device", "wr MB/s", "est.", "dirty", "wback", "flight", "slept", "rd p50", "p99", "max ms"]
    named = [f"  {d['name']}: {_printable(d['what'])}" for d in busy[:most] if d.get("what")]
    return ["", _table(head, rows, columns), *_more(busy, most), *(_clip(n, columns) for n in named)]
