# SPDX-License-Identifier: GPL-2.0
"""The text of a tracepoint, read by the ``format`` file that the running kernel has for it.

Fields have been renamed (bdi_dirty is wb_dirty from 6.16 on), added and moved
between 5.10 and 7.x.  The format says how this kernel prints which field, so a
pattern is made of it instead of one that knows some kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Today's name -> those of other kernels.
RENAMED = {"wb_dirty": ("bdi_dirty",), "wb_setpoint": ("bdi_setpoint",)}
# What 5.10 to 6.15 have, for a tracefs without a format file.
SLEEP_FORMAT = """\
name: balance_dirty_pages
print fmt: "bdi %s: limit=%lu setpoint=%lu dirty=%lu bdi_setpoint=%lu bdi_dirty=%lu dirty_ratelimit=%lu \
task_ratelimit=%lu dirtied=%u dirtied_pause=%u paused=%lu pause=%ld period=%lu think=%ld cgroup_ino=%lu", \
REC->bdi, REC->limit, REC->setpoint, REC->dirty, REC->bdi_setpoint, REC->bdi_dirty, REC->dirty_ratelimit, \
REC->task_ratelimit, REC->dirtied, REC->dirtied_pause, REC->paused, REC->pause, REC->period, REC->think, \
(unsigned long)REC->cgroup_ino
"""
QUEUE_FORMAT = """\
name: block_bio_queue
print fmt: "%d,%d %s %llu + %u [%s]", REC->dev >> 20, REC->dev & 1048575, REC->rwbs, REC->sector, REC->nr_sector, \
REC->comm
"""
COMPLETE_FORMAT = """\
name: block_rq_complete
print fmt: "%d,%d %s (%s) %llu + %u %s,%u,%u [%d]", REC->dev >> 20, REC->dev & 1048575, REC->rwbs, __get_str(cmd), \
REC->sector, REC->nr_sector, REC->ioprio, REC->ioprio, REC->ioprio, REC->error
"""
_SPEC = re.compile(r"%[-+ #0]*[0-9]*(?:\.[0-9]+)?(?:hh|ll|[hlLqzt])?([diouxXcsp%])")
_PATTERNS = {"s": r"(.*?)", "c": r"(.)", "x": r"(?:0x)?([0-9a-f]+)", "X": r"(?:0x)?([0-9A-F]+)", "p": r"(\S+)"}


@dataclass(frozen=True)
class Format:
    """How the kernel prints one event: a pattern, and the fields of its groups."""

    pattern: re.Pattern[str]
    names: tuple[str, ...]

    def parse(self, text: str) -> dict[str, str] | None:
        """Field -> text, of the text behind "event: "; None when it is not what the format says."""
        match = self.pattern.fullmatch(text)
        return dict(zip(self.names, match.groups())) if match else None

    def lacks(self, wanted: Iterable[str]) -> list[str]:
        """Which of ``wanted`` this kernel does not print, under any name we know."""
        return [n for n in wanted if n not in self.names]


def _arguments(text: str) -> list[str]:
    """The arguments of the print fmt: split at the commas that stand in no bracket and no string."""
    found, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"' and text[i - 1 : i] != "\\":
            quoted = not quoted
        elif not quoted and c in "([{":
            depth += 1
        elif not quoted and c in ")]}":
            depth -= 1
        elif c == "," and not depth and not quoted:
            found.append(text[start:i].strip())
            start = i + 1
    return [*found, text[start:].strip()]


def _field(argument: str, seen: dict[str, int]) -> str:
    match = re.search(r"REC->(\w+)|__get_\w+\((\w+)\)", argument)
    name = (match[1] or match[2]) if match else "?"
    name = next((today for today, old in RENAMED.items() if name in old), name)
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}#{seen[name]}"


def parse_format(text: str) -> Format | None:
    """A ``format`` file; None when it is none."""
    match = re.search(r'^print fmt: "((?:[^"\\]|\\.)*)",?\s*(.*)', text, re.MULTILINE | re.DOTALL)
    if not match:
        return None
    printed, arguments = match[1], _arguments(match[2].strip())
    pattern, names, at, count, seen = "", [], 0, 0, {}
    for spec in _SPEC.finditer(printed):
        pattern += re.escape(printed[at : spec.start()])
        at = spec.end()
        if spec[1] == "%":
            pattern += "%"
            continue
        argument = arguments[count] if count < len(arguments) else ""
        # Flags and symbols are text, whatever the conversion.
        words = "__print_" in argument
        pattern += r"(.*?)" if words else _PATTERNS.get(spec[1], r"\s*(-?[0-9]+)")
        names.append(_field(argument, seen))
        count += 1
    return Format(re.compile(pattern + re.escape(printed[at:]) + r"\s*"), tuple(names))
