# SPDX-License-Identifier: GPL-2.0
"""Reading fio's bins, the points of the CDF, and a PNG whose bytes repeat."""

import argparse
import json
import random
import struct
import sys
from pathlib import Path

import pytest

from wblib.base import venv
from wblib.report import plot
from wblib.results import store
from wbtop.errors import WbError


def fio_json(bins: dict[int, int], noise: str = "") -> str:
    return noise + json.dumps({"jobs": [{"read": {"clat_ns": {"bins": {str(k): v for k, v in bins.items()}}}}]})


def tail(scale: float, seed: int = 1) -> dict[int, int]:
    rng = random.Random(seed)
    bins: dict[int, int] = {}
    for _ in range(16000):
        value = int(110_000 * rng.lognormvariate(0, 0.1) + (scale * rng.random() if rng.random() < 0.02 else 0))
        bins[value // 1000 * 1000] = bins.get(value // 1000 * 1000, 0) + 1
    return bins


def make(where: Path, writer: str, kernel: str = "stock", wbt: str = "default", seed: int = 1,
         bins: dict[int, int] | None = None) -> store.Result:
    place = where / kernel / f"{writer}-{wbt}" / f"seed-{seed}"
    axes = {"disk": "sata", "fs": "xfs", "wbt": wbt, "writer": writer}
    store.write(store.Result("read-latency", kernel, axes, seed, {}, {}, "pass", []), place / "result.json")
    (place / "data").mkdir()
    (place / "data" / "fio.json").write_text(fio_json(bins or {110_000: 3, 64_000_000: 1}))
    return store.load(place / "result.json")


def test_bins_of_fio(tmp_path: Path) -> None:
    path = tmp_path / "fio.json"
    path.write_text(fio_json({100: 5, 90: 1}, "fio: this is a warning\n"))
    assert plot.fio_bins(path) == {100: 5, 90: 1}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"jobs": []}', '{"jobs": [{}]}', '{"jobs": [{"read": {"clat_ns": {}}}]}',
             '{"jobs": [{"read": {"clat_ns": {"bins": {"a": 1}}}}]}', '{"jobs": 5}', fio_json({}), fio_json({5: 0})])
def test_bad_fio_output_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fio.json"
    path.write_text(text)
    with pytest.raises(WbError, match="run the case again") as err:
        plot.fio_bins(path)
    assert "\n" not in str(err.value)


def test_points_of_the_cdf() -> None:
    xs, ys = plot.points({2_000_000: 9, 1_000_000: 90, 5_000_000: 1, 7_000_000: 0})
    assert xs == [1.0, 2.0, 5.0]
    assert ys == pytest.approx([1.0, 2.0, 2.30103])  # 90 %, 99 %, and half a count for the last


def test_curves_pool_seeds_and_tell_kernels_apart(tmp_path: Path) -> None:
    found = [make(tmp_path, "buffered", seed=s) for s in (1, 2)]
    found += [make(tmp_path, "idle"), make(tmp_path, "buffered", wbt="off"), make(tmp_path, "buffered", "patched")]
    drawn = plot.curves(found, ["stock", "patched"])
    assert [c.label for c in drawn] == [
        "idle (stock)", "buffered (stock)", "buffered, wbt off (stock)", "buffered (patched)",
    ]
    assert drawn[1].bins == {110_000: 6, 64_000_000: 2}
    assert (drawn[1].colour, drawn[1].style) == (drawn[3].colour, "-")
    assert drawn[3].style == "--"
    assert len({c.colour for c in drawn}) == 3
    assert [c.label for c in plot.curves(found, ["stock"])] == ["idle", "buffered", "buffered, wbt off"]


def test_nothing_to_plot() -> None:
    with pytest.raises(WbError, match="nothing to plot"):
        plot.draw([], "x")


def test_png_repeats_and_has_its_size(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = [plot.Curve("idle", tail(1e5), "#009E73"), plot.Curve("buffered", tail(6e7), "#D55E00", "--")]
    first = plot.draw(drawn, "Read latency")
    assert first == plot.draw(drawn, "Read latency")
    assert first != plot.draw(drawn[:1], "Read latency")
    assert first[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", first[16:24]) == (960, 720)
    assert b"Software" not in first


def test_command(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    make(tmp_path, "idle", bins=tail(1e5))
    make(tmp_path, "buffered", bins=tail(6e7))
    out = tmp_path / "cdf.png"
    args = parse(str(tmp_path / "stock"), "-o", str(out))
    assert args.func(args) == 0
    assert out.stat().st_size > 10_000


def parse(*argv: str) -> argparse.Namespace:
    top = argparse.ArgumentParser()
    plot.register(top.add_subparsers())
    return top.parse_args(["plot", *argv])


@pytest.mark.parametrize(("argv", "words"), [(["a", "-o", "x.svg"], "must end in .png"),
                                             (["a", "b", "c", "d", "-o", "x.png"], "at most 3")])
def test_bad_input(argv: list[str], words: str) -> None:
    args = parse(*argv)
    with pytest.raises(WbError, match=words):
        args.func(args)


def no_matplotlib(monkeypatch: pytest.MonkeyPatch, build: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(venv, "BUILD", build)
    monkeypatch.delenv("WB_IN_VENV", raising=False)


def test_without_matplotlib_and_venv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_matplotlib(monkeypatch, tmp_path)
    with pytest.raises(WbError, match="run 'make deps'"):
        plot.need_matplotlib()


def test_without_matplotlib_the_venv_takes_over_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_matplotlib(monkeypatch, tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    calls: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr("os.execv", lambda path, argv: calls.append((path, argv)))
    with pytest.raises(WbError):  # execv of the test returns
        plot.need_matplotlib()
    assert calls == [(python, [str(python), *sys.orig_argv[1:]])]
    with pytest.raises(WbError):  # the venv has none either: no loop
        plot.need_matplotlib()
    assert len(calls) == 1
