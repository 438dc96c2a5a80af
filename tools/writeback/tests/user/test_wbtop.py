# SPDX-License-Identifier: GPL-2.0
"""The user's part stands alone: no import of the rig, and syntax of Python 3.9."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_machine import FakeMachine, measured

from wblib import cli as rig
from wblib.ship import package
from wbtop import cli as user

TOP = Path(__file__).resolve().parents[2] / "wbtop"


@pytest.mark.parametrize("path", sorted(TOP.rglob("*.py")), ids=lambda p: str(p.relative_to(TOP)))
def test_a_module_stands_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
            [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names | {"wbtop"}, name


def test_version_and_help_without_the_rig(tmp_path: Path) -> None:
    def wb(*words: str) -> str:
        return subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(TOP.parent)!r})\n"
                               "sys.modules['wblib'] = None\nfrom wbtop.cli import main\nsys.exit(main())", *words],
                              cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert wb("--version").startswith("wb ")
    assert "--simulate" not in wb("tune", "--help")
    assert "--once" in wb("watch", "--help")


def python(minor: int) -> str:
    """That interpreter, if it is here and starts; pyenv has names without one behind them."""
    found = shutil.which(f"python3.{minor}")
    if not found or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no python3.{minor} here")
    return found


@pytest.mark.parametrize("minor", [8, 9, 10, 12, 13, 14])
def test_other_interpreters(minor: int, tmp_path: Path) -> None:
    single = tmp_path / "wb"
    single.write_bytes(package.zipapp())

    def wb(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([python(minor), str(single), *words], capture_output=True, text=True, check=False)
    if minor < 9:
        done = wb("--version")
        assert (done.returncode, done.stderr) == (1, "wb: Python 3.9 or newer is needed\n")
        return
    assert wb("--version").stdout.startswith("wb ")
    assert all(wb(c, "--help").returncode == 0 for c in ("watch", "tune", "field"))
    fake = FakeMachine(tmp_path / "m")
    found = wb("watch", "--root", str(fake.root), "--once", "--json", "--interval", "0.1")
    assert json.loads(found.stdout)["version"] == 2
    if os.geteuid() == 0:
        assert "reads" in wb("tune", str(tmp_path), "--max-mib", "16", "--max-seconds", "2", "--root",
                             str(fake.root), "--dev", "8:1").stdout


def test_standard_files_that_are_closed(tmp_path: Path) -> None:
    """wb ... >&- had ended with a traceback."""
    fake = FakeMachine(tmp_path / "m")
    words = f"{sys.executable} -m wbtop watch --root {fake.root} --count 1 --interval 0.1"
    for redirect in (">&-", "<&-", ">&- 2>&- <&-"):
        done = subprocess.run(["sh", "-c", f"{words} {redirect}"], cwd=TOP.parent, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, (redirect, done.stderr)
        assert "Traceback" not in done.stderr
    done = subprocess.run(["sh", "-c", f"{words} > /dev/full"], cwd=TOP.parent, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "wb: No space left on device")


@pytest.mark.parametrize("encoding", ["utf-8:strict", "latin-1:strict", "ascii"])
def test_names_that_the_locale_cannot_print(encoding: str, tmp_path: Path) -> None:
    """A directory that is not UTF-8, a task with a Chinese name: a traceback, after the measurement."""
    fake = FakeMachine(tmp_path / "m")
    name = fake.root / "srv\udcff \u8fdb"
    name.mkdir()
    (tmp_path / "m.json").write_text(json.dumps(measured().to_json()))
    done = subprocess.run([sys.executable, "-m", "wbtop", "tune", str(name), "--measured", str(tmp_path / "m.json"),
                           "--root", str(fake.root), "--dev", "8:1"], cwd=TOP.parent, capture_output=True,
                          env={**os.environ, "PYTHONIOENCODING": encoding}, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"nothing was changed" in done.stdout


@pytest.mark.parametrize(("main", "word", "results"), [(user.main, "watch", False), (rig.main, "watch", False),
                                                       (rig.main, "list", True)])
def test_the_hints_of_the_rig_are_for_its_commands(main: Callable[[list[str]], int], word: str, results: bool,
                                                   monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """wb watch, Ctrl-C: "finished results are kept", and a full disk was WB_BUILD's."""
    def raises(error: BaseException) -> str:
        def run(_args: object) -> int:
            raise error
        monkeypatch.setattr("wbtop.watch.command.run", run)
        monkeypatch.setattr("wblib.run.command.list_command", run)
        assert main([word])
        return capsys.readouterr().err
    assert ("results are kept" in raises(KeyboardInterrupt())) is results
    assert ("WB_RESULTS" in raises(OSError(28, "No space left on device"))) is results
