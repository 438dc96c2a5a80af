# SPDX-License-Identifier: GPL-2.0
"""Cases and axes: defaults, errors that name what is allowed, stable directory names."""

import argparse
import re

import pytest

from wblib.catalog import axes
from wbtop.errors import WbError


def test_defaults_are_allowed_values() -> None:
    for case in axes.CASES.values():
        full = axes.validate(case.name, {})
        assert list(full) == [a.name for a in case.axes]
        assert all(full[a.name] == a.default for a in case.axes)


def test_given_values_win_and_numbers_are_canonical() -> None:
    full = axes.validate("read-latency", {"disk": "fifo", "readers": "020", "wbt": "2000"})
    assert (full["disk"], full["readers"], full["wbt"]) == ("fifo", "20", "2000")
    assert axes.validate("read-latency", {"disk": "dev:/dev/sda"})["disk"] == "dev:/dev/sda"


@pytest.mark.parametrize(
    ("case", "given", "words"),
    [
        ("read-latncy", {}, ["unknown case", "did you mean read-latency?"]),
        ("read-latency", {"dsik": "sata"}, ["no axis --dsik", "did you mean --disk?"]),
        ("read-latency", {"disk": "satta"}, ["sata|nvme|hdd|fifo|usb", "did you mean sata?"]),
        ("read-latency", {"disk": "dev:/etc/passwd"}, ["dev:/dev/X"]),
        ("read-latency", {"disk-set": "rm -rf"}, ["ATTR=VALUE,..."]),
        ("read-latency", {"readers": "65"}, ["0..64"]),
        ("read-latency", {"readers": "4k"}, ["0..64"]),
        ("read-latency", {"rate": "-5"}, ["0..1000000 IOPS"]),
        ("read-latency", {"policy": "byte"}, ["default|bytes|requests", "did you mean bytes?"]),
        ("read-latency", {"wbt": ""}, ["--wbt ''", "default|off"]),
        ("dirty-limits", {"writer": "idle"}, ["dirty-limits has no axis --writer"]),
        ("wbdisk", {"disk": "sata"}, ["no axes"]),
    ],
)
def test_bad_input_is_one_line_that_says_what_is_allowed(case: str, given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(WbError) as err:
        axes.validate(case, given)
    assert err.value.code == 2
    assert "\n" not in str(err.value)
    for word in words:
        assert word in str(err.value)


def test_slug_is_stable_safe_and_tells_axes_apart() -> None:
    base = axes.validate("read-latency", {"disk": "fifo"})
    assert axes.slug("read-latency", base) == "fifo-xfs-none-wbt-default-buffered"
    assert axes.slug("read-latency", dict(reversed(base.items()))) == axes.slug("read-latency", base)
    seen = {axes.slug("read-latency", base)}
    for given in ({"wbt": "off"}, {"wbt": "2000"}, {"readers": "20"}, {"rate": "20"}, {"max-sectors-kb": "128"},
                  {"reader-prio": "normal"}, {"disk": "dev:/dev/nvme0n1"}, {"runtime": "20"},
                  {"policy": "bytes"}, {"readers": "0"}, {"probe": "fsync"}, {"stack": "raid0"},
                  {"sched-set": "fifo_batch=1"}, {"iocost": "on"}, {"trace-control": "1"},
                  {"disk-set": "link_mbps=100,jitter_ppm=5"}):
        name = axes.slug("read-latency", axes.validate("read-latency", base | given))
        assert re.fullmatch(r"[A-Za-z0-9_-]+", name)
        assert name not in seen
        seen.add(name)
    assert axes.slug("wbdisk", {}) == "default"


def test_guest_args_are_few_and_end_with_the_seed() -> None:
    full = axes.validate("read-latency", {"max-sectors-kb": "128"})
    assert axes.guest_args("read-latency", full, 3) == [
        "--disk=sata", "--fs=xfs", "--sched=none", "--wbt=default", "--writer=buffered",
        "--max-sectors-kb=128", "--seed=3",
    ]
    everything = axes.validate("read-latency", {
        "readers": "20", "rate": "0", "mib": "1", "max-sectors-kb": "128", "reader-prio": "normal", "runtime": "9",
        "policy": "bytes", "sched-set": "fifo_batch=1,async_depth=4", "iocost": "on", "stack": "raid0",
        "probe": "fsync", "disk-set": "queue_depth=4",
    })
    # The kernel passes at most 32 words to init, CASE and its own name included
    assert len(axes.guest_args("read-latency", everything, 1)) <= 28
    assert "--writer=suite" not in axes.guest_args("read-latency", full | {"writer": "suite"}, 1)
    assert axes.guest_args("wbdisk", {}, 1) == ["--seed=1"]


@pytest.mark.parametrize("bad", ["0", "-1", "x", "", "1.5", "1000000000", "99999999999"])
def test_bad_seed(bad: str) -> None:
    with pytest.raises(WbError, match="must be a number from 1"):
        axes.check_seed(bad)


def test_options_of_argparse_round_trip() -> None:
    parser = argparse.ArgumentParser()
    axes.add_axis_options(parser)
    args = parser.parse_args(["--disk", "hdd", "--max-sectors-kb=64"])
    assert axes.given_axes(args) == {"disk": "hdd", "max-sectors-kb": "64"}
    assert axes.given_axes(parser.parse_args([])) == {}
    assert "--reader-prio" in parser.format_help()


def test_help_has_each_meaning_of_an_option_with_its_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = argparse.ArgumentParser(formatter_class=axes.HelpFormatter)
    axes.add_axis_options(parser)
    text = parser.format_help()
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "all|data|hang|journal|meta|remove|full|quota (of faults) one part, or all: all|stall|" in words
    assert "seconds of changes under load: 1..9999 s (of dirty-stress, wbt-stress) seconds they run" in words
    for case in axes.CASES.values():
        for axis in case.axes:
            owned = rf"{re.escape(axis.help)}: [^()]* \(of ([^()]*, )?{case.name}[,)]"
            assert re.search(owned, words), (case.name, axis.name)


def test_description_names_every_axis() -> None:
    for case in axes.CASES.values():
        text = axes.describe(case)
        assert all(f"--{a.name} " in text for a in case.axes)
        assert case.incident in text


def test_a_longer_run_is_estimated_longer() -> None:
    def wall(case: str, **given: str) -> int:
        return axes.wall_s(case, axes.validate(case, given))

    for case in axes.CASES.values():
        assert wall(case.name) == axes.wall_s(case.name, {}) == case.wall_s
        for axis in case.axes:
            if axis.wall_s:
                assert 0 < wall(case.name, **{axis.name: str(axis.low)}) < wall(case.name, **{axis.name: "99"})
    # As measured: 4 hours of soak took 197 s.
    assert 150 < wall("soak", hours="4") < 250
    assert wall("wbt-stress", runtime="1200") > 3600
