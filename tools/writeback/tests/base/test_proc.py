# SPDX-License-Identifier: GPL-2.0
"""Running other programs: where they are found, how an interrupt ends them."""

import os
import time
from pathlib import Path

import pytest

from wblib.base import proc


@pytest.mark.parametrize("mine", [True, False], ids=["own", "root's"])
def test_an_interrupt_ends_the_whole_group(mine: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_args: object) -> None:
        while not (tmp_path / "child").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    def refused(_group: int, _signal: int) -> None:
        raise PermissionError

    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\necho "$*" > "${0%/*}/asked"\n[ "$1" = -n ] && shift && exec "$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(proc, "_wait_with_progress", interrupted)
    if not mine:
        monkeypatch.setattr("os.killpg", refused)
    script = f"sleep 60 & echo $! > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/child; wait"
    with pytest.raises(KeyboardInterrupt):
        proc.run(["sh", "-c", script], log=tmp_path / "log")
    assert (tmp_path / "asked").exists() is not mine
    stat = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    for _ in range(100):  # a zombie has ended, too
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    raise AssertionError("the command's own child goes on")


def test_cpus_are_those_of_the_container(tmp_path: Path) -> None:
    quota, allowed = tmp_path / "cpu.max", len(os.sched_getaffinity(0))
    for text, most in (("max 100000", allowed), ("50000 100000", 1), ("150000 100000", 2), ("", allowed)):
        quota.write_text(text + "\n")
        assert proc.cpus(quota) == min(most, allowed)
    assert proc.cpus(tmp_path / "none") == allowed


def test_need_looks_in_the_first_directories_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("mine", "first"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "some-tool").write_text("#!/bin/sh\n")
        (tmp_path / place / "some-tool").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "mine"))
    assert proc.need("some-tool", "package") == str(tmp_path / "mine/some-tool")
    assert proc.need("some-tool", "package", first=str(tmp_path / "first")) == str(tmp_path / "first/some-tool")
    assert proc.need("some-tool", "package", first=str(tmp_path / "none")) == str(tmp_path / "mine/some-tool")
