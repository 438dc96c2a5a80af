# SPDX-License-Identifier: GPL-2.0
"""KTAP parser: the forms that bash helpers, kselftest's runner and KUnit print, whole and cut short."""

import subprocess

import pytest

from wblib.base.paths import SELFTESTS
from wblib.results import ktap

CASE = """\
TAP version 13
1..3
# fio: 4 readers, Poisson 1000 IOPS each
# read_p50: 110 us
# read_p99_95: 3.19e+04 us
# write_mbps: 504.2 MB/s
ok 1 readers ran
# usecs               : count     distribution
#     64 -> 127       : 15803    |********************|
# does not hold: 3 > 5
not ok 2 buffered is slower than direct
ok 3 byte limits # SKIP needs a patched kernel
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
"""


def names(report: ktap.Report) -> list[tuple[str, str]]:
    return [(t.name, t.result) for t in report.tests]


def test_a_case() -> None:
    report = ktap.parse(CASE)
    assert names(report) == [
        ("readers ran", "pass"), ("buffered is slower than direct", "fail"), ("byte limits", "skip"),
    ]
    assert report.tests[2].reason == "needs a patched kernel"
    assert report.metrics == {
        "read_p50": {"value": 110, "unit": "us"},
        "read_p99_95": {"value": 31900.0, "unit": "us"},
        "write_mbps": {"value": 504.2, "unit": "MB/s"},
    }
    assert isinstance(report.metrics["read_p50"]["value"], int)
    assert (report.planned, report.problems, report.status) == (3, [], "fail")


@pytest.mark.parametrize(
    "line",
    ["# Totals: pass:1 fail:0", "# note: 5", "# Name: 5 us", "# x: 5 us more", "#x: 5 us", "x: 5 us", "# x: 0x5 us",
     "# x: nan us", "# x: 5us", "# x : 5 us", "#   x: 5 us", "    x: 5 us"],
)
def test_diagnostics_are_not_metrics(line: str) -> None:
    assert ktap.parse(f"1..1\n{line}\nok 1 a\n").metrics == {}


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("-3", -3), ("1.5", 1.5), (".5", 0.5), ("-1e-3", -0.001)])
def test_metric_values(text: str, value: float) -> None:
    assert ktap.parse(f"1..1\n# m_1: {text} KiB\nok 1 a\n").metrics == {"m_1": {"value": value, "unit": "KiB"}}


def test_metric_that_is_no_number_or_twice_is_a_problem() -> None:
    report = ktap.parse("1..1\n# a: 1.2.3 us\n# b: 1 us\n# b: 2 us\nok 1 x\n")
    assert report.problems == ["metric a: '1.2.3' is not a number", "metric b reported twice"]
    assert report.status == "error"


def test_kunit_nesting_with_kernel_timestamps() -> None:
    report = ktap.parse("""\
[    1.234567] KTAP version 1
[    1.234568] 1..1
[    1.234569]     KTAP version 1
[    1.234570]     # Subtest: wbdisk-model
[    1.234571]     1..2
[    1.234572]     ok 1 link_is_fifo
[    1.234573]         KTAP version 1
[    1.234574]         # Subtest: seek
[    1.234575]         ok 1 near
[    1.234576]         not ok 2 far
[    1.234577]     # seek: pass:1 fail:1 skip:0 total:2
[    1.234578]     not ok 2 seek
[    1.234579] # wbdisk-model: pass:1 fail:1 skip:0 total:2
[    1.234580] not ok 1 wbdisk-model
""")
    assert names(report) == [
        ("wbdisk-model/link_is_fifo", "pass"), ("wbdisk-model/seek/near", "pass"), ("wbdisk-model/seek/far", "fail"),
        ("wbdisk-model/seek", "fail"), ("wbdisk-model", "fail"),
    ]
    assert report.problems == []


def test_kselftest_runner_nesting() -> None:
    report = ktap.parse("""\
TAP version 13
1..2
# timeout set to 0
# selftests: writeback: read-latency.sh
# TAP version 13
# 1..2
# # read_p50: 110 us
# ok 1 readers ran
# ok 2 no kernel splat # SKIP no dmesg
ok 1 selftests: writeback: read-latency.sh
# 1..0 # SKIP needs module
ok 2 selftests: writeback: wbdisk.sh # SKIP
""")
    assert names(report) == [
        ("selftests: writeback: read-latency.sh/readers ran", "pass"),
        ("selftests: writeback: read-latency.sh/no kernel splat", "skip"),
        ("selftests: writeback: read-latency.sh", "pass"),
        ("selftests: writeback: wbdisk.sh", "skip"),
    ]
    assert report.metrics == {"read_p50": {"value": 110, "unit": "us"}}
    assert (report.problems, report.status) == ([], "pass")


def test_skip_all() -> None:
    report = ktap.parse("TAP version 13\n1..0 # SKIP needs fio\n")
    assert (report.skip, report.status, report.problems) == ("needs fio", "skip", [])


def test_cut_short() -> None:
    report = ktap.parse(CASE[:CASE.index("not ok 2")])
    assert report.problems == ["1 of 3 results"]
    assert report.status == "error"


def test_cut_inside_a_subtest() -> None:
    report = ktap.parse("1..1\n    1..3\n    ok 1 a\n")
    assert names(report) == [("a", "pass")]
    assert report.problems == ["1 of 3 results of an unfinished test", "0 of 1 results"]


def test_lost_lines_are_noticed() -> None:
    report = ktap.parse("1..3\nok 1 a\nok 3 c\n")
    assert report.problems == ["result 3 'c' where 2 was expected: output lost or repeated"]


def test_bail_out() -> None:
    report = ktap.parse("TAP version 13\n1..2\nok 1 a\nBail out!  cannot make the disk\n")
    assert (report.bail, report.status) == ("cannot make the disk", "error")


@pytest.mark.parametrize("text", ["", "\n\n", "bash: no such file\n", "TAP version 13\n"])
def test_nothing(text: str) -> None:
    report = ktap.parse(text)
    assert report.status == "error"
    assert report.problems == ["no KTAP plan: the case did not start"]


def test_plan_may_come_last_and_carriage_returns_do_not_matter() -> None:
    report = ktap.parse("TAP version 13\r\nok 1 - a\r\nok 2\r\n1..2\r\n")
    assert names(report) == [("a", "pass"), ("test 2", "pass")]
    assert report.status == "pass"


def test_expected_failures_pass() -> None:
    report = ktap.parse("1..2\nnot ok 1 a # XFAIL known\nok 2 b\n")
    assert (names(report)[0], report.status) == (("a", "xfail"), "pass")
    assert ktap.parse("1..1\nnot ok 1 a # TIMEOUT 45 seconds\n").status == "fail"


def test_every_metric_of_a_case_is_read() -> None:
    program = f"WB_DIR={SELFTESTS}; . $WB_DIR/lib/case.sh; measures cpu_ns_X ns lower -; metric cpu_ns_1M_ext4 12.5"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert ktap.parse(f"1..1\n{done.stdout}ok 1 works\n").metrics == {"cpu_ns_1m_ext4": {"value": 12.5, "unit": "ns"}}
