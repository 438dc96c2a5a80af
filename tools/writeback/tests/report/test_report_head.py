# SPDX-License-Identifier: GPL-2.0
"""The head of the report: the cost beside the gain, the right words for virtual and real time, no empty part."""

import json
from pathlib import Path
from typing import Any

from wblib.report import page
from wblib.report.collect import Cell, Data
from wblib.report.sections import blocktable
from wblib.report.sections.sources import Sources
from wblib.results.store import Result


def cell(tmp_path: Path, kernel: str, lane: str = "exact", p70: int = 113_000, p9995: float = 67_600.0) -> Cell:
    from wblib.catalog import axes
    given = axes.validate("read-latency", {"disk": "sata"})
    place = tmp_path / kernel
    (place / "data").mkdir(parents=True, exist_ok=True)
    bins = {"clat_ns": {"bins": {"100000": 60, str(p70): 39, "90000000": 1}}}
    (place / "data/fio.json").write_text(json.dumps({"jobs": [{"jobname": "readers", "read": bins}]}))
    metrics: dict[str, Any] = {"read_p99_95": {"value": p9995, "unit": "us"}, "drain_s": {"value": 2.0, "unit": "s"}}
    run = Result("read-latency", kernel, given, 1, metrics, {"dir": str(place)}, "pass", [])
    run.path = place / "result.json"
    return Cell("read-latency", lane, given, kernel, "b", (run,))


def test_the_middle_reads_are_in_the_first_table(tmp_path: Path) -> None:
    both = [cell(tmp_path, "stock"), cell(tmp_path, "patched", p70=1_140_000, p9995=2300.0)]
    text = str(blocktable.headline(Data(both, ["stock", "patched"]), Sources()))
    assert "p70 x 10.1" in text
    assert "Worse on sata: p70 x 10.1, p90 x 10.1." in text
    assert "p99.95 x 0.034" in text


def test_the_fast_lane_has_a_verdict_and_stock_of_another_line_comes_first(tmp_path: Path) -> None:
    """All figures of the README are of the fast lane and its open reader: their report had no head."""
    from wblib.report import collect, theme
    found = [cell(tmp_path, kernel, "fast", p9995=us) for kernel, us in (("stock@7.3", 82_000.0),
                                                                         ("patched@7.3", 1760.0))]
    for one in found:
        one.axes["reader"] = "open"
    kernels = sorted(("patched@7.3", "stock@7.3"), key=collect._order)
    text = str(blocktable.headline(Data(found, kernels), Sources()))
    assert "patched@7.3 against stock@7.3" in text
    assert "p99.95 x 0.0215" in text
    assert "sata, fast" in text
    assert theme.LIGHT.colour("stock@7.3") == theme.LIGHT.colour("stock")


def test_what_time_it_is(tmp_path: Path) -> None:
    def words(*lanes: str) -> str:
        return " ".join(page.reading(Data([cell(tmp_path, "stock", lane) for lane in lanes], ["stock"])))
    assert "virtual nanosecond" in words("exact")
    assert "Times are real" not in words("exact")
    assert "virtual nanosecond" not in words("local")
    assert "Times are real" in words("local")
    for virtual in (("fast",), ("exact", "fast"), ("exact flavour=debug",)):
        assert "Times are real" not in words(*virtual)
    assert "lane fast: the disk is the same model" in words("exact", "fast")
    assert "Results of lane local: Times are real" in words("exact", "local")
