# SPDX-License-Identifier: GPL-2.0
"""wb check without its tiers' programs: which files it looks at."""

import os
import subprocess
from pathlib import Path

import pytest

from wblib import check
from wblib.errors import WbError


def test_lint_without_a_repository_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    with pytest.raises(WbError, match=r"^git ls-files in .*: fatal: not a git repository[^\n]*$"):
        list(check.lint(1))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_lint_reads_a_repository_of_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a.sh").touch()
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 12345, 12345)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert check._tracked() == ["a.sh"]
