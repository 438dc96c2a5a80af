# SPDX-License-Identifier: GPL-2.0
"""wb bench with a runner that invents results: tables, JSON, exit codes, bad input."""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from wblib.catalog import axes, suites
from wblib.catalog.spec import RunSpec
from wblib.catalog.suites import SUITES, Job
from wblib.results import store
from wblib.run import bench, command
from wbtop.errors import WbError


def invent(job: Job) -> store.Result:
    """A result that depends on the job only; patched kernels have a tenth of the latency."""
    factor = 0.1 if job.kernel == "patched" else 1.0
    metrics: store.Metrics = {}
    if job.case == "read-latency":
        metrics = {
            "read_p50": {"value": 110 + job.seed, "unit": "us"},
            "read_p99_95": {"value": 31900 * factor + job.seed, "unit": "us"},
            "write_mbps": {"value": 504.2, "unit": "MB/s"},
        }
    return store.Result(job.case, job.kernel, job.axes, job.seed, metrics, {"lane": "exact"}, "pass", [])


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    done: list[Job] = []

    def run_jobs(jobs: Sequence[Job], parallel: int, *, lane: str = "exact", force: bool = False, cpu: str = "max",
                 timeout_s: float = 0.0) -> list[store.Result]:
        assert parallel >= 1
        done.extend(jobs)
        found = [invent(j) for j in jobs]
        for result in found if cpu != "max" else ():
            result.meta["cpu"] = cpu
        return found

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    return done


def call(*argv: str) -> int:
    top = argparse.ArgumentParser()
    bench.register(top.add_subparsers())
    args = top.parse_args(["bench", *argv])
    return int(args.func(args))


def test_reference_table(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reference", "--seeds", "3") == 0
    assert len(runner) == 30
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "disk=fifo" in lines[2]
    row = next(x for x in lines if x.startswith("kyber wbt-default buffered 128 "))
    assert row.split()[4:] == ["3", "112", "-", "-", "31.90", "-", "504.2", "-"]
    assert lines[-1] == "30 runs: 30 pass"


def test_cpu_is_said(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reference", "--seeds", "1", "--cpu", "max,avx2=off") == 0
    assert len(runner) == 10
    assert "lane=exact cpu=max,avx2=off" in " ".join(capsys.readouterr().out.split())


def test_default_seeds_are_the_suites(runner: list[Job]) -> None:
    call("reference")
    assert {j.seed for j in runner} == {1, 2, 3, 4, 5}


def test_two_kernels_give_the_ab_table(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("demo", "--kernel", "stock", "patched", "--seeds", "2,9") == 0
    out = capsys.readouterr().out
    assert "A = stock\nB = patched" in out
    line = next(x for x in out.splitlines() if x.startswith("read_p99_95"))
    assert line.split()[-1] == "better"
    assert "2/2" in line


def test_more_kernels_are_one_table(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    kernels = ["stock", "patched", "stock@7.3", "patched@7.3"]
    assert call("reference", "--seeds", "2", "--kernel", *kernels) == 0
    out = capsys.readouterr().out
    assert out.count("p99.95") == 1
    rows = [line.split() for line in out.splitlines() if line.startswith("none wbt-off buffered default")]
    assert [row[4:6] for row in rows] == [[kernel, "2"] for kernel in kernels]


def test_json(runner: list[Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert call("smoke", "--json", str(path)) == 0
    assert [r.case for r in store.load_all(path)] == [c.case for c in SUITES["smoke"].cells]
    capsys.readouterr()
    assert call("smoke", "--json", "-") == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == len(SUITES["smoke"].cells)
    assert "runs:" in captured.err


def test_a_failed_run_fails_the_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run_jobs(jobs: Sequence[Job], parallel: int, **_: object) -> list[store.Result]:
        found = [invent(j) for j in jobs]
        found[0].status = "error"
        return found

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    assert call("smoke") == 1
    assert "1 error" in capsys.readouterr().out


def test_other_cases_get_all_their_metrics(runner: list[Job]) -> None:
    runs = [store.Result("ext4-nodelalloc", "stock", {"disk": "fifo"}, s,
                           {"extents_delalloc": {"value": s, "unit": "count"}}, {}, "pass", []) for s in (1, 2, 3)]
    text = bench.render(runs)
    assert text.splitlines()[-1].split() == ["extents_delalloc", "count", "2", "1", "3"]


def test_list_and_dry_run_run_nothing(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in SUITES)
    assert call("peers", "--dry-run", "--seeds", "2", "-j", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(SUITES["peers"].cells) + 1
    assert "2 at a time" in lines[-1]
    assert runner == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["refrence"], "did you mean reference"),
        (["--kernel", "stock", "demo"], "which suite"),
        (["demo", "--kernel", "stok"], "did you mean stock"),
        (["demo", "--seeds", "x"], "--seeds 'x'"),
        (["demo", "-j", "0"], "must be 1..256"),
    ],
)
def test_bad_input(runner: list[Job], argv: list[str], words: str) -> None:
    with pytest.raises(WbError, match=words) as err:
        call(*argv)
    assert err.value.code == 2
    assert runner == []


def test_timeout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[object] = []

    def run_jobs(jobs: Sequence[Job], parallel: int, *, timeout_s: float, **_: object) -> list[store.Result]:
        given.append(timeout_s)
        return [invent(j) for j in jobs]

    monkeypatch.setattr(bench, "run_jobs", run_jobs)
    assert call("smoke") == call("smoke", "--timeout", "7200") == 0
    assert given == [0, 7200]
    capsys.readouterr()
    assert call("smoke", "--timeout", "7200", "--list-cells") == 0
    assert all("--timeout 7200 " in line for line in capsys.readouterr().out.splitlines())


def test_minutes() -> None:
    assert [bench.minutes(s) for s in (10, 600, 5399, 7200)] == ["1 min", "10 min", "90 min", "2.0 h"]


def test_shards_are_a_partition(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    for i in (1, 2, 3):
        assert call("peers", "--seeds", "1", "--shard", f"{i}/3", "--json", "-") == 0
    capsys.readouterr()
    want = suites.jobs(SUITES["peers"].cells, ["stock"], [1])
    assert len(runner) == len(want)
    assert all(job in runner for job in want)


def test_more_shards_than_runs(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("smoke", "--shard", "9/9") == 0
    assert runner == []
    assert "empty" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--list-cells"], ["--dry-run"]])
def test_no_run_in_the_lane(more: list[str], runner: list[Job]) -> None:
    """It said "shard None of guide is empty: there are fewer runs than shards", exit 0."""
    with pytest.raises(WbError, match=r"^none of the runs of guide can run in the fast lane$") as exc:
        call("guide", "--lane", "fast", *more)
    assert exc.value.code == 2
    assert runner == []


def test_listed_cells_are_the_runs(runner: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    """Each line, parsed as wb run does, is one run of the suite."""
    assert call("block", "--kernel", "stock", "patched", "--seeds", "1", "--cpu", "max,avx2=off", "--list-cells") == 0
    assert runner == []
    top = argparse.ArgumentParser()
    command.register(top.add_subparsers())
    found = []
    for words in map(shlex.split, capsys.readouterr().out.splitlines()):
        args = top.parse_args(words[1:])
        assert args.cpu == "max,avx2=off"
        found.append(Job(args.case, axes.validate(args.case, axes.given_axes(args)), int(args.seed), args.kernel))
    assert found == suites.jobs(SUITES["block"].cells, ["stock", "patched"], [1])


def test_a_command_names_what_is_not_the_default() -> None:
    job = Job("dirty-stress", {"runtime": "6"}, 7, "patched")
    assert bench.command(RunSpec.of(job)) == "tools/writeback/wb run dirty-stress --kernel patched --seed 7"
    assert bench.command(RunSpec.of(job, cpu="max,avx2=off", flavour="debug"), force=True, timeout_s=14400.0) == (
        "tools/writeback/wb run dirty-stress --kernel patched --cpu max,avx2=off --flavour debug --timeout 14400 "
        "--seed 7 --force")
