# SPDX-License-Identifier: GPL-2.0
"""Running jobs without a guest: what is kept, what is run again, what a failure leaves behind."""

import argparse
import json
import shlex
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wblib.catalog import axes as ax
from wblib.catalog import describe, suites
from wblib.catalog.spec import RunSpec, specs
from wblib.catalog.suites import Job
from wblib.guest import qemu
from wblib.kernel import kconfig
from wblib.results import identity, store
from wblib.run import bench, command, local, runner

GOOD = "TAP version 13\n1..1\n# read_p99: 12.5 us\nok 1 works\n"


@pytest.fixture(name="lane")
def _lane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Guests that end at once with what ``lane.outcome`` says; ``lane.ran`` are their seeds."""
    kernel = SimpleNamespace(name="stock", key="abcdef0123456789", release="6.12.117", image=tmp_path / "bzImage",
                             config_hash="c", patchset_hash="p")
    lane = SimpleNamespace(ran=[], outcome=lambda: qemu.Outcome(0, GOOD, 1.0), prepared=None)
    lane.prepared = runner.Prepared(kernel, tmp_path / "initrd", "hash")  # type: ignore[arg-type]

    def run(guest: qemu.Guest, out: Path, **_: object) -> qemu.Outcome:
        lane.ran.append(guest.seed)
        (out / "data").mkdir(parents=True)
        (out / "console.log").write_text("")
        outcome = lane.outcome()
        outcome.command = ["qemu", "-accel", "tcg"]
        return outcome

    monkeypatch.setattr(runner, "prepare", lambda *_, **__: lane.prepared)
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(store, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(qemu, "run", run)
    monkeypatch.setattr(qemu, "version", lambda: "QEMU 7.2")
    return lane


def _jobs(*seeds: int, **how: str) -> list[RunSpec]:
    axes = ax.validate("read-latency", {"disk": "fifo"})
    return specs([Job("read-latency", axes, seed, "stock") for seed in seeds], **how)


def test_results_in_order_and_kept(lane: SimpleNamespace, tmp_path: Path) -> None:
    found = runner.run_many(_jobs(3, 1, 2), parallel=2)
    assert [r.seed for r in found] == [3, 1, 2]
    assert all(r.status == "pass" and r.value("read_p99") == 12.5 for r in found)
    assert sorted(lane.ran) == [1, 2, 3]
    runner.run_many(_jobs(1, 2, 4), parallel=2)
    assert sorted(lane.ran) == [1, 2, 3, 4]
    assert not list(tmp_path.rglob("*.partial"))


def test_other_guest_or_force_runs_again(lane: SimpleNamespace) -> None:
    runner.run_many(_jobs(1))
    runner.run_many(_jobs(1), force=True)
    lane.prepared = runner.Prepared(lane.prepared.kernel, lane.prepared.initrd, "another")
    runner.run_many(_jobs(1))
    assert lane.ran == [1, 1, 1]


def test_a_second_wb_waits_for_the_first_and_takes_its_result(
    lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    plain = qemu.run
    second: list[store.Result] = []
    other = threading.Thread(target=lambda: second.extend(runner.run_many(_jobs(1))))

    def run(guest: qemu.Guest, out: Path, **kw: object) -> qemu.Outcome:
        outcome = plain(guest, out, **kw)  # type: ignore[arg-type]
        if not other.ident:
            other.start()
            other.join(1)
            assert other.is_alive()
            assert (out / "console.log").exists()
        return outcome

    monkeypatch.setattr(qemu, "run", run)
    first = runner.run_many(_jobs(1))
    other.join(10)
    assert second == first
    assert lane.ran == [1]
    assert "waiting for another wb" in capsys.readouterr().err
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith((".lock", ".partial"))]


def test_truncated_result_runs_again(lane: SimpleNamespace, tmp_path: Path) -> None:
    runner.run_many(_jobs(1))
    path = next(tmp_path.rglob("result.json"))
    path.write_text(path.read_text()[:40])
    runner.run_many(_jobs(1))
    assert lane.ran == [1, 1]
    assert json.loads(path.read_text())["status"] == "pass"


def test_dead_guest_leaves_its_log_and_no_result(lane: SimpleNamespace, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    lane.outcome = lambda: qemu.Outcome(None, "TAP version 13\n", 1.0, "guest died (kernel panic)")
    found = runner.run_many(_jobs(1))[0]
    assert found.status == "error"
    assert not list(tmp_path.rglob("result.json"))
    assert list(tmp_path.rglob("seed-1.partial/console.log"))
    assert "repeat with: qemu" in capsys.readouterr().err
    lane.outcome = lambda: qemu.Outcome(0, GOOD, 1.0)
    assert runner.run_many(_jobs(1))[0].status == "pass"


def test_a_failed_case_is_a_result(lane: SimpleNamespace) -> None:
    lane.outcome = lambda: qemu.Outcome(1, GOOD.replace("ok 1", "not ok 1"), 1.0)
    assert runner.run_many(_jobs(1))[0].status == "fail"


def test_interrupt_keeps_what_is_finished(lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch,
                                          tmp_path: Path) -> None:
    finished = threading.Event()
    plain = qemu.run

    def run(guest: qemu.Guest, out: Path, **kw: object) -> qemu.Outcome:
        if guest.seed == 1:
            outcome = plain(guest, out, **kw)  # type: ignore[arg-type]
            finished.set()
            return outcome
        finished.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(qemu, "run", run)
    with pytest.raises(KeyboardInterrupt):
        runner.run_many(_jobs(1, 2, 3), parallel=1)
    assert [p.parent.name for p in tmp_path.rglob("result.json")] == ["seed-1"]


def test_lanes_are_kept_apart(lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "kvm_works", lambda image: False)
    runner.run_many(_jobs(1))
    runner.run_many(_jobs(1, lane="functional", on="nvme"))
    assert lane.ran == [1, 1]


def test_cpus_are_kept_apart(lane: SimpleNamespace) -> None:
    plain = runner.run_many(_jobs(1))[0]
    other = runner.run_many(_jobs(1, cpu="max,avx2=off"))[0]
    runner.run_many(_jobs(1, cpu="max,avx2=off"))
    assert lane.ran == [1, 1]
    assert "cpu" not in plain.meta
    assert other.meta["cpu"] == "max,avx2=off"
    assert "-cpu max,avx2=off " in other.meta["command"]
    assert "default-buffered-cpu-max-avx2-off/seed-1" in other.meta["dir"]


def test_a_skipped_case_says_why(lane: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    lane.outcome = lambda: qemu.Outcome(4, "TAP version 13\n1..0 # SKIP no queue/wbt_policy\n", 1.0)
    found = runner.run_many(_jobs(1))[0]
    assert (found.status, found.meta["skip"]) == ("skip", "no queue/wbt_policy")
    command.print_result(found)
    assert "skip (no queue/wbt_policy)" in capsys.readouterr().out


def test_the_axis_ram_is_the_guests_memory(lane: SimpleNamespace) -> None:
    def memory(**given: str) -> int:
        job = Job("tune-replay", ax.validate("tune-replay", given), 1, "stock")
        return runner.guest_of(RunSpec.of(job), lane.prepared).memory_mib

    assert (memory(), memory(ram="8192")) == (2048, 8192)


@pytest.mark.parametrize(("case", "told"), [("read-latency", False), ("wbt-kunit", True), ("ext4-kunit", True)])
def test_only_kunit_cases_boot_with_kunit(lane: SimpleNamespace, tmp_path: Path, case: str, told: bool) -> None:
    guest = runner.guest_of(RunSpec.of(Job(case, ax.validate(case, {}), 1, "patched")), lane.prepared)
    assert any("kunit.enable=1" in word for word in qemu.command(guest, tmp_path)) is told


def test_the_hosts_cpu_is_told_where_it_decides_times(lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "host_cpu", lambda: "Some CPU")
    monkeypatch.setattr(qemu, "kvm_works", lambda _image: False)
    found = [runner.run_many(_jobs(1, lane=name))[0].meta.get("host_cpu") for name in ("exact", "functional")]
    assert found == [None, "Some CPU"]


def test_kcsan_has_two_cpus(lane: SimpleNamespace) -> None:
    job = Job("wbt-kunit", ax.validate("wbt-kunit", {}), 1, "patched")
    cpus = {f: runner.guest_of(RunSpec.of(job, flavour=f), lane.prepared).smp for f in kconfig.FLAVOURS}
    assert cpus == dict.fromkeys(kconfig.FLAVOURS, 1) | {"kcsan": 2}


@pytest.mark.parametrize(("asked", "fs", "trace", "flavour"), [
    ("slim", "xfs", False, "slim"), ("slim", "xfs", True, "tracing"), ("slim", "btrfs", False, "btrfs"),
    ("debug", "btrfs", False, "debug")])
def test_flavour_follows_from_the_options(asked: str, fs: str, trace: bool, flavour: str) -> None:
    job = Job("read-latency", ax.validate("read-latency", {"fs": fs}), 1, "stock")
    assert RunSpec.of(job, flavour=asked, trace=trace).flavour == flavour


def test_a_suite_boots_the_kernel_that_its_cells_need(
    lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    """``wb bench`` had booted slim, which has no btrfs, where the command of --list-cells boots btrfs."""
    prepared: list[str] = []

    def prepare(spec: RunSpec) -> runner.Prepared:
        prepared.append(spec.flavour)
        assert isinstance(lane.prepared, runner.Prepared)
        return lane.prepared

    monkeypatch.setattr(runner, "prepare", prepare)
    monkeypatch.setattr(command, "prepare", prepare)
    cells = tuple(suites.cell(f"read-latency fs={fs}") for fs in ("xfs", "btrfs"))
    monkeypatch.setitem(suites.SUITES, "mixed", suites.Suite("mixed", "", cells))
    top = argparse.ArgumentParser()
    sub = top.add_subparsers()
    bench.register(sub)
    command.register(sub)

    def wb(*words: str) -> list[str]:
        args = top.parse_args(words)
        assert args.func(args) == 0
        return capsys.readouterr().out.splitlines()

    wb("bench", "mixed", "--seeds", "1")
    by_bench = set(prepared)
    prepared.clear()
    for line in wb("bench", "mixed", "--seeds", "1", "--list-cells"):
        wb(*shlex.split(line)[1:])
    assert by_bench == set(prepared) == {"slim", "btrfs"}


@pytest.mark.parametrize("how", [
    {}, {"cpu": "max,avx2=off"}, {"lane": "functional"}, {"lane": "functional", "on": "nvme"}, {"lane": "fast"},
    {"flavour": "debug"}, {"trace": True}, {"lane": "fast", "flavour": "debug"}], ids=str)
@pytest.mark.parametrize("fs", ["xfs", "btrfs"])
def test_a_result_says_what_was_asked_for(
    fs: str, how: dict[str, Any], lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(qemu, "kvm_works", lambda _image: False)
    job = Job("read-latency", ax.validate("read-latency", {"fs": fs}), 3, "patched")
    spec = RunSpec.of(job, **how)
    result, = runner.run_many([spec])
    # From the meta alone: neither the directory nor QEMU's command is needed.
    result.meta |= {"command": "", "dir": ""}
    assert identity.spec_of(result) == spec


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_an_interrupted_case_on_this_machine_puts_back_its_settings(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    case = tmp_path / describe.script("read-latency")
    case.parent.mkdir()
    # As functions.sh: it is interrupted twice, while it waits for a task and while it cleans up.
    case.write_text(f"""#!/bin/bash
restore()
{{
    trap '' INT TERM HUP
    kill -{name} $PPID
    sleep 1
    echo restored > "$WB_OUT/restored"
}}
trap restore EXIT
trap 'exit 143' TERM
kill -{name} $PPID
sleep 60
""")
    case.chmod(0o755)
    monkeypatch.setattr(local, "RESULTS", tmp_path)
    monkeypatch.setattr(local, "_tree", lambda _scratch: tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    before = {s: signal.signal(s, signal.default_int_handler) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(KeyboardInterrupt):
            local.run_here(_jobs(1)[0], {}, str(tmp_path), None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert [p.read_text() for p in tmp_path.rglob("restored")] == ["restored\n"]


@pytest.mark.parametrize(("text", "seconds"), [("0.5", 0.5), ("7200", 7200), ("-1", None), ("0", None), ("nan", None),
                                               ("inf", None), ("", None)])
def test_timeout(text: str, seconds: float | None, capsys: pytest.CaptureFixture[str]) -> None:
    top = argparse.ArgumentParser()
    command.register(top.add_subparsers())
    words = ["run", "read-latency", "--timeout", text]
    if seconds is not None:
        assert top.parse_args(words).timeout == seconds
        return
    with pytest.raises(SystemExit):
        top.parse_args(words)
    assert f"must be a number above 0, at most 10000000, not {text!r}" in capsys.readouterr().err


@pytest.mark.parametrize("case", ["foreign", "tune", "wbdisk"])
def test_dry_run_shows_the_guest_that_would_run(
    case: str, lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[RunSpec] = []

    def prepare(spec: RunSpec) -> runner.Prepared:
        asked.append(spec)
        assert isinstance(lane.prepared, runner.Prepared)
        return lane.prepared

    monkeypatch.setattr(runner, "prepare", prepare)
    monkeypatch.setattr(command, "prepare", prepare)
    top = argparse.ArgumentParser()
    command.register(top.add_subparsers())
    for words in (["run", case, "--dry-run"], ["run", case]):
        args = top.parse_args(words)
        assert args.func(args) == 0
    assert asked[0] == asked[1]


@pytest.mark.parametrize(("words", "warned"), [
    (["wbt-fixes", "--lane", "fast"], True), (["wbt-fixes"], False), (["dirty-time", "--lane", "fast"], False)])
def test_a_lane_that_says_nothing_of_a_case(
    words: list[str], warned: bool, lane: SimpleNamespace, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "prepare", lambda _spec: lane.prepared)
    top = argparse.ArgumentParser()
    command.register(top.add_subparsers())
    args = top.parse_args(["run", *words, "--dry-run"])
    assert args.func(args) == 0
    assert ("results of the fast lane say nothing" in capsys.readouterr().err) is warned
