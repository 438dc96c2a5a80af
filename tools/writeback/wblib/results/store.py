# SPDX-License-Identifier: GPL-2.0
"""Results: one JSON object per run, written atomically, checked when read.

Documentation/results.md describes the format and the directories.
"""

import contextlib
import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wblib.base import venv
from wblib.base.paths import RESULTS
from wblib.catalog.spec import RunSpec
from wbtop.errors import WbError

from .ktap import Report

STATUSES = ("pass", "fail", "skip", "error")
KSFT_SKIP = 4  # tools/testing/selftests/kselftest.h
SCHEMA = Path(__file__).with_name("result.schema.json")

Metrics = dict[str, dict[str, float | int | str]]


class KernelId(Protocol):
    """What a result directory is named by."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...


@dataclass
class Result:
    """One run of one case.

    metrics: name -> {"value", "unit"}.  tests: [{"name", "result"}].  path: the
    file it was loaded from, not part of the object.
    """

    case: str
    kernel: str
    axes: dict[str, str]
    seed: int
    metrics: Metrics
    meta: dict[str, Any]
    status: str
    tests: list[dict[str, str]]
    path: Path | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The object that ``write`` writes."""
        return {
            "case": self.case, "kernel": self.kernel, "axes": self.axes, "seed": self.seed, "status": self.status,
            "metrics": self.metrics, "tests": self.tests, "meta": self.meta,
        }

    def value(self, metric: str) -> float | None:
        """A metric's value, None if the run has not measured it."""
        entry = self.metrics.get(metric)
        return None if entry is None else float(entry["value"])

    def data(self, name: str) -> Path | None:
        """The file ``name`` of the run's bulk data, None if there is none.

        It is beside the result, or, for a copy of the result, where the run left it.
        """
        places = [self.path.parent] if self.path else []
        if self.meta.get("dir"):
            places.append(RESULTS.parent / str(self.meta["dir"]))
        return next((p / "data" / name for p in places if (p / "data" / name).is_file()), None)


def status_of(report: Report, exit_code: int | None) -> str:
    """Status of a run from its KTAP and its exit code (None: the guest died first)."""
    if exit_code is None:
        return "error"
    if exit_code == KSFT_SKIP and report.status in ("skip", "error") and not report.bail:
        return "skip"
    if exit_code != 0 and report.status in ("pass", "skip"):
        return "error"
    return report.status


def result_dir(kernel: KernelId, spec: RunSpec) -> Path:
    """Where a run belongs: results/KERNEL-KEY8/CASE/AXES/seed-N."""
    return RESULTS / f"{kernel.name}-{kernel.key[:8]}" / spec.case / spec.folder / f"seed-{spec.seed}"


@functools.cache
def _validator() -> Any:
    if not venv.has("jsonschema"):
        raise WbError("jsonschema not found: run 'make deps'")
    import jsonschema
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def _bad(obj: object) -> str | None:
    """What is wrong with a decoded result, None if nothing is."""
    found = next(_validator().iter_errors(obj), None)
    return found and f"{'/'.join(map(str, found.absolute_path))!r}: {found.message[:200]}"


def from_json(obj: object, where: str) -> Result:
    """A decoded object as Result; ``where`` names its origin in the WbError for a bad one."""
    problem = _bad(obj)
    if problem or not isinstance(obj, dict):
        if isinstance(obj, dict) and "turns" in obj:
            raise WbError(f"{where} is a result of wb field: wb field --compare A.json B.json", 2)
        # It may be somebody's file that was named by mistake.
        raise WbError(f"{where} is not a result of wb ({problem}); if a run left it so, delete it and run the case "
                      "again")
    return Result(obj["case"], obj["kernel"], obj["axes"], int(obj["seed"]), obj["metrics"], obj["meta"], obj["status"],
                  obj["tests"])


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def load_all(path: Path) -> list[Result]:
    """The results in a file: one object, a list of them, or the repeats of --dir. WbError for anything else."""
    try:
        obj = json.loads(path.read_text(), parse_constant=_no_constant)
    except FileNotFoundError as exc:
        raise WbError(f"no such result: {path}") from exc
    except OSError as exc:
        raise WbError(f"cannot read {path}: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:  # not UTF-8, not JSON, or deeper than any result
        at = f" at byte {exc.pos}" if isinstance(exc, json.JSONDecodeError) else ""
        raise WbError(f"{path} is truncated or not JSON{at}; if a run left it so, delete it and run the case "
                      "again") from exc
    if isinstance(obj, dict) and "verdicts" in obj and isinstance(obj.get("runs"), list):
        obj = obj["runs"]  # of wb run --dir --json, with --repeats
    found = [from_json(o, str(path)) for o in (obj if isinstance(obj, list) else [obj])]
    for result in found:
        result.path = path
    return found


def load(path: Path) -> Result:
    """The one result in a file; WbError when it is truncated, not JSON, or not a result."""
    found = load_all(path)
    if len(found) != 1:
        raise WbError(f"{path} holds {len(found)} results where one is expected")
    return found[0]


def scan(directory: Path) -> list[Result]:
    """Every result.json below ``directory``, by path; unfinished runs (*.partial) are left out."""
    paths = (p for p in directory.rglob("result.json") if not any(part.endswith(".partial") for part in p.parts))
    return [load(p) for p in sorted(paths)]


def read(place: Path) -> list[Result]:
    """The results in a file, or below a directory."""
    return load_all(place) if place.is_file() else scan(place)


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing; WbError when that fails, for example on a full disk."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temp.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temp.replace(path)
    except OSError as exc:
        raise WbError(f"cannot write {path}: {exc.strerror}; free some space or point WB_RESULTS elsewhere, "
                      "then run the same command again: finished results are kept") from exc
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)


def write(result: Result, path: Path) -> None:
    """Write ``result`` as JSON, whole or not at all."""
    problem = _bad(result.to_json())
    if problem:
        raise ValueError(f"{path}: {problem}")
    write_file(path, (json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n").encode())
