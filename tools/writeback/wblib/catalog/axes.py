# SPDX-License-Identifier: GPL-2.0
"""The cases and their axes, as the cases describe themselves.

A case is a script CASE.sh in the kselftest directory; an axis is one of its
--name=value options.  Values are strings everywhere, as on a command line.
"""

import argparse
import difflib
import functools
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wblib.base.paths import ROOT, SELFTESTS
from wblib.base.proc import sha256_text
from wbtop.errors import WbError

from . import describe

SLUG_MAX = 200
SEED_MAX = 999_999_999  # nine digits: what the cases take, and fits QEMU's -seed and fio's randseed


@dataclass(frozen=True)
class Axis:
    """One option of a case.

    choices: the words allowed.  low, high: when given, a number between them
    is allowed too.  pattern: when given, so is a value that matches all of it.
    omit: the value that is said by leaving the option out.  main: always part
    of the guest's command line and of the result's directory; the others only
    when they differ from the default.  wall_s: what one more than the default
    adds to the case's wall_s.
    """

    name: str
    default: str
    help: str
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    unit: str = ""
    pattern: str = ""
    pattern_help: str = ""
    main: bool = False
    omit: str = ""
    wall_s: int = 0

    def allowed(self) -> str:
        """The allowed values in words, for help and errors."""
        parts = list(self.choices)
        if self.pattern_help:
            parts.append(self.pattern_help)
        if self.low is not None:
            parts.append(f"{self.low}..{self.high}" + (f" {self.unit}" if self.unit else ""))
        return "|".join(parts)

    def check(self, value: str) -> str:
        """Return ``value`` in its canonical form; WbError (code 2) when it is not allowed."""
        if value in self.choices or (self.pattern and re.fullmatch(self.pattern, value)):
            return value
        number = int(value) if re.fullmatch(r"[0-9]{1,12}", value) else -1
        if self.low is not None and self.high is not None and self.low <= number <= self.high:
            return str(number)
        raise WbError(f"--{self.name} {value or repr('')}: must be {self.allowed()}{_hint(value, self.choices)}", 2)


@dataclass(frozen=True)
class Metrics:
    """Metrics of one meaning. better: lower, higher or empty.

    names: between ", "; in them P is a percentile such as p99_9, another word in capitals anything, and what
    stands in brackets may be missing.
    """

    names: str
    unit: str
    better: str
    meaning: str

    def matches(self, metric: str) -> bool:
        """Whether ``metric`` is one of ``names``."""
        return re.fullmatch(_pattern(self.names), metric) is not None


@functools.cache
def _pattern(names: str) -> str:
    text = names.replace(", ", "|").replace("[", "(").replace("]", ")?")
    return re.sub(r"[A-Z]+", lambda m: "p[0-9_]+" if m[0] == "P" else ".+", text)


@dataclass(frozen=True)
class Case:
    """One case: what it measures and what one run of it costs.

    guest_mib: RAM of the guest, which an axis "ram" overrides.  wall_s: about how long one seed takes on one
    core, for the first estimate of the time left.  needs_series: it tests what
    the series changes, "all" or on that line only, so that elsewhere it fails or
    skips; suites leave it out there.  python: its guest has python3 and wb, as /opt/wb/wb.
    foreign: its guest has programs that only this case needs, own_programs.  smp: its
    virtual CPUs in the exact lane.  not_fast: why it says nothing in the fast lane.
    kernel: options that it needs.  once: what differs from its defaults where every case runs once.
    """

    name: str
    help: str
    incident: str
    axes: tuple[Axis, ...]
    guest_mib: int = 2048
    wall_s: int = 40
    needs_series: str = ""
    python: bool = False
    foreign: bool = False
    smp: int = 1
    not_fast: str = ""
    metrics: tuple[Metrics, ...] = ()
    programs: tuple[str, ...] = ()
    own_programs: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()
    once: str = ""

    def axis(self, name: str) -> Axis:
        """The axis ``name``; WbError (code 2) with the nearest name when there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        names = [a.name for a in self.axes]
        known = ", ".join(f"--{n}" for n in names) or "no axes"
        raise WbError(f"{self.name} has no axis --{name}: it has {known}{_hint(name, names, '--')}", 2)


def _hint(word: str, options: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def unknown(kind: str, word: str, options: Iterable[str]) -> WbError:
    """The one-line error for a ``word`` that is none of ``options``, with the nearest one."""
    names = list(options)
    return WbError(f"unknown {kind} '{word}': choose from {', '.join(names)}{_hint(word, names)}", 2)


def _axis(said: Mapping[str, Any]) -> Axis:
    alone = str(said.get("alone", ""))
    return Axis(said["name"], said["default"], said["help"], tuple(said["choices"]), said.get("low"), said.get("high"),
                said.get("unit", ""), said.get("pattern", ""), said.get("pattern_help", ""), said.get("main", False),
                alone, said["wall_s"])


def _case(said: Mapping[str, Any]) -> Case:
    return Case(said["name"], said["title"], said["replays"],
                tuple(_axis(a) for a in said["axes"] if not a.get("local")), said["memory_mib"], said["wall_s"],
                said.get("series", ""), said.get("python", False), bool(said["own_programs"]), said["cpus"],
                said.get("not_fast", ""), tuple(Metrics(m["names"], m["unit"], m.get("better", ""), m["meaning"])
                                                for m in said["metrics"]), tuple(said["programs"]),
                tuple(said["own_programs"]), tuple(said["kernel"]), said.get("once", ""))


CASES: dict[str, Case] = {c.name: c for c in map(_case, describe.declared())}
# Background/limit in percent, limit/background in MB: the order of the study.
DIRTY_ROWS = CASES["dirty-limits"].axis("row").choices[1:] if "dirty-limits" in CASES else ()


@functools.cache
def script_hash(name: str, root: Path = ROOT) -> str:
    """Hash of the script of case ``name``, less its comments; empty for what is no case.

    A patched kernel is measured again when its patches change, stock only when its base does: what a new part of a
    test finds there is not seen otherwise.
    """
    scripts = sorted((root / SELFTESTS.relative_to(ROOT)).glob(f"*/{name}.sh"))
    lines = [line for path in scripts for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    return sha256_text("\n".join(lines))[:12] if lines else ""


def case(name: str) -> Case:
    """The case ``name``; WbError (code 2) with the nearest name when there is none."""
    if name not in CASES:
        raise unknown("case", name, CASES)
    return CASES[name]


def validate(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """All axes of case ``name``, in order, with ``given`` over the defaults.

    Raises WbError (code 2) for an unknown case or axis, or a value out of range.
    """
    the_case = case(name)
    for axis_name, value in given.items():
        the_case.axis(axis_name).check(value)
    return {a.name: a.check(given.get(a.name, a.default)) for a in the_case.axes}


def wall_s(name: str, axes: Mapping[str, str]) -> int:
    """About how long a run of case ``name`` takes on one core, with how long ``axes`` say that it lasts."""
    the_case = case(name)
    more = sum(a.wall_s * (int(axes[a.name]) - int(a.default)) for a in the_case.axes if a.wall_s and a.name in axes)
    return the_case.wall_s + more


def check_seed(text: str | int) -> int:
    """A seed as a number from 1 to SEED_MAX; WbError (code 2) for anything else."""
    if re.fullmatch(r"[0-9]{1,10}", str(text)) and 1 <= int(text) <= SEED_MAX:
        return int(text)
    raise WbError(f"seed '{text}': must be a number from 1 to {SEED_MAX}", 2)


def word(text: str) -> str:
    """``text`` as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)


def slug(name: str, axes: Mapping[str, str]) -> str:
    """A directory name for validated ``axes``: the main ones, then what differs from the default.

    The same axes always give the same name, whatever their order; a case
    without axes gives "default".
    """
    words = []
    for axis in case(name).axes:
        value = word(axes.get(axis.name, axis.default))
        if axis.main and value in axis.choices and value != "default" and axis.name != "wbt":
            words.append(value)
        elif axis.main or axes.get(axis.name, axis.default) != axis.default:
            words.append(f"{axis.name}-{value}")
    name = "-".join(words) or "default"
    # Room for suffixes in the 255 bytes of a file name; lists of settings are long.
    return name if len(name) <= SLUG_MAX else f"{name[:SLUG_MAX - 13]}-{sha256_text(name)[:12]}"


def guest_args(name: str, axes: Mapping[str, str], seed: int) -> list[str]:
    """Arguments of the guest's CASE.sh: main axes, the others where not default, and the seed."""
    words = []
    for axis in case(name).axes:
        value = axes.get(axis.name, axis.default)
        if (axis.main or value != axis.default) and value != axis.omit:
            words.append(f"--{axis.name}={value}")
    return [*words, f"--seed={seed}"]


def options(case: str, axes: Mapping[str, str]) -> list[str]:
    """The axes of a case as options of ``wb run``, those at their defaults left out."""
    known = {a.name: a.default for a in CASES[case].axes} if case in CASES else {}
    words: list[str] = []
    for name, value in axes.items():
        if known.get(name) != value:
            words += [f"--{name}", value]
    return words


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Folds each line of an option's help by itself: an axis can mean something else to each case."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [folded for line in text.splitlines() for folded in textwrap.wrap(line, width, break_on_hyphens=False)]


def add_axis_options(parser: argparse.ArgumentParser) -> None:
    """Add every axis of every case to ``parser``; ``given_axes`` reads them back.

    Values are checked later, by ``validate``, since they depend on the case.
    """
    group = parser.add_argument_group("axes", "which case has which, with defaults: 'wb list'")
    shown: dict[str, dict[str, list[str]]] = {}
    for the_case in CASES.values():
        for axis in the_case.axes:
            owners = shown.setdefault(axis.name, {}).setdefault(f"{axis.help}: {axis.allowed()}", [])
            owners.append(the_case.name)
    for name, meanings in shown.items():
        text = "\n".join(f"{meaning} (of {', '.join(owners)})" for meaning, owners in meanings.items())
        group.add_argument(f"--{name}", dest=f"axis:{name}", metavar="VALUE", help=text.replace("%", "%%"))


def given_axes(args: argparse.Namespace) -> dict[str, str]:
    """The axes given on a command line that ``add_axis_options`` described."""
    return {k.removeprefix("axis:"): v for k, v in vars(args).items() if k.startswith("axis:") and v is not None}


def describe(the_case: Case) -> str:
    """The text of ``wb list`` for one case."""
    lines = [f"{the_case.name}: {the_case.help}", f"    replays {the_case.incident}"]
    if the_case.needs_series:
        of_line = "" if the_case.needs_series == "all" else f" of {the_case.needs_series}"
        lines.append(f"    suites run it on patched and tree{of_line} only")
    for axis in the_case.axes:
        lines.append(f"    --{axis.name} {axis.allowed()}  (default {axis.default or 'none'})")
    return "\n".join(lines)
