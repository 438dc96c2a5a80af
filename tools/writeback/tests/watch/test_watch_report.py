# SPDX-License-Identifier: GPL-2.0
"""Samples and reports: counters of the series, tracepoints of a stock kernel, and the view of both."""

import json
import re
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fake_machine import BACKGROUND, LIMIT, FakeMachine

from wblib.cli import main
from wbtop.machine import Dirty
from wbtop.watch import advice, sample, taskstats, trace
from wbtop.watch import command as watch_command
from wbtop.watch.report import Traced, cause_of, report, state_of
from wbtop.watch.sample import Device, Sample, Task
from wbtop.watch.trace import Sleep
from wbtop.watch.view import render

FREERUN = (LIMIT + BACKGROUND) // 2


@pytest.fixture(name="fake")
def _fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def sleep(pid: int = 10, dirty: int = LIMIT, pause: int = 50, cgroup: int = 1, bdi: str = "8:0") -> Sleep:
    return Sleep(pid, "dd", bdi, pause, dirty, 100, 2048, cgroup)


def process(fake: FakeMachine, pid: int, *, us: int | None = None, start: int = 500, name: str = "dd",
            num: int = 1) -> None:
    fake.write(f"/proc/{pid}/status", f"Name:\t{name}\nTgid:\t{pid}\n")
    fake.write(f"/proc/{pid}/stat", f"{pid} ({name}) S " + " ".join(["0"] * 16) + f" {num} 0 {start} " +
               " ".join(["0"] * 19) + f" {(us or 0) // 10000} 0\n")
    fake.write(f"/proc/{pid}/cgroup", "0::/user.slice/a\n")
    if us is not None:
        fake.write(f"/proc/{pid}/slept", f"{us}\n")  # no file of the kernel's: for delays()


def delays(fake: FakeMachine) -> sample.Delays:
    """Instead of the kernel's answer, number and ns."""
    def of(tgid: int) -> tuple[int, int] | None:
        us = fake.machine.number(f"/proc/{tgid}/slept")
        return None if us is None else (us // 1000, us * 1000)
    return of


def sampled(fake: FakeMachine) -> Sample:
    return sample.sample(fake.machine, counters=True, delays=delays(fake))


def counters(fake: FakeMachine, total: int, global_us: int, cgroup_us: int, device_us: int) -> None:
    text = (f"nr_dirty_throttled {total // 1000}\ndirty_throttled_global_usec {global_us}\n"
            f"dirty_throttled_cgroup_usec {cgroup_us}\ndirty_throttled_device_usec {device_us}\n")
    old = fake.read("/proc/vmstat").split("nr_dirty_throttled ")[0]
    fake.write("/proc/vmstat", old + text)
    fake.write("/sys/fs/cgroup/cgroup.controllers", "memory io\n")
    fake.write("/sys/fs/cgroup/user.slice/a/memory.stat", "file_dirty 5\n" + text)
    fake.bdi(nr_dirty_throttled=str(total // 1000), dirty_throttled_usec=str(total))


def test_sample_of_a_stock_kernel(fake: FakeMachine) -> None:
    fake.write("/sys/kernel/debug/bdi/8:0/stats", "BdiWriteback:   1024 kB\nBdiReclaimable:   2048 kB\n"
               "BdiWriteBandwidth:   100 kBps\nstate: 1\n")
    found = sample.sample(fake.machine, counters=False)
    disk = found.devices["8:0"]
    assert (disk.name, disk.writeback, disk.dirty) == ("sda", 1 << 20, 2 << 20)
    assert (disk.bandwidth, disk.drain) == (102400, None)
    assert disk.policy is None
    fake.write("/sys/block/sda/queue/wbt_policy", "requests [bytes]\n")
    assert sample.sample(fake.machine, counters=False).devices["8:0"].policy == "bytes"
    assert disk.stat is not None
    assert (disk.stat.write_bytes, disk.stat.inflight_writes, disk.limited) == (20480 * 512, 4, False)
    assert found.total is None
    assert not sample.has_counters(fake.machine)


@pytest.mark.parametrize(("strict", "drain", "limited"), [
    ("1", None, True), ("0", None, False), ("0", "3000", True), ("0", "0", False)])
def test_a_limit_of_the_device(fake: FakeMachine, strict: str, drain: str | None, limited: bool) -> None:
    fake.bdi(strict_limit=strict)
    if drain is not None:
        fake.bdi(max_drain_ms=drain)
    found = sample.sample(fake.machine, counters=False).devices["8:0"]
    assert found.limited is limited
    set_by = {"max_drain_ms": drain, "strict_limit": strict}
    assert found.limits == tuple(n for n, v in set_by.items() if v not in (None, "0"))


def test_what_the_limit_of_the_device_is_set_by(fake: FakeMachine) -> None:
    fake.bdi(strict_limit="1", max_ratio="2")
    assert sample.sample(fake.machine, counters=False).devices["8:0"].limits == ("strict_limit", "max_bytes")


def test_numbers_of_cgroups_are_those_of_v2(fake: FakeMachine) -> None:
    """Each hierarchy of v1 counts anew: all sleeps were those of whatever directory has the number 1 there."""
    fake.write("/sys/fs/cgroup/user.slice/a/memory.stat", "file_dirty 5\n")
    (fake.root / "sys/fs/cgroup/cgroup.controllers").unlink(missing_ok=True)
    assert sample.cgroup_names(fake.machine) == {}
    fake.write("/sys/fs/cgroup/cgroup.controllers", "memory io\n")
    assert "/user.slice/a" in sample.cgroup_names(fake.machine).values()


@pytest.mark.parametrize(("ms", "limit", "rate"), [
    ("3000", 30_000_000, 10_000_000), ("3000", 12 << 20, None), ("0", 0, None)])
def test_the_rate_behind_a_time_limit(fake: FakeMachine, ms: str, limit: int, rate: int | None) -> None:
    fake.bdi(max_drain_ms=ms, max_drain_bytes=str(limit))
    assert sample.sample(fake.machine, counters=False).devices["8:0"].drain == rate


@pytest.mark.parametrize(("name", "text"), [
    ("/proc/diskstats", "8 0 sda x y\n8\n\x00"), ("/sys/devices/sda/inflight", "x"),
    ("/sys/kernel/debug/bdi/8:0/stats", "BdiWriteback kB\n\xff"), ("/proc/10/stat", ""), ("/proc/10/status", "x")])
def test_broken_files(fake: FakeMachine, name: str, text: str) -> None:
    counters(fake, 1000, 1000, 0, 0)
    process(fake, 10, us=1000)
    fake.write(name, text)
    found = sampled(fake)
    assert found.dirty is not None
    json.dumps(report(found, found, None))


def device(*, limited: bool | None) -> Device:
    return Device("sda", "8:0", None, None, None, None, None, limited, {}, None)


def test_causes() -> None:
    now = Dirty(0, 0, LIMIT * 4096, BACKGROUND * 4096)
    assert cause_of(sleep(dirty=FREERUN + 1), now, None) == "global"
    assert cause_of(sleep(dirty=FREERUN + 1), now, device(limited=True)) == "global"
    assert cause_of(sleep(dirty=100), now, device(limited=True)) == "device"
    assert cause_of(sleep(dirty=100, cgroup=9), now, device(limited=False)) == "cgroup"
    assert cause_of(sleep(dirty=100, cgroup=9), now, None) == "cgroup"
    # The root cgroup has no limit: it is never the cause.
    assert cause_of(sleep(dirty=100), now, device(limited=False)) == "global"
    assert cause_of(sleep(dirty=100), now, device(limited=None)) == "device"
    assert cause_of(sleep(dirty=100), now, None) == "device"
    assert cause_of(sleep(dirty=100), None, None) == "global"


@pytest.mark.parametrize(("dirty", "writeback", "state"), [
    (10, 0, "free run"), (60, 10, "background writeback"), (60, 20, "throttling"), (90, 20, "at the limit")])
def test_states(dirty: int, writeback: int, state: str) -> None:
    assert state_of(Dirty(dirty, writeback, 100, 50)) == state


def at(found: Sample, seconds: float) -> Sample:
    return Sample(seconds, found.dirty, found.total, found.tasks, found.cgroups, found.devices)


def test_report_from_tracepoints(fake: FakeMachine) -> None:
    process(fake, 10, name="dd\x1b[2J")
    fake.write("/proc/11/status", "Name:\tdd\nTgid:\t10\n")  # a thread of the same
    old = at(sample.sample(fake.machine, counters=False), 0.0)
    fake.write("/proc/diskstats", "   8       0 sda 300 0 2400 90 30 0 61440 30 0 40 80 0 0 0 0 0 0\n")
    new = at(sample.sample(fake.machine, counters=False), 2.0)
    reads = {"8:0": [float(n) for n in range(1, 201)]}
    traced = Traced([sleep(), sleep(11, pause=150), sleep(12, dirty=5, cgroup=77)], 3, reads,
                    lambda pid: sample.task(fake.machine, pid), {77: "/system.slice/db", 1: "/"})
    found = report(old, new, traced)
    assert found["source"] == "tracepoints"
    assert found["throttle"] == {"sleeps": 3, "slept_ms": 250.0,
                                 "by_cause_ms": {"global": 200.0, "cgroup": 50.0, "device": 0.0}}
    first, second = found["tasks"]
    assert (first["pid"], first["slept_ms"], first["share_pct"], first["longest_ms"], first["cause"]) == (
        10, 200, 7.5, 150, "global")
    assert (second["pid"], second["comm"], second["cause"]) == (12, "dd", "cgroup")
    assert found["cgroups"][0] == {"path": "/system.slice/db", "sleeps": 1, "slept_ms": 50,
                                   "by_cause_ms": {"global": 0.0, "cgroup": 50, "device": 0.0}}
    disk = found["devices"][0]
    assert disk["write_rate"] == 40960 * 512 // 2
    assert (disk["inflight_bytes"], disk["inflight_estimated"]) == (4 * 40960 * 512 // 20, True)
    assert disk["read"] == {"reads": 200, "mean_us": 200.0, "sampled": 200, "max_us": 200.0, "p50_us": 100.5,
                            "p99_us": 198.0, "p99_95_us": None}
    assert any("3 sleeps were lost" in n for n in found["notes"])
    text = render(found)
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in text.splitlines() if "note:" not in line), text
    json.loads(json.dumps(found))


def test_report_from_counters(fake: FakeMachine) -> None:
    counters(fake, 1_000_000, 600_000, 300_000, 100_000)
    process(fake, 10, us=400_000)
    process(fake, 20, us=900_000, start=1)
    process(fake, 30, us=5000)
    old = at(sampled(fake), 0.0)
    counters(fake, 3_000_000, 600_000, 2_300_000, 100_000)
    process(fake, 10, us=1_900_000)
    process(fake, 20, us=500_000, start=2)  # a new process with an old number
    new = at(sampled(fake), 2.0)
    traced = Traced([sleep(pause=40, dirty=5, cgroup=77)], 0, {},
                    lambda pid: sample.task(fake.machine, pid, delays(fake)), {})
    found = report(old, new, traced)
    assert found["source"] == "counters"
    assert found["throttle"] == {"sleeps": 2000, "slept_ms": 2000.0,
                                 "by_cause_ms": {"global": 0.0, "cgroup": 2000.0, "device": 0.0}}
    assert [(t["pid"], t["slept_ms"], t["cause"]) for t in found["tasks"]] == [
        (10, 1500.0, "cgroup"), (20, 500.0, None)]
    assert [(c["path"], c["slept_ms"]) for c in found["cgroups"]] == [("/user.slice/a", 2000.0)]
    assert found["devices"][0]["slept_ms"] == 2000.0
    assert re.search(r"10 +dd +1500 +75", render(found))


def threads(fake: FakeMachine, ms: list[int], us: int | None = None, num: int = 1) -> dict[str, Any]:
    """A report of 2 s in which ``num`` threads of one process sleep ``ms`` each; us: what the kernel counted of all."""
    process(fake, 1000, us=0, num=num)
    old = at(sampled(fake), 0.0)
    process(fake, 1000, us=us, num=num, name="mysqld")
    for n in range(len(ms)):
        fake.write(f"/proc/{1000 + n}/status", "Name:\tmysqld\nTgid:\t1000\n")
    sleeps = [sleep(1000 + n, pause=pause) for n, pause in enumerate(ms)]
    return report(old, at(sampled(fake), 2.0),
                  Traced(sleeps, 0, {}, lambda pid: sample.task(fake.machine, pid, delays(fake)), {}))


@pytest.mark.parametrize(("ms", "us", "share", "slept", "said"), [
    ([1800] * 40, None, 90.0, 72e3, "mysqld (1000), in 40 threads, sleeps up to 90 % of the time: sda"),
    ([1800, 2, 2, 2], None, 90.0, 1806, "mysqld (1000), in 4 threads, sleeps up to 90 % of the time: sda"),
    ([1800], None, 90.0, 1800, "mysqld (1000) sleeps 90 % of the time: sda"),
    ([20] * 64, None, 1.0, 1280, "writers, together, sleep 64 % of the time: sda"),
    ([80] * 64, None, 4.0, 5120, "writers, together, sleep 3 s in each second: sda"),
    # What was planned says how it is shared, what was counted how much it is.
    ([1000, 500], 1_200_000, 40.0, 1200, "mysqld (1000), in 2 threads, sleeps up to 40 % of the time: sda")])
def test_a_process_sleeps_as_long_as_the_thread_that_sleeps_most(
        fake: FakeMachine, ms: list[int], us: int | None, share: float, slept: float, said: str) -> None:
    """It was "mysqld (1000) sleeps 3600 % of the time", and 64 threads of 1 % each stood still."""
    if us is not None:
        counters(fake, us, us, 0, 0)
    found = threads(fake, ms, us)
    (task,) = found["tasks"]
    assert (task["share_pct"], task["slept_ms"], task["threads"]) == (share, slept, len(ms))
    if us is None:
        assert found["diagnosis"]["what"].startswith(said)
    else:
        assert advice._who(found, 60.0, "global") == said.removesuffix(": sda")


@pytest.mark.parametrize(("us", "num", "share", "said"), [
    (2_000_000, 20, 100.0, "the 20 threads of mysqld (1000), together, sleep 100 % of the time"),
    (72_000_000, 40, 100.0, "the 40 threads of mysqld (1000), together, sleep 36 s in each second"),
    (1_200_000, 1, 60.0, "mysqld (1000) sleeps 60 % of the time"),
    (20_000, 20, 1.0, "writers, together, sleep 1 % of the time")])
def test_counters_alone_do_not_tell_threads_apart(fake: FakeMachine, us: int, num: int, share: float,
                                                  said: str) -> None:
    """20 threads of 5 % each were "mysqld (1000) sleeps 100 % of the time", and stood still."""
    counters(fake, us, us, 0, 0)
    found = threads(fake, [], us, num)
    (task,) = found["tasks"]
    assert (task["share_pct"], task["threads"], task["num_threads"], task["slept_ms"]) == (share, None, num, us / 1e3)
    assert advice._who(found, us / 2e4, "global") == said
    assert advice._still(task) is (num == 1)


def test_cgroups_that_are_left_out_are_mentioned(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """z.slice slept 9 s behind 5000 others and was in no list, without a word."""
    counters(fake, 1000, 1000, 0, 0)
    text = fake.read("/sys/fs/cgroup/user.slice/a/memory.stat")
    for n in range(3):
        fake.write(f"/sys/fs/cgroup/z{n}.slice/memory.stat", text)
    note = "of more than 5000 cgroups the others' sleeps are not known"
    for most, read, cut in ((6, 4, False), (5, 3, True)):  # user.slice has no counters, the root is not listed
        monkeypatch.setattr(sample, "MAX_CGROUPS", most)
        found = sampled(fake)
        assert (len(found.cgroups), len(sample.cgroup_names(fake.machine))) == (read, most)
        assert (note in report(found, found, None)["notes"]) is cut


def test_bytes_in_flight_of_the_patched_kernel(fake: FakeMachine) -> None:
    fake.write("/sys/kernel/debug/block/sda/rqos/wbt/bytes", "inflight 393216\nheld_bytes 1000\nheld 2\nlimit 400000\n")
    found = sample.sample(fake.machine, counters=False)
    disk = report(found, found, None)["devices"][0]
    assert (disk["inflight_bytes"], disk["inflight_estimated"], disk["wbt_limit"]) == (393216, False, 400000)


def test_nothing_known() -> None:
    empty = Sample(0.0, None, None, {}, {}, {})
    found = report(empty, Sample(1.0, None, None, {}, {}, {}), None, ["why"])
    assert (found["source"], found["throttle"], found["dirty"]) == ("none", None, None)
    assert "note: why" in render(found)


def watch(fake: FakeMachine, *more: str) -> int:
    return main(["watch", "--root", str(fake.root), "--interval", "0.1", *more])


def test_command_without_tracing(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(fake, "--once", "--json") == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["source"] == "none"
    assert re.fullmatch(r"wb watch: tracing is missing: .*who sleeps is not known\n", out.err)


@pytest.mark.parametrize(("with_counters", "source"), [(True, "counters"), (False, "none")])
def test_command_where_no_instance_can_be_made(
    fake: FakeMachine, capsys: pytest.CaptureFixture[str], *, with_counters: bool, source: str,
) -> None:
    if with_counters:
        counters(fake, 10, 10, 0, 0)
    fake.write(f"/sys/kernel/tracing/{trace.SLEEP_EVENT}/format", "")  # and no instances/
    assert watch(fake, "--once", "--json") == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["source"] == source
    assert out.err.count("\n") == 1
    assert "tracing is not possible here: " in out.err


def test_lines_of_json(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    counters(fake, 10, 10, 0, 0)
    fake.write("/proc/sys/kernel/task_delayacct", "1\n")
    assert watch(fake, "--count", "2", "--json", "--no-trace") == 0
    out = capsys.readouterr()
    assert [json.loads(line)["source"] for line in out.out.splitlines()] == ["counters", "counters"]
    assert out.err == ""
    fake.write("/proc/sys/kernel/task_delayacct", "0\n")
    assert watch(fake, "--count", "1", "--json", "--no-trace") == 0
    assert "sysctl kernel.task_delayacct=1" in capsys.readouterr().err


def test_ctrl_c_ends_the_live_view(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr("wbtop.watch.command.time.sleep", interrupt)
    assert watch(fake) == 0
    assert watch(fake, "--once") == 130


def test_not_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["watch", "--once"]) == 1
    assert capsys.readouterr().err == "wb: wb watch reads other users' processes and tracefs: run as root\n"


def test_without_proc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--root", str(tmp_path), "--once"]) == 1
    assert "is /proc mounted?" in capsys.readouterr().err


def test_wrong_usage(fake: FakeMachine) -> None:
    assert watch(fake, "--once", "--count", "3") == 2
    for words in (["--interval", "0"], ["--interval", "nan"], ["--count", "0"]):
        with pytest.raises(SystemExit) as exc:
            main(["watch", *words])
        assert exc.value.code == 2


def test_unknown_task(fake: FakeMachine) -> None:
    assert sample.task(fake.machine, 4242) is None
    assert Task("x", "", 0, None).throttle is None
    assert trace.tracefs(fake.machine) is None


def test_what_is_wrong_stays_on_a_low_terminal(fake: FakeMachine) -> None:
    """At 80 x 24 the line that says what is wrong had scrolled away as soon as there was something to show."""
    machine = fake.machine
    old = sample.sample(machine, counters=False)
    sleeps = [sleep(pid=n, pause=100) for n in range(10, 30)]
    found = report(old, sample.sample(machine, counters=False),
                   Traced(sleeps, 0, {}, lambda pid: (pid, Task(f"dd{pid}", "/a", 0, None)), {}))
    found["writers"] = [{"pid": n, "comm": "dd", "dirty_rate": 10**6} for n in range(10)]
    found["findings"] = [{"what": "dd sleeps", "fix": "less of it"}]
    whole = render(found, 80)
    assert len(whole.splitlines()) > 30
    for rows in (60, 30, 24, 21, 12, 6, 2):
        lines = render(found, 80, rows).splitlines()
        assert len(lines) <= rows
        assert lines[: min(rows - 1, 3)] == whole.splitlines()[: min(rows - 1, 3)]
    # All tables are still there, with what matters most first, and how many more there are.
    low = render(found, 80, 27)
    assert [word for word in ("slept ms", "dirties MB/s", "wr MB/s", "dd10", "more") if word not in low] == [], low
    assert "taller" not in low
    assert render(found, 80, 12).splitlines()[-1].endswith("more lines: a taller window shows them)")


def test_a_task_that_delay_accounting_does_not_know_has_the_planned_sleeps(fake: FakeMachine) -> None:
    """Only tasks that started after kernel.task_delayacct=1 have counts of their own."""
    counters(fake, 1000, 1000, 0, 0)
    process(fake, 10)
    old = sampled(fake)
    counters(fake, 51_000, 51_000, 0, 0)
    traced = Traced([sleep(pause=40)], 0, {}, lambda pid: sample.task(fake.machine, pid, delays(fake)), {})
    found = report(old, sampled(fake), traced)
    assert [(t["pid"], t["slept_ms"]) for t in found["tasks"]] == [(10, 40)]
    assert found["throttle"]["slept_ms"] == 50.0


def test_sleeps_of_a_struct_taskstats() -> None:
    for (version, size), place in taskstats.KNOWN.items():
        stats = bytearray(size)
        struct.pack_into("=H", stats, 0, version)
        struct.pack_into("=QQ", stats, place, 7, 1_500_000_000)
        assert taskstats.sleeps(bytes(stats)) == (7, 1_500_000_000)
        assert taskstats.sleeps(bytes(stats[:-16])) is None, "a kernel without the series"
        struct.pack_into("=H", stats, 0, version + 9)
        assert taskstats.sleeps(bytes(stats)) is None
    assert taskstats.sleeps(b"") is None


def test_attributes_of_an_answer() -> None:
    text = struct.pack("=HHI", 8, 2, 10) + struct.pack("=HH", 5, 3) + b"x\0\0\0"
    assert list(taskstats.attributes(text)) == [(2, struct.pack("=I", 10)), (3, b"x")]
    assert list(taskstats.attributes(struct.pack("=HH", 0, 1))) == []


def test_a_kernel_that_says_nothing_of_a_process() -> None:
    with closing(taskstats.Taskstats()) as kernel:
        assert kernel.sleeps(1 << 30) is None
    assert taskstats.Taskstats.sleeps(kernel, 1) is None


def test_a_place_that_is_not_there_is_said_before_the_first_interval(fake: FakeMachine, tmp_path: Path,
                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    words = ["watch", "--root", str(fake.root), "--once", "--interval", "86400"]
    for more, said in ((["--record", str(tmp_path / "no/x")], "no/x: its directory is not there"),
                       (["--openmetrics", str(tmp_path)], "is a directory"),
                       (["--openmetrics", str(tmp_path / "wb.txt")], "end in .prom")):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err


def test_a_full_disk_is_named(fake: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["watch", "--root", str(fake.root), "--once", "--interval", "0.1", "--no-trace"]
    assert main([*words, "--record", "/dev/full"]) == 1
    assert capsys.readouterr().err.endswith("wb: /dev/full: No space left on device\n")


def test_a_full_disk_does_not_end_the_night(fake: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    """A recording that nobody watches had ended where the disk was full for a minute, often what it was to show."""
    shown: list[object] = []

    def show(found: object, _args: object) -> None:
        shown.append(found)
        if len(shown) == 3:
            raise KeyboardInterrupt
    monkeypatch.setattr(watch_command, "_show", show)
    words = ["watch", "--root", str(fake.root), "--interval", "0.1", "--no-trace", "--json", "--record", "/dev/full"]
    assert main([*words, "--openmetrics", str(tmp_path / "wb.prom")]) == 0
    assert capsys.readouterr().err.count("/dev/full: No space left on device: without the report of ") == 3
    assert (tmp_path / "wb.prom").exists()
    assert main([*words[:-1], str(tmp_path / "r"), "--openmetrics", "/proc/wb.prom"]) == 1


def test_an_empty_recording_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r").write_text("")
    assert main(["watch", str(tmp_path / "r")]) == 1
    assert "no report was recorded yet" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--count", "1"], ["--interval", "5"], ["--once"], ["--record", "x"],
                                   ["--openmetrics", "x.prom"], ["--no-trace"]])
def test_a_recording_is_not_shown_with_options_of_a_watch(words: list[str], tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    """They had no effect, and nothing said so."""
    (tmp_path / "r").write_text("")
    assert main(["watch", str(tmp_path / "r"), *words]) == 2
    assert capsys.readouterr().err.startswith(f"wb: {words[0]}: FILE is shown as it was recorded")


def test_a_stack_has_the_queues_of_its_disks(fake: FakeMachine) -> None:
    fake.stack("sda1", "nvme0n1")
    fake.queue(zoned="host-managed")
    fake.write("/sys/class/bdi/253:0/max_bytes", "0\n")
    fake.write("/proc/diskstats", fake.read("/proc/diskstats") + " 253 0 dm-0 100 0 800 50 10 0 20480 30 0 40 80\n")
    looks = []
    for kb in (1000, 3048):
        fake.write("/sys/kernel/debug/bdi/253:0/stats", f"BdiWritten:   {kb} kB\n")
        looks.append(sample.sample(fake.machine, counters=False))
    found = report(looks[0], looks[1], None)
    device = next(d for d in found["devices"] if d["name"] == "dm-0")
    assert device["queues"] == [
        {"name": "nvme0n1", "rotational": False, "zoned": None, "scheduler": "none", "wbt_policy": None,
         "max_sectors_kb": 1280},
        {"name": "sda", "rotational": False, "zoned": "host-managed", "scheduler": "mq-deadline", "wbt_policy": None,
         "max_sectors_kb": 1280}]
    assert device["writeback_rate"] > 0
    assert found["findings"] == []
    assert next(d for d in found["devices"] if d["name"] == "sda")["writeback_rate"] is None
