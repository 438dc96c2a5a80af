# SPDX-License-Identifier: GPL-2.0
"""wb watch at a terminal: q ends it, it follows the size, and the terminal is as before, however it ends."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from fake_machine import FakeMachine

from wbtop.cli import main
from wbtop.watch import live, openmetrics
from wbtop.watch.events import COMPLETE_FORMAT, parse_format
from wbtop.watch.trace import _READ_NEEDED, Sleep, parse_reads

TOP = Path(__file__).resolve().parents[2]
WB = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(TOP)!r})\nfrom wbtop.cli import main\n"
      "sys.exit(main())"]


class Terminal:
    """``wb watch`` with a terminal of its own."""

    def __init__(self, root: Path, *more: str, columns: int = 80, stderr: IO[str] | None = None) -> None:
        self.mine, theirs = pty.openpty()
        self.size(columns)
        self.before = termios.tcgetattr(theirs)
        self.text = ""
        self.theirs = theirs

        def control() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
        self.proc = subprocess.Popen(
            [*WB, "watch", "--root", str(root), *more], stdin=theirs, stdout=theirs, stderr=stderr or theirs,
            preexec_fn=control, env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")})

    def size(self, columns: int) -> None:
        fcntl.ioctl(self.mine, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def until(self, count: int, seconds: float = 20) -> str:
        """All text once ``count`` screens are complete; the last of them."""
        end = time.monotonic() + seconds
        while self.text.count("q: quit") < count and time.monotonic() < end:
            if select.select([self.mine], [], [], 0.1)[0]:
                self.text += os.read(self.mine, 65536).decode()
        assert self.text.count("q: quit") >= count, self.text
        return self.text.split("\x1b[H\x1b[J")[-1]

    def end(self) -> int:
        """The exit code; the terminal has to be as before."""
        code = self.proc.wait(20)
        assert termios.tcgetattr(self.theirs) == self.before
        return code


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    return FakeMachine(tmp_path / "machine").root


@pytest.fixture(name="started")
def _started(root: Path) -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        if terminal.proc.poll() is None:
            terminal.proc.kill()
            terminal.proc.wait()
        os.close(terminal.mine)
        os.close(terminal.theirs)


@pytest.mark.parametrize("key", [b"q", b"Q"])
def test_q_ends_it_at_once(key: bytes, root: Path, started: list[Terminal]) -> None:
    started.append(Terminal(root, "--interval", "0.3"))
    started[0].until(1)
    assert termios.tcgetattr(started[0].theirs) != started[0].before
    os.write(started[0].mine, b"x")
    started[0].until(2)
    os.write(started[0].mine, key)
    assert started[0].end() == 0
    assert "Traceback" not in started[0].text


def test_a_single_report_comes_whatever_is_typed(root: Path, started: list[Terminal]) -> None:
    started.append(Terminal(root, "--interval", "0.5", "--once"))
    os.write(started[0].mine, b"q\n\x04")
    assert started[0].end() == 0
    os.set_blocking(started[0].mine, False)
    assert b"wb watch: " in os.read(started[0].mine, 65536)


def test_the_view_is_not_higher_than_the_terminal(root: Path, started: list[Terminal]) -> None:
    for n in range(200, 240):
        for name, text in ((f"sys/class/bdi/0:{n}/max_ratio", "100\n"),
                           (f"sys/kernel/debug/bdi/0:{n}/stats", "BdiReclaimable: 2048 kB\nBdiWriteback: 0 kB\n")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    started.append(Terminal(root, "--interval", "0.3", "--no-trace"))
    screen = started[0].until(1)
    assert len(screen.split("\n")) <= 24
    assert screen.startswith("wb watch: ")
    assert "=>" in screen
    os.write(started[0].mine, b"q")
    assert started[0].end() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0)])
def test_signals_put_the_terminal_back(number: signal.Signals, code: int, root: Path,
                                       started: list[Terminal]) -> None:
    started.append(Terminal(root, "--interval", "0.3"))
    started[0].until(1)
    started[0].proc.send_signal(number)
    assert started[0].end() == code


def test_ctrl_z_and_fg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell had a terminal without echo, and after fg q did nothing."""
    mine, theirs = pty.openpty()
    keys = live.Keys(wanted=False)
    keys._fd, keys._old = theirs, termios.tcgetattr(theirs)
    tty.setcbreak(theirs)
    stopped: list[object] = []
    monkeypatch.setattr(live.signal, "signal", lambda *_: None)
    monkeypatch.setattr(live.os, "tcgetpgrp", lambda _: os.getpgrp())
    monkeypatch.setattr(live.os, "kill", lambda pid, number: stopped.append((pid, number, termios.tcgetattr(theirs))))
    try:
        keys._on_stop()
        assert stopped == [(os.getpid(), signal.SIGTSTP, keys._old)]
        assert not termios.tcgetattr(theirs)[3] & termios.ECHO
        assert keys.wait(1) == "resize"  # draws at once what the shell has overwritten
    finally:
        os.close(mine)
        os.close(theirs)


def test_a_terminal_that_is_closed_is_no_traceback(root: Path, tmp_path: Path, started: list[Terminal]) -> None:
    with (tmp_path / "said").open("w") as said:
        terminal = Terminal(root, "--interval", "0.3", stderr=said)
    started.append(terminal)
    terminal.until(1)
    os.close(terminal.theirs)
    os.close(terminal.mine)
    assert terminal.proc.wait(20) == 0
    assert "Traceback" not in (tmp_path / "said").read_text()
    started.clear()


def test_a_new_size_is_used_at_once(root: Path, started: list[Terminal]) -> None:
    started.append(Terminal(root, "--interval", "1.5"))
    first = started[0].until(1)
    assert 50 < max(len(line) for line in first.splitlines()) <= 80
    started[0].size(44)
    start = time.monotonic()
    second = started[0].until(2)
    # Not at the next report, and of the numbers that were there.
    assert time.monotonic() - start < 1.2
    assert max(len(line) for line in second.splitlines()) <= 44
    def numbers(text: str) -> list[str]:
        return re.findall(r"[0-9.]+ s,|limit [0-9.]+", " ".join(text.split()))
    assert numbers(first) == numbers(second)
    os.write(started[0].mine, b"q")
    assert started[0].end() == 0


def test_without_a_terminal_there_are_no_keys_and_no_escapes(root: Path) -> None:
    done = subprocess.run([*WB, "watch", "--root", str(root), "--interval", "0.1", "--count", "2"], input="q",
                          capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.count("wb watch: ") == 2
    assert "\x1b" not in done.stdout
    assert "q: quit" not in done.stdout


def test_once_and_json_lines(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["watch", "--root", str(root), "--interval", "0.1", "--json"]
    assert main([*words, "--count", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(json.loads(line)["diagnosis"]["what"] for line in lines)
    assert main([*words, "--once"]) == 0
    once = capsys.readouterr().out
    assert once.count("\n") > 10
    assert json.loads(once).keys() == json.loads(lines[0]).keys()


# Of the text format of OpenMetrics, what a scraper refuses.
SAMPLE = re.compile(r'([a-z_]+)(\{([a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+\})? (-?[0-9.]+(?:e[+-]?[0-9]+)?)')


def test_openmetrics_is_what_a_scraper_takes(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--root", str(root), "--once", "--interval", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    found["devices"][0]["name"] = 'a"b\\c\nd'
    *lines, end = openmetrics.text(found).splitlines()
    assert end == "# EOF"
    family, seen = "", set()
    for line in lines:
        if line.startswith("# TYPE "):
            family = line.split()[2]
            assert line == f"# TYPE {family} gauge"
            assert family not in seen, "a family stands in one place"
            seen.add(family)
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == family
    assert {"wb_dirty_bytes", "wb_dirty_limit_bytes", "wb_device_write_bytes_per_second"} <= seen
    assert 'device="a\\"b\\\\c\\nd"' in "\n".join(lines)


# As /sys/kernel/tracing/events/block/block_rq_complete/format has it; before 6.9 without the priority.
RQ = {
    "5.10, 5.15": ('"%d,%d %s (%s) %llu + %u [%d]", ((unsigned int) ((REC->dev) >> 20)), ((unsigned int) ((REC->dev) & '
                   '((1U << 20) - 1))), REC->rwbs, __get_str(cmd), (unsigned long long)REC->sector, REC->nr_sector, '
                   'REC->error', "8,0 R () 2048 + 8 [0]"),
    "6.18": ('"%d,%d %s (%s) %llu + %u %s,%u,%u [%d]", ((unsigned int) ((REC->dev) >> 20)), ((unsigned int) '
             '((REC->dev) & ((1U << 20) - 1))), REC->rwbs, __get_str(cmd), (unsigned long long)REC->sector, '
             'REC->nr_sector, __print_symbolic((((REC->ioprio) >> 13) & (8 - 1)), { IOPRIO_CLASS_NONE, "none" }, '
             '{ IOPRIO_CLASS_RT, "rt" }, { IOPRIO_CLASS_BE, "be" }, { IOPRIO_CLASS_IDLE, "idle" }, '
             '{ IOPRIO_CLASS_INVALID, "invalid"}), (((REC->ioprio) >> 3) & ((1 << 10) - 1)), '
             '((REC->ioprio) & ((1 << 3) - 1)), REC->error', "8,0 R () 2048 + 8 none,0,0 [0]"),
}


@pytest.mark.parametrize("kernel", RQ)
def test_the_end_of_a_read_on_each_kernel(kernel: str) -> None:
    form, printed = RQ[kernel]
    complete = parse_format(f"name: block_rq_complete\nprint fmt: {form}\n")
    assert complete
    assert complete.lacks(_READ_NEEDED) == []
    queue = parse_format('print fmt: "%d,%d %s %llu + %u [%s]", REC->dev >> 20, REC->dev, REC->rwbs, REC->sector, '
                         "REC->nr_sector, REC->comm\n")
    assert queue
    found, unknown = parse_reads(["  fio-9 [001] ..... 1.000000: block_bio_queue: 8,0 R 2048 + 8 [fio]",
                                  f"  fio-9 [001] d.h.. 1.000500: block_rq_complete: {printed}"], None,
                                 {"block_bio_queue": queue, "block_rq_complete": complete})
    assert {k: [round(t) for t in v] for k, v in found.items()} == {"8:0": [500]}
    assert unknown == 0
    assert parse_format(COMPLETE_FORMAT)


def test_sleeps_before_the_interval_do_not_count(root: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    class Before:
        """A trace in which a task slept between its start and the first sample, and never again."""

        def __init__(self, _machine: object) -> None:
            self.notes: list[str] = []
            self.waiting = [Sleep(7, "dd", "8:0", 900, 10**6, 0, 0, 1)]

        def __enter__(self) -> "Before":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def sleeps(self) -> tuple[list[Sleep], int, int]:
            found, self.waiting = self.waiting, []
            return found, 0, 0

        def reads(self) -> tuple[dict[str, list[float]], int]:
            return {}, 0
    monkeypatch.setattr("wbtop.watch.command.Trace", Before)
    assert main(["watch", "--root", str(root), "--once", "--interval", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["tasks"]) == ("tracepoints", [])
