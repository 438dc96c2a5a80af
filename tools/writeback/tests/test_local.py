# SPDX-License-Identifier: GPL-2.0
"""wb run --dir: honours or refuses every option, keeps earlier results, and is labelled with the truth."""

from pathlib import Path

import pytest

from wblib import local
from wblib.cli import main
from wbtop.watch_read import Machine


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a case was run")
    monkeypatch.setattr(local, "_run_case", never)
    monkeypatch.setattr(local, "_tree", never)


@pytest.mark.parametrize("case", ["read-latency", "dirty-limits"])
def test_dry_run_runs_nothing(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", case, "--dir", str(tmp_path), "--dry-run"]) == 0
    out = capsys.readouterr()
    assert out.out == f"{case}.sh --seed=1 --dir={tmp_path}\n"
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
