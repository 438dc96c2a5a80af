# SPDX-License-Identifier: GPL-2.0
"""Results as a KCIDB v5 report: checkouts, builds, tests, and metrics as tests with a number.

The schema is KernelCI's (package kcidb-io).  ``problems`` checks with it where it
is installed, and always what it cannot: that every reference leads somewhere.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from typing import Any

from wblib.base.proc import sha256_text

from . import identity
from .store import Result

VERSION = {"major": 5, "minor": 3}
ORIGIN = re.compile(r"[a-z0-9_]+")
_PATH = re.compile(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*")
# Of wb's words; "xfail" is a failure that is known, so the code is as expected.
_STATUS = {"pass": "PASS", "fail": "FAIL", "skip": "SKIP", "error": "ERROR", "xfail": "PASS"}
_SECTIONS = ("checkouts", "builds", "tests")


def _element(text: str) -> str:
    """``text`` as one element of a test's path."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", text).strip("-") or "unnamed"


def _checkout(origin: str, result: Result) -> dict[str, Any]:
    release, patchset = str(result.meta.get("release", "")), str(result.meta.get("patchset_hash", ""))
    found: dict[str, Any] = {
        "id": f"{origin}:{release or result.kernel}-{patchset[:16] or 'stock'}", "origin": origin,
        "tree_name": "linux-6.12.y", "comment": f"Linux {release}" + (" with the series" if patchset else ""),
        "valid": True,
    }
    # Of a run on somebody's own machine nobody knows what that kernel was made from.
    if not result.kernel.startswith("host-"):
        found["patchset_hash"] = patchset
    return found


def _build(origin: str, result: Result, checkout: str) -> dict[str, Any]:
    return {
        "id": f"{origin}:{str(result.meta.get('image_hash', ''))[:16] or _element(result.kernel)}", "origin": origin,
        "checkout_id": checkout, "architecture": "x86_64", "status": "PASS", "comment": result.kernel,
        "misc": {"config_sha256": str(result.meta.get("config_hash", ""))},
    }


def _tests(origin: str, result: Result, build: str) -> Iterable[dict[str, Any]]:
    """The run, each of its results, and each metric."""
    lane = identity.lane(result)
    run_id = sha256_text(repr((build, result.case, lane, sorted(identity.all_axes(result).items()), result.seed,
                               result.meta.get("initrd_hash"), result.meta.get("qemu"))))[:24]
    path = f"kselftest.writeback.{_element(result.case)}"
    common = {
        "origin": origin, "build_id": build,
        "environment": {"comment": lane, "misc": {"lane": lane, "qemu": str(result.meta.get("qemu", ""))}},
        "misc": {"axes": result.axes, "seed": result.seed},
    }
    whole = {**common, "id": f"{origin}:{run_id}", "path": path, "status": _STATUS[result.status],
             "comment": identity.line(result.case, lane, result.axes)}
    if isinstance(result.meta.get("wall_s"), int | float):
        whole["duration"] = result.meta["wall_s"]
    yield whole
    for n, test in enumerate(result.tests):
        yield {**common, "id": f"{origin}:{run_id}-{n}", "path": f"{path}.{_element(test['name'])}",
               "status": _STATUS[test["result"]], "comment": test["name"]}
    # A run that is not whole has measured nothing.
    for name, metric in result.metrics.items() if result.status != "error" else ():
        yield {**common, "id": f"{origin}:{run_id}-{name}", "path": f"{path}.metric.{name}", "status": "DONE",
               "number": {"value": metric["value"], "unit": str(metric["unit"])}}


def report(found: Iterable[Result], origin: str) -> dict[str, Any]:
    """The report of ``found``. origin: the lab's name at KernelCI, [a-z0-9_]+."""
    sections: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _SECTIONS}
    for result in found:
        checkout = _checkout(origin, result)
        build = _build(origin, result, checkout["id"])
        sections["checkouts"][checkout["id"]] = checkout
        sections["builds"][build["id"]] = build
        for test in _tests(origin, result, build["id"]):
            sections["tests"][test["id"]] = test
    return {"version": VERSION, **{name: list(objects.values()) for name, objects in sections.items()}}


def has_schema() -> bool:
    """Whether the published schema is installed here."""
    return importlib.util.find_spec("kcidb_io") is not None


def problems(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with a report, one line each: by the schema, if it is installed, and by its references."""
    found = []
    if has_schema():
        found += _by_schema(data)
    ids = {name: {str(o["id"]) for o in data.get(name, ())} for name in _SECTIONS}
    for name, key, into in (("builds", "checkout_id", "checkouts"), ("tests", "build_id", "builds")):
        found += [f"{name} {o['id']}: its {key} {o[key]} is not in the report" for o in data.get(name, ())
                  if o[key] not in ids[into]]
    found += [f"tests {t['id']}: path '{t['path']}' is not one" for t in data.get("tests", ())
              if not _PATH.fullmatch(t["path"])]
    return found


def _by_schema(data: Mapping[str, Any]) -> list[str]:
    import jsonschema
    from kcidb_io.schema import V5_3

    try:
        V5_3.validate_exactly(dict(data))
    except jsonschema.ValidationError as exc:
        where = ".".join(map(str, exc.absolute_path))
        return [f"{where or 'report'}: {exc.message}"]
    return []
