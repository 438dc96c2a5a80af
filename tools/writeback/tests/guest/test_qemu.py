# SPDX-License-Identifier: GPL-2.0
"""What a guest may do to the host: end well, die, hang, leave half a tar.  The guests are shell scripts."""

import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from wblib.catalog.spec import CPU
from wblib.guest import qemu
from wbtop.errors import WbError


def _guest(**more: object) -> qemu.Guest:
    return qemu.Guest(Path("bzImage"), Path("initrd"), "case", ("--seed=1",), **more)  # type: ignore[arg-type]


def _run(monkeypatch: pytest.MonkeyPatch, out: Path, script: str, timeout_s: float = 20) -> qemu.Outcome:
    monkeypatch.setattr(qemu, "command", lambda guest, where: ["sh", "-c", f"cd {where}; {script}"])
    return qemu.run(_guest(), out, timeout_s=timeout_s)


def _tar(path: Path, code: str = "0\n") -> None:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("./exit")
        info.size = len(code)
        archive.addfile(info, io.BytesIO(code.encode()))


def test_good_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _tar(tmp_path / "made.tar", "4\n")
    outcome = _run(monkeypatch, tmp_path / "o", f"cp {tmp_path}/made.tar data.tar; printf 'ok 1\\r\\n' > ktap")
    assert (outcome.exit_code, outcome.problem, outcome.ktap) == (4, "", "ok 1\n")
    assert not (tmp_path / "o" / "data.tar").exists()


@pytest.mark.parametrize(("console", "expected"), [
    ("INFO: task dd:42 blocked for more than 240 seconds", "hung task"),
    ("Kernel panic - not syncing: Fatal exception", "kernel panic"),
    ("watchdog: BUG: soft lockup - CPU#0 stuck", "soft lockup"),
    ("Oops: divide error: 0000", "oops"),
    ("", "before its case did"),
])
def test_death_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: str, expected: str) -> None:
    outcome = _run(monkeypatch, tmp_path, f"echo '{console}' > console.log")
    assert outcome.exit_code is None
    assert expected in outcome.problem


def test_killed_qemu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = _run(monkeypatch, tmp_path, "kill -9 $$")
    assert outcome.exit_code is None
    assert "signal 9" in outcome.problem


def test_a_process_that_panics_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "echo 'Kernel panic - not syncing: Kernel mode signal 8' > console.log; kill -ABRT $$"
    monkeypatch.setattr(qemu, "command", lambda guest, where: ["sh", "-c", f"cd {where}; {script}"])
    assert "signal 6" in qemu.run(_guest(), tmp_path / "exact", timeout_s=20).problem
    outcome = qemu.run(_guest(lane="fast"), tmp_path / "fast", timeout_s=20)
    assert "Kernel panic - not syncing: Kernel mode signal 8" in outcome.problem


def test_failing_qemu_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = _run(monkeypatch, tmp_path, "echo 'no such machine' >&2; exit 1")
    assert outcome.problem == "QEMU ended with status 1: no such machine"


def test_half_a_tar_is_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _tar(tmp_path / "made.tar")
    outcome = _run(monkeypatch, tmp_path / "o", f"head -c 100 {tmp_path}/made.tar > data.tar")
    assert outcome.exit_code is None


def test_timeout_kills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = _run(monkeypatch, tmp_path, "exec sleep 60", timeout_s=1)
    assert "still running after 1 s" in outcome.problem
    assert outcome.wall_s < 10


def test_silence_kills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(qemu, "SILENT_S", 1)
    assert "hung: silent" in _run(monkeypatch, tmp_path, "exec sleep 60").problem
    start = time.monotonic()
    monkeypatch.setattr(qemu, "_cpu_s", lambda _pid: 5 * (time.monotonic() - start))
    assert "hung: silent" in _run(monkeypatch, tmp_path, "exec sleep 60").problem


def test_cpu_time_of_a_process_is_counted() -> None:
    before, end = qemu._cpu_s(os.getpid()), time.process_time() + 0.5
    while time.process_time() < end:
        pass
    # In ticks of 10 ms.
    assert qemu._cpu_s(os.getpid()) - before > 0.4
    assert qemu._cpu_s(2**22 + 1) == 0


def test_a_guest_that_gets_little_cpu_is_not_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(qemu, "SILENT_S", 1)
    start = time.monotonic()
    monkeypatch.setattr(qemu, "_cpu_s", lambda _pid: 0.05 * (time.monotonic() - start))
    assert "hung" not in _run(monkeypatch, tmp_path, "exec sleep 4").problem


def test_exact_lane_is_exact(tmp_path: Path) -> None:
    argv = qemu.command(_guest(seed=7), tmp_path)
    text = " ".join(argv)
    assert "-icount shift=0,sleep=off,rr=record,rrfile=/dev/null -seed 7 -rtc base=2026-01-01,clock=vm" in text
    assert "-smp 1" in text
    # QEMU refuses rr= with more.
    assert "-icount shift=0,sleep=off -seed 7" in " ".join(qemu.command(_guest(seed=7, smp=2), tmp_path))
    assert "no_timer_check" not in text
    assert "-drive" not in argv
    assert argv[-1].endswith("-- wb-case case --seed=1")


def test_cpu_model(tmp_path: Path) -> None:
    argv = qemu.command(_guest(cpu="max,avx2=off"), tmp_path)
    assert argv[argv.index("-cpu") + 1] == "max,avx2=off"
    argv = qemu.command(_guest(), tmp_path)
    assert argv[argv.index("-cpu") + 1] == "max,erms=off"
    assert qemu.check_cpu("Skylake-Server-v4,avx512f=off") == "Skylake-Server-v4,avx512f=off"
    assert qemu.check_cpu(CPU, "functional") == CPU
    with pytest.raises(WbError, match="exact lane") as err:
        qemu.check_cpu("max,avx2=off", "functional")
    assert err.value.code == 2


@pytest.mark.parametrize("bad", ["", "max,", "max erms=off", "max,+erms", "-accel", "max,erms=off,", "max\n", "a;b",
                                 "max,erms=off -drive x", "max,erms=/etc/passwd", "help?"])
def test_bad_cpu_model(bad: str) -> None:
    with pytest.raises(WbError, match="--cpu") as err:
        qemu.check_cpu(bad)
    assert err.value.code == 2


def test_functional_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(qemu, "kvm_works", lambda image: False)
    argv = qemu.command(_guest(lane="functional", disk="nvme"), tmp_path)
    assert "nvme,drive=d0,serial=wb0" in argv
    assert "-icount" not in argv
    assert "no_timer_check" in argv[-1]
    with pytest.raises(WbError, match="ahci or nvme"):
        qemu.command(_guest(lane="functional", disk="floppy"), tmp_path)


@pytest.mark.parametrize("boots", [True, False])
def test_probe_of_kvm_reads_no_log_of_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, boots: bool) -> None:
    (tmp_path / "kvm-probe.log").write_text("Linux version 6.12")
    program = tmp_path / "qemu"
    said = 'for a; do case $a in file:*) echo "Linux version" > "${a#file:}" ;; esac; done'
    program.write_text(f"#!/bin/sh\n{said if boots else 'exit 1'}\n")
    program.chmod(0o755)
    monkeypatch.delenv("WB_NO_KVM", raising=False)
    monkeypatch.setattr("os.access", lambda *_: True)
    monkeypatch.setattr(qemu, "BUILD", tmp_path)
    monkeypatch.setattr(qemu, "QEMU", str(program))
    assert qemu.kvm_works.__wrapped__(tmp_path / "bzImage") == boots
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kvm-probe.log", "qemu"]
