# SPDX-License-Identifier: GPL-2.0
"""The guest's initramfs: packed once, however many ask for it at the same time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wblib.base import fs
from wblib.guest import initramfs


@pytest.fixture(name="tree")
def _tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A small installed kselftest tree; the guest's programs are one file, build/ is empty."""
    for module in (fs, initramfs):
        monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    program = tmp_path / "bash"
    program.write_text("#!/bin/true\n")
    monkeypatch.setattr(initramfs, "_collect", lambda *_: {"usr/bin/bash": program})
    monkeypatch.setattr(initramfs, "MIN_FREE_GIB", 0)
    selftests = tmp_path / "selftests"
    (selftests / "writeback").mkdir(parents=True)
    (selftests / "writeback/case.sh").write_text("echo\n")
    return selftests


def test_two_at_the_same_time_pack_once(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    staged = []
    together = threading.Barrier(2)
    real_stage = initramfs._stage
    real_collect = initramfs._collect

    def collect(*kind: bool) -> dict[str, Path]:
        together.wait()
        return real_collect(*kind)

    def stage(where: Path, files: dict[str, Path]) -> None:
        staged.append(where)
        real_stage(where, files)
        time.sleep(0.3)  # the other one would remove or fill the same directory now

    monkeypatch.setattr(initramfs, "_collect", collect)
    monkeypatch.setattr(initramfs, "_stage", stage)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: initramfs.initramfs(tree), range(2))
    assert one == other
    assert len(staged) == 1
    assert b"kselftest/writeback/case.sh" in one.read_bytes()
    assert [p.name for p in one.parent.iterdir()] == [one.name]


def test_what_a_killed_run_left_behind_does_not_get_in(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    out = initramfs.initramfs(tree)
    want = out.read_bytes()
    out.unlink()
    stale = out.with_suffix(".stage")
    stale.mkdir()
    (stale / "stale").touch()
    assert initramfs.initramfs(tree).read_bytes() == want
    assert not stale.exists()
