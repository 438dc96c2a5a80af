# SPDX-License-Identifier: GPL-2.0
"""``wb tune`` as a command, and the plan of --simulate."""

import configparser
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import LIMIT, MIB, PART, FakeMachine, measured

from wblib.catalog import axes
from wblib.cli import main
from wblib.run import tune_simulate
from wbtop.errors import WbError
from wbtop.proc import LOCK, alone
from wbtop.tune import command as tune_command
from wbtop.tune import facts as tune_facts
from wbtop.tune import left, profiles, rules
from wbtop.tune.apply import BACKUP
from wbtop.tune.measure import Measured


@pytest.fixture(name="fake")
def _fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path / "machine")


@pytest.fixture(name="m")
def _measured(tmp_path: Path) -> Path:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(measured().to_json()))
    return path


def tune(fake: FakeMachine, tmp_path: Path, m: Path, *more: str) -> int:
    return main(["tune", str(tmp_path), "--measured", str(m), "--root", str(fake.root), "--dev", PART, *more])


def test_changes_nothing_unless_told(fake: FakeMachine, tmp_path: Path, m: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    before = fake.everything()
    assert tune(fake, tmp_path, m) == 0
    out = capsys.readouterr().out
    assert "queue.sda.scheduler: mq-deadline -> none" in out
    assert "nothing was changed" in out
    assert fake.everything() == before


def test_json(fake: FakeMachine, tmp_path: Path, m: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.write("/etc/tuned/active_profile", "throughput-performance\n")
    assert tune(fake, tmp_path, m, "--goal", "throughput", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["goal"] == "throughput"
    assert found["measured"]["write_mbps"] == 450.0
    assert {a["key"] for a in found["advice"]} >= {"vm.dirty_bytes", "vm.dirty_background_bytes"}
    assert found["conflicts"] == ["tuned's active profile throughput-performance sets vm.dirty_ratio = 40",
                                  "tuned's active profile throughput-performance sets vm.dirty_background_ratio = 10"]


def test_apply_and_undo(fake: FakeMachine, tmp_path: Path, m: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Plain files: of the kernel's behaviour only what test_tune_apply.py does not need.
    fake.queue(scheduler="none")
    (fake.root / "proc/self/ns").mkdir()
    (fake.root / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    before = fake.everything()
    assert tune(fake, tmp_path, m, "--apply") == 0
    assert fake.read("/sys/devices/sda/queue/max_sectors_kb") == "128"
    assert (fake.root / BACKUP.lstrip("/")).exists()
    assert main(["tune", "--undo", "--root", str(fake.root)]) == 0
    assert "every value is as it was" in capsys.readouterr().out
    after = fake.everything()
    del after[LOCK.lstrip("/")]
    assert {k: v.strip() for k, v in after.items()} == {k: v.strip() for k, v in before.items()}
    assert main(["tune", "--undo", "--root", str(fake.root)]) == 1
    assert "nothing was applied" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["/run/.containerenv", "/.dockerenv", "/run/systemd/container", ""])
def test_a_container_does_not_set_what_is_the_hosts(fake: FakeMachine, tmp_path: Path, m: Path, file: str,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    """The settings were the host's; the files of the next boot and the backup stayed in the container."""
    fake.queue(scheduler="none")
    pid = fake.root / "proc/self/ns/pid"
    pid.parent.mkdir()
    pid.symlink_to("pid:[4026531836]" if file else "pid:[4026532281]")  # containerd, runc and LXC leave no file
    if file:
        fake.write(file, "")
    before = fake.everything()
    assert tune(fake, tmp_path, m, "--apply") == 1
    err = capsys.readouterr().err
    assert (f"({file} is there; " if file else "(its PID namespace is not the host's)") in err
    assert "on the host" in err and err.count("\n") == 1
    assert fake.everything() == before
    assert tune(fake, tmp_path, m) == 0


def test_apply_is_done_also_for_a_reader_that_has_gone(fake: FakeMachine, tmp_path: Path, m: Path) -> None:
    """wb tune DIR --apply | head -1: nothing was set, and the exit code was 0."""
    fake.queue(scheduler="none")
    mine, theirs = os.pipe()
    os.close(mine)
    done = subprocess.run([sys.executable, "-m", "wbtop", "tune", str(tmp_path), "--measured", str(m), "--root",
                           str(fake.root), "--dev", PART, "--apply"], cwd=Path(__file__).resolve().parents[2],
                          env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=theirs, stderr=subprocess.PIPE,
                          check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")
    assert fake.read("/sys/devices/sda/queue/max_sectors_kb") == "128"


@pytest.mark.parametrize(("words", "text"), [
    ([], "DIR is missing"), (["/nonexistent"], "no such directory"), (["/proc", "--undo"], "stands alone"),
    (["/etc/passwd"], "not a directory: name one"),
    (["--undo", "--save", "x", "--max-mib", "64"], "--max-mib, --save: "), (["--undo", "--goal", "unplug"], "--goal: "),
    (["/tmp", "--no-verify"], "--no-verify: only with --apply"), (["/tmp", "--seeds", "3"], "--seeds: only with --sim"),
    (["/tmp", "--kernel", "stock"], "--kernel: only with --simulate"),
])
def test_wrong_usage(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *words]) == 2
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1


def test_a_time_to_hold_that_the_goal_has_not(fake: FakeMachine, tmp_path: Path, m: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    for goal, said in (("read-latency", True), ("unplug", False)):
        assert tune(fake, tmp_path, m, "--goal", goal, "--hold-seconds", "2") == 0
        assert ("--hold-seconds: of no effect for read-latency" in capsys.readouterr().err) is said


@pytest.mark.parametrize(("words", "allowed"), [
    (["--max-mib", "8"], "a whole number from 16 to 1048576, not '8'"),
    (["--max-mib", "x"], "a whole number from 16 to 1048576, not 'x'"),
    (["--max-seconds", "-3"], "a number above 0, at most 86400, not '-3'"),
    (["--hold-seconds", "nan"], "a number above 0, at most 86400, not 'nan'"),
    (["--hold-seconds", "0"], "a number above 0"), (["--goal", "x"], "choose from"),
])
def test_values_out_of_range(words: list[str], allowed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exc:
        main(["tune", "/tmp", *words])
    assert exc.value.code == 2
    assert allowed in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mib": 1}', json.dumps(measured().to_json() | {"write_mbps": "x"}),
                                  json.dumps(measured(0.0).to_json()),
                                  json.dumps(measured().to_json() | {"loaded_drain_mbps_each": [1, "x"]}),
                                  json.dumps(measured().to_json() | {"loaded_stable": 3}),
                                  json.dumps(measured().to_json() | {"more": 1})])
def test_broken_measurement(fake: FakeMachine, tmp_path: Path, m: Path, text: str,
                            capsys: pytest.CaptureFixture[str]) -> None:
    m.write_text(text)
    assert tune(fake, tmp_path, m) == 2
    assert "not a measurement" in capsys.readouterr().err


def test_no_measurement(fake: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(fake, tmp_path, tmp_path / "nosuch.json") == 2
    assert capsys.readouterr().err == f"wb: --measured {tmp_path}/nosuch.json: No such file or directory\n"


def test_where_to_save_is_known_to_be_writable_before_the_measurement(
    fake: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("wbtop.tune.command.measure", interrupted)
    words = ["tune", str(tmp_path), "--root", str(fake.root), "--dev", PART, "--save"]
    assert main([*words, f"{tmp_path}/no/m.json"]) == 2
    assert capsys.readouterr().err == f"wb: --save {tmp_path}/no/m.json: No such file or directory\n"
    (tmp_path / "old.json").write_text("old")
    for name in ("old.json", "new.json"):
        assert main([*words, str(tmp_path / name)]) == 130
    assert (tmp_path / "old.json").read_text() == "old"
    assert not (tmp_path / "new.json").exists()


def test_save(fake: FakeMachine, tmp_path: Path, m: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(fake, tmp_path, m, "--save", str(tmp_path / "copy.json")) == 0
    saved = json.loads((tmp_path / "copy.json").read_text())
    assert saved == {**json.loads(m.read_text()), "disks": ["Model 3"]}
    capsys.readouterr()
    assert tune(fake, tmp_path, m, "--save", "/dev/full") == 1
    found = capsys.readouterr()
    assert found.err == "wb: --save /dev/full: No space left on device; what was measured is above\n"
    assert "read-latency" in found.out


def test_a_full_disk_leaves_what_was_saved_before(fake: FakeMachine, tmp_path: Path, m: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The old measurement was truncated, and nothing was recommended."""
    synced: list[int] = []

    def full(fd: int) -> None:
        if not synced:
            synced.append(fd)
            raise OSError(28, "No space left on device")
    copy = tmp_path / "copy.json"
    copy.write_text("old")
    monkeypatch.setattr("os.fsync", full)
    copy.chmod(0o600)
    assert tune(fake, tmp_path, m, "--save", str(copy)) == 1
    assert copy.read_text() == "old"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert {p.name for p in tmp_path.iterdir()} == {"copy.json", "m.json", "machine"}


def test_a_measurement_of_another_kind_of_disk_is_none(fake: FakeMachine, tmp_path: Path, m: Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    m.write_text(json.dumps({**json.loads(m.read_text()), "disks": ["Slow 1, rotational"]}))
    assert tune(fake, tmp_path, m) == 2
    assert "measured on Slow 1, rotational, and " in capsys.readouterr().err


def test_two_do_not_apply_at_once(fake: FakeMachine, tmp_path: Path, m: Path,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    """Each kept what the other had set as what was there before."""
    fake.queue(scheduler="none")
    with alone(fake.machine.path(LOCK)):
        assert tune(fake, tmp_path, m, "--apply") == 1
        assert main(["tune", "--undo", "--root", str(fake.root)]) == 1
    assert capsys.readouterr().err.count("another wb changes settings") == 2
    assert not (fake.root / BACKUP.lstrip("/")).exists()


def test_what_a_killed_field_has_set_is_not_what_was_there(fake: FakeMachine, tmp_path: Path, m: Path) -> None:
    """--undo brought B's settings back, and said that every value is as it was."""
    fake.queue(scheduler="none")
    file = "/sys/block/sda/queue/max_sectors_kb"
    before = fake.read("/sys/devices/sda/queue/max_sectors_kb").strip()
    record = {"boot_id": None, "before": {file: before}, "set": {file: ["512"]}, "disks": {}}
    fake.write(left.RECORD, json.dumps(record))
    fake.queue(max_sectors_kb="512")
    assert tune(fake, tmp_path, m, "--apply") == 0
    assert main(["tune", "--undo", "--root", str(fake.root)]) == 0
    assert fake.read("/sys/devices/sda/queue/max_sectors_kb").strip() == before
    assert not fake.machine.exists(left.RECORD)


def test_save_follows_nobody_and_leaves_nothing(fake: FakeMachine, tmp_path: Path, m: Path) -> None:
    """A predictable temporary file in /tmp may be somebody's link to a file of root's."""
    victim, copy = tmp_path / "victim", tmp_path / "copy.json"
    victim.write_text("mine")
    (tmp_path / ".copy.json.new").symlink_to(victim)
    assert tune(fake, tmp_path, m, "--save", str(copy)) == 0
    assert victim.read_text() == "mine"
    assert json.loads(copy.read_text())
    assert tune(fake, tmp_path, m, "--goal", "unplug", "--hold-seconds", "1", "--save", str(tmp_path / "no/x")) == 2
    m.write_text("{}")
    assert tune(fake, tmp_path, m, "--save", str(tmp_path / "new.json")) == 2
    assert not (tmp_path / "new.json").exists()


def test_undo_as_json(fake: FakeMachine, tmp_path: Path, m: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.queue(scheduler="none")
    assert tune(fake, tmp_path, m, "--apply") == 0
    capsys.readouterr()
    assert main(["tune", "--undo", "--json", "--root", str(fake.root)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == []
    assert any("max_sectors_kb" in line for line in found["restored"])


def test_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["tune", "--undo"]) == 1
    assert "run as root" in capsys.readouterr().err


def plan(fake: FakeMachine, goal: str, rate: float = 450.0, kernel: str | None = None) -> tune_simulate.Plan:
    facts = tune_facts.read(fake.machine, "/srv", PART)
    m = measured(rate)
    return tune_simulate.plan(facts, m, rules.recommend(facts, m, goal), goal, kernel)


def settings(text: str) -> dict[str, str]:
    return dict(p.split("=") for p in text.split(","))


def test_nearest_profile() -> None:
    assert tune_simulate.nearest(measured(450.0, 100.0), rotating=False) == "fifo"
    assert tune_simulate.nearest(measured(8.0, 600.0), rotating=False) == "usb"
    assert tune_simulate.nearest(measured(3000.0, 40.0), rotating=False) == "nvme"
    assert tune_simulate.nearest(measured(150.0, 8000.0), rotating=True) == "hdd"


def test_plan_of_queue_settings(fake: FakeMachine) -> None:
    p = plan(fake, "read-latency", 400.0)
    assert p.kernel == "stock"
    assert p.axes["disk-set"] == "link_mbps=400"
    assert settings(p.axes["before"]) == {"queue.scheduler": "mq-deadline", "queue.wbt_lat_usec": "2000",
                                          "queue.max_sectors_kb": "1280"}
    assert settings(p.axes["after"]) == {"queue.scheduler": "none", "queue.wbt_lat_usec": "2000",
                                         "queue.max_sectors_kb": "128"}
    axes.validate("tune-replay", p.axes)


def test_plan_of_limits_fits_the_guest(fake: FakeMachine) -> None:
    p = plan(fake, "unplug", 9.0)
    before, after = settings(p.axes["before"]), settings(p.axes["after"])
    file = int(p.axes["mib"]) * MIB
    assert p.axes["disk"] == "usb"
    assert int(after["bdi.max_bytes"]) <= file // 2
    assert before["bdi.max_ratio_fine"] == "1000000"
    assert (before["bdi.strict_limit"], after["bdi.strict_limit"]) == ("0", "1")
    assert int(before["vm.dirty_bytes"]) > file
    assert p.axes["readers"] == "0"


def test_plan_shrinks_what_is_too_large(fake: FakeMachine) -> None:
    p = plan(fake, "throughput")
    assert int(settings(p.axes["after"])["vm.dirty_bytes"]) <= int(p.axes["mib"]) * MIB // 2
    assert any("of the real ones" in n for n in p.notes)


def test_plan_of_a_patched_machine_on_a_stock_kernel(fake: FakeMachine) -> None:
    fake.patched("[requests] bytes")
    assert plan(fake, "read-latency").kernel == "patched"
    p = plan(fake, "read-latency", kernel="stock")
    assert "wbt_policy" not in p.axes["after"]
    assert any("a stock kernel has none" in n for n in p.notes)


def test_render() -> None:
    text = tune_simulate.render({"kernel": "stock", "seeds": [1], "notes": ["n"], "command": "wb run x", "metrics": {
        "read_p99_95": {"unit": "us", "before": 80000.0, "after": 8000.0}}})
    assert "0.1 x" in text
    assert "wb run x" in text


def rounds(drain: float, p99: float, count: int = 6) -> Measured:
    return replace(measured(), loaded_mib=64, loaded_stable=True,
                   loaded_drain_mbps_each=tuple(drain + n for n in range(count)),
                   loaded_p99_us_each=tuple(p99 + n for n in range(count)),
                   loaded_p50_us_each=tuple(120.0 + n for n in range(count)))


def verified(fake: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: Measured, *more: str) -> int:
    """tune --apply on a machine that measures 30 ms before, and ``after`` then."""
    fake.queue(scheduler="none")
    calls: list[dict[str, object]] = []

    def measure(_directory: Path, **words: object) -> Measured:
        calls.append(words)
        return rounds(358.0, 30000.0) if len(calls) == 1 else after
    monkeypatch.setattr("wbtop.tune.command.measure", measure)
    code = main(["tune", str(tmp_path), "--root", str(fake.root), "--dev", PART, "--apply", *more])
    assert [c.get("loaded_mib") for c in calls[1:]] in ([64], [])
    return code


def test_apply_measures_again_and_says_what_it_gained(fake: FakeMachine, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(fake, tmp_path, monkeypatch, rounds(300.0, 8000.0)) == 0
    out = capsys.readouterr().out
    assert re.search(r"read_p99_us +30002\.?5? -> 8002\S* \(x 0.27, 95 %: 0.27 to 0.27\): better", out), out
    assert re.search(r"drain_mbps .*: worse", out), out
    assert re.search(r"read_p50_us .*: no difference seen", out), out


def test_apply_that_gains_nothing_says_so(fake: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(fake, tmp_path, monkeypatch, rounds(358.0, 30000.0), "--json") == 0
    found = json.loads(capsys.readouterr().out)["verified"]["verdicts"]
    assert {v["verdict"] for v in found} == {"no difference seen"}
    assert "nothing was seen to be better" in tune_command.render_gained(
        tune_command.gained(rounds(358.0, 3e4), rounds(358.0, 3e4)), "read-latency")
    # A limit of dirty data gains nothing there: it said to undo what was right.
    text = tune_command.render_gained(tune_command.gained(rounds(358.0, 3e4), rounds(358.0, 3e4)), "unplug")
    assert "what unplug is for was not measured: a short sync" in text
    assert "undo" not in text
    assert "not verified: too few" in tune_command.render_gained(tune_command.gained(measured(), measured()),
                                                                 "read-latency")
    few = tune_command.gained(rounds(358.0, 3e4, 2), rounds(358.0, 3e2, 2))
    assert {v.verdict for v in few} == {"too few runs"}


def test_verification_can_be_left_out(fake: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(fake, tmp_path, monkeypatch, measured(), "--no-verify") == 0
    assert "not verified: --no-verify" in capsys.readouterr().out


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), WbError("only 1 MiB were written")])
def test_a_failed_verification_says_that_it_is_applied(error: Exception, fake: FakeMachine, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """With --json that was all: "No space left on device"."""
    fake.queue(scheduler="none")
    found = iter([measured()])

    def measure(*_: object, **__: object) -> Measured:
        if (one := next(found, None)) is None:
            raise error
        return one
    monkeypatch.setattr(tune_command, "measure", measure)
    words = ["tune", str(tmp_path), "--root", str(fake.root), "--dev", PART, "--apply", "--json"]
    assert main(words) == 1
    assert "the settings are applied, but not verified; wb tune --undo" in capsys.readouterr().err


def test_ctrl_c_while_verifying_says_that_it_is_applied(fake: FakeMachine, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_directory: Path, **words: object) -> Measured:
        if "loaded_mib" in words:
            raise KeyboardInterrupt
        return rounds(358.0, 30000.0)
    monkeypatch.setattr("wbtop.tune.command.measure", interrupted)
    assert main(["tune", str(tmp_path), "--root", str(fake.root), "--dev", PART, "--apply"]) == 130
    assert "the settings are applied, but not verified" in capsys.readouterr().err


def test_the_spread_is_shown(fake: FakeMachine, tmp_path: Path, m: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = replace(rounds(358.0, 460.0), loaded_stable=False, loaded_p99_us_each=(460.0, 7800.0))
    m.write_text(json.dumps(noisy.to_json()))
    assert tune(fake, tmp_path, m) == 0
    out = capsys.readouterr().out
    assert "(358 to 363 in 6 rounds of 64 MiB)" in out
    assert "(460 to 7800 by round)" in out
    assert "not stable: the ranges" in out


def test_a_profile_for_tuned(fake: FakeMachine, tmp_path: Path, m: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.write("/etc/tuned/active_profile", "virtual-guest\n")
    before = fake.everything()
    where = tmp_path / "calm-writeback"
    assert tune(fake, tmp_path, m, "--tuned", str(where)) == 0
    assert "tuned-adm profile calm-writeback" in capsys.readouterr().out
    assert fake.everything() == before
    profile = configparser.ConfigParser(interpolation=None)
    profile.read(where / "tuned.conf")
    assert profile["main"]["include"] == "virtual-guest"
    assert list(profile["sysfs"].items()) == [("/sys/block/sda/queue/scheduler", "none"),
                                              ("/sys/block/sda/queue/max_sectors_kb", "128")]
    assert "sysctl" not in profile
    # Once it is active it does not include itself, and is read as what it sets.
    fake.write("/etc/tuned/active_profile", "calm-writeback\n")
    assert tune(fake, tmp_path, m, "--goal", "throughput", "--tuned", str(where)) == 0
    text = (where / "tuned.conf").read_text()
    assert "include" not in text
    fake.write("/etc/tuned/calm-writeback/tuned.conf", text)
    assert profiles.profile_settings(fake.machine, "calm-writeback") == {
        "vm.dirty_bytes": str(1 << 30), "vm.dirty_background_bytes": str(1 << 29)}


def test_tuned_puts_a_ratio_back(fake: FakeMachine, tmp_path: Path, m: Path) -> None:
    """As tuned 2.20 and 2.25 set and put back, with a kernel that refuses 0 bytes: seen to fail with tuned itself."""
    assert tune(fake, tmp_path, m, "--goal", "throughput", "--tuned", str(tmp_path / "calm")) == 0
    profile = configparser.ConfigParser(interpolation=None)
    profile.read(tmp_path / "calm/tuned.conf")
    wanted = {k.removeprefix("vm."): v for k, v in profile["sysctl"].items()}

    def write(kernel: dict[str, int], name: str, value: int) -> None:
        if value == 0 and name.endswith("bytes"):
            return  # EINVAL
        if kernel[name] != value:
            kernel[name.replace("bytes", "ratio") if name.endswith("bytes") else name.replace("ratio", "bytes")] = 0
        kernel[name] = value

    def wants(value: str, now: int) -> int | None:
        """Its assignment modifier "<": only where that is less."""
        if value[0] == "<":
            return int(value[1:]) if int(value[1:]) < now else None
        return int(value)

    for before in ({"dirty_ratio": 20, "dirty_bytes": 0, "dirty_background_ratio": 10, "dirty_background_bytes": 0},
                   {"dirty_ratio": 0, "dirty_bytes": 4 << 30, "dirty_background_ratio": 5,
                    "dirty_background_bytes": 0}):
        kernel, kept = dict(before), {}
        for name, value in wanted.items():
            if (number := wants(value, kernel[name])) is not None:
                kept[name] = kernel[name]
                write(kernel, name, number)
        assert (kernel["dirty_bytes"], kernel["dirty_background_bytes"]) == (1 << 30, 1 << 29)
        assert all(wants(v, kernel[k]) in (None, kernel[k]) for k, v in wanted.items())  # tuned-adm verify
        for name, number in kept.items():
            write(kernel, name, number)
        assert kernel == before


def test_a_profile_for_a_tuned_with_the_plugin_vm(fake: FakeMachine, tmp_path: Path, m: Path) -> None:
    """tuned 2.25 has its dirty limits in [vm], where they would stay in force beside ours in [sysctl]."""
    base = "/usr/lib/tuned/profiles/throughput-performance/tuned.conf"
    fake.write("/etc/tuned/active_profile", "throughput-performance\n")
    for text, plugin in (("[main]\n[vm]\n# a comment\n\ndirty_ratio = 40\ndirty_background_ratio = 10\n", True),
                         ("[main]\n[vm]\ntransparent_hugepages=never\n[sysctl]\nvm.dirty_ratio = 40\n", False)):
        fake.write(base, text)
        assert tune(fake, tmp_path, m, "--goal", "throughput", "--tuned", str(tmp_path / "calm")) == 0
        written = (tmp_path / "calm/tuned.conf").read_text()
        assert "include=throughput-performance\n" in written
        assert ("\n[vm]\ndrop=dirty_ratio,dirty_background_ratio\ndirty_bytes=1073741824\n"
                "dirty_background_bytes=536870912\n" in written) == plugin
        assert ("[sysctl]" in written) != plugin
        if plugin:
            fake.write("/etc/tuned/profiles/calm/tuned.conf", written)
            assert profiles.profile_settings(fake.machine, "calm") == {
                "vm.dirty_bytes": str(1 << 30), "vm.dirty_background_bytes": str(1 << 29)}


def test_tuned_gets_the_share_that_a_stock_kernel_keeps(fake: FakeMachine, tmp_path: Path, m: Path) -> None:
    """tuned read back another max_bytes than it wrote, and could not put the old one back: seen with tuned itself."""
    for exact in (False, True):
        if exact:  # with the series it stays as written
            fake.bdi(dirty_throttled_usec="0")
        where = tmp_path / f"calm-{exact}"
        assert tune(fake, tmp_path, m, "--goal", "unplug", "--hold-seconds", "1", "--tuned", str(where)) == 0
        profile = configparser.ConfigParser(interpolation=None, delimiters=("=",))
        profile.read(where / "tuned.conf")
        found = {k.rpartition("/")[2]: v for k, v in profile["sysfs"].items()}
        size = int(tune_command.load_measured(m).drain_mbps * 1e6) // MIB * MIB
        assert found == ({"max_bytes": str(size), "strict_limit": "1"} if exact else
                         {"max_ratio_fine": str(size * 1_000_000 // (LIMIT * 4096)), "strict_limit": "1"})


def test_a_profile_where_tuned_does_not_look_is_refused(fake: FakeMachine, tmp_path: Path, m: Path,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    """Debian 13's tuned 2.25 knows no profile in /etc/tuned itself, Debian 12's 2.20 none below profiles/."""
    for own, wrong, right in (("/usr/lib/tuned/balanced/tuned.conf", "/etc/tuned/profiles/wb-no", "/etc/tuned/wb-no"),
                              ("/usr/lib/tuned/profiles/balanced/tuned.conf", "/etc/tuned/wb-no",
                               "/etc/tuned/profiles/wb-no")):
        fake.write(own, "[main]\n")
        assert tune(fake, tmp_path, m, "--tuned", wrong) == 2
        assert f"--tuned {right}" in capsys.readouterr().err
    assert not Path("/etc/tuned/wb-no").exists()


def test_a_profile_of_somebody_else_stays(fake: FakeMachine, tmp_path: Path, m: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tuned.conf").write_text("[main]\n")
    assert tune(fake, tmp_path, m, "--tuned", str(tmp_path / "tuned.conf")) == 2
    assert tune(fake, tmp_path, m, "--tuned", str(tmp_path)) == 2
    assert (tmp_path / "tuned.conf").read_text() == "[main]\n"
    fake.queue(scheduler="none", max_sectors_kb="128")
    assert tune(fake, tmp_path, m, "--tuned", str(tmp_path / "new")) == 1
    assert tune(fake, tmp_path, m, "--tuned", str(tmp_path / "new"), "--apply") == 2
    assert "nothing to change" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
