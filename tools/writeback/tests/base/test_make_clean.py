# SPDX-License-Identifier: GPL-2.0
"""make clean and distclean remove what is the project's, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wblib.base.paths import ROOT


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> Path:
    project = tmp_path / "a project"
    for place in ("a project/results/x", "a project/build/x", "a project/block", "srv/data"):
        (tmp_path / place).mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", project)
    return project


def make(project: Path, target: str, **env: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WB_", "MAKE"))}
    return subprocess.run(["make", target], cwd=project, env=clean | env, capture_output=True, text=True, check=False)


def test_the_projects_own_go(project: Path) -> None:
    assert make(project, "clean", WB_RESULTS=str(project / "results")).returncode == 0
    assert sorted(p.name for p in project.iterdir()) == ["Makefile", "block", "build"]
    assert make(project, "distclean").returncode == 0
    assert sorted(p.name for p in project.iterdir()) == ["Makefile", "block"]


@pytest.mark.parametrize(("target", "name"), [("clean", "WB_RESULTS"), ("distclean", "WB_BUILD")])
@pytest.mark.parametrize("place", ["../srv", ".", "block", "results/.."])
def test_elsewhere_nothing_goes(project: Path, target: str, name: str, place: str) -> None:
    """WB_RESULTS=/srv make clean was rm -rf /srv."""
    done = make(project, target, **{name: place})
    assert done.returncode == 2
    assert f"{name} is '{place}', not " in done.stderr
    assert (project.parent / "srv/data").exists() and (project / "block").exists() and (project / "build/x").exists()
