# SPDX-License-Identifier: GPL-2.0
"""The guest with Python: wb runs in it, and the guest without is what it was."""

import os
import subprocess
from pathlib import Path

import pytest

from wblib.catalog import axes
from wblib.catalog.spec import specs
from wblib.catalog.suites import Job
from wblib.guest import initramfs
from wblib.run import runner


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initramfs, "PROGRAMS", {"bash": "bash"})
    monkeypatch.setattr(initramfs, "COREUTILS", ("env",))


def test_python_only_adds() -> None:
    plain, more = initramfs._collect("slim"), initramfs._collect("slim", python=True)
    assert plain.items() <= more.items()
    added = more.keys() - plain.keys()
    assert {"usr/bin/python3", "opt/wb/wb", "opt/wb/wblib/run/tune.py", "opt/wb/wbtop/tune/command.py"} <= added
    assert not any("dist-packages" in name or "__pycache__" in name for name in added)


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_wb_runs_from_what_is_packed(tmp_path: Path) -> None:
    initramfs._stage(tmp_path / "root", initramfs._collect("slim", python=True))
    for command in ("watch", "tune"):
        done = subprocess.run(["chroot", str(tmp_path / "root"), "/opt/wb/wb", command, "--help"], capture_output=True,
                              text=True, check=False, env={"PATH": "/usr/bin:/usr/sbin"})
        assert done.returncode == 0, done.stderr
        assert "examples:" in done.stdout


def test_who_needs_python() -> None:
    assert {c.name for c in axes.CASES.values() if c.python} == {"tune", "watch"}


def test_each_job_runs_in_its_own_kind_of_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "prepare", lambda spec: f"{spec.kernel} {axes.case(spec.case).python}")
    monkeypatch.setattr(runner, "_kept", lambda spec, prepared: None)
    monkeypatch.setattr(runner, "_run_one", lambda spec, prepared, progress, **_: (spec.case, prepared))
    jobs = [Job(case, {}, 1, kernel) for kernel in ("stock", "patched") for case in ("wbdisk", "tune", "watch")]
    assert runner.run_many(specs(jobs), parallel=1) == [
        (j.case, f"{j.kernel} {j.case != 'wbdisk'}") for j in jobs]
