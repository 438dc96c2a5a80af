# SPDX-License-Identifier: GPL-2.0
"""wb lanes with invented results: a row for each cell and kernel, and both lanes in each figure."""

import argparse
from collections.abc import Sequence

import pytest

from wblib.catalog.suites import Job, suite
from wblib.results import store
from wblib.run import bench, lanes
from wbtop.errors import WbError


def call(*argv: str) -> int:
    top = argparse.ArgumentParser()
    lanes.register(top.add_subparsers())
    args = top.parse_args(["lanes", *argv])
    return int(args.func(args))


def test_both_lanes_in_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run_jobs(jobs: Sequence[Job], _parallel: int, *, lane: str) -> list[store.Result]:
        p50 = {"exact": 123.0, "fast": 77.0}[lane]
        return [store.Result(j.case, j.kernel, j.axes, j.seed, {
            "read_p50": {"value": p50 + j.seed, "unit": "us"}, "read_max": {"value": 2500.0, "unit": "us"},
        }, {"lane": lane}, "pass", []) for j in jobs]

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    assert call("--seeds", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    cells = suite("lanes").cells
    assert len(cells) >= 20
    rows = [line for line in lines if "125 / 79" in line]
    assert len(rows) == 2 * len(cells)
    assert sum("patched" in row for row in rows) == len(cells)
    assert all("2.500 / 2.500" in row and "- / -" in row for row in rows)
    assert lines[-1] == f"{12 * len(cells)} runs: {12 * len(cells)} pass"


@pytest.mark.parametrize("argv", [("demo",), ("lanes", "--kernel", "mainline"), ("nothing",)])
def test_bad_arguments(argv: tuple[str, ...]) -> None:
    with pytest.raises(WbError) as caught:
        call(*argv)
    assert caught.value.code == 2
