# SPDX-License-Identifier: GPL-2.0
"""Measuring: bounded, and nothing left behind, also when it is interrupted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wblib.base.paths import TOOLS
from wbtop.errors import WbError
from wbtop.tune import measure


def test_measures_and_cleans_up(tmp_path: Path) -> None:
    start = time.monotonic()
    m = measure.measure(tmp_path, max_mib=16, max_seconds=5)
    assert time.monotonic() - start < 20
    assert m.mib <= 16
    assert m.write_mbps > 0
    assert m.read_p50_us is None or m.read_p50_us > 0
    assert m.loaded_drain_mbps_each
    assert min(m.loaded_drain_mbps_each) <= (m.loaded_drain_mbps or 0) <= max(m.loaded_drain_mbps_each)
    assert m.loaded_stable in (True, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [10, 99, 100])
def test_a_p99_of_few_fsyncs_is_none(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the slowest of ten."""
    monkeypatch.setattr(measure, "_fsyncs", lambda *_: [float(n) for n in range(count)])
    m = measure.measure(tmp_path, max_mib=16, max_seconds=2)
    assert m.fsync_p50_us is not None
    assert (m.fsync_p99_us is None) is (count < 100)


def test_the_interval_of_a_median() -> None:
    # The textbook's ranks for the sign test: 1 and 6 of 6, 2 and 9 of 10, 4 and 13 of 16.
    assert measure.median_interval(range(1, 6)) is None
    assert measure.median_interval(range(6, 0, -1)) == (1, 6)
    assert measure.median_interval(range(1, 11)) == (2, 9)
    assert measure.median_interval(range(1, 17)) == (4, 13)


def test_stable() -> None:
    steady = [100.0, 101, 99, 100, 98, 102]
    assert measure.stable(steady, [10.0, 12, 11, 15, 9, 13])
    assert measure.stable(steady, [])
    assert not measure.stable(steady[:5], [])
    assert not measure.stable([100.0, 130, 90, 60, 100, 100], [])
    assert not measure.stable(steady, [460.0, 7800, 500, 900, 3000, 480])
    # Most of many agree: two outliers do not keep it from being stable.
    assert measure.stable([100.0] * 8 + [20.0, 300.0], [])


def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drains: list[float], left: float = 1e9,
           ) -> measure.Rounds:
    """What is made of rounds that drain so much, with 200 reads of 1 ms each."""
    given = iter(drains)

    def loaded(place: Path, *_: object) -> tuple[list[float], float]:
        (place / "loaded").write_bytes(b"x")
        return [1000.0] * 200, next(given)
    monkeypatch.setattr(measure, "_loaded", loaded)
    found = measure._rounds(tmp_path, 1, 1, True, [], measure.Budget(1, time.monotonic() + left))
    assert not list(tmp_path.iterdir())
    return found


def test_a_steady_disk_needs_six_rounds_and_a_noisy_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(rounds(tmp_path, monkeypatch, [358.0] * 99).drain) == measure.LEAST_ROUNDS
    noisy = rounds(tmp_path, monkeypatch, [100.0, 400.0] * 50)
    assert len(noisy.drain) == measure.MOST_ROUNDS
    assert not noisy.stable()
    # When the time is over the first round counts, as there is nothing else.
    assert rounds(tmp_path, monkeypatch, [5.0] * 99, left=-1).drain == [5.0]


def test_a_round_with_too_few_reads_is_not_left_out_of_a_quantile() -> None:
    found = measure.Rounds()
    for count in (500, 500, 40):  # the third one had the long waits
        found.add([100.0] * count, 300.0)
    assert found.of_all("p99") == ()
    assert found.of_all("p90") == (100.0, 100.0, 100.0)
    found.add([100.0], 300.0)
    assert found.of_all("p50") == ()


def test_without_o_direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_direct_works", lambda path: False)
    m = measure.measure(tmp_path, max_mib=16, max_seconds=4, zeros=True, loaded_mib=2)
    assert not m.direct
    assert m.loaded_mib == 2
    assert m.write_mbps > 0
    assert list(tmp_path.iterdir()) == []


def test_error_in_a_writer_is_raised_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, buffers: object, offset: int) -> int:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(measure, "_direct_works", lambda path: True)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(WbError, match=rf"{tmp_path}: No space"):
        measure.measure(tmp_path, max_mib=16, max_seconds=5)
    assert list(tmp_path.iterdir()) == []


def test_size_leaves_room() -> None:
    assert measure.size_mib(256, 100 << 30) == 256
    assert measure.size_mib(256, 1 << 30) == 102
    with pytest.raises(WbError, match="measuring needs at least 160"):
        measure.size_mib(256, 100 << 20)


def test_too_slow_says_so(tmp_path: Path) -> None:
    with pytest.raises(WbError, match="raise --max-seconds"):
        measure.measure(tmp_path, max_mib=16, max_seconds=1e-6)
    assert list(tmp_path.iterdir()) == []


def _signals_as_in_a_terminal() -> None:
    """Whatever these tests were started from ignores: nohup, a shell's background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """A signal in the middle of it leaves no file."""
    proc = subprocess.Popen([sys.executable, str(TOOLS / "wb"), "tune", str(tmp_path), "--max-mib", "256",
                             "--max-seconds", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=_signals_as_in_a_terminal)
    end = time.monotonic() + 30
    while not list(tmp_path.iterdir()) and proc.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    proc.send_signal(number)
    _, err = proc.communicate(timeout=60)
    # On a disk that is not of this machine it ends before; then there was nothing to interrupt.
    assert proc.returncode in (1, 130), err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
