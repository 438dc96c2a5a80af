# SPDX-License-Identifier: GPL-2.0
"""Read-latency CDFs: log latency against -log10(1 - p), so that the tail is as wide as the body.

The same results give the same PNG, byte for byte, with the same matplotlib.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wblib.base import venv
from wblib.base.proc import say
from wblib.results import compare, store
from wblib.results.store import Result
from wbtop.errors import WbError

from . import figure, plot_control

EXAMPLES = """\
examples:
  wb plot stock -o stock.png                  the curves of the latest stock results
  wb plot stock patched -o cdf.png            patched dashed beside stock
  wb plot control stock patched -o loop.png   throttling over time, of runs with --trace-control 1
  wb plot results/stock-1a2b3c4d/read-latency/fifo-xfs-none-wbt-off-buffered -o one.png"""
# Okabe and Ito's palette: told apart by every common kind of colour blindness.
COLOURS = {"idle": "#009E73", "direct": "#0072B2", "buffered": "#D55E00", "fsync": "#CC79A7"}
OTHER_COLOURS = ("#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":")
TICKS = (0.5, 0.9, 0.99, 0.999, 0.9995, 0.9999, 0.99999)
SIZE_IN, DPI = (6.4, 4.8), 150  # 960 x 720 pixels: text stays readable on a phone


@dataclass(frozen=True)
class Curve:
    """One line of the plot. bins: latency in ns -> count."""

    label: str
    bins: Mapping[int, int]
    colour: str
    style: str = "-"


def need_matplotlib() -> None:
    """Return with matplotlib importable, if need be as a new process in the project's venv.

    WbError when it is neither here nor there.  Call it before work that would be lost.
    """
    if not venv.has("matplotlib"):
        raise WbError("matplotlib not found: run 'make deps'")


def fio_bins(path: Path) -> dict[int, int]:
    """Completion latencies (ns -> count) of all read jobs in a file of ``fio --output-format=json+``."""
    bins: dict[int, int] = {}
    try:
        text = path.read_text()
        # fio puts warnings before the object.
        for job in json.loads(text[max(0, text.find("{")):])["jobs"]:
            for value, count in job["read"]["clat_ns"]["bins"].items():
                bins[int(value)] = bins.get(int(value), 0) + int(count)
    except OSError as exc:
        raise WbError(f"cannot read {path}: {exc.strerror}") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise WbError(f"{path} is not fio's json+ with latency bins: run the case again") from exc
    if not sum(bins.values()):
        raise WbError(f"{path} has no reads: run the case again")
    return bins


def points(bins: Mapping[int, int]) -> tuple[list[float], list[float]]:
    """Steps of the CDF: latency in ms, and -log10(1 - share at or below it).

    The largest value is drawn where half a count would be above it, as its
    share of 1 is infinitely far up.
    """
    total = sum(bins.values())
    xs, ys, seen = [], [], 0
    for value in sorted(v for v, count in bins.items() if count):
        seen += bins[value]
        xs.append(value / 1e6)
        ys.append(-math.log10(max(total - seen, 0.5) / total))
    return xs, ys


def merged(runs: Sequence[Result]) -> dict[int, int]:
    """The bins of all seeds together; empty when no run kept its fio.json."""
    bins: dict[int, int] = {}
    for run in runs:
        path = run.data("fio.json")
        if path:
            for value, count in fio_bins(path).items():
                bins[value] = bins.get(value, 0) + count
    return bins


def curves(found: Sequence[Result], kernels: Sequence[str]) -> list[Curve]:
    """A curve per writer (and whatever else differs) and kernel, over all seeds."""
    latency = [r for r in found if r.case == "read-latency" and r.status != "error"]
    names = list(dict.fromkeys(n for r in latency for n in r.axes))
    varying = [n for n in names if n != "writer" and len({r.axes.get(n) for r in latency}) > 1]
    drawn = []
    colours: dict[str, str] = {}
    spare = iter(OTHER_COLOURS * 20)
    for kernel, style in zip(kernels, STYLES, strict=False):
        for runs in compare.group(r for r in latency if r.kernel == kernel).values():
            axes = runs[0].axes
            extra = [f"{n} {axes[n]}" for n in varying if axes.get(n, "default") != "default"]
            label = ", ".join([axes.get("writer", "?"), *extra])
            if label not in colours:
                colours[label] = next(spare) if extra else COLOURS.get(label) or next(spare)
            bins = merged(runs)
            if bins:
                named = f"{label} ({kernel})" if len(kernels) > 1 else label
                drawn.append(Curve(named, bins, colours[label], style))
    order = ["idle", "direct", "buffered", "fsync"]
    return sorted(drawn, key=lambda c: (order.index(w) if (w := c.label.split(",")[0].split(" (")[0]) in order else 9,
                                        c.style != "-", c.label))


def draw(drawn: Sequence[Curve], title: str) -> bytes:
    """The plot as PNG; WbError without curves."""
    if not drawn:
        raise WbError("nothing to plot: no read-latency result with its fio.json (run 'wb bench demo')")

    def make(plt: Any) -> Any:
        made, axis = plt.subplots(figsize=SIZE_IN, dpi=DPI)
        _draw(axis, drawn, title)
        return made

    return figure.png(make, 11)


def _draw(axis: Any, drawn: Sequence[Curve], title: str) -> None:
    top = 0.0
    for curve in drawn:
        xs, ys = points(curve.bins)
        axis.step([xs[0], *xs], [0.0, *ys], where="post", color=curve.colour, linestyle=curve.style, linewidth=2,
                  label=curve.label)
        top = max(top, ys[-1])
    ticks = [t for t in TICKS if -math.log10(1 - t) <= max(top, 2) + 0.05]
    axis.set_xscale("log")
    axis.set_yticks([-math.log10(1 - t) for t in ticks], [f"{100 * t:.6g} %" for t in ticks])
    axis.set_ylim(0, max(top, 2) * 1.03)
    axis.set_xlabel("read latency, ms (log scale)")
    axis.set_ylabel("share of reads at or below")
    from matplotlib.ticker import FuncFormatter, LogLocator
    axis.xaxis.set_major_locator(LogLocator(10))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda v, _pos: f"{v:g}"))
    axis.grid(True, which="major", color="#cccccc", linewidth=0.8)
    axis.grid(True, which="minor", axis="x", color="#eeeeee", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.set_title(title, fontsize=12)
    axis.legend(loc="lower right", framealpha=0.95)


def write_cdf(found: Sequence[Result], kernels: Sequence[str], out: Path) -> None:
    """Draw the read-latency CDFs of ``found`` into ``out`` (a PNG)."""
    first = next((r for r in found if r.case == "read-latency"), None)
    where = f" ({first.axes.get('disk', '?')} disk, {first.axes.get('fs', '?')})" if first else ""
    store.write_file(out, draw(curves(found, kernels), f"Read latency while a file is written{where}"))


def run(args: argparse.Namespace) -> int:
    """``wb plot``."""
    out = Path(args.out)
    if out.suffix != ".png":
        raise WbError(f"{out}: the name must end in .png", 2)
    if args.results[0] == "control":
        need_matplotlib()
        plot_control.write(args.results[1:], out)
        say(f"  wrote {out}")
        return 0
    if len(args.results) > len(STYLES):
        raise WbError(f"at most {len(STYLES)} sets of results fit one plot", 2)
    need_matplotlib()
    found: list[Result] = []
    labels = []
    for spec in args.results:
        label, runs = compare.find(spec)
        labels.append(label)
        for run_ in runs:
            run_.kernel = label  # two builds of one kernel are two sets here
        found += runs
    write_cdf(found, labels, out)
    say(f"  wrote {out}")
    return 0


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb plot``."""
    p = sub.add_parser("plot", help="draw read-latency CDFs, or throttling over time", epilog=EXAMPLES,
                       description="Draw the read-latency CDFs of up to three sets of results into a PNG; with the "
                       "word control in front, one or two runs of read-latency --trace-control 1 over time.",
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="+", metavar="RESULTS", help="a result directory, or a kernel's name")
    p.add_argument("-o", "--out", required=True, metavar="FILE.png", help="where to write the picture")
    p.set_defaults(func=run)
