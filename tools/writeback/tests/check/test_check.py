# SPDX-License-Identifier: GPL-2.0
"""wb check without its tiers' programs: which files it looks at, what it says of cases it leaves out."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from wblib.catalog import axes as ax
from wblib.catalog import suites
from wblib.catalog.spec import RunSpec
from wblib.catalog.suites import Job
from wblib.check import stress, tiers
from wblib.guest import nested, qemu
from wblib.kernel import upstream
from wblib.run import runner
from wbtop.errors import WbError


def test_lint_without_a_repository_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    with pytest.raises(WbError, match=r"^git ls-files in .*: fatal: not a git repository[^\n]*$"):
        list(tiers.lint(1))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_lint_reads_a_repository_of_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a.sh").touch()
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 12345, 12345)
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    assert tiers._tracked() == ["a.sh"]


def test_what_is_left_to_wb_stress_is_what_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[Job] = []

    lanes: dict[str, set[str]] = {}

    def run_many(runs: Sequence[RunSpec]) -> list[object]:
        ran.extend(runs)
        for r in runs:
            lanes.setdefault(r.lane, set()).add(r.case)
        return []

    monkeypatch.setattr(tiers, "variants", lambda: ["stock", "patched"])
    monkeypatch.setattr(runner, "run_many", run_many)
    assert list(tiers.cases(1)) == []
    said = {}
    for line in capsys.readouterr().out.splitlines():
        head, _, rest = line.strip().partition(": ")
        if head.startswith("stock, "):
            said[head] = set(rest.split(", "))
    stock = [r for r in stress.ROUNDS if r.kernel == "stock"]
    there = {j.case for r in stock for j in suites.jobs(stress.cells_of(r, None), ["stock"], [1])}
    assert said["stock, left to 'wb stress'"] <= there
    assert "faults-wait" in said["stock, left out"]
    assert not said["stock, left out"] & there
    possible = {j.case for j in suites.jobs(suites.suite("cases").cells, ["stock"], [1])}
    assert {j.case for j in ran if j.kernel == "stock"} | set().union(*said.values()) == possible
    # Each case is in a lane that can judge it, and only the few that are to agree are in both.
    assert lanes["fast"] & lanes["exact"] == set(tiers.BOTH)
    assert {name for name in ax.CASES if ax.case(name).not_fast} <= lanes["exact"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("depends", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
def test_another_seed_must_change_what_is_measured_and_no_path_be_in_the_guest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, depends: bool, named: bool, repeats: bool,
) -> None:
    def run(seed: int, place: Path, **_: object) -> qemu.Outcome:
        (place / "data").mkdir(parents=True)
        (place / "data/fio.json").write_text("" if repeats else place.name)
        (place / "data/dmesg").write_text(f"Command line: --seed={seed}")
        value = seed if depends else 1
        return qemu.Outcome(0, f"TAP version 13\n1..1\n# read_p99: {value} us\nok 1 works\n", 1.0)

    monkeypatch.setattr(tiers, "BUILD", tmp_path)
    (tmp_path / "cpio").write_bytes(b"a" * 9000 + bytes(tmp_path if named else Path("src")) + b"/wbdisk.c\0")
    monkeypatch.setattr(runner, "prepare", lambda *_: SimpleNamespace(initrd=tmp_path / "cpio",
                                                                      kernel=SimpleNamespace(image=Path("bzImage"))))
    monkeypatch.setattr(runner, "guest_of", lambda job, *_: job.seed)
    monkeypatch.setattr(qemu, "run", run)
    monkeypatch.setattr(nested, "run", lambda guest, _around, _cpu, out, **_: run(guest, out))
    path, *verdicts, on_another_cpu = tiers.determinism(1)
    assert bool(on_another_cpu.problem) != repeats
    assert bool(path.problem) == named
    assert [v.name.rpartition(" ")[2] for v in verdicts] == ["(exact)"] * 2 + ["(fast)"] * 2
    assert all(bool(same.problem) != repeats for same in verdicts[::2])
    assert all(bool(other.problem) != depends for other in verdicts[1::2])


@pytest.mark.parametrize(("p99", "p90", "slower"), [(3000, 150, True), (1500, 250, True), (2000, 200, False),
                                                    (0, 0, False)])
def test_functional_reads_are_slower_at_one_of_the_tails(p99: float, p90: float, slower: bool) -> None:
    idle = {"read_p99": 1000.0, "read_p90": 100.0}
    assert tiers.slower(idle, {"read_p99": p99, "read_p90": p90}) is slower
    assert not tiers.slower(dict.fromkeys(idle, 0.0), {"read_p99": p99, "read_p90": p90})


def test_mainline_runs_its_rows_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[Job] = []

    def run_many(runs: Sequence[RunSpec]) -> list[object]:
        assert {r.lane for r in runs} == {"fast"}
        ran.extend(runs)
        return []

    def gone(variant: str) -> None:
        raise upstream.NoBase(f"no linux-source for {variant}: do this")

    monkeypatch.setenv("BASE", "")
    monkeypatch.setattr(runner, "run_many", run_many)
    monkeypatch.setattr(tiers.sources, "describe", lambda _variant: None)
    assert list(tiers.mainline(1)) == []
    assert {j.kernel for j in ran} == {"stock@7.3", "patched@7.3"}
    losses = {words.split()[0] for words in tiers.MAINLINE_PATCHED}
    assert {j.case for j in ran if j.kernel == "patched@7.3"} == losses | {words.split()[0] for words in tiers.MAINLINE}
    assert not losses & {j.case for j in ran if j.kernel == "stock@7.3"}
    ran.clear()
    monkeypatch.setattr(tiers.sources, "describe", gone)
    assert list(tiers.mainline(1)) == []
    assert "SKIPPED: no linux-source for patched@7.3: do this" in capsys.readouterr().out
    monkeypatch.setenv("BASE", "7.3")
    assert list(tiers.mainline(1)) == []
    assert not ran
