# SPDX-License-Identifier: GPL-2.0
"""Events by their format: 5.10 to 6.12 and 6.18, renamed, reordered and unknown fields."""

import json
import time
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from wbtop.cli import main
from wbtop.errors import WbError
from wbtop.watch import openmetrics, sample
from wbtop.watch.events import parse_format
from wbtop.watch.report import report
from wbtop.watch.trace import SLEEP_EVENT, _format, parse_reads, parse_sleeps
from wbtop.watch.view import render

OLD = ('print fmt: "bdi %s: limit=%lu setpoint=%lu dirty=%lu bdi_setpoint=%lu bdi_dirty=%lu dirty_ratelimit=%lu '
       'task_ratelimit=%lu dirtied=%u dirtied_pause=%u paused=%lu pause=%ld period=%lu think=%ld cgroup_ino=%lu", '
       'REC->bdi, REC->limit, REC->setpoint, REC->dirty, REC->bdi_setpoint, REC->bdi_dirty, REC->dirty_ratelimit, '
       'REC->task_ratelimit, REC->dirtied, REC->dirtied_pause, REC->paused, REC->pause, REC->period, REC->think, '
       '(unsigned long)REC->cgroup_ino\n')
# As /sys/kernel/tracing/events/writeback/balance_dirty_pages/format of 6.18 has it.
NEW = OLD.replace("bdi_setpoint", "wb_setpoint").replace("bdi_dirty", "wb_dirty")
# Invented: other order, one more field, hexadecimal.
LATER = ('print fmt: "bdi %s: pause=%ld flags=0x%x wb_dirty=%lu dirty=%lu cgroup_ino=%llu state=%s", REC->bdi, '
         'REC->pause, REC->flags, REC->wb_dirty, REC->dirty, REC->cgroup_ino, __print_flags(REC->s, "|", {1, "a,b"})\n')
HEAD = "              dd-111     [000] .....    12.345678: balance_dirty_pages: "
VALUES = ("limit=8192 setpoint=7168 dirty=7600 {0}_setpoint=7000 {0}_dirty=7500 dirty_ratelimit=40960 "
          "task_ratelimit=38912 dirtied=512 dirtied_pause=512 paused=0 pause=16 period=20 think=4 cgroup_ino=1")


@pytest.mark.parametrize(("form", "line"), [
    (OLD, "bdi 8:0: " + VALUES.format("bdi")), (NEW, "bdi 8:0: " + VALUES.format("wb")),
    (LATER, "bdi 8:0: pause=16 flags=0x1f wb_dirty=7500 dirty=7600 cgroup_ino=1 state=a,b|x")],
    ids=["5.10-6.12", "6.18", "later"])
def test_each_kernel_prints_it_its_own_way(form: str, line: str) -> None:
    parsed = parse_format("name: balance_dirty_pages\n" + form)
    assert parsed is not None
    found, lost, unknown = parse_sleeps([HEAD + line], parsed)
    assert [(s.bdi, s.pause_ms, s.dirty, s.bdi_dirty, s.cgroup) for s in found] == [("8:0", 16, 7600, 7500, 1)]
    assert (lost, unknown) == (0, 0)


def test_what_is_not_understood_is_counted_and_said(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    _, _, unknown = parse_sleeps([HEAD + "bdi 8:0: " + VALUES.format("wb")], parse_format(OLD))
    assert unknown == 1
    from wbtop.watch.report import Traced
    now = sample.sample(fake.machine, counters=False)
    notes = report(now, now, Traced([], 0, {}, lambda _: None, {}, unknown))["notes"]
    assert any("1 trace lines were not understood" in n for n in notes)


def test_a_format_without_what_is_needed_is_an_error(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write(f"/sys/kernel/tracing/{SLEEP_EVENT}/format", OLD.replace("pause=%ld", "sleep=%ld")
               .replace("REC->pause", "REC->sleep"))
    from wbtop.watch.events import SLEEP_FORMAT
    with pytest.raises(WbError, match="has no pause"):
        _format(fake.machine, SLEEP_EVENT, SLEEP_FORMAT)


def test_reads_of_5_10() -> None:
    forms = {"block_bio_queue": parse_format('print fmt: "%d,%d %s %llu + %u [%s]", ((unsigned int) ((REC->dev) >> 20))'
                                             ', ((unsigned int) ((REC->dev) & ((1U << 20) - 1))), REC->rwbs, '
                                             '(unsigned long long)REC->sector, REC->nr_sector, REC->comm\n'),
             "block_rq_complete": parse_format('print fmt: "%d,%d %s (%s) %llu + %u [%d]", REC->dev >> 20, REC->dev, '
                                               'REC->rwbs, __get_str(cmd), REC->sector, REC->nr_sector, REC->error\n')}
    lines = ["  fio-9 [001] ..... 1.000000: block_bio_queue: 8,0 R 2048 + 8 [fio]",
             "  fio-9 [001] d.h.. 1.000500: block_rq_complete: 8,0 R () 2048 + 8 [0]",
             "  fio-9 [001] d.h.. 1.000500: block_rq_complete: garbage"]
    assert all(forms.values())
    found, unknown = parse_reads(lines, None, {k: v for k, v in forms.items() if v})
    assert {k: [round(t) for t in v] for k, v in found.items()} == {"8:0": [500]}
    assert unknown == 1


def test_every_bdi_has_a_name(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/self/mountinfo", fake.read("/proc/self/mountinfo")
               + "40 1 0:52 / /mnt/my\\040nas rw shared:1 - nfs4 nas:/x rw\n41 1 0:53 / /b rw - btrfs /dev/sdb rw\n")
    for bdi in ("0:52", "btrfs-1", "7:0"):
        fake.write(f"/sys/class/bdi/{bdi}/max_ratio", "1\n")
    fake.write("/proc/diskstats", fake.read("/proc/diskstats") + "   7 0 loop0 1 0 8 1 1 0 8 1 0 1 1 0 0 0 0 0 0\n")
    fake.write("/sys/block/loop0/loop/backing_file", "/srv/x.img\n")
    found = sample.sample(fake.machine, counters=False).devices
    assert {d.bdi: (d.name, d.what) for d in found.values()} == {
        "8:0": ("sda", ""), "0:52": ("0:52", "nfs4 /mnt/my nas"), "btrfs-1": ("btrfs-1", "btrfs /b"),
        "7:0": ("loop0", "/srv/x.img")}
    assert found["0:52"].limited is None


def test_writers_are_named_without_a_sleep(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.write("/proc/9/comm", "dd\n")
    fake.write("/proc/9/io", "write_bytes: 1000\ncancelled_write_bytes: 0\n")
    fake.write("/proc/pressure/io", "some avg10=0 avg60=0 avg300=0 total=0\nfull avg10=0 avg60=0 avg300=0 total=0\n")
    old = sample.sample(fake.machine, counters=False)
    time.sleep(0.01)
    fake.write("/proc/9/io", "write_bytes: 9001000\ncancelled_write_bytes: 0\n")
    fake.write("/proc/pressure/io", "some avg10=0 avg60=0 avg300=0 total=5000\nfull avg10=0 avg60=0 avg300=0 total=0\n")
    found = report(old, sample.sample(fake.machine, counters=False), None)
    assert [(w["pid"], w["comm"]) for w in found["writers"]] == [(9, "dd")]
    assert found["writers"][0]["dirty_rate"] > 1e6
    assert found["pressure"]["io"]["some"] > 0
    text = openmetrics.text(found)
    assert text.endswith("# EOF\n")
    assert 'wb_pressure_ratio{resource="io",kind="some"}' in text
    for columns in (40, 60, 80):
        assert max(map(len, render(found, columns).splitlines())) <= columns


def test_record_and_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeMachine(tmp_path / "m")
    words = ["--root", str(fake.root), "--interval", "0.1", "--record", str(tmp_path / "r.jsonl"),
             "--openmetrics", str(tmp_path / "wb.prom")]
    assert main(["watch", "--count", "2", *words]) == 0
    capsys.readouterr()
    assert main(["watch", str(tmp_path / "r.jsonl"), "--json"]) == 0
    assert [json.loads(line)["version"] for line in capsys.readouterr().out.splitlines()] == [2, 2]
    with (tmp_path / "r.jsonl").open("a") as f:
        f.write('{"cut')
    assert main(["watch", str(tmp_path / "r.jsonl")]) == 0
    assert "left out, as not whole: line 3" in capsys.readouterr().err
    # As a full disk does; the recording goes on later.
    assert main(["watch", "--count", "2", *words]) == 0
    capsys.readouterr()
    assert main(["watch", str(tmp_path / "r.jsonl"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 4
    assert "left out, as not whole: line 3" in err
    assert [p.name for p in tmp_path.glob("*.prom*")] == ["wb.prom"]
    (tmp_path / "bad").write_text("[]\n")
    assert main(["watch", str(tmp_path / "bad")]) == 2


def test_a_recording_has_no_idle_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A night with 400 of them was 0.9 GB."""
    fake = FakeMachine(tmp_path / "m")
    for n in range(16, 20):
        fake.write(f"/sys/class/bdi/8:{n}/max_ratio", "100\n")
        fake.write(f"/sys/kernel/debug/bdi/8:{n}/stats", f"BdiReclaimable: {4 * (n == 17)} kB\nBdiWriteback: 0 kB\n")
    words = ["--root", str(fake.root), "--interval", "0.1", "--json", "--count", "1", "--record", str(tmp_path / "r")]
    assert main(["watch", *words]) == 0
    assert len(json.loads(capsys.readouterr().out)["devices"]) == 5
    assert [d["bdi"] for d in json.loads((tmp_path / "r").read_text())["devices"]] == ["8:17"]


@pytest.fixture(name="night")
def _night(tmp_path: Path) -> Path:
    """Three reports: calm, one with two findings, and one of an earlier version with one."""
    fake = FakeMachine(tmp_path / "m")
    look = sample.sample(fake.machine, counters=False)
    found = report(look, look, None) | {"source": "tracepoints"}
    late = {"what": "reads of sda wait behind \x1b[2J writeback", "fix": "wb tune"}
    old = {k: v for k, v in found.items() if k != "findings"}
    reports = [found, found | {"findings": [late, {"what": "dd (7) sleeps 90 % of the time", "fix": "x"}]},
               old | {"diagnosis": late}]
    path = tmp_path / "night.jsonl"
    path.write_text("".join(json.dumps(r | {"time": f"2026-11-29T0{n}:00:00+0000"}) + "\n"
                            for n, r in enumerate(reports)))
    return path


def test_the_findings_of_a_night(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """43200 lines for 4320 reports, and grep lost the time."""
    assert main(["watch", "--findings", str(night)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["2026-11-29T01:00:00+0000 => reads of sda wait behind ?[2J writeback",
                                "2026-11-29T01:00:00+0000 => dd (7) sleeps 90 % of the time",
                                "2026-11-29T02:00:00+0000 => reads of sda wait behind ?[2J writeback"]
    assert err == "wb watch: 2 of 3 reports have findings\n"
    assert main(["watch", str(night), "--findings", "--json"]) == 0
    assert [json.loads(line)["time"][12] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]
    assert main(["watch", str(night)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("--")] == [
        f"-- report {n}, 2026-11-29T0{n - 1}:00:00+0000" for n in (1, 2, 3)]


def test_findings_are_of_a_recording(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--findings"]) == 2
    assert "--findings: of a recording only" in capsys.readouterr().err
    night.write_text("[]\n")
    assert main(["watch", str(night), "--json"]) == 2
    assert "no line is one of" in capsys.readouterr().err


def test_a_recording_whose_first_line_is_cut(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of logrotate or a full disk: all that followed could not be read."""
    lines = night.read_text().splitlines()
    far = json.dumps(json.loads(lines[0]) | {"dirty": dict.fromkeys(
        ("limit", "background", "freerun", "dirty", "writeback"), float("inf")) | {"state": ""}})
    night.write_text("\n".join([lines[0][40:], *lines, far]) + "\n")
    assert main(["watch", str(night), "--findings"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert err == f"wb watch: {night}: left out, as not whole: line 1\nwb watch: 2 of 4 reports have findings\n"
    assert main(["watch", str(night)]) == 0
    assert "left out, as not whole: line 1, 5" in capsys.readouterr().err


def test_a_night_that_nobody_could_see(night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without tracefs "0 of 2 reports have findings" read as if all was well."""
    fake = FakeMachine(tmp_path / "m2")
    assert main(["watch", "--root", str(fake.root), "--no-trace", "--interval", "0.1", "--count", "2", "--record",
                 str(tmp_path / "r"), "--openmetrics", str(tmp_path / "wb.prom")]) == 0
    assert "\nwb_slept_known 0\n" in (tmp_path / "wb.prom").read_text()
    capsys.readouterr()
    assert main(["watch", str(tmp_path / "r"), "--findings"]) == 1
    assert "0 of 2 reports have findings; in 2 of 2 it is not known who slept: no tracing and no counters" in \
        capsys.readouterr().err
    (tmp_path / "r").write_text(night.read_text() + (tmp_path / "r").read_text())
    assert main(["watch", str(tmp_path / "r"), "--findings"]) == 0
    assert "2 of 5 reports have findings; in 2 of 5 it is" in capsys.readouterr().err


def test_a_recording_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("read whole"))
    assert main(["watch", str(tmp_path / "none")]) == 2
    (tmp_path / "bad").write_text("[]\n")
    assert main(["watch", str(tmp_path / "bad")]) == 2
