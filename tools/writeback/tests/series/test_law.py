# SPDX-License-Identifier: GPL-2.0
"""wb law: the disks that are drawn, the simulator built with the law of the series, the tables."""

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from wblib import cli
from wblib.catalog import axes
from wblib.catalog.suites import Job
from wblib.results.store import Result
from wblib.series import law, law_agree
from wbtop.errors import WbError

FIFO = {"queue_depth": 32, "queues": 1, "max_io_kib": 1280, "link_mbps": 450, "latency_ns": 90000}
LOAD = {"readers": 4, "iops": 100, "mib": 256, "seed": 1}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulator."""
    place = tmp_path_factory.mktemp("law")
    return law.build(law.series_law(place), place)


def one(program: Path, name: str, disk: dict[str, int], load: dict[str, int] | None = None,
        steps: Sequence[str] = ()) -> dict[str, float]:
    case = law.Case(1, "fifo", disk, {**LOAD, **(load or {})}, tuple(steps))
    return law.simulate(program, [case.words(name)], 1)[0]


def test_draw_is_the_same_for_a_seed_and_covers_the_ranges() -> None:
    cases = [law.draw(seed) for seed in range(1, 401)]
    assert cases == [law.draw(seed) for seed in range(1, 401)]
    assert {c.kind for c in cases} == set(law.KINDS)
    assert min(c.disk["queue_depth"] for c in cases) == 1 and max(c.disk["queue_depth"] for c in cases) > 800
    assert any(c.steps for c in cases) and any("burst_mib" in c.disk for c in cases)
    assert any("slc_mib" in c.disk for c in cases) and any("latency_jitter_ns" in c.disk for c in cases)


def test_every_replay_is_a_valid_command() -> None:
    for seed in range(1, 101):
        words = shlex.split(law.draw(seed).replay())
        assert words[:3] == ["wb", "run", "read-latency"]
        cli.parser().parse_args(words[1:])
        given = dict(zip(words[3::2], words[4::2], strict=True))
        axes.validate("read-latency", {"disk-set": given["--disk-set"], "readers": given["--readers"],
                                       "rate": given["--rate"], "mib": given["--mib"], "disk": given["--disk"]})


@pytest.mark.parametrize("which", ["late", "full", "hits"])
def test_other_sets(which: str, program: Path) -> None:
    cases = [law.draw(seed, which) for seed in range(1, 41)]
    assert cases == [law.draw(seed, which) for seed in range(1, 41)] != [law.draw(seed) for seed in range(1, 41)]
    words = shlex.split(cases[0].replay())
    cli.parser().parse_args(words[1:])
    if which == "late":
        # wbdisk does not miss: so the simulator is what repeats it.
        assert words[:3] == ["wb", "law", "--disk"] and "miss_ppm=" in words[3] and "law=" not in words[3]
        reads = law.simulate(program, [case.words("law") for case in cases[:4]], 2)
        hits = law.simulate(program, [case.words("law", "miss_ppm=0") for case in cases[:4]], 2)
        assert all(r["p99"] > h["p99"] for r, h in zip(reads, hits, strict=True))
    else:
        assert all(c.disk["write_cache"] and c.disk["dies_per_channel"] <= 4 for c in cases)
    if which == "hits":
        assert words[:3] == ["wb", "law", "--disk"] and "hit_ppm=" in words[3]
        # Two of three wait for a tag at most, the others for the buffer.
        hits, none = ([case.words("none", f"hit_ppm={hit}") for case in cases[:4]] for hit in (660000, 0))
        reads = zip(law.simulate(program, hits, 2), law.simulate(program, none, 2), strict=True)
        assert all(hit["p90"] > 100 and hit["p50"] < none["p50"] / 2 for hit, none in reads)
    elif which == "full":
        # A read waits for all of the buffer, 100 ms of it and more.
        reads = law.simulate(program, [case.words("none") for case in cases[:4]], 2)
        assert all(r["p99"] > 90 for r in reads)


def test_a_disk_whose_times_are_known(program: Path) -> None:
    """Nothing but the tags: 32 requests of 1280 KiB are in front of a read; all is written at the link's rate."""
    none = one(program, "none", FIFO)
    assert none["drain_s"] == pytest.approx(256 * 2**20 / 450e6, rel=.01)
    assert none["p50"] == pytest.approx(32 * 1280 * 1024 / 450e3, rel=.1)
    idle = law.simulate(program, [law.Case(1, "fifo", FIFO, LOAD).words("none", "idle_ms=1000")], 1)[0]
    assert idle["p50"] == pytest.approx(.099, abs=.002)


@pytest.mark.parametrize(("mbps", "latency_us", "depth"), [(450, 90, 32), (125, 1000, 128), (500, 1000, 128),
                                                          (2689, 1000, 8), (150, 150, 2)])
def test_the_law_does_no_harm_and_helps(program: Path, mbps: int, latency_us: int, depth: int) -> None:
    disk = {**FIFO, "link_mbps": mbps, "latency_ns": latency_us * 1000, "queue_depth": depth}
    load = {"mib": 2 * mbps}
    none, mine = one(program, "none", disk, load), one(program, "law", disk, load)
    assert mine["drain_s"] < 1.06 * none["drain_s"]
    assert mine["p99"] < none["p99"] / 1.5


def test_a_rate_step_is_followed(program: Path) -> None:
    disk = {**FIFO, "link_mbps": 500, "latency_ns": 1000000, "queue_depth": 128}
    steps = ("500:20", "1500:500")
    none, mine = (one(program, name, disk, {"mib": 1024}, steps) for name in ("none", "law"))
    assert mine["drain_s"] < 1.1 * none["drain_s"]
    assert mine["p9995"] < none["p9995"]


def test_the_same_bytes_whatever_the_processes(program: Path) -> None:
    lines = [law.draw(seed).words(name) for seed in range(1, 13) for name in ("none", "law")]
    assert law.simulate(program, lines, 1) == law.simulate(program, lines, 5)


def test_command(program: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    assert cli.main(["law", "--seeds", "1-6", "--law", "law,requests", "--worst", "2", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.count("wb run read-latency") == 4
    found = json.loads(out.read_text())
    assert [r["seed"] for r in found] == [1, 2, 3, 4, 5, 6]
    assert set(found[0]["results"]) == {*law.PLAIN, "law", "requests"}
    assert cli.main(["law", "--seeds", "3-3", "--print"]) == 0
    assert capsys.readouterr().out.startswith("3: disk=")


def test_compare_and_report() -> None:
    none = {"drain_s": 2.0, "due_p9995": 9.95, "p9995": 9.0}
    mine = {"drain_s": 2.5, "due_p9995": 4.95, "p9995": 4.0}
    assert law.compare(mine, none) == (pytest.approx(1.25), pytest.approx(.5))
    cases = [law.Case(1, "fifo", FIFO, LOAD), law.Case(2, "fifo", FIFO, LOAD)]
    plain = dict.fromkeys(law.PLAIN, none)
    text = law.report(cases, ["law"], [{**plain, "law": none}, {**plain, "law": mine}], 1)
    assert "1.25 (2.00 -> 2.50 s)" in text and "disk 2" in text and "disk 1" not in text


def test_bounds(program: Path) -> None:
    """Readers that do not wait do all of their work; of fixed limits, those count that are no worse for reads."""
    case = law.Case(1, "fifo", FIFO, {**LOAD, "iops": 1000})
    none, same, again, all_due = law.simulate(program, [case.words(n) for n in ("none", *law.PLAIN)], 1)
    assert none == same != again
    assert all_due["reads"] > none["reads"] and all_due["drain_s"] > none["drain_s"]
    lines = law.fixed_limits(case)
    assert 0 < len(lines) <= law.PAIRS and all("law=fixed" in line for line in lines)
    assert not law.fixed_limits(law.Case(1, "hdd", FIFO, LOAD))
    good, bad = {"drain_s": 1.0, "due_p9995": 5.0}, {"drain_s": .9, "due_p9995": 50.0}
    mine = {"drain_s": 1.2, "due_p9995": 5.0}
    assert law.best_fixed(mine, [good, bad]) == 1.0 and law.best_fixed(mine, [bad]) is None
    results = [{"none": {"drain_s": 1.0, "due_p9995": 50.0}, "law": mine}] * 2
    assert law.limits([case, case], ["law"], results, [[good, bad], [bad]]).splitlines()[-1].split()[-2:] == ["2", "1"]


def test_vrate_follows_what_the_disk_shows(program: Path) -> None:
    """By io.cost's own table the writer has 428 MB/s less the readers at first, and 25 ms of that saved up."""
    fast = one(program, "vrate", {**FIFO, "link_mbps": 4000, "queue_depth": 1023}, {"mib": 2048})
    slow = one(program, "vrate", {**FIFO, "link_mbps": 50, "queue_depth": 8}, {"mib": 256})
    start = one(program, "vrate", {**FIFO, "link_mbps": 4000, "queue_depth": 1023}, {"mib": 64})
    none = one(program, "none", {**FIFO, "link_mbps": 50, "queue_depth": 8}, {"mib": 256})
    assert 64 * 2**20 / 428e6 - .025 < start["drain_s"] < 64 * 2**20 / 300e6
    assert fast["drain_s"] < 2048 * 2**20 / 500e6
    assert none["drain_s"] <= slow["drain_s"] and slow["p50"] < none["p50"]


def test_where_an_arm_is_the_law_counts_requests(program: Path) -> None:
    case = law.Case(1, "hdd", {"queue_depth": 32, "queues": 1}, {**LOAD, "iops": 20, "mib": 256})
    requests, mine, none = law.simulate(program, [case.words(n) for n in ("requests", "law", "none")], 1)
    assert requests == mine != none


def test_as_read_latency_does_it(program: Path) -> None:
    """The readers read for 2 s in any case, and those before and after the writer find an idle disk."""
    case = law_agree.alike(law.Case(1, "fifo", {**FIFO, "queues": 4}, {**LOAD, "mib": 64, "syncs": 9}, ("500:9",)))
    assert (case.disk["queues"], case.steps, "syncs" in case.load) == (1, (), False)
    short, longer = law.simulate(program, [law_agree.words(case, "none", s) for s in (2, 4)], 1)
    assert short["reads"] == pytest.approx(800, rel=.15) and longer["reads"] == pytest.approx(1600, rel=.15)
    assert short["drain_s"] == longer["drain_s"] == pytest.approx(64 * 2**20 / 450e6, rel=.05)
    assert short["p50"] == pytest.approx(.099, abs=.002)


def test_agree(program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[Job] = []

    def run_jobs(jobs: Sequence[Job], _parallel: int, *, lane: str) -> list[Result]:
        ran.extend(jobs)
        return [Result(j.case, j.kernel, j.axes, j.seed, {
            "read_due_p99_95": {"value": 1e3, "unit": "us"}, "drain_s": {"value": 2.0, "unit": "s"},
        } if j is not jobs[-1] else {}, {"lane": lane}, "pass", []) for j in jobs]

    monkeypatch.setattr(law_agree, "run_jobs", run_jobs)
    assert cli.main(["law", "--seeds", "14,16,18", "--agree"]) == 0
    text = capsys.readouterr().out
    assert [j.axes["reader"] for j in ran] == ["open"] * 3
    assert " of 2 agree; reads " in text and text.count("fifo") == 2
    case = law.draw(14)
    one = law_agree.Agreement(case, (1.0, 1.1, 1.5), (2.0, 2.0, 2.1), 1.2, 2.03)
    assert one.tail_agrees() and one.drain_agrees() and one.by_chance()
    other = law_agree.Agreement(case, (1.0, 1.1, 1.5), (2.0, 2.0, 2.1), 1.45, 2.2)
    assert not other.tail_agrees() and not other.drain_agrees() and not other.by_chance()
    assert law_agree.report([one, other]).splitlines()[-1].startswith("1 of 2 agree; reads 1, drain 1; 1 with")


def test_bad_input(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["law", "--law", "nonsense"]) == 2
    assert cli.main(["law", "--disk", "disk=nonsense"]) == 2
    for which in ("late", "hits"):
        assert cli.main(["law", "--set", which, "--agree", "--seeds", "1"]) == 2
    assert cli.main(["law", "--disk", "colour=1"]) == 2
    assert "colour=1" in capsys.readouterr().err
    with pytest.raises(WbError, match=r"blk-wbt-law\.c is missing"):
        law.build(tmp_path, tmp_path)


def test_another_tree_is_another_program(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "block"
    shutil.copytree(program.parent / "series" / "block", other)
    (other / "blk-wbt-law.c").write_text("#error another law\n")
    os.utime(other / "blk-wbt-law.c", (0, 0))
    out = tmp_path / "out"
    law.build(program.parent / "series" / "block", out)
    with pytest.raises(WbError, match="another law"):
        law.build(other, out)
