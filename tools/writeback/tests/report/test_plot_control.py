# SPDX-License-Identifier: GPL-2.0
"""The recording of the control loop: what is read, what is refused, and a PNG whose bytes repeat."""

import argparse
import math
import struct
from pathlib import Path

import pytest

from wblib.catalog import axes
from wblib.report import plot, plot_control
from wblib.results import store
from wbtop.errors import WbError

MIB = 1 << 20
CSV = f"""\
100.000000,mark,start
100.010000,queue,{MIB},0
100.011000,queue,{MIB},{MIB}
100.020000,writer,5000000
100.025000,wbt_bytes,inflight=1,held=2,limit={2 * MIB},max_io=3,rate=4,p99=5,dry=6,share=7,active=1
100.031000,complete,{MIB},20000000
100.040000,complete,{MIB},29000000
100.050000,wbt_bytes,inflight=0,held=0,limit=18446744073709551615,max_io=3,rate=4,p99=5,dry=6,share=7,active=0
100.055000,wbt_step,252:0: scale up; step=1
100.060000,mark,written
100.080000,mark,synced
"""
LOG = "100005, 110000, 0, 4096, 0, 0\n100045, 30000000, 0, 4096, 0, 0\n"


def make(where: Path, kernel: str = "stock", csv: str = CSV, log: str = LOG, seed: int = 1,
         **given: str) -> store.Result:
    full = axes.validate("read-latency", {"disk": "fifo", "trace-control": "1", **given})
    place = where / f"{kernel}-aaaaaaaa" / "read-latency" / axes.slug("read-latency", full) / f"seed-{seed}"
    metrics: store.Metrics = {"read_p99_95": {"value": 30000, "unit": "us"},
                                "write_mbps": {"value": 500, "unit": "MB/s"}}
    store.write(store.Result("read-latency", kernel, full, seed, metrics, {}, "pass", []), place / "result.json")
    (place / "data").mkdir()
    (place / "data" / plot_control.EVENTS).write_text(csv)
    (place / "data" / plot_control.READS).write_text(log)
    return store.load(place / "result.json")


def test_recording_counts_from_the_start_of_dd(tmp_path: Path) -> None:
    found = plot_control.load(make(tmp_path))
    assert [v for _, v in found.flight] == [MIB, 2 * MIB, MIB, 0]
    assert [at for at, _ in found.flight] == pytest.approx([0.010, 0.011, 0.031, 0.040])
    assert [v for _, v in found.limit] == [2 * MIB, None]
    assert found.reads == [(pytest.approx(0.005), 0.00011), (pytest.approx(0.045), 0.03)]
    assert found.writer == [(pytest.approx(0.020), 5000000)]
    assert found.marks == pytest.approx({"start": 0.0, "written": 0.06, "synced": 0.08})


def test_peaks_hold_on_between_events() -> None:
    xs, ys = plot_control.peaks([(0.001, MIB), (0.002, 3 * MIB), (0.003, 2 * MIB), (0.035, 0)], 0.06)
    assert xs == pytest.approx([0, 0.01, 0.02, 0.03, 0.04, 0.05])
    assert ys == [3, 2, 2, 2, 0, 0]
    assert plot_control.peaks([], 1) == ([], [])


@pytest.mark.parametrize("csv", ["1.0,queue,x,0\n", "1.0\n", "x,mark,start\n", "1.0,wbt_bytes,limit\n", "1.0,mark\n",
                                 "1.0,wbt_bytes,inflight=1\n"])
def test_a_recording_that_is_not_whole(tmp_path: Path, csv: str) -> None:
    with pytest.raises(WbError, match="not whole"):
        plot_control.load(make(tmp_path, csv=csv))


def test_a_recording_without_writer(tmp_path: Path) -> None:
    with pytest.raises(WbError, match="no writer"):
        plot_control.load(make(tmp_path, csv="1.0,queue,4096,0\n"))


def test_choice(tmp_path: Path) -> None:
    make(tmp_path, seed=2)
    make(tmp_path, seed=1)
    kernel = str(tmp_path / "stock-aaaaaaaa")
    assert plot_control.choose(kernel).seed == 1
    make(tmp_path, sched="kyber")
    with pytest.raises(WbError, match="several recordings") as err:
        plot_control.choose(kernel)
    assert "kyber" in str(err.value)
    assert plot_control.choose(str(next(tmp_path.rglob("*kyber*")))).axes["sched"] == "kyber"
    for path in tmp_path.rglob("control.csv"):
        path.unlink()
    with pytest.raises(WbError, match="--trace-control 1"):
        plot_control.choose(kernel)


def test_titles_name_what_differs(tmp_path: Path) -> None:
    one, other = make(tmp_path, policy="requests"), make(tmp_path, policy="bytes")
    head = "stock kernel policy=requests\np99.95 read 30 ms, dd 500 MB/s"
    found = plot_control.titles([one, other], [plot_control.load(r) for r in (one, other)])
    assert found[0] == head
    assert "fifo" not in found[1]


def test_percentile_and_reads_after_the_end(tmp_path: Path) -> None:
    reads = [(float(n), n / 1000) for n in range(1, 1001)]
    assert plot_control.percentile(reads, 0.5) == 0.5
    assert plot_control.percentile(reads, 0.9995) == 1.0
    assert plot_control.percentile([], 0.5) is None
    late = "104004, 110000, 0, 4096, 0\n104038, 35000000, 0, 4096, 0\n"
    assert len(plot_control.load(make(tmp_path, log=LOG + late)).reads) == 3


def test_png_of_the_command_repeats(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    places = [str(make(tmp_path, kernel).path) for kernel in ("stock", "patched")]
    top = argparse.ArgumentParser()
    plot.register(top.add_subparsers())
    pictures = []
    for name in ("a.png", "b.png"):
        args = top.parse_args(["plot", "control", *places, "-o", str(tmp_path / name)])
        assert args.func(args) == 0
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    width, height = struct.unpack(">II", pictures[0][16:24])
    assert (width, height) == tuple(math.floor(s * plot_control.DPI + 0.5) for s in plot_control.SIZE_IN)
    args = top.parse_args(["plot", "control", *places, places[0], "-o", str(tmp_path / "c.png")])
    with pytest.raises(WbError, match="one or two"):
        args.func(args)
