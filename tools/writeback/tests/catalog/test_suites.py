# SPDX-License-Identifier: GPL-2.0
"""Suites: valid cells, no repeats, and the promises of their descriptions."""

import pytest

from wblib.catalog import axes, suites
from wbtop.errors import WbError


def test_cells_are_valid_and_unique() -> None:
    for suite in suites.SUITES.values():
        places = [(c.case, axes.slug(c.case, c.axes)) for c in suite.cells]
        assert len(set(places)) == len(places), suite.name
        for cell in suite.cells:
            assert axes.validate(cell.case, cell.axes) == cell.axes


def test_cell_of_words() -> None:
    cell = suites.cell("read-latency disk=hdd disk-set=rpm=5400,seek_min_ns=1")
    assert (cell.axes["disk"], cell.axes["disk-set"]) == ("hdd", "rpm=5400,seek_min_ns=1")
    with pytest.raises(WbError, match="no axis --color"):
        suites.cell("read-latency color=red")


def test_demo_has_the_four_incidents() -> None:
    cells = suites.suite("demo").cells
    assert {c.case for c in cells} == {"read-latency", "dirty-ratio-dd", "dirty-limits", "ext4-nodelalloc"}
    assert {c.axes["writer"] for c in cells if c.case == "read-latency"} == {"idle", "direct", "buffered"}


def test_cases_has_every_case() -> None:
    assert {c.case for c in suites.suite("cases").cells} == set(axes.CASES)


def test_reference_is_the_table_of_ten() -> None:
    cells = suites.suite("reference").cells
    assert len(cells) == 10
    assert all(c.axes["disk"] == "fifo" and c.axes["fs"] == "xfs" and c.axes["reader-prio"] == "normal" for c in cells)


def test_matrix_spans_every_axis_and_repeats_nothing() -> None:
    cells = suites.suite("read-latency").cells
    spans = {name: {c.axes[name] for c in cells} for name in cells[0].axes}
    assert spans["disk"] == {"sata", "nvme", "hdd"}
    assert spans["fs"] == {"xfs", "ext4"}
    assert len(spans["sched"]) == len(spans["writer"]) == 4
    assert spans["wbt"] == {"default", "off"}
    assert spans["max-sectors-kb"] == {"default", "128"}
    assert spans["readers"] == {"4", "20"}
    assert not any(c.axes["sched"] == "bfq" and c.axes["wbt"] == "off" for c in cells)
    assert len(cells) == 2 * 3 * 2 * (3 * (1 + 2 + 4 + 4) + (1 + 2 + 2 + 2))


def test_peers_are_every_knob_of_today() -> None:
    cells = suites.suite("peers").cells
    assert len(cells) == 2 * 7 * 3
    peers = {(c.axes["sched"], c.axes["sched-set"], c.axes["iocost"]) for c in cells}
    assert peers == {("none", "", "off"), ("mq-deadline", "", "off"), ("mq-deadline", "fifo_batch=1", "off"),
                     ("mq-deadline", "async_depth=4", "off"), ("kyber", "", "off"), ("bfq", "", "off"),
                     ("none", "", "on")}
    assert {(c.axes["max-sectors-kb"], c.axes["disk-set"]) for c in cells} == {
        ("128", ""), ("1280", ""), ("default", "queue_depth=4")}


def test_block_has_what_the_series_is_accepted_by() -> None:
    cells = [c.axes for c in suites.suite("block").cells]
    assert {(c["disk"], c["sched"], c["fs"]) for c in cells} >= {
        (d, s, f) for d in ("fifo", "sata") for s in ("none", "mq-deadline") for f in ("xfs", "ext4")}
    assert {c["disk"] for c in cells if c["readers"] == "0"} == {"fifo", "sata", "nvme", "hdd"}
    assert {c["disk"] for c in cells if c["probe"] == "fsync"} == {"fifo", "sata"}
    assert {c["stack"] for c in cells} == {"none", "linear", "raid0"}
    assert {c["writer"] for c in cells} == {"buffered", "fsync", "direct"}
    assert any(c["max-sectors-kb"] == "4096" and c["disk-set"] == "max_io_kib=4096" for c in cells)


def test_what_tests_the_series_is_left_out_on_stock_and_said_so() -> None:
    cells = suites.suite("cases").cells
    series = {c.case for c in cells if axes.case(c.case).needs_series}
    assert {"wbt-fixes", "wbt-bytes"} <= series
    every = {c.case for c in cells}
    ran = {kernel: {j.case for j in suites.jobs(cells, ["stock", "patched", "tree"], [1, 2]) if j.kernel == kernel}
           for kernel in ("stock", "patched", "tree")}
    of_mainline = {c.case for c in cells} - {j.case for j in suites.jobs(cells, ["patched@7.3"], [1])}
    assert ran == {"stock": every - series, "patched": every, "tree": every}
    assert of_mainline == {c for c in series if axes.case(c).needs_series == "6.12"} != set()
    lines = suites.left_out(cells, ["stock", "patched"])
    assert sorted(lines) == sorted(f"stock {c}: left out, it tests what the series changes"
                                   + (" on 6.12" if c in of_mainline else "") for c in series)
    assert {line.split(":")[0] for line in suites.left_out(cells, ["patched@7.3"])} == {
        f"patched@7.3 {c}" for c in of_mainline}
    assert suites.left_out(cells, ["patched", "tree"]) == []


def test_all_is_the_union() -> None:
    everything = suites.suite("all").cells
    for suite in suites.SUITES.values():
        if suite.name not in ("smoke", "lanes", "zoo", "stress", "stress-short", "stress-kcsan", "endurance"):
            assert all(c in everything for c in suite.cells), suite.name


def test_unknown_suite() -> None:
    with pytest.raises(WbError, match="did you mean reference"):
        suites.suite("referense")


@pytest.mark.parametrize(
    ("text", "want"),
    [("3", [1, 2, 3]), ("1", [1]), ("7,", None), ("1,7", [1, 7]), ("3-5", [3, 4, 5]), ("5-5,1", [5, 1]),
     ("2,1-3", [2, 1, 3]), ("0", None), ("1001", None), ("", None), ("a", None), ("5-3", None), ("0,1", None),
     ("1-5000", None), ("-3", None), ("1.5", None)],
)
def test_seeds(text: str, want: list[int] | None) -> None:
    if want is None:
        with pytest.raises(WbError) as err:
            suites.seeds(text)
        assert err.value.code == 2
    else:
        assert suites.seeds(text) == want


def test_jobs_put_the_kernels_of_a_seed_together() -> None:
    cells = suites.suite("smoke").cells
    jobs = suites.jobs(cells, ["stock", "patched"], [1, 2])
    assert len(jobs) == len(cells) * 4
    assert [(j.kernel, j.seed) for j in jobs[:3]] == [("stock", 1), ("patched", 1), ("stock", 1)]
    assert jobs[-1].seed == 2


def test_guide_has_every_limit_on_every_disk_and_four_sizes_of_memory() -> None:
    cells = [c.axes for c in suites.suite("guide").cells]
    limits = {(c["disk"], c["after"]) for c in cells if c["readers"] != "0"}
    assert limits == {(d, s) for d in axes.case("read-latency").axis("disk").choices for s in suites.LIMITS.values()}
    assert {c["ram"] for c in cells if c["readers"] == "0"} == {"1024", "2048", "4096", "8192"}
    assert all(c["held"] == "1" and c["before"] == suites.LIMITS["10/20 %"] for c in cells)
