# SPDX-License-Identifier: GPL-2.0
"""wb report: bad input is one line that says what to do, and writes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import report_tree

from wblib import cli
from wblib.report import collect, command

pytest.importorskip("matplotlib")


def fails(where: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int = 1) -> None:
    """``wb report`` of ``where`` ends with one line that has ``words``."""
    out = where.parent / "page"
    assert cli.main(["report", str(where), "-o", str(out)]) == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    assert all(w in err for w in words), err
    assert not out.exists()


def cut(path: Path, keep: float = 0.6) -> Path:
    path.write_bytes(path.read_bytes()[:int(keep * path.stat().st_size)])
    return path


@pytest.mark.parametrize(("name", "words"), [
    ("nowhere/at/all", ("no such result",)), ("x.json", ("no such result",)), ("frozen", ("no results for 'frozen'",))])
def test_nothing_there(name: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
                       capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", name]) in (1, 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert all(w in err for w in words)


def test_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", capsys, "no finished results", "wb bench demo")


def test_no_results_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    for module in (collect, command):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    assert cli.main(["report"]) == 1
    assert "no finished results below results/" in capsys.readouterr().err


def test_truncated_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = report_tree.ext4(tmp_path / "results", "stock")
    cut(data.parent / "result.json")
    fails(tmp_path / "results", capsys, "result.json is truncated or not JSON", "run the case again")


def test_not_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text('{"case": 5}')
    fails(tmp_path / "a.json", capsys, "is not a result of wb", "run the case again")


def test_nothing_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report_tree.place(tmp_path / "results", "wbdisk", "stock", 1, {})
    fails(tmp_path / "results", capsys, "none of these results measured anything", "wb bench demo")


def _fio(root: Path) -> Path:
    return report_tree.read_latency(root, "disk=fifo", "stock", 1, 30) / "fio.json"


def _control(root: Path) -> Path:
    data = report_tree.read_latency(root, "disk=fifo trace-control=1", "stock", 1, 30)
    report_tree.recording(data, 30, limit=True)
    (data / "control.csv").write_text("1.0,queue\n")
    return data / "control.csv"


def _samples(root: Path) -> Path:
    return report_tree.dirty_limits(root, "stock") / "dirty_10_20.csv"


def _pauses(root: Path) -> Path:
    return report_tree.dirty_ratio(root, "stock") / "throttle_20.txt"


def _marks(root: Path) -> Path:
    return report_tree.dirty_time(root, "patched") / "step.marks"


@pytest.mark.parametrize(("make", "keep"), [
    (_fio, 0.5), (_fio, 0.0), (_control, 1.0), (_samples, 0.5017), (_samples, 0.0), (_pauses, 0.93), (_marks, 0.7)])
def test_truncated_data(make: Callable[[Path], Path], keep: float, tmp_path: Path,
                        capsys: pytest.CaptureFixture[str]) -> None:
    cut(make(tmp_path / "results"), keep)
    fails(tmp_path / "results", capsys, "run the case again")


def test_help_names_what_it_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["report", "--help"])
    out = capsys.readouterr().out
    assert "index.html" in out
    assert "exit code" in out
