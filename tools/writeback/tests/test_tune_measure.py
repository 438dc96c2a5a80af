# SPDX-License-Identifier: GPL-2.0
"""Measuring: bounded, and nothing left behind, also when it is interrupted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wblib.errors import WbError
from wblib.paths import TOOLS
from wbtop import tune_measure


def test_measures_and_cleans_up(tmp_path: Path) -> None:
    start = time.monotonic()
    m = tune_measure.measure(tmp_path, max_mib=16, max_seconds=5)
    assert time.monotonic() - start < 20
    assert m.mib <= 16
    assert m.write_mbps > 0
    assert m.read_p50_us is None or m.read_p50_us > 0
    assert list(tmp_path.iterdir()) == []


def test_without_o_direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_measure, "_direct_works", lambda path: False)
    m = tune_measure.measure(tmp_path, max_mib=16, max_seconds=4, zeros=True)
    assert not m.direct
    assert m.write_mbps > 0
    assert list(tmp_path.iterdir()) == []


def test_error_in_a_writer_is_raised_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, buffers: object, offset: int) -> int:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(tune_measure, "_direct_works", lambda path: True)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space"):
        tune_measure.measure(tmp_path, max_mib=16, max_seconds=5)
    assert list(tmp_path.iterdir()) == []


def test_size_leaves_room() -> None:
    assert tune_measure.size_mib(256, 100 << 30) == 256
    assert tune_measure.size_mib(256, 1 << 30) == 102
    with pytest.raises(WbError, match="measuring needs at least 160"):
        tune_measure.size_mib(256, 100 << 20)


def test_too_slow_says_so(tmp_path: Path) -> None:
    with pytest.raises(WbError, match="raise --max-seconds"):
        tune_measure.measure(tmp_path, max_mib=16, max_seconds=1e-6)
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
