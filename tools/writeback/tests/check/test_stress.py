# SPDX-License-Identifier: GPL-2.0
"""wb stress with a runner that invents results: rounds, counts, the command that repeats a failure."""

import argparse
from collections.abc import Sequence

import pytest

from wblib.catalog import axes as ax
from wblib.catalog.spec import RunSpec
from wblib.check import stress
from wblib.results import store
from wblib.run import runner
from wbtop.errors import WbError


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunSpec, str]]:
    done: list[tuple[RunSpec, str]] = []

    def run_many(jobs: Sequence[RunSpec], *, parallel: int, force: bool, timeout_s: float) -> list[store.Result]:
        assert parallel >= 1
        done.extend((j, j.flavour) for j in jobs)
        if jobs[0].flavour == "debug":
            raise WbError("no compiler")
        return [store.Result(j.case, j.kernel, j.axes, j.seed, {}, {"dir": "d", "problem": "died"},
                               "error" if j.case == "wbt-stress" else "fail" if j.seed == 2 else "pass",
                               [] if j.case == "wbt-stress" else
                               [{"name": "a", "result": "pass"},
                                {"name": "b", "result": "fail" if j.seed == 2 else "pass"}]) for j in jobs]

    monkeypatch.setattr(runner, "run_many", run_many)
    return done


def call(*argv: str) -> int:
    top = argparse.ArgumentParser()
    stress.register(top.add_subparsers())
    args = top.parse_args(["stress", *argv])
    return int(args.func(args))


def test_every_kernel_has_its_round(ran: list[tuple[RunSpec, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 1
    assert {(j.kernel, flavour) for j, flavour in ran} == {("patched", "slim"), ("patched", "debug"),
                                                         ("stock", "slim"), ("patched", "kcsan")}
    out = capsys.readouterr().out
    assert "FAIL patched, debug kernel, suite stress-short: no compiler" in out
    assert out.splitlines()[-1].endswith(" failed")


def test_a_case_is_in_the_lane_that_can_judge_it(ran: list[tuple[RunSpec, str]]) -> None:
    call()
    for spec, flavour in ran:
        assert spec.lane == ("exact" if ax.case(spec.case).not_fast or flavour == "kcsan" else "fast"), spec
    assert {j.case for j, flavour in ran if flavour == "kcsan"} == {"races"}
    assert {j.lane for j, _ in ran} == {"exact", "fast"}
    ran.clear()
    call("--lane", "exact")
    assert {j.lane for j, _ in ran} == {"exact"}
    ran.clear()
    call("--lane", "fast")
    assert {(j.lane, flavour) for j, flavour in ran} == {("fast", "slim"), ("fast", "debug")}


def test_counts_tests_and_names_the_command(ran: list[tuple[RunSpec, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--kernel", "patched", "--flavour", "slim", "--case", "dirty-stress", "--seeds", "1,2") == 1
    out = capsys.readouterr().out
    assert ("seed 2; repeat with: tools/writeback/wb run dirty-stress --kernel patched --runtime 30 --lane fast "
            "--timeout 7200 --seed 2 --force\n" in out)
    assert "seed 1; repeat" not in out
    assert out.splitlines()[-1] == "3 passed, 1 failed"


def test_a_case_of_one_round_runs_there(ran: list[tuple[RunSpec, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--case", "faults-wait", "--seeds", "1") == 0
    assert [(j.kernel, j.case, flavour) for j, flavour in ran] == [("patched", "faults-wait", "slim")]
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "2 passed, 0 failed"
    assert captured.err.count("has no faults-wait") == 3
    with pytest.raises(WbError, match="unknown case of stress-short and stress-kcsan 'faults-wait'"):
        call("--case", "faults-wait", "--short")


def test_a_slow_kernels_command_has_its_time(ran: list[tuple[RunSpec, str]],
                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--flavour", "kcsan", "--case", "races", "--seeds", "2") == 1
    assert "--flavour kcsan --timeout 14400 --seed 2 --force\n" in capsys.readouterr().out


def test_a_guest_that_died_is_one_failure(ran: list[tuple[RunSpec, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--kernel", "stock", "--case", "wbt-stress") == 1
    out = capsys.readouterr().out
    assert "stock wbt-stress: died" in out
    assert out.splitlines()[-1] == "0 passed, 1 failed"


def test_dry_run_says_the_lane_and_runs_nothing(ran: list[tuple[RunSpec, str]],
                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--dry-run", "--short") == 0
    assert not ran
    out = capsys.readouterr().out
    assert "suite stress-short" in out
    assert "powercut cuts-28 seed 1 (fast)\n" in out
    assert "races default seed 1 (exact)\n" in out


@pytest.mark.parametrize("argv", [["--kernel", "old"], ["--flavour", "plain"], ["--case", "no-such"], ["--seeds", "x"],
                                  ["-j", "0"]])
def test_bad_input(ran: list[tuple[RunSpec, str]], argv: list[str]) -> None:
    with pytest.raises(WbError) as caught:
        call(*argv)
    assert caught.value.code == 2
    assert not ran
