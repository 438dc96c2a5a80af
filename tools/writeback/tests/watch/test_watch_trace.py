# SPDX-License-Identifier: GPL-2.0
"""The text of tracepoints, as 6.12 prints it, and the life of the private instances."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from wbtop.errors import WbError
from wbtop.machine import Machine, lower_disks
from wbtop.watch import trace as watch_trace
from wbtop.watch.trace import Trace, multipath, parse_reads, parse_sleeps, partitions

SLEEP = ("  {comm}-{pid}   [000] .....  {time}: balance_dirty_pages: bdi 8:0: limit=8192 setpoint=7168 dirty={dirty} "
         "bdi_setpoint=7000 bdi_dirty=7500 dirty_ratelimit=40960 task_ratelimit=38912 dirtied=512 dirtied_pause=512 "
         "paused=0 pause={pause} period=20 think=4 cgroup_ino={cgroup}")


def sleep(comm: str = "dd", pid: int = 111, time: str = "12.345678", dirty: int = 7600, pause: int = 16,
          cgroup: int = 1) -> str:
    return SLEEP.format(**locals())


def test_sleeps() -> None:
    found, lost, unknown = parse_sleeps([
        "# tracer: nop", "", sleep(), sleep(comm="my task-9 [x]", pid=7, cgroup=42),
        "CPU:3 [LOST 17 EVENTS]", sleep(pause=0), sleep(pause=-4),
    ])
    assert (lost, unknown) == (17, 0)
    assert [(s.pid, s.comm, s.bdi, s.pause_ms, s.dirty, s.bdi_dirty, s.rate_kbps, s.cgroup) for s in found] == [
        (111, "dd", "8:0", 16, 7600, 7500, 38912, 1), (7, "my task-9 [x]", "8:0", 16, 7600, 7500, 38912, 42)]


def test_with_tgid_column_and_without_flags() -> None:
    line = sleep().replace("[000] .....", "(    100) [000]")
    assert [s.pid for s in parse_sleeps([line])[0]] == [111]


@pytest.mark.parametrize("line", [
    "", "garbage", "\x00\xff", sleep()[:80], sleep().replace("pause=16", "pause=x"),
    sleep().replace("balance_dirty_pages:", "global_dirty_state:"), sleep() + "junk=",
])
def test_broken_lines_are_passed_over(line: str) -> None:
    assert parse_sleeps([line])[1] == 0
    found, _, unknown = parse_sleeps([line, sleep()])
    assert len(found) == 1
    assert unknown == (1 if line and "global_dirty" not in line else 0)


def block(event: str, time: float, dev: str = "8,0", rwbs: str = "R", sector: int = 2048) -> str:
    text = {"block_bio_queue": f"{dev} {rwbs} {sector} + 8 [fio]",
            "block_rq_complete": f"{dev} {rwbs} () {sector} + 8 none,0,0 [0]"}[event]
    return f"   fio-12   [001] ..... {time:.6f}: {event}: {text}"


def test_reads() -> None:
    lines = [
        block("block_rq_complete", 1.0, sector=1),  # begun before the sample
        block("block_bio_queue", 1.0), block("block_bio_queue", 1.0001, dev="8,16"),
        block("block_bio_queue", 1.0002, rwbs="WS", sector=99),
        block("block_rq_complete", 1.0005), block("block_rq_complete", 1.0011, dev="8,16", rwbs="RA"),
        block("block_rq_complete", 1.002, rwbs="WS", sector=99), block("block_bio_queue", 1.1),
    ]
    found, unknown = parse_reads(lines)
    assert unknown == 0
    assert {d: [round(t) for t in times] for d, times in found.items()} == {"8:0": [500], "8:16": [1000]}


def test_lines_of_reads_that_are_none_are_counted() -> None:
    """With context-info off there were no reads, and not one line that was not understood."""
    lines = ["# tracer: nop", "", block("block_bio_queue", 1.0), "block_rq_complete: 8,0 R () 2048 + 8 none,0,0 [0]",
             "CPU:3 [LOST 17 EVENTS]", block("block_bio_queue", 1.0).replace("block_bio_queue", "block_getrq")]
    assert parse_reads(lines) == ({}, 1)


def test_a_disk_that_goes_is_no_disk_of_a_partition(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "dev").mkdir()  # there, and cannot be read
    for name, text in {"sda1/dev": "8:1", "sda1/partition": "1"}.items():
        (disk / name).write_text(text + "\n")
    (tmp_path / "sys/class/block").mkdir(parents=True)
    for name in ("sda", "sda/sda1"):
        (tmp_path / "sys/class/block" / Path(name).name).symlink_to(f"../../devices/{name}")
    assert partitions(Machine(tmp_path)) == {}


def test_reads_of_a_partition_belong_to_its_disk(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/sda"
    (disk / "sda1").mkdir(parents=True)
    for name, text in {"dev": "8:0", "sda1/dev": "8:1", "sda1/partition": "1"}.items():
        (disk / name).write_text(text + "\n")
    (tmp_path / "sys/class/block").mkdir(parents=True)
    for name in ("sda", "sda/sda1"):
        (tmp_path / "sys/class/block" / Path(name).name).symlink_to(f"../../devices/{name}")
    whole = partitions(Machine(tmp_path))
    assert whole == {"8:1": "8:0"}
    lines = [block("block_bio_queue", 1.0, dev="8,1"), block("block_rq_complete", 1.0005)]
    assert list(parse_reads(lines, whole)[0]) == ["8:0"]
    assert parse_reads(lines) == ({}, 0)


def test_reads_of_a_multipath_nvme(tmp_path: Path) -> None:
    """They are sent to nvme0n1 and complete on nvme0c0n1, of which sysfs has no number."""
    for name, dev in {"nvme0n1": "259:0", "nvme1n1": "259:5", "nvme0c0n1": "", "nvme0c1n1": ""}.items():
        (tmp_path / f"sys/class/block/{name}").mkdir(parents=True)
        (tmp_path / f"sys/block/{name}").mkdir(parents=True)
        if dev:
            (tmp_path / f"sys/class/block/{name}/dev").write_text(f"{dev}\n")
    machine = Machine(tmp_path)
    heads = multipath(machine)
    assert heads == {"259:0"}
    lines = [block("block_bio_queue", 1.0, dev="259,0"), block("block_rq_complete", 1.0005, dev="259,1"),
             block("block_bio_queue", 2.0, dev="259,5"), block("block_rq_complete", 2.0001, dev="259,5"),
             block("block_bio_queue", 3.0, dev="259,0"), block("block_rq_complete", 3.0, dev="259,1", sector=5)]
    found, _ = parse_reads(lines, heads=heads)
    assert {d: [round(t) for t in times] for d, times in found.items()} == {"259:0": [500], "259:5": [100]}
    assert parse_reads(lines)[0].keys() == {"259:5"}
    assert lower_disks(machine, "nvme0n1") == ["nvme0c0n1", "nvme0c1n1"]
    assert lower_disks(machine, "nvme1n1") == ["nvme1n1"]


# Inherited of the machine's own, each the wrong way round.
OPTIONS = {"context-info": "0", "latency-format": "1", "raw": "1", "hex": "1", "bin": "1", "fields": "1",
           "stacktrace": "1", "userstacktrace": "1"}


@pytest.fixture(name="tracefs")
def _tracefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose instances appear with their files, as tracefs makes them."""
    top = tmp_path / "sys/kernel/tracing"
    events = (watch_trace.SLEEP_EVENT, *watch_trace.READ_EVENTS)
    for event in events:
        (top / event).mkdir(parents=True)
    (top / "instances").mkdir()
    real_mkdir, real_rmdir = Path.mkdir, Path.rmdir

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        real_mkdir(self, mode, parents, exist_ok)
        if self.parent.name == "instances":
            for event in events:
                real_mkdir(self / event, parents=True)
                (self / event / "enable").write_text("0")
                (self / event / "filter").write_text("none")
            real_mkdir(self / "options")
            for name in ("tracing_on", "buffer_size_kb", "trace_clock", "trace", "trace_pipe"):
                (self / name).write_text("")
            for name, value in OPTIONS.items():
                (self / f"options/{name}").write_text(value)

    def rmdir(self: Path) -> None:
        if self.parent.name == "instances":
            if any(os.path.realpath(f).startswith(f"{self}/") for f in Path("/proc/self/fd").iterdir()):
                raise OSError(errno.EBUSY, "Device or resource busy", str(self))
            shutil.rmtree(self)
        else:
            real_rmdir(self)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)
    return top


def instances(top: Path) -> list[str]:
    """Their names, without what makes them different in each container."""
    return sorted(re.sub(r"-[0-9a-f]{8}-", "-", p.name) for p in (top / "instances").iterdir())


def instance(top: Path, what: str) -> Path:
    """Ours."""
    return next((top / "instances").glob(f"wb-watch-{os.getpid()}-*{what}"))


def test_instances_come_and_go(tracefs: Path, tmp_path: Path) -> None:
    with Trace(Machine(tmp_path)) as trace:
        assert instances(tracefs) == [f"wb-watch-{os.getpid()}-reads", f"wb-watch-{os.getpid()}-sleeps"]
        mine = instance(tracefs, "sleeps")
        assert (mine / watch_trace.SLEEP_EVENT / "filter").read_text() == "pause > 0"
        assert (mine / "tracing_on").read_text() == "1"
        (mine / "trace_pipe").write_text(sleep() + "\n" + sleep()[:40])
        found, _, _ = trace.sleeps()
        assert len(found) == 1  # the second line is not whole yet
        (instance(tracefs, "reads") / "trace").write_text("\n".join([
            block("block_bio_queue", 1.0), block("block_rq_complete", 1.0005)]))
        assert list(trace.reads()[0]) == ["8:0"]
    assert instances(tracefs) == []
    assert trace.sleeps() == ([], 0, 0)
    assert trace.reads() == ({}, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_instances_go_when_it_ends_badly(tracefs: Path, tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), Trace(Machine(tmp_path)):
        raise error
    assert instances(tracefs) == []


def test_half_made_instances_go(tracefs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: watch_trace.Instance, event: str, condition: str) -> None:
        raise OSError(22, "Invalid argument", "filter")
    monkeypatch.setattr(watch_trace.Instance, "enable", refuse)
    with pytest.raises(WbError, match="tracing is not possible here: filter: Invalid argument"), \
            Trace(Machine(tmp_path)):
        pass
    assert instances(tracefs) == []


def test_those_of_a_killed_watch_go(tracefs: Path, tmp_path: Path) -> None:
    for name in ("wb-watch-999999999-reads", f"wb-watch-{os.getppid()}-reads", "somebody-else"):
        (tracefs / "instances" / name).mkdir()
    with Trace(Machine(tmp_path)):
        pass
    assert instances(tracefs) == ["somebody-else", f"wb-watch-{os.getppid()}-reads"]


def test_that_of_a_killed_watch_with_our_own_number_goes(tracefs: Path, tmp_path: Path) -> None:
    """In a container it is always process 1: after a SIGKILL no later one could trace, "File exists"."""
    for what in ("reads", "sleeps"):
        (tracefs / "instances" / f"wb-watch-{os.getpid()}-{what}").mkdir()
    with Trace(Machine(tmp_path)):
        assert len(instances(tracefs)) == 2
    assert instances(tracefs) == []


def test_those_of_a_live_watch_stay(tracefs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in a container does not see the others' processes, and is number 1 as others are: it removed theirs."""
    with Trace(Machine(tmp_path)) as first:
        mine = instances(tracefs)
        with Trace(Machine(tmp_path)):  # the same number
            assert instances(tracefs) == sorted(2 * mine)
        assert instances(tracefs) == mine
        monkeypatch.setattr(os, "getpid", lambda: 999999998)  # and one that sees no process of ours
        exists = Path.exists
        monkeypatch.setattr(Path, "exists", lambda self: not str(self).startswith("/proc/") and exists(self))
        with Trace(Machine(tmp_path)):
            assert set(mine) < set(instances(tracefs))
        first.reads()
    assert instances(tracefs) == []


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ENODEV])  # gone, and on its way
@pytest.mark.parametrize(("times", "works"), [(1, True), (2, False)])
def test_one_that_another_watch_removes_is_made_again(tracefs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      error: int, times: int, works: bool) -> None:
    """Between its making and its opening nothing holds it."""
    names: list[str] = []
    real_open = os.open

    def late(path: Path, flags: int, *args: int, **more: int | None) -> int:
        if isinstance(path, Path) and path.name == "tracing_on":
            names.append(path.parent.name)
            if len(names) <= times:
                path.parent.rmdir()
                raise OSError(error, os.strerror(error), str(path))
        return real_open(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", late)
    if works:
        with Trace(Machine(tmp_path)):
            assert len(instances(tracefs)) == 2
    else:
        with pytest.raises(WbError, match=f"tracing is not possible here: .*/tracing_on: {os.strerror(error)}"), \
                Trace(Machine(tmp_path)):
            pass
    assert len(set(names)) == len(names) == (3 if works else 2)
    assert instances(tracefs) == []


def test_options_of_the_machine_are_not_inherited(tracefs: Path, tmp_path: Path) -> None:
    """An instance begins with them: with options/raw no read was known, and nothing said so."""
    with Trace(Machine(tmp_path)):
        for what, overwrite in (("sleeps", "1"), ("reads", "0")):
            found = {p.name: p.read_text() for p in (instance(tracefs, what) / "options").iterdir()}
            assert found == {**dict.fromkeys(OPTIONS, "0"), "context-info": "1", "overwrite": overwrite}


def test_an_option_that_this_kernel_does_not_have(tracefs: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    write = watch_trace.Instance.write

    def without(self: watch_trace.Instance, name: str, value: str) -> None:
        if name == "options/fields":
            raise FileNotFoundError
        write(self, name, value)
    monkeypatch.setattr(watch_trace.Instance, "write", without)
    with Trace(Machine(tmp_path)):
        assert (instance(tracefs, "reads") / "options/overwrite").read_text() == "0"


def test_the_sample_of_reads_does_not_grow_with_the_cpus() -> None:
    """256 busy CPUs: 770000 lines, five seconds of a CPU for each interval of two."""
    assert [watch_trace.reads_kb(n) for n in (1, 16, 64, 256, 1024)] == [256, 256, 64, 16, 16]
    # 256 CPUs had 256 MiB of the kernel's memory.
    assert [watch_trace.dirty_kb(n) for n in (1, 16, 64, 256, 1024)] == [1024, 1024, 256, 64, 64]


def test_without_tracefs(tmp_path: Path) -> None:
    with pytest.raises(WbError, match="tracing is missing: mount tracefs"):
        Trace(Machine(tmp_path))


def test_without_the_tracepoint(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/tracing/events/block").mkdir(parents=True)
    with pytest.raises(WbError, match="no tracepoint writeback:balance_dirty_pages"):
        Trace(Machine(tmp_path))
