# SPDX-License-Identifier: GPL-2.0
"""wb lab: the LAVA job, what becomes of KTAP there, and the KCIDB report against its published schema."""

import json
import os
import re
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest
import report_tree

from wblib.base.paths import SELFTESTS
from wblib.results import kcidb, lab, store
from wbtop.errors import WbError

WORDS = {
    "KERNEL": "patched", "RELEASE": "6.12.117", "PATCHSET": "ab" * 32, "HOURS": "6", "URL": "https://lab.example/wb",
    "ROOTFS": "https://lab.example/debian.ext4", "SELECTION": "-c writeback", "SHA_BZIMAGE": "cd" * 32,
    "SHA_KSELFTEST": "ef" * 32,
}
# LAVA's own check of a job; Debian's lava-common, for Debian's Python only.
LAVA = "import sys, yaml, lava_common.schemas as s; s.validate(yaml.safe_load(sys.stdin))"
KTAP = """\
TAP version 13
1..3
# selftests: writeback: read-latency.sh
# TAP version 13
# 1..2
# # read_p99_95: 63.2 us
# # just a remark: 3 4
# ok 1 buffered: readers ran to their end
# not ok 2 no kernel splat
not ok 1 selftests: writeback: read-latency.sh # exit=1
# selftests: writeback: tune.sh
# 1..0 # SKIP needs python3
ok 2 selftests: writeback: tune.sh # SKIP
# selftests: writeback: wbdisk.sh
# ok 1 a disk # SKIP no room
not ok 3 selftests: writeback: wbdisk.sh # TIMEOUT 45 seconds
"""


def call(*argv: str) -> int:
    top = ArgumentParser()
    lab.register(top.add_subparsers())
    args = top.parse_args(["lab", *argv])
    return int(args.func(args))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for seed in (1, 2):
        report_tree.place(tmp_path, "read-latency disk=fifo", "stock", seed, {"read_p99_95": (60.0 + seed, "us")},
                          qemu="7.2", initrd_hash="11", wall_s=12.5)
    report_tree.place(tmp_path, "wbdisk", "patched", 1, {}, "fail", patchset_hash="ab" * 32)
    report_tree.place(tmp_path, "wbt-cost", "patched", 1, {"cost_read_ns_off": (1.0, "ns")}, "error",
                      patchset_hash="ab" * 32)
    return tmp_path


def test_job_has_no_word_left() -> None:
    text = lab.job(lab.TEMPLATE.read_text(), WORDS)
    assert not re.search(r"^[^#]*@[A-Z_]+@", text, re.MULTILINE)
    for word in WORDS.values():
        assert word in text
    with pytest.raises(WbError, match="nothing to put for @KERNEL@"):
        lab.job(lab.TEMPLATE.read_text(), {})


def test_lava_takes_the_job() -> None:
    python = "/usr/bin/python3"
    if not Path(python).exists() or subprocess.run([python, "-c", "import lava_common.schemas, yaml"],
                                                   capture_output=True, check=False).returncode:
        pytest.skip("needs Debian's lava-common")
    text = lab.job(lab.TEMPLATE.read_text(), WORDS)
    done = subprocess.run([python, "-c", LAVA], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    broken = subprocess.run([python, "-c", LAVA], input=text.replace("method: qemu", "method: qemus"),
                            capture_output=True, text=True, check=False)
    assert broken.returncode != 0


@pytest.mark.parametrize("bad", ["a b'", 'x"y', "a{b}", "a\nb", "", "# x"])
def test_nothing_gets_into_the_job_that_changes_it(bad: str) -> None:
    if not bad:
        assert "patchset: \"\"" in lab.job(lab.TEMPLATE.read_text(), {**WORDS, "PATCHSET": ""})
        return
    with pytest.raises(WbError, match="cannot stand in a LAVA job"):
        lab.job(lab.TEMPLATE.read_text(), {**WORDS, "SELECTION": bad})


def test_selection() -> None:
    listed = "writeback:block/read-latency.sh\nwriteback:wbdisk/wbdisk.sh\nother:x\n"
    assert lab.selection(None, listed) == "-c writeback"
    assert lab.selection(["wbdisk", "read-latency"], listed) == (
        "-t writeback:wbdisk/wbdisk.sh -t writeback:block/read-latency.sh")
    with pytest.raises(WbError, match="the tarball has read-latency, wbdisk"):
        lab.selection(["x"], listed)


def test_ktap_becomes_lava_test_cases(tmp_path: Path) -> None:
    tool, log = tmp_path / "lava-test-case", tmp_path / "calls"
    tool.write_text(f'#!/bin/sh\necho "$*" >> {log}\n')
    tool.chmod(0o755)
    ktap = tmp_path / "ktap"

    def calls(text: str) -> list[str]:
        log.unlink(missing_ok=True)
        ktap.write_text(text)
        subprocess.run([str(SELFTESTS / "lib/ktap-lava.sh"), str(ktap)], check=True,
                       env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        return log.read_text().splitlines()

    assert calls(KTAP) == [
        "read-latency.read_p99_95 --result pass --measurement 63.2 --units us",
        "read-latency.buffered-readers-ran-to-their-end --result pass",
        "read-latency.no-kernel-splat --result fail",
        "read-latency --result fail",
        "tune --result skip",
        "wbdisk.a-disk --result skip",
        "wbdisk --result fail",
    ]
    assert calls("bash: run_kselftest.sh: not found\n") == ["kselftest-ran --result fail"]


def test_report_is_valid_by_the_published_schema(tree: Path) -> None:
    pytest.importorskip("kcidb_io")
    data = kcidb.report(store.scan(tree), "my_lab")
    assert kcidb.problems(data) == []
    data["tests"][0]["status"] = "GREAT"
    assert "GREAT" in kcidb.problems(data)[0]


def test_report_says_what_ran(tree: Path) -> None:
    data = kcidb.report(store.scan(tree), "my_lab")
    assert [c["patchset_hash"] for c in data["checkouts"]] == ["ab" * 32, ""]
    assert len(data["builds"]) == 2
    tests = {(t["path"], t["status"], t.get("number", {}).get("value")) for t in data["tests"]}
    assert tests >= {
        ("kselftest.writeback.read-latency", "PASS", None),
        ("kselftest.writeback.read-latency.metric.read_p99_95", "DONE", 61.0),
        ("kselftest.writeback.read-latency.metric.read_p99_95", "DONE", 62.0),
        ("kselftest.writeback.wbdisk", "FAIL", None),
        ("kselftest.writeback.wbdisk.it-ran", "FAIL", None),
        ("kselftest.writeback.wbt-cost", "ERROR", None),
    }
    assert not any("cost_read" in path for path, _, _ in tests), "a run that is not whole has no metrics"
    assert len({t["id"] for t in data["tests"]}) == len(data["tests"])


def test_dangling_references_are_found(tree: Path) -> None:
    data = kcidb.report(store.scan(tree), "my_lab")
    data["builds"].pop()
    assert any("build_id" in p for p in kcidb.problems(data))


def test_the_same_run_on_two_machines_is_one_test(tree: Path) -> None:
    once = kcidb.report(store.scan(tree), "my_lab")
    twice = kcidb.report([*store.scan(tree), *store.scan(tree)], "my_lab")
    assert once == twice


def test_export(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert call("kcidb", str(tree), "-o", str(out), "--origin", "my_lab") == 0
    assert json.loads(out.read_text())["version"] == {"major": 5, "minor": 3}
    assert call("kcidb", str(tree)) == 0
    assert json.loads(capsys.readouterr().out)["tests"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["kcidb", "/nowhere"], "no finished results"),
        (["kcidb", "/nowhere", "--origin", "My-Lab"], "lower-case letters"),
        (["pack", "/nowhere", "--url", "x", "--rootfs", "https://a/b"], "--url x"),
        (["pack", "/nowhere", "--url", "https://a", "--rootfs", "https://a/b", "--hours", "0"], "1..999"),
    ],
)
def test_bad_input(argv: list[str], words: str) -> None:
    with pytest.raises(WbError, match=words):
        call(*argv)
    assert not Path("/nowhere").exists()
