# SPDX-License-Identifier: GPL-2.0
"""Conflicts with tuned, other sysctl.d and udev files."""

from pathlib import Path

import pytest
from fake_machine import FakeMachine

from wbtop.tune import profiles
from wbtop.tune.profiles import TUNED, conflicts, profile_settings

KEYS = ["vm.dirty_bytes", "queue.sda.scheduler", "bdi.max_bytes"]


@pytest.fixture(name="fake")
def _fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_nobody(fake: FakeMachine) -> None:
    assert conflicts(fake.machine, KEYS) == []


def test_known_profile_without_its_file(fake: FakeMachine) -> None:
    fake.write("/etc/tuned/active_profile", "latency-performance\n")
    found = conflicts(fake.machine, KEYS)
    assert [str(c) for c in found] == ["tuned's active profile latency-performance sets vm.dirty_ratio = 10"]
    fake.write("/etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n")
    assert conflicts(fake.machine, KEYS)[0].wins


def test_profile_with_include_and_elevator(fake: FakeMachine) -> None:
    fake.write("/etc/tuned/active_profile", "mine\n")
    fake.write("/etc/tuned/profiles/mine/tuned.conf",
               "[main]\ninclude=base\n[sysctl]\nvm.dirty_bytes = 40%\n[disk]\nelevator=bfq\n")
    fake.write("/usr/lib/tuned/base/tuned.conf", "[sysctl]\nvm.dirty_background_ratio=3\nvm.swappiness=1\n")
    assert profile_settings(fake.machine, "mine") == {
        "vm.dirty_background_ratio": "3", "vm.dirty_ratio": "40", "elevator": "bfq"}
    assert [(c.setting, c.wins) for c in conflicts(fake.machine, KEYS)] == [
        ("vm.dirty_ratio = 40", False), ("elevator = bfq", True)]


def test_profile_with_the_plugin_vm(fake: FakeMachine) -> None:
    """As tuned 2.25 has them: Debian 13's throughput-performance was not seen to set anything."""
    fake.write("/etc/tuned/active_profile", "throughput-performance\n")
    fake.write("/usr/lib/tuned/profiles/throughput-performance/tuned.conf",
               "[main]\n[vm]\ndirty_ratio = 40\ntransparent_hugepages=never\n"
               "[vm.x]\ntype=vm\ndirty_background_bytes=7\n")
    assert profile_settings(fake.machine, "throughput-performance") == {
        "vm.dirty_ratio": "40", "vm.dirty_background_bytes": "7"}
    assert [c.setting for c in conflicts(fake.machine, ["vm.dirty_bytes"])] == ["vm.dirty_ratio = 40"]


@pytest.mark.parametrize("text", ["no section\n", "[main]\ninclude=loop\n", "[sysctl\n", "\x00\xff"])
def test_broken_profile(fake: FakeMachine, text: str) -> None:
    fake.write("/etc/tuned/loop/tuned.conf", text)
    assert profile_settings(fake.machine, "loop") == {}


def test_profile_names_stay_in_their_directory(fake: FakeMachine) -> None:
    fake.write("/etc/tuned.conf", "[sysctl]\nvm.dirty_ratio=1\n")
    assert profile_settings(fake.machine, "..") == {}
    assert profile_settings(fake.machine, "../x") == {}


def test_other_files(fake: FakeMachine) -> None:
    fake.write("/etc/sysctl.d/99-mine.conf", "# vm.dirty_bytes = 1\n-vm.dirty_ratio = 5\n")
    fake.write("/usr/lib/sysctl.d/10-dist.conf", "vm/dirty_bytes=2\n")
    fake.write("/usr/lib/sysctl.d/99-mine.conf", "vm.dirty_bytes = 3\n")  # hidden by the one in /etc
    fake.write("/etc/sysctl.conf", "vm.dirty_background_bytes=4\n")
    fake.write(profiles.SYSCTL_FILE, "vm.dirty_bytes = 9\n")
    fake.write("/etc/udev/rules.d/60-io.rules", 'KERNEL=="sd*", \\\n  ATTR{queue/scheduler}="bfq"\n')
    found = {(c.who.rsplit("/", 1)[1], c.setting, c.wins) for c in conflicts(fake.machine, KEYS)}
    assert found == {("10-dist.conf", "vm.dirty_bytes = 2", False), ("99-mine.conf", "vm.dirty_ratio = 5", True),
                     ("60-io.rules", "queue/scheduler = bfq, for some disks", False)}


BTRFS = """\
SUBSYSTEM!="block", GOTO="btrfs_end"
ACTION!="add|change", GOTO="btrfs_end"
ENV{ID_FS_TYPE}!="btrfs", GOTO="btrfs_end"
ATTR{queue/zoned}=="host-managed", ATTR{queue/scheduler}="mq-deadline"
LABEL="btrfs_end"
"""


@pytest.mark.parametrize(("rules", "zoned", "sets"), [
    (BTRFS, "none", []), (BTRFS, "host-managed", ["mq-deadline"]),
    ('KERNEL!="nvme*", GOTO="end"\nATTR{queue/scheduler}="none"\nLABEL="end"\n', "none", []),
    ('KERNEL!="sd[a-z]|vd*", GOTO="end"\nATTR{queue/scheduler}="bfq"\nLABEL="end"\n', "none", ["bfq"]),
    ('ENV{ID_BUS}!="usb", GOTO="end"\nATTR{queue/scheduler}="bfq"\nLABEL="end"\n', "none", ["bfq"]),
    ('# ATTR{queue/scheduler}="bfq"\nACTION=="remove", ATTR{queue/scheduler}="none"\n', "none", []),
    ('ACTION=="change", ATTR{queue/scheduler}="none"\n', "none", ["none"]),
    ('ATTR{removable}=="1", ATTR{queue/scheduler}="bfq"\n', "none", [])])
def test_a_rule_for_other_disks_is_no_conflict(rules: str, zoned: str, sets: list[str], fake: FakeMachine) -> None:
    """On every Debian with btrfs-progs the rule for zoned disks was one."""
    fake.write("/sys/block/sda/queue/zoned", f"{zoned}\n")
    fake.write("/usr/lib/udev/rules.d/64-x.rules", rules)
    found = [c.setting for c in conflicts(fake.machine, KEYS)]
    assert found == [f"queue/scheduler = {s}, for some disks" for s in sets]


def test_sysctl_conf_counts_where_it_is_read(fake: FakeMachine) -> None:
    """Debian 12 links it into sysctl.d, where it was named twice; Debian 13 does not read it: "it will win"."""
    fake.write("/etc/sysctl.conf", "vm.dirty_bytes=4\n")
    fake.write("/usr/lib/systemd/systemd-sysctl", "")
    assert conflicts(fake.machine, ["vm.dirty_bytes"]) == []
    (fake.root / "etc/sysctl.d").mkdir()
    (fake.root / "etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
    assert [str(c) for c in conflicts(fake.machine, ["vm.dirty_bytes"])] == [
        "/etc/sysctl.d/99-sysctl.conf sets vm.dirty_bytes = 4 and is applied later: it will win"]


def test_every_value_of_tuned_is_a_dirty_setting() -> None:
    assert all(k.startswith("vm.dirty_") and v.isdigit() for p in TUNED.values() for k, v in p.items())
