# SPDX-License-Identifier: GPL-2.0
"""KTAP parser: results at every level, metrics, and everything that shows a run was cut short.

Nested results may be indented (KUnit) or prefixed with "# " (kselftest's
runner); ``kunit.py parse`` drops the latter.
"""

import re
from dataclasses import dataclass, field

_TIMESTAMP = re.compile(r"^\[ *[0-9]+\.[0-9]+\] ")
_PREFIX = re.compile(r"^(?:# | )*")
_RESULT = re.compile(r"^(not )?ok ([0-9]+)(?:\s+(.*))?$")
_PLAN = re.compile(r"^1\.\.([0-9]+)(?:\s*#\s*(SKIP)\b\s*(.*))?\s*$", re.IGNORECASE)
_BAIL = re.compile(r"^Bail out!\s*(.*)$")
_DIRECTIVE = re.compile(r"\s*#\s*(SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b\s*(.*)$", re.IGNORECASE)
# What a case measured: "# read_p99_95: 63.2 us"; the runner puts "# " before it.
METRIC = re.compile(r"^(?:# )*# ([a-z0-9_]+): (-?[0-9.]+(?:e[-+]?[0-9]+)?) (\S+)$")


@dataclass
class Test:
    """One result line. name: "suite/test" when nested; result: pass, fail, skip or xfail."""

    __test__ = False  # not for pytest to collect

    name: str
    result: str
    number: int
    reason: str = ""


@dataclass
class _Level:
    planned: int | None = None
    seen: int = 0
    tests: list[Test] = field(default_factory=list)


@dataclass
class Report:
    """What a KTAP stream said.

    tests: in order, subtests before the result they belong to.  planned: of the
    top level, None without a plan.  problems: one line each, empty if the
    stream is whole.  skip: why everything was skipped.  bail: text of "Bail out!".
    """

    tests: list[Test] = field(default_factory=list)
    metrics: dict[str, dict[str, float | int | str]] = field(default_factory=dict)
    planned: int | None = None
    skip: str | None = None
    bail: str | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """error (not whole), fail, skip (nothing ran) or pass."""
        results = {t.result for t in self.tests}
        if self.bail is not None or self.problems:
            return "error"
        if "fail" in results:
            return "fail"
        return "pass" if results - {"skip"} else "skip"


def parse(text: str) -> Report:
    """Parse a KTAP stream; never raises, what is wrong with it is in ``problems``."""
    report = Report()
    levels: dict[int, _Level] = {0: _Level()}
    for raw in text.splitlines():
        line = _TIMESTAMP.sub("", raw).rstrip()
        prefix = _PREFIX.match(line)
        depth = prefix.end() if prefix else 0
        body = line[depth:]
        if match := _RESULT.match(body):
            _result(report, levels, depth, match)
        elif match := _PLAN.match(body):
            level = levels.setdefault(depth, _Level())
            level.planned = int(match[1])
            if depth == 0 and match[2]:
                report.skip = match[3] or "no reason given"
        elif match := _BAIL.match(body):
            report.bail = match[1] or "no reason given"
        elif match := METRIC.match(line):
            _metric(report, match)
    _finish(report, levels)
    return report


def _result(report: Report, levels: dict[int, _Level], depth: int, match: "re.Match[str]") -> None:
    description = (match[3] or "").removeprefix("- ")
    directive = _DIRECTIVE.search(description)
    name = (description[:directive.start()] if directive else description).strip() or f"test {match[2]}"
    word = directive[1].upper() if directive else ""
    if word == "SKIP":
        result = "skip"
    elif word in ("TODO", "XFAIL"):
        result = "xfail"
    else:
        result = "fail" if match[1] else "pass"
    level = levels.setdefault(depth, _Level())
    level.seen += 1
    number = int(match[2])
    if number != level.seen:
        report.problems.append(f"result {number} '{name}' where {level.seen} was expected: output lost or repeated")
        level.seen = number
    # Whatever is open below belongs to this result.
    for deeper in sorted((d for d in levels if d > depth), reverse=True):
        below = levels.pop(deeper)
        _check_plan(report, below, f" of '{name}'")
        for test in below.tests:
            test.name = f"{name}/{test.name}"
        level.tests.extend(below.tests)
    level.tests.append(Test(name, result, number, directive[2].strip() if directive else ""))


def _metric(report: Report, match: "re.Match[str]") -> None:
    name, text, unit = match.groups()
    try:
        value: float | int = int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
    except ValueError:
        report.problems.append(f"metric {name}: '{text}' is not a number")
        return
    if name in report.metrics:
        report.problems.append(f"metric {name} reported twice")
    report.metrics[name] = {"value": value, "unit": unit}


def _check_plan(report: Report, level: _Level, where: str = "") -> None:
    if level.planned is not None and level.seen != level.planned:
        report.problems.append(f"{level.seen} of {level.planned} results{where}")


def _finish(report: Report, levels: dict[int, _Level]) -> None:
    top = levels.pop(0)
    for depth in sorted(levels):  # cut off before the result they belong to
        _check_plan(report, levels[depth], " of an unfinished test")
        top.tests.extend(levels[depth].tests)
    report.tests = top.tests
    report.planned = top.planned
    if top.planned is None:
        # after a bail-out the bail-out is the news
        if report.bail is None:
            report.problems.append("no KTAP plan: the case did not start" if not top.tests else "no KTAP plan")
    else:
        _check_plan(report, top)
