# SPDX-License-Identifier: GPL-2.0
"""Bad input to every subcommand: an exit code and at most a few lines that say why, never a traceback.

Seeded, so that a failure repeats.  Nothing is started: no guest, no build.
"""

import copy
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wblib import cli
from wblib.base.proc import sha256_text
from wblib.kernel import build as kernels
from wblib.results import store
from wbtop.errors import WbError
from wbtop.tune import command as tune

ROUNDS = 150
# No "\0": a command line cannot hold one.
TEXTS = ("", " ", "-", "--", "\n", "\x7f\x80", "a" * 5000, "../../..", "/dev/full", "/dev/null", "-1", "0", "1e9",
         "nan", "inf", "99999999999999999999", "0x10", "%s%n", "$(reboot)", "{}", "[]", "é\u202e", "1,2,x", "5-1", "=",
         "a=b=c", "'", "none", "True")
# Without --force: nothing here may reach a guest, a build or a real disk.
COMMANDS = (
    ["run"], ["run", "read-latency", "--seed"], ["run", "read-latency", "--disk"],
    ["run", "read-latency", "--disk-set"],
    ["run", "read-latency", "--cpu"], ["run", "dirty-limits", "--row"], ["run", "soak", "--hours"], ["run", "--kernel"],
    ["run", "read-latency", "--timeout"], ["run", "read-latency", "--lane"], ["run", "read-latency", "--on"],
    ["run", "fuzz", "--values"], ["list"],
    ["bench"], ["bench", "smoke", "--seeds"], ["bench", "smoke", "--kernel"], ["bench", "smoke", "-j"],
    ["compare"], ["compare", "x"], ["compare", "--metric"], ["demo"], ["demo", "--seed"], ["plot"], ["plot", "-o"],
    ["plot", "x", "-o"], ["report"], ["report", "-o"], ["check", "--tier"], ["check", "--tier", "unit", "--seed"],
    ["shell", "--kernel"], ["build", "--kernel"], ["build", "--flavour"], ["build", "-j"], ["series"],
    ["watch", "--interval"], ["watch", "--count"], ["tune", "--goal"], ["tune", "--max-mib"], ["tune", "--measured"],
    ["tune", "--seeds"], ["deb", "--kernel"], ["deb", "--config"], ["deb", "-j"], ["stress", "--kernel"],
    ["stress", "--flavour"], ["stress", "--case"], ["stress", "--seeds"], ["lab"], ["lab", "pack", "x"],
    ["lab", "kcidb", "-o", "y"],
)
GOOD = store.Result(
    "read-latency", "stock", {"disk": "fifo", "fs": "xfs", "sched": "none", "wbt": "default", "writer": "idle"}, 1,
    {"read_p50": {"value": 110.5, "unit": "us"}, "dd_mbps": {"value": 500, "unit": "MB/s"}},
    {"release": "6.12.1", "dir": "x", "wall_s": 1.5}, "pass", [{"name": "readers ran", "result": "pass"}])
MEASURED: dict[str, Any] = {
    "mib": 64, "seconds": 1.5, "direct": True, "write_mbps": 200.0, "write_first_mbps": 210.0, "read_p50_us": 100.0,
    "read_p99_us": 120.0, "fsync_p50_us": None, "fsync_p99_us": None, "loaded_p50_us": 900.0, "loaded_p99_us": 9000.0,
    "loaded_max_us": 10000.0, "loaded_drain_mbps": 190.0}
VALUES: tuple[Any, ...] = (None, True, -1, 0, 1e308, 10**400, "", "x" * 3000, [], {}, [[]], {"value": None}, "\u0000",
                            1.5)


def run(argv: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code of ``wb argv``; fails the test if it is not said in a few words."""
    try:
        code = cli.main(argv)
    except SystemExit as exc:  # argparse
        code = exc.code if isinstance(exc.code, int) else 1
    except Exception as exc:
        raise AssertionError(f"wb {argv}: {exc!r:.200}") from exc
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if code and "usage:" not in err:
        assert err.count("\n") == 1 and err.startswith("wb: "), f"wb {argv}: {err[:400]}"
    return code


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whatever gets so far that a guest or a build would start has accepted its input."""
    def accepted(*_args: object, **_kw: object) -> None:
        raise KeyboardInterrupt
    for target in ("wblib.run.runner.run_many", "wblib.run.runner.prepare", "wblib.kernel.build.build",
                   "wblib.series.command.lint", "wblib.run.local.run_here", "wblib.kernel.sources.prepare",
                   "wblib.series.worktree.export", "os.execv"):
        monkeypatch.setattr(target, accepted)
    monkeypatch.chdir(tmp_path)
    cli.parser()  # loads all commands
    for module in [m for n, m in sys.modules.items() if n.startswith("wblib.") and hasattr(m, "RESULTS")]:
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    yield


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_arguments(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    bad = 0
    for text in TEXTS:
        bad += run([*words, text], capsys) != 0
    assert bad > len(TEXTS) // 2


def mutated(rng: random.Random, good: dict[str, Any]) -> bytes:
    """``good`` as JSON, with a part that is cut, overwritten or of another type."""
    obj = copy.deepcopy(good)
    kind = rng.randrange(4)
    if kind == 0:
        where: Any = obj
        while True:
            key = rng.choice(list(where) if isinstance(where, dict) else range(len(where)))
            inner = where[key]
            if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
                break
            where = inner
        where[key] = rng.choice(VALUES)
    raw = bytearray(json.dumps(obj).encode())
    if kind == 1:
        del raw[rng.randrange(len(raw)):]
    elif kind == 2:
        for _ in range(rng.randrange(1, 20)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    elif kind == 3:
        raw = bytearray(rng.choice((b"", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"null", b"[]", b"[[]]",
                                    b"0" * 5000, b"\0" * 100, b"{}", raw + raw)))
    return bytes(raw)


@pytest.mark.parametrize("command", ["compare", "report", "plot", "plot control"])
def test_result_files(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if command != "compare":
        pytest.importorskip("matplotlib")
    good = tmp_path / "good" / "seed-1" / "result.json"
    store.write(GOOD, good)
    rng, bad = random.Random(command), 0
    for i in range(ROUNDS if command == "compare" else ROUNDS // 5):
        path = tmp_path / f"r{i}" / "seed-1" / "result.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(mutated(rng, GOOD.to_json()))
        argv = {
            "compare": ["compare", str(good.parents[1]), str(path.parents[1])],
            "report": ["report", str(path.parents[1]), "-o", str(tmp_path / f"page{i}")],
            "plot": ["plot", str(path.parents[1]), "-o", str(tmp_path / "x.png")],
            "plot control": ["plot", "control", str(path.parents[1]), "-o", str(tmp_path / "x.png")],
        }[command]
        bad += run(argv, capsys) != 0
    assert bad > 0


def test_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path, bad = random.Random(1), tmp_path / "m.json", 0
    path.write_text(json.dumps(MEASURED))
    assert MEASURED.items() <= tune.load_measured(path).to_json().items()
    for _ in range(ROUNDS):
        path.write_bytes(mutated(rng, MEASURED))
        try:
            json.dumps(tune.load_measured(path).to_json(), allow_nan=False)
        except WbError as exc:
            assert exc.code == 2
            bad += 1
    assert bad > ROUNDS // 2


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"release"', "[" * 5000, "\0"])
def test_kernel_products(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "BUILD", tmp_path)
    monkeypatch.setattr(kernels, "compiler", lambda: "gcc")
    what = SimpleNamespace(variant="stock", base=SimpleNamespace(ident="b", line="6.12"), content="", series=False,
                           tree=tmp_path, patchset=None)
    monkeypatch.setattr("wblib.kernel.sources.describe", lambda _variant: what)
    wanted = kernels.kconfig.fragments("slim")
    key = sha256_text("\n".join(["b", "", wanted, "gcc", str(kernels.RECIPE)]))
    meta = tmp_path / "kernels" / key[:12] / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(text)
    with pytest.raises(WbError, match="is damaged"):
        kernels.build("stock")
