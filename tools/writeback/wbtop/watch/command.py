# SPDX-License-Identifier: GPL-2.0
"""``wb watch``: who sleeps in balance_dirty_pages() and why, and what the disks do meanwhile."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wbtop import ranges
from wbtop.cli import given
from wbtop.errors import WbError
from wbtop.machine import Machine
from wbtop.proc import say

from . import openmetrics
from . import sample as samples
from .live import Keys, height, width
from .report import Traced, report
from .trace import Trace
from .view import active, brief, render, unknown

INTERVAL_S = 2.0
EXAMPLES = """\
examples:
  wb watch                        live, every 2 s, until Ctrl-C (as root)
  wb watch --interval 10 --count 6  a minute in six reports
  wb watch --once --json          one interval as one JSON object, for scripts
  wb watch --json --interval 60   one JSON object per line and minute
  wb watch --no-trace             counters only, on a kernel that has them
  wb watch --record stall.jsonl   keep every report; wb watch stall.jsonl shows them again
  wb watch stall.jsonl --findings  only what was wrong, a line each with its time
  wb watch --interval 15 --openmetrics /var/lib/prometheus/node-exporter/wb.prom --json > /dev/null
keys: q quits
Needs nothing but Python 3.9.
columns:
  slept ms, %   time asleep in balance_dirty_pages(), and the share of the interval, of
                the thread that sleeps most (without tracing of all, at most 100)
  limit         whose limit it was: global (vm.dirty_*), the cgroup's, the device's
  wr MB/s, est. what was written in the interval; the kernel's own estimate of the rate
  dirty, wback, flight   MiB: dirty, under writeback, in the device's queue (~: requests
                x their mean size, where the kernel does not count bytes)
  rd p50 ...    ms from the submission of a read to its end, of a sample at the start of
                the interval; without tracing only the mean, in the column of p50
sources: the counters of the mm series where the kernel has them (real sleeps, in us; per
task with kernel.task_delayacct=1, of tasks that started after it was set); else the
tracepoint writeback:balance_dirty_pages (planned sleeps, in timer ticks), in instances
of its own that are removed at the end: no setting of the machine changes.
exit code: 0; 1 without root, without /proc, or of --findings when no report tells who
slept, so that nothing found says nothing; 2 for wrong usage"""


def register(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``wb watch``."""
    p = sub.add_parser("watch", help="live: who is throttled, and why", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--interval", type=ranges.number(0.1, 86400), metavar="S",
                   help=f"seconds (0.1..86400, default {INTERVAL_S:g})")
    p.add_argument("--count", type=ranges.whole(1, 10**9), metavar="N",
                   help="end after N reports (1..1000000000, default: at Ctrl-C)")
    p.add_argument("--once", action="store_true", help="one report: --count 1")
    p.add_argument("--json", action="store_true", help="JSON: with --once one object, else one per line")
    p.add_argument("file", metavar="FILE", nargs="?", help="show what --record wrote, instead of this machine; of the "
                   "options only --json and --findings go with it")
    p.add_argument("--findings", action="store_true", help="of FILE only what was wrong, a line each with its time; "
                   "with --json the reports in which something was")
    p.add_argument("--record", metavar="FILE", help="append each report to FILE, one JSON object per line, without "
                   "idle devices")
    p.add_argument("--openmetrics", metavar="FILE", help="replace FILE at each report, for node_exporter's textfile "
                   "collector (its name has to end in .prom)")
    p.add_argument("--no-trace", action="store_true", help="do not use tracepoints")
    p.add_argument("--root", default="/", help=argparse.SUPPRESS)
    p.set_defaults(func=run, default=p.get_default)


def _trace(machine: Machine, args: argparse.Namespace, counters: bool, notes: list[str],
           stack: contextlib.ExitStack) -> Trace | None:
    """A trace that has begun and ends with ``stack``, or None with a note that says what is not known without it."""
    if args.no_trace:
        if not counters:
            notes.append("no tracing and no counters in this kernel: who sleeps is not known")
        elif machine.number("/proc/sys/kernel/task_delayacct") != 1:
            notes.append("sleeps of single tasks are not counted: sysctl kernel.task_delayacct=1, for tasks that start "
                         "afterwards")
        return None
    try:
        return stack.enter_context(Trace(machine))
    except WbError as exc:
        notes.append(f"{exc}; " + ("causes per task and read percentiles are missing" if counters
                                   else "who sleeps is not known"))
        return None


def run(args: argparse.Namespace) -> int:
    """``wb watch``."""
    if args.file:
        _check_replay(args)
        return _replay(Path(args.file), args)
    if args.findings:
        raise WbError("--findings: of a recording only: wb watch FILE --findings", 2)
    machine = Machine(Path(args.root))
    if machine.root == Path("/") and os.geteuid() != 0:
        raise WbError("wb watch reads other users' processes and tracefs: run as root")
    if args.once and args.count not in (None, 1):
        raise WbError("--once and --count exclude each other", 2)
    count = 1 if args.once else args.count
    args.interval = INTERVAL_S if args.interval is None else args.interval
    _check_files(args)
    try:
        _watch(machine, args, count)
    except KeyboardInterrupt:
        if count is not None:
            raise
    return 0


def _check_replay(args: argparse.Namespace) -> None:
    """WbError (code 2) for what has no meaning with FILE."""
    if more := given(args, "interval", "count", "once", "record", "openmetrics", "no_trace"):
        raise WbError(f"{', '.join(more)}: FILE is shown as it was recorded, of the options only with --json and "
                      "--findings", 2)


def _recorded(path: Path) -> Iterator[str]:
    """The lines of a recording, one at a time: of a night it may be larger than memory."""
    try:
        with path.open(errors="replace") as f:
            yield from f
    except OSError as exc:
        raise WbError(f"{path}: {exc.strerror}", 2) from exc


def _replay(path: Path, args: argparse.Namespace) -> int:
    """Show what --record wrote; a line that is not whole is what a killed watch or a full disk leaves."""
    number = good = wrong = blind = 0
    why = ""
    cut: list[int] = []
    for number, line in enumerate(_recorded(path), 1):
        try:
            found = json.loads(line)
            lines = brief(found)
            text = json.dumps(found) if args.json else "\n".join(lines) if args.findings else \
                f"-- report {number}, {found.get('time') or ''}\n{render(found, width())}\n"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            cut.append(number)
            continue
        good += 1
        wrong += bool(lines)
        if said := unknown(found):
            blind, why = blind + 1, said
        if lines or not args.findings:
            print(text)
    if not number:
        raise WbError(f"{path}: empty: no report was recorded yet")
    if not good:
        raise WbError(f"{path}: no line is one of 'wb watch --record'", 2)
    if cut:
        say(f"wb watch: {path}: left out, as not whole: line {', '.join(map(str, cut[:8]))}"
            + (f" and {len(cut) - 8} more" if len(cut) > 8 else ""))
    if args.findings:
        say(f"wb watch: {wrong} of {good} reports have findings"
            + (f"; in {blind} of {good} it is not known who slept: {why}" if blind else ""))
    return 1 if args.findings and blind == good else 0


def _watch(machine: Machine, args: argparse.Namespace, count: int | None) -> None:
    counters = samples.has_counters(machine)
    notes: list[str] = []
    if samples.dirty(machine) is None:
        raise WbError("/proc/vmstat does not tell the dirty limits: is /proc mounted?")
    with contextlib.ExitStack() as stack:
        trace = _trace(machine, args, counters, notes, stack)
        notes += trace.notes if trace else []
        for note in notes:
            say(f"wb watch: {note}")
        if not machine.names("/sys/kernel/debug/bdi"):
            notes.append("debugfs is not mounted or is locked down: est., dirty and wback of the devices are not known "
                         "(mount -t debugfs debugfs /sys/kernel/debug)")
        _loop(machine, args, trace, counters, notes, count)


def _loop(machine: Machine, args: argparse.Namespace, trace: Trace | None, counters: bool, notes: list[str],
          count: int | None) -> None:
    delays = samples.kernel_delays(machine) if counters else None
    old = samples.sample(machine, counters=counters, delays=delays)
    if trace is not None:
        trace.sleeps()  # those before the interval: a task does not sleep for 123 % of it
    done, last = 0, None
    # A single report is due whatever is typed; and a console that nobody holds reads as its end.
    with Keys(not args.once) as keys:
        while count is None or done < count:
            end = time.monotonic() + args.interval
            while (key := keys.wait(max(0.0, end - time.monotonic()))) == "resize":
                if last:
                    _show(last, args)
            if key == "q":
                return
            new = samples.sample(machine, counters=counters, delays=delays)
            last = report(old, new, _traced(machine, trace, delays), notes)
            last["time"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            _keep(last, args)
            _show(last, args)
            old, done = new, done + 1


def _traced(machine: Machine, trace: Trace | None, delays: samples.Delays | None) -> Traced | None:
    if trace is None:
        return None
    sleeps, lost, unknown = trace.sleeps()
    reads, unread = trace.reads()
    names = samples.cgroup_names(machine) if any(s.cgroup for s in sleeps) else {}
    return Traced(sleeps, lost, reads, lambda pid: samples.task(machine, pid, delays), names, unknown + unread)


def _check_files(args: argparse.Namespace) -> None:
    """WbError (code 2) when there is no place for --record or --openmetrics: now, not after the first interval."""
    for option, name in (("--record", args.record), ("--openmetrics", args.openmetrics)):
        if name and (Path(name).is_dir() or not Path(name).parent.is_dir()):
            raise WbError(f"{option} {name}: " + ("is a directory" if Path(name).is_dir() else
                                                  "its directory is not there"), 2)
    if args.openmetrics and not args.openmetrics.endswith(".prom"):
        raise WbError(f"--openmetrics {args.openmetrics}: node_exporter reads only files whose names end in .prom", 2)


def _keep(found: dict[str, Any], args: argparse.Namespace) -> None:
    """What --record and --openmetrics ask for; of a watch without an end a full disk costs a report, not all later."""
    for name, keep in ((args.record, _append), (args.openmetrics, openmetrics.write)):
        try:
            if name:
                keep(Path(name), found)
        except OSError as exc:
            text = f"{name}: {exc.strerror}"
            if args.once or args.count or exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise WbError(text) from exc
            say(f"wb watch: {text}: without the report of {found['time']}")


def _append(path: Path, found: dict[str, Any]) -> None:
    """Add a line; what a full disk has cut off must not take it with it."""
    cut = False
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as f:
            f.seek(-1, os.SEEK_END)
            cut = f.read() != b"\n"
    with path.open("a") as f:
        f.write("\n" * cut + json.dumps(found | {"devices": [d for d in found["devices"] if active(d)]}) + "\n")


def _show(found: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(found, indent=1 if args.once else None), flush=True)
        return
    live = sys.stdout.isatty() and not args.once
    # Home and clear, so that the view stays in place; three lines are for the keys and the cursor.
    text = render(found, width(), height() - 3 if live else None)
    print(f"\x1b[H\x1b[J{text}\n\nq: quit" if live else text + ("" if args.once else "\n"), flush=True)
