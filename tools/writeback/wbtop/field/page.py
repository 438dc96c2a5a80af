# SPDX-License-Identifier: GPL-2.0
"""The result of ``wb field`` as one page without a script or anything to load."""

from __future__ import annotations

import html
import json
from typing import Any

from wbtop.stats import number, short

STYLE = """
:root{color-scheme:light dark;--line:#8886;--better:#007a5a;--worse:#b34700}
@media(prefers-color-scheme:dark){:root{--better:#35c79b;--worse:#ff9b5c}}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
.verdict{font-size:1.1rem;border-left:.3rem solid;padding-left:.8rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}
th,td{white-space:nowrap}li,p{overflow-wrap:anywhere}h3{font-size:1rem;margin-bottom:0}
th:first-child,td:first-child{text-align:left}.word{text-align:left}.better{color:var(--better)}.worse{color:var(--worse)}
svg{max-width:100%;height:auto}svg text{fill:currentColor;font-size:11px}pre{overflow-x:auto;font-size:.8rem}
"""
WHY = """Times are real, on this machine's own disk, beside whatever else it did. ± is the interquartile range of the
turns, "95 %" the interval of the ratio B/A. A verdict needs p of at most 0.05 in the exact rank-sum test after Holm's
correction for all rows. Lower is better in every row. drain_s is the cost: seconds until all of the writer's data is on
the disk; the p50 and p70 of the reads show what the many pay for the few."""


def _e(value: object) -> str:
    return html.escape("-" if value is None else str(value))


def _dots(name: str, turns: list[dict[str, Any]]) -> str:
    """Every turn of one metric as a dot on a line, A above B: the spread itself."""
    values = {s: [t["metrics"][name] for t in turns if t["side"] == s and name in t["metrics"]] for s in "AB"}
    every = [v for side in values.values() for v in side]
    if not every:
        return ""
    top = max(every) or 1
    marks = []
    for y, (side, colour) in zip((14, 34), (("A", "#0072b2"), ("B", "#d55e00"))):
        if values[side]:
            marks.append(f'<text x="0" y="{y + 4}">{side}</text>')
            marks.append(f'<line x1="16" x2="286" y1="{y}" y2="{y}" stroke="currentColor" stroke-opacity=".25"/>')
            marks += [f'<circle cx="{16 + 270 * v / top:.1f}" cy="{y}" r="4" fill="{colour}" fill-opacity=".6"/>'
                      for v in values[side]]
    return (f'<svg viewBox="0 0 343 50" width="343" height="50" role="img" aria-label="{_e(name)} of every turn">'
            + "".join(marks) + f'<text x="294" y="18">{number(top)}</text></svg>')


def _verdicts(found: dict[str, Any]) -> str:
    rows = []
    for v in found["verdicts"]:
        ratio = "-" if v["ratio"] is None else f"{v['ratio']:.2f}"
        interval = "-" if v["low"] is None else f"{v['low']:.2f} to {v['high']:.2f}"
        kind = v["verdict"] if v["verdict"] in ("better", "worse") else ""
        sure = "" if v["confidence"] is None or not kind else f" ({100 * v['confidence']:.1f} %)"
        rows.append(f"<tr><td>{_e(v['metric'])}<td class='word {kind}'>{_e(v['verdict'])}{sure}<td>{ratio}"
                    f"<td>{interval}<td>{short(v['a'])} ± {short(v['a_spread'])}<td>{short(v['b'])} "
                    f"± {short(v['b_spread'])}")
    if not rows:
        rows = [f"<tr><td>{_e(k)}<td>{number(v)}" for k, v in found["medians"]["A"].items()]
        return "<div class=scroll><table><tr><th>metric<th>A" + "".join(rows) + "</table></div>"
    return ("<div class=scroll><table><tr><th>metric<th class=word>verdict<th>B/A<th>95 %<th>A<th>B" + "".join(rows)
            + "</table></div>")


def page(found: dict[str, Any], missing: str = "") -> str:
    """The whole page. missing: what is not in its table."""
    f = found["facts"]
    disk = ", ".join(f"{d['name']} {d['model'] or ''} ({d['scheduler']})" for d in f["disks"])
    busy = max((t["cpu_stalled_pct"] for t in found["turns"]), default=0)
    noise = f"<p>Tasks waited for a CPU in up to {busy:.0f} % of a turn: times include that.</p>" if busy > 20 else ""
    pictures = "".join(f"<h3>{_e(n)}</h3>{_dots(n, found['turns'])}" for n in
                       ("read_p50_ms", "read_p99_ms", "fsync_p99_ms", "drain_s")
                       if any(n in t["metrics"] for t in found["turns"]))
    sides = "".join(f"<li><b>{s}</b>: {_e(text)}" for s, text in found["sides"].items())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>wb field: {_e(f['release'])}</title><style>{STYLE}</style>
<h1>Writeback on {_e(f['host'] or 'a machine')}, {_e(f['release'])}</h1>
<p class="verdict">{_e(found['conclusion'])}</p><ul>{sides}</ul>{noise}
{_verdicts(found)}
{f"<p>{_e(missing)}.</p>" if missing else ""}<p>{WHY}</p>
<h2>Every turn</h2>{pictures}
<h2>The machine</h2><p>{_e(f['cpu'])}, {_e(f['cpus'])} CPUs, {f['memory_bytes'] / 2**30:.1f} GiB; {_e(f['fs'])}
({_e(f['mount_options'])}) on {_e(disk)}; {_e(found['mib'])} MiB per write; {_e(found['time'])}.</p>
<details><summary>All facts</summary><pre>{_e(json.dumps(f, indent=1))}</pre></details>
</html>
"""
