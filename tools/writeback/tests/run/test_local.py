# SPDX-License-Identifier: GPL-2.0
"""wb run --dir: honours or refuses every option, keeps earlier results, and is labelled with the truth."""

from pathlib import Path

import pytest

from wblib.cli import main
from wblib.results.store import Result
from wblib.run import command, local
from wbtop.machine import Machine


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a case was run")
    monkeypatch.setattr(local, "_run_case", never)
    monkeypatch.setattr(local, "_tree", never)


@pytest.mark.parametrize("case", ["read-latency", "dirty-limits"])
def test_dry_run_runs_nothing(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", case, "--dir", str(tmp_path), "--repeats", "2", "--dry-run"]) == 0
    out = capsys.readouterr()
    assert out.out == "".join(f"{case}.sh --seed={n} --dir={tmp_path}\n" for n in (1, 2))
    assert "nothing was run" in out.err


@pytest.mark.parametrize("words", [
    ["--kernel", "stock"], ["--disk", "nvme"], ["--fs", "xfs"], ["--lane", "exact"], ["--on", "nvme"], ["--trace"],
    ["--force"], ["--flavour", "debug"], ["--cpu", "max"], ["--timeout", "5"]])
def test_what_only_a_guest_has_is_refused(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "read-latency", "--dir", str(tmp_path), *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_an_earlier_result_stays(tmp_path: Path) -> None:
    places = [local.new_place(tmp_path / "x", 1) for _ in range(3)]
    assert [p.name for p in places] == ["seed-1", "seed-1.2", "seed-1.3"]
    assert all((p / "data").is_dir() for p in places)


def test_the_axes_are_those_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fake_machine import PART, FakeMachine
    fake = FakeMachine(tmp_path)
    real = local.tune_facts.read
    monkeypatch.setattr(local.tune_facts, "read", lambda m, d, dev=None: real(m, d, PART))
    assert local.true_axes(Machine(fake.root), tmp_path) == {"disk": "sda", "fs": "ext4", "sched": "mq-deadline",
                                                             "wbt": "default"}


def suite_run(seed: int, idle: float, direct: float, off: float, status: str = "pass") -> Result:
    metrics = {f"read_p99_95_{n}": {"value": v, "unit": "us"}
               for n, v in (("idle", idle), ("direct", direct), ("buffered_wbt_off", off))}
    return Result("read-latency", "host-x", {"writer": "suite"}, seed, metrics, {"dir": "d"}, status,
                  [{"name": "x", "result": status}])


# The four runs of a server of which two failed by the rule of one run, and a fifth.
NOISE = [(410.0, 395.0, 900.0), (380.0, 420.0, 880.0), (460.0, 400.0, 5000.0), (350.0, 430.0, 890.0),
         (400.0, 405.0, 910.0)]


def test_noise_is_undecided_and_a_difference_is_seen() -> None:
    found = local.verdicts("read-latency", [suite_run(n, *v) for n, v in enumerate(NOISE, 1)])
    assert [(v["verdict"], v["runs"]) for v in found] == [("undecided", 5), ("yes", 5)]
    assert found[0]["why"] in ("too noisy", "no difference seen")
    swapped = local.verdicts("read-latency", [suite_run(n, d * 3, i, o) for n, (i, d, o) in enumerate(NOISE, 1)])
    assert [v["verdict"] for v in swapped] == ["no", "yes"]


def test_one_run_has_no_verdict() -> None:
    for count in (1, 3):
        runs = [suite_run(n, *NOISE[n]) for n in range(count)]
        assert {v["verdict"] for v in local.verdicts("read-latency", runs)} == {"undecided"}
    assert "no verdict follows" in local.render([suite_run(1, *NOISE[0])], [])
    assert local.verdicts("dirty-limits", runs) == []


@pytest.mark.parametrize(("words", "seeds"), [
    ([], [1, 2, 3, 4, 5]), (["--writer", "direct"], [1]), (["--repeats", "2", "--seed", "7"], [7, 8]),
    (["--writer", "suite"], [1, 2, 3, 4, 5])])
def test_the_suite_is_repeated(words: list[str], seeds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    ran = []

    def run_here(job: object, given: dict[str, str], *_: object, **__: object) -> Result:
        assert given.get("writer") != "suite"
        ran.append(job.seed)  # type: ignore[attr-defined]
        return suite_run(ran[-1], *NOISE[(ran[-1] - 1) % 5])
    monkeypatch.setattr(command.local, "run_here", run_here)
    assert main(["run", "read-latency", "--dir", str(tmp_path), *words]) == 0
    assert ran == seeds
    assert ("undecided" in capsys.readouterr().out) == (len(seeds) > 1)


def test_a_repeat_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command.local, "run_here", lambda job, *_, **__: suite_run(
        job.seed, *NOISE[0], "fail" if job.seed == 2 else "pass"))
    assert main(["run", "read-latency", "--dir", str(tmp_path)]) == 1
    assert "undecided" not in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [
    (["--dir", "/nonexistent"], "no such directory"), (["--device", "/dev/nosuch", "--erase"], "not a block device"),
    (["--device", "/dev/nosuch"], "refusing to overwrite")])
def test_a_place_that_is_none_is_said_first(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command.local, "run_here", None)
    assert main(["run", "read-latency", *words]) == 2
    assert said in capsys.readouterr().err


def test_repeats_are_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "read-latency", "--repeats", "3"]) == 2
    assert "wb bench" in capsys.readouterr().err
