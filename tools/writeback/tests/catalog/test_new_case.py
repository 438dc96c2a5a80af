# SPDX-License-Identifier: GPL-2.0
"""A new case is one file and a new disk is one entry: in a scratch tree, both are seen everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wblib.base.paths import SELFTESTS, TOOLS
from wblib.catalog import axes, describe

DISK = """
WBD_PROFILE(tape, "lto-drive",
            ANY, SOME_FLASH, SOME_PLATTERS, NCQ,
            .model = WBD_MODEL_FIFO,
            .link_mbps = 160, .latency_ns = 2000000)
"""
# What wblib makes of a result whose write_mbps doubled.
COMPARE = """
from wblib.catalog import axes, disks
from wblib.results import compare, store
given = axes.validate("my-case", {"disk": "tape", "mib": "8"})
one, two = ([store.Result("my-case", k, given, s, {"write_mbps": {"value": v, "unit": "MB/s"}}, {}, "pass", [])
             for s in (1, 2)] for k, v in (("stock", 10.0), ("patched", 20.0)))
(table,), _ = compare.compare_all(one, two)
print(table.rows[0].verdict, axes.slug("my-case", given), disks.disks()["tape"].write_mbps)
"""


@pytest.fixture(name="scratch")
def _scratch(tmp_path: Path) -> Path:
    """A copy of the tools and the tests with one more case and one more disk."""
    for place in (TOOLS, SELFTESTS):
        shutil.copytree(place, tmp_path / place.relative_to(TOOLS.parents[1]),
                        ignore=shutil.ignore_patterns("__pycache__", "*.o", "*.ko", "*.mod*"))
    mine = tmp_path / SELFTESTS.relative_to(TOOLS.parents[1])
    subprocess.run([str(mine / "new"), "odd/my-case"], check=True, capture_output=True)
    table = mine / "test_modules/model/wbdisk_profiles.h"
    table.write_text(table.read_text().replace("\n#undef WBD_PROFILE", f"{DISK}\n#undef WBD_PROFILE"))
    return tmp_path


def run(scratch: Path, *argv: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("WB_")}
    done = subprocess.run(argv, cwd=scratch, env=env | {"PYTHONPATH": str(scratch / "tools/writeback")},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wb_lists_and_compares_both(scratch: Path) -> None:
    listed = json.loads(run(scratch, sys.executable, "tools/writeback/wb", "list", "--json"))
    assert set(listed) == {*axes.CASES, "my-case"}
    for name in ("my-case", "read-latency"):
        assert "tape" in listed[name]["axes"]["disk"]["allowed"].split("|")
    assert "tape" in listed["wbt-stress"]["axes"]["profile"]["allowed"].split("|")
    got = run(scratch, sys.executable, "-B", "-c", COMPARE).split()
    assert got == ["better", "tape-mib-8", "160.0"]


def test_the_case_parses_what_it_declares(scratch: Path) -> None:
    case = scratch / SELFTESTS.relative_to(TOOLS.parents[1]) / "odd/my-case.sh"
    assert "--disk=sata" in run(scratch, str(case), "--help")
    for option, code in (("--disk=tape", 0), ("--disk=floppy", 2), ("--mib=0", 2), ("--nonsense=1", 2), ("--mib", 2)):
        done = subprocess.run([str(case), option, "--describe=json"], capture_output=True, text=True, check=False)
        assert done.returncode == code, (option, done.stderr)


def test_make_installs_the_case(scratch: Path) -> None:
    mine = scratch / SELFTESTS.relative_to(TOOLS.parents[1])
    (mine.parent / "lib.mk").write_text("programs:\n\t@echo $(TEST_PROGS)\n")
    programs = run(scratch, "make", "-s", "-C", str(mine), "programs").split()
    assert sorted(Path(p).stem for p in programs) == sorted({*axes.CASES, "my-case"})


def test_the_skeleton_has_no_fault_that_lint_finds(scratch: Path) -> None:
    mine = scratch / SELFTESTS.relative_to(TOOLS.parents[1])
    assert run(mine, "shellcheck", "-x", "-P", "SCRIPTDIR", "odd/my-case.sh") == ""


@pytest.mark.parametrize("name", ["mm/My-Case", "lib/x", "../x", "mm/a--b", "mm/wbdisk", "flat"])
def test_no_case_of_a_bad_name(scratch: Path, name: str) -> None:
    mine = scratch / SELFTESTS.relative_to(TOOLS.parents[1])
    before = sorted(mine.rglob("*"))
    assert subprocess.run([str(mine / "new"), name], capture_output=True, check=False).returncode == 2
    assert sorted(mine.rglob("*")) == before


def test_a_script_that_does_not_describe_itself_is_named_and_left_out(scratch: Path) -> None:
    broken = scratch / SELFTESTS.relative_to(TOOLS.parents[1]) / "mm/broken.sh"
    broken.write_text("#!/bin/bash\necho two\necho lines\n")
    done = subprocess.run([sys.executable, "tools/writeback/wb", "list", "--json"], cwd=scratch, text=True,
                          capture_output=True, check=False)
    assert set(json.loads(done.stdout)) == {*axes.CASES, "my-case"}
    assert "broken.sh" in done.stderr


def test_a_name_says_which_script_is_meant() -> None:
    """The guest looks for it in every folder."""
    names = [p.name for p in SELFTESTS.glob("*/*.sh")]
    assert len(set(names)) == len(names)


def test_every_case_describes_itself() -> None:
    assert [Path(s).stem for s in describe.scripts()] == list(axes.CASES)
    for said in describe.declared():
        assert said["title"]
        assert said["replays"]
        assert said["programs"]


def test_config_is_what_the_cases_need() -> None:
    wanted = {k for case in axes.CASES.values() for k in case.kernel}
    assert {line.partition("=")[0] for line in (SELFTESTS / "config").read_text().split()} == wanted
