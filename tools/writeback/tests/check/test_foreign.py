# SPDX-License-Identifier: GPL-2.0
"""wb foreign without a guest: what it takes for a checkout, a job, a verdict, a difference."""

import json
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wblib.check import foreign
from wblib.check import foreign_guest as guests
from wblib.check import foreign_suite as suites
from wblib.kernel import kconfig
from wblib.results import store
from wbtop.errors import WbError

FSTESTS, BLKTESTS = suites.SUITES["fstests"], suites.SUITES["blktests"]


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """A checkout of xfstests with three tests, and one of blktests in the same place."""
    for folder, lines in (("generic", "# groups\n\n001 auto quick rw\n002 auto soak\n"), ("ext4", "001 auto quick\n")):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "group.list").write_text(lines)
    (tmp_path / "tests/block").mkdir()
    (tmp_path / "tests/block/001").write_text("QUICK=1\n")
    (tmp_path / "tests/block/002").write_text("DESCRIPTION='slow'\n")
    (tmp_path / "common").mkdir()
    for name in ("check", "common/rc"):
        (tmp_path / name).write_text("")
    return tmp_path


def _out(place: Path, output: str, **files: str) -> Path:
    out = place / "out"
    (out / "results/generic").mkdir(parents=True)
    (out / "output").write_text(output)
    for name, text in files.items():
        (out / "results/generic" / name.replace("_", ".")).write_text(text)
    return out


def test_what_a_configuration_may_be() -> None:
    assert suites.config("default") == suites.Config("default")
    assert suites.config("nodelalloc,dioread_nolock:-b 1024") == suites.Config(
        "nodelalloc_dioread_nolock_b_1024", "nodelalloc,dioread_nolock", "-b 1024")
    for bad in ("", "a b", "x;reboot", "default:$(reboot)", "../x"):
        with pytest.raises(WbError, match="--config"):
            suites.config(bad)


def test_the_tests_of_a_group(tree: Path) -> None:
    def chosen(suite: suites.Suite, **how: Any) -> list[str]:
        return suites.chosen(suite, tree, "ext4", **how)

    assert chosen(FSTESTS, groups=["quick"]) == ["generic/001", "ext4/001"]
    assert chosen(FSTESTS, groups=["auto"], without=["soak"]) == ["generic/001", "ext4/001"]
    assert chosen(FSTESTS, tests=["generic/002"]) == ["generic/002"]
    assert chosen(BLKTESTS, groups=["block"]) == ["block/001", "block/002"]
    assert chosen(BLKTESTS, groups=["quick"]) == ["block/001"]
    with pytest.raises(WbError, match="no group 'slow'"):
        chosen(FSTESTS, groups=["slow"])
    with pytest.raises(WbError, match="no test 'generic/9'"):
        chosen(FSTESTS, tests=["generic/9"])
    with pytest.raises(WbError, match=r"no group\.list"):
        suites.chosen(FSTESTS, tree, "xfs", groups=["quick"])


@pytest.mark.parametrize(("make", "says"), [(False, "no such directory"), (True, "not a checkout of fstests")])
def test_what_is_no_checkout(tmp_path: Path, make: bool, says: str) -> None:
    source = tmp_path / "source"
    if make:
        source.mkdir()
    with pytest.raises(WbError, match=says):
        suites.prepare(FSTESTS, source)


def test_a_job_is_a_script_with_the_options(tree: Path) -> None:
    text = FSTESTS.job(tree, "generic/001", "ext4", suites.Config("x", "nodelalloc", "-b 1024"))
    for line in ("export MOUNT_OPTIONS='-o nodelalloc'", "export MKFS_OPTIONS='-b 1024'", "export FSTYP=ext4",
                 "./check generic/001", "mkfs.ext4 -q -F -b 1024 /dev/ubda || return"):
        assert line in text.splitlines()
    for one in (text, BLKTESTS.job(tree, "block/001", "ext4", suites.Config("default"))):
        subprocess.run(["bash", "-n"], input=one, text=True, check=True)


@pytest.mark.parametrize(("output", "files", "verdict"), [
    ("generic/001        5s\nRan: generic/001\nPassed all 1 tests\n", {}, "pass"),
    ("generic/001 - output mismatch (see x)\nFailures: generic/001\nFailed 1 of 1 tests\n",
     {"001_out_bad": "QA output\nlost a file\n"}, "fail"),
    ("generic/001 _check_dmesg: something found in dmesg\nFailures: generic/001\n", {}, "fail"),
    ("generic/001 [not run] no\nNot run: generic/001\nPassed all 0 tests\n", {"001_notrun": "no quota\n"}, "notrun"),
    ("mkfs.ext4: No space left\n", {}, "died"),
    ("", {}, "died"),
])
def test_what_xfstests_said(tmp_path: Path, output: str, files: dict[str, str], verdict: str) -> None:
    found = FSTESTS.judge(_out(tmp_path, output, **files), "generic/001")
    assert found.what == verdict
    assert bool(found.why) == (verdict != "pass")
    if files.get("001_out_bad"):
        assert "lost a file" in found.why


@pytest.mark.parametrize(("status", "verdict"), [("pass", "pass"), ("fail", "fail"), ("not run", "notrun")])
def test_what_blktests_said(tmp_path: Path, status: str, verdict: str) -> None:
    place = tmp_path / "results/nodev/block"
    place.mkdir(parents=True)
    (place / "001").write_text(f"date\tnow\nstatus\t{status}\nreason\tout of luck\n")
    assert BLKTESTS.judge(tmp_path, "block/001").what == verdict
    assert BLKTESTS.judge(tmp_path, "block/002").what == "died"


def test_a_splat_is_found_once_and_without_its_time() -> None:
    text = "[    1.0] WARNING: CPU: 0 at x\n[    2.0] WARNING: CPU: 0 at x\n[    3.0] EXT4-fs: mounted\n"
    assert guests.splats(text) == ["WARNING: CPU: 0 at x"]


def test_the_command_line_names_what_it_needs(tmp_path: Path) -> None:
    words = guests.command(Path("/k/linux"), 3072, tmp_path, [tmp_path / "a", tmp_path / "b"])
    assert words[:2] == ["/k/linux", "mem=3072M"]
    assert {f"ubd0={tmp_path}/a", f"ubd1={tmp_path}/b", f"WB_OUT={tmp_path}", "rootfstype=hostfs", "ro"} <= set(words)
    assert not any("time-travel" in w for w in words)
    with pytest.raises(WbError, match="no white space"):
        guests.command(Path("/k/linux"), 1024, tmp_path / "a b", [])


def test_the_users_that_xfstests_wants() -> None:
    files = guests.users()
    for name in suites.USERS:
        assert all(f"\n{name}:" in text for text in files.values())


def test_the_kernel_has_what_the_guest_stands_on() -> None:
    lines = kconfig.fragments(kconfig.UML_FOREIGN).splitlines()
    assert {"CONFIG_HOSTFS=y", "CONFIG_OVERLAY_FS=y", "CONFIG_BLK_DEV_UBD=y", "CONFIG_SCSI_DEBUG=m"} <= set(lines)
    assert kconfig.is_uml(kconfig.UML_FOREIGN)


def _run(kernel: str, test: str, what: str, attempt: int = 1, splats: tuple[str, ...] = ()) -> dict[str, Any]:
    why = "" if what == "pass" else "why|so"
    return {"kernel": kernel, "config": "default", "test": test, "what": what, "why": why, "try": attempt,
            "splats": list(splats)}


def test_only_what_failed_runs_on_the_other_kernel() -> None:
    tests = {"g/1": "pass", "g/2": "fail", "g/3": "notrun", "g/4": "timeout", "g/5": "died", "g/6": "pass"}
    default = suites.Config("default")
    jobs = [foreign.Job("patched", default, test, 1) for test in tests]
    found = [_run("patched", test, what, splats=("BUG: x",) if test == "g/6" else ()) for test, what in tests.items()]
    assert foreign.failed(jobs, found, "stock") == [
        foreign.Job("stock", default, test, 1) for test in ("g/2", "g/4", "g/5", "g/6")]


def test_a_second_wb_waits_for_the_first_and_takes_its_result(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    built: Any = SimpleNamespace(name="stock", key="0123456789", image=tmp_path)
    setting = foreign.Setting(BLKTESTS, tree, "abc", "ext4", {"stock": built}, {"stock": tmp_path}, 9.0, False)
    jobs = [foreign.Job("stock", suites.Config("default"), "block/001", 1)]
    second: list[dict[str, Any]] = []
    other = threading.Thread(target=lambda: second.extend(foreign.run_jobs(setting, jobs, 1)))
    ran: list[str] = []

    def run(task: guests.Task, out: Path, _tick: object) -> guests.Ran:
        ran.append(task.test)
        out.mkdir(parents=True)
        other.start()
        other.join(1)
        assert other.is_alive()
        return guests.Ran(suites.Verdict("fail", "so"), [], 1.0)

    monkeypatch.setattr(foreign, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(guests, "run", run)
    first = foreign.run_jobs(setting, jobs, 1)
    other.join(10)
    assert second == first
    assert ran == ["block/001"]
    assert "waiting for another wb" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.lock"))


FOUND = [
    _run("stock", "g/1", "pass"), _run("patched", "g/1", "pass"),
    _run("stock", "g/2", "pass"), _run("patched", "g/2", "fail"), _run("patched", "g/2", "fail", 2),
    _run("stock", "g/3", "fail"), _run("patched", "g/3", "pass"),
    _run("stock", "g/4", "pass"), _run("patched", "g/4", "fail"), _run("patched", "g/4", "pass", 2),
    _run("stock", "g/5", "pass"), _run("patched", "g/5", "pass", splats=("BUG: x",)),
    _run("stock", "g/6", "pass"), _run("patched", "g/6", "notrun"),
    _run("stock", "g/7", "fail"), _run("patched", "g/7", "fail"),
]


def test_what_differs_and_what_is_worse() -> None:
    assert [t for _, t in foreign.differing(FOUND)] == ["g/2", "g/3", "g/4", "g/5", "g/6"]
    assert [t for _, t in foreign.worse(FOUND, "stock", "patched")] == ["g/2", "g/5"]


def test_the_table(tmp_path: Path) -> None:
    text = foreign.markdown("fstests", FOUND, ["stock", "patched"])
    assert "| default | stock | 7 | 5 | 2 | 0 | 0 | 0 | 0 |" in text
    assert "| default | patched | 7 | 3 | 3 | 1 | 0 | 0 | 1 |" in text
    assert "| default | g/4 | pass | 1 fail, 1 pass | why\\|so |" in text
    assert "g/7" not in text
    assert "None." in foreign.markdown("fstests", FOUND[:2], ["stock", "patched"])


def test_a_finished_run_is_kept_and_one_that_was_cut_short_is_not(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "RESULTS", tmp_path)

    class Built:
        name, key = "stock", "k" * 16

    def setting(timeout_s: float = 10.0, ident: str = "i") -> foreign.Setting:
        return foreign.Setting(FSTESTS, tmp_path, ident, "ext4", {"stock": Built()}, {}, timeout_s, False)  # type: ignore[dict-item]

    job = foreign.Job("stock", suites.Config("default"), "generic/001", 1)
    path = setting().place(job) / guests.VERDICT
    assert foreign.kept(setting(), job) is None
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert foreign.kept(setting(), job) is None
    result = {"identity": setting().identity(job), "what": "pass", "timeout_s": 10.0}
    path.write_text(json.dumps(result))
    assert foreign.kept(setting(), job) == result
    assert store.scan(tmp_path) == []
    assert foreign.kept(setting(ident="another checkout"), job) is None
    path.write_text(json.dumps({**result, "what": "timeout"}))
    assert foreign.kept(setting(), job)
    assert foreign.kept(setting(20.0), job) is None
