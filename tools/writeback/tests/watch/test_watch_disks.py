# SPDX-License-Identifier: GPL-2.0
"""Which disks' queues count below a stack, and disks whose names or number are unusual."""

from pathlib import Path

import pytest
from fake_machine import FakeMachine

from wbtop.machine import lower_disks
from wbtop.watch import sample


@pytest.fixture(name="fake")
def _fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def above(fake: FakeMachine, name: str, dev: str, *disks: str, requests: bool = False) -> None:
    """A device mapper's disk over whole ``disks``."""
    fake.disk(name, dev, **({"mq/0/nr_tags": "2048"} if requests else {}))
    for disk in disks:
        for link, target in ((f"{name}/slaves/{disk}", disk), (f"{disk}/holders/{name}", name)):
            path = fake.root / f"sys/devices/{link}"
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(f"../../{target}")


def test_requests_of_multipath_are_sized_by_its_own_queue(fake: FakeMachine) -> None:
    """The paths got max_sectors_kb 128: they refuse the map's requests of 1280 KiB, and all paths fail."""
    fake.disk("sdb", "8:16")
    above(fake, "dm-0", "253:0", "sda", "sdb", requests=True)
    above(fake, "dm-1", "253:1", "dm-0")
    assert lower_disks(fake.machine, "dm-0") == ["dm-0"]
    assert lower_disks(fake.machine, "dm-1") == ["dm-0"]
    for name in ("dm-0", "dm-1", "sda", "sdb"):
        assert [q["name"] for q in sample._queues(fake.machine, name)] == ["dm-0"], name


def test_bios_go_through_other_stacks(fake: FakeMachine) -> None:
    fake.disk("sdb", "8:16")
    above(fake, "dm-0", "253:0", "sda", "sdb")
    assert lower_disks(fake.machine, "dm-0") == ["sda", "sdb"]
    assert [q["name"] for q in sample._queues(fake.machine, "sda")] == ["sda"]
