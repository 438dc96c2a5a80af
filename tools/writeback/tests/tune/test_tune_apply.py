# SPDX-License-Identifier: GPL-2.0
"""Apply and undo: values, files and backup, also when the kernel refuses or the disk goes."""

import json
from pathlib import Path

import pytest
from fake_machine import PART, FakeMachine, measured

from wbtop.errors import WbError
from wbtop.machine import Machine
from wbtop.tune import apply as tune_apply
from wbtop.tune import facts as tune_facts
from wbtop.tune import persist
from wbtop.tune import rules as tune_rules
from wbtop.tune.apply import BACKUP
from wbtop.tune.profiles import SYSCTL_FILE, UDEV_FILE

DIRTY = "/proc/sys/vm/dirty_bytes"


class Kernel(FakeMachine):
    """Files that behave as the kernel's: brackets, exclusive ratio and bytes, shares for max_bytes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.refuse = ""
        self.written: list[tuple[str, str]] = []
        monkeypatch.setattr(tune_apply, "_write", self.store)

    def store(self, machine: Machine, file: str, value: str) -> None:
        self.written.append((file, value))
        if self.refuse and file.endswith(self.refuse):
            raise OSError(22, "Invalid argument", file)
        name = file.rsplit("/", 1)[1]
        if name == "scheduler":
            if self.machine.choice(file) != value:
                self.switch(value)
            return
        if name == "nr_requests" and (self.root / "sys/devices/sda/queue/iosched/async_depth").exists():
            self.queue(**{"iosched/async_depth": value})
        if name == "wbt_policy":
            value = "requests bytes".replace(value, f"[{value}]")
        elif name in ("dirty_bytes", "dirty_ratio", "dirty_background_bytes", "dirty_background_ratio"):
            if self.read(file).strip() == value:
                return  # the same again is ignored
            twin = file.replace("bytes", "ratio") if "bytes" in file else file.replace("ratio", "bytes")
            self.write(twin, "0\n")
        elif name == "max_ratio_fine":
            self.bdi(max_bytes=str(644_243_456 * int(value) // 1_000_000))
        elif name == "max_bytes":
            self.bdi(max_ratio_fine=str(int(value) * 1_000_000 // 644_243_456))
        self.write(file, value + "\n")


@pytest.fixture(name="kernel")
def _kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def apply(kernel: Kernel, goal: str, rate: float = 450.0) -> list[str]:
    facts = tune_facts.read(kernel.machine, "/srv", PART)
    return tune_apply.apply(kernel.machine, facts, tune_rules.recommend(facts, measured(rate), goal))


@pytest.mark.parametrize(("goal", "rate"), [("read-latency", 450.0), ("throughput", 450.0), ("database", 50.0),
                                            ("unplug", 20.0)])
def test_round_trip(kernel: Kernel, goal: str, rate: float) -> None:
    before = kernel.everything()
    apply(kernel, goal, rate)
    assert kernel.everything() != before
    assert (kernel.root / BACKUP.lstrip("/")).exists()
    done, failed = tune_apply.undo(kernel.machine)
    assert not failed
    assert done
    assert kernel.everything() == before


def test_what_is_written(kernel: Kernel) -> None:
    apply(kernel, "read-latency")
    assert kernel.read("/sys/devices/sda/queue/scheduler").startswith("[none]")
    rules = kernel.read(UDEV_FILE).splitlines()
    assert rules[-1] == ('ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", '
                         'ENV{ID_SERIAL}=="Model_3_S1234", ATTR{queue/scheduler}="none", '
                         'ATTR{queue/max_sectors_kb}="128"')
    assert not (kernel.root / SYSCTL_FILE.lstrip("/")).exists()
    apply(kernel, "database", 50.0)
    sysctl = kernel.read(SYSCTL_FILE)
    assert "vm.dirty_background_bytes = 49283072\n" in sysctl
    # What the first call set is for the next boot still.
    assert 'ATTR{queue/scheduler}="none", ATTR{queue/max_sectors_kb}="128"' in kernel.read(UDEV_FILE)
    apply(kernel, "unplug", 20.0)
    assert kernel.read(SYSCTL_FILE) == sysctl
    assert len(kernel.read(UDEV_FILE).splitlines()) == len(rules)
    assert kernel.read(UDEV_FILE).splitlines()[-1].startswith(rules[-1] + ", ATTR{bdi/max_bytes}=")


def test_the_later_value_of_a_key_is_the_one_of_the_next_boot(kernel: Kernel) -> None:
    apply(kernel, "database", 50.0)
    apply(kernel, "throughput")
    apply(kernel, "database", 20.0)
    for name in ("dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio"):
        said = [x.split(" = ")[1] for x in kernel.read(SYSCTL_FILE).splitlines() if x.startswith(f"vm.{name} = ")]
        assert said in ([], [kernel.read(f"/proc/sys/vm/{name}").strip()])
    facts = tune_facts.read(kernel.machine, "/srv", PART)
    two = [tune_rules.Advice(f"vm.{name}", "", "", "1", name) for name in ("dirty_bytes", "dirty_expire_centisecs")]
    text = persist.sysctl_text([tune_rules.Advice("vm.dirty_ratio", "", "", "5", "why")],
                               persist.sysctl_text(two))
    assert text == persist.HEAD + "# dirty_expire_centisecs\nvm.dirty_expire_centisecs = 1\n" \
                                       "# why\nvm.dirty_ratio = 5\n"
    rules = ""
    for key, value in (("wbt_lat_usec", "1"), ("scheduler", "bfq"), ("wbt_lat_usec", "2")):
        rules = persist.udev_text(facts, [tune_rules.Advice(f"queue.sda.{key}", "", "", value, "")], rules)
    assert rules.endswith('=="Model_3_S1234", ATTR{queue/scheduler}="bfq", ATTR{queue/wbt_lat_usec}="2"\n')


def test_twice_keeps_the_first_backup(kernel: Kernel) -> None:
    before = kernel.everything()
    apply(kernel, "database", 50.0)
    apply(kernel, "throughput", 450.0)
    apply(kernel, "database", 20.0)
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_bytes_in_force_come_back_as_bytes(kernel: Kernel) -> None:
    kernel.write(DIRTY, "700000000\n")
    kernel.write("/proc/sys/vm/dirty_ratio", "0\n")
    before = kernel.everything()
    apply(kernel, "throughput")
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_a_file_of_somebody_else_comes_back(kernel: Kernel) -> None:
    kernel.write(UDEV_FILE, "# mine\n")
    apply(kernel, "read-latency")
    assert "# mine" not in kernel.read(UDEV_FILE)
    tune_apply.undo(kernel.machine)
    assert kernel.read(UDEV_FILE) == "# mine\n"


def test_refused_value_puts_everything_back(kernel: Kernel) -> None:
    before = kernel.everything()
    kernel.refuse = "max_sectors_kb"
    with pytest.raises(WbError, match=r"max_sectors_kb: Invalid argument; every value is as it was"):
        apply(kernel, "read-latency")
    assert kernel.everything() == before
    assert not (kernel.root / BACKUP.lstrip("/")).exists()


def test_refused_value_keeps_what_was_applied_before(kernel: Kernel) -> None:
    first = kernel.everything()
    apply(kernel, "unplug", 20.0)
    second = kernel.everything()
    kernel.refuse = "max_sectors_kb"
    with pytest.raises(WbError, match=r"max_sectors_kb: Invalid argument; every value is as it was"):
        apply(kernel, "read-latency")
    assert kernel.everything() == second
    kernel.refuse = ""
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == first


@pytest.mark.parametrize(("full", "before", "said"), [
    (BACKUP, None, "nothing was changed"), (UDEV_FILE, None, "every value is as it was"),
    (UDEV_FILE, "# mine\n", "every value is as it was")])
def test_a_full_disk_puts_everything_back(full: str, before: str | None, said: str, kernel: Kernel,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "None: No space left on device", "not restored", a backup that no undo could remove, a file .new."""
    if before:
        kernel.write(UDEV_FILE, before)
    first = kernel.everything()

    def fsync(fd: int) -> None:
        if Path(full).name in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(28, "No space left on device")
    monkeypatch.setattr(tune_apply.os, "fsync", fsync)
    with pytest.raises(WbError, match=rf"{full}: No space left on device.*{said}"):
        apply(kernel, "read-latency")
    assert kernel.everything() == first


def test_a_read_only_etc_puts_everything_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to remove what is not there, too."""
    first = kernel.everything()
    unlink = Path.unlink

    def refused(self: Path, missing_ok: bool = False) -> None:
        if "etc" in self.parts:
            raise OSError(30, "Read-only file system", str(self))
        unlink(self, missing_ok)
    replace = tune_apply.replace
    monkeypatch.setattr(tune_apply, "replace", lambda path, text: refused(path) if "etc" in path.parts
                        else replace(path, text))
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(WbError, match="Read-only file system; every value is as it was"):
        apply(kernel, "read-latency")
    assert kernel.everything() == first


def test_what_the_scheduler_had_comes_back_with_it(kernel: Kernel) -> None:
    before = kernel.everything()
    apply(kernel, "read-latency")
    assert kernel.read("/sys/devices/sda/queue/nr_requests") == "32\n"
    kernel.refuse = "nr_requests"
    failed = tune_apply.undo(kernel.machine)[1]
    assert failed == ["/sys/block/sda/queue/nr_requests = 64 (reads 256)"]
    kernel.refuse = ""
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_async_depth_of_the_queue_comes_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.3 has it there, whatever the scheduler, and resets it with each switch; without one it takes none."""
    depth = "/sys/devices/sda/queue/async_depth"
    kernel.queue(async_depth="48")
    store = kernel.store

    def of_7_3(machine: Machine, file: str, value: str) -> None:
        if file.endswith("queue/async_depth") and machine.choice("/sys/block/sda/queue/scheduler") == "none":
            raise OSError(22, "Invalid argument", file)
        store(machine, file, value)
        if file.endswith("/scheduler"):
            kernel.write(depth, "32\n" if value == "none" else "256\n")
        elif file.endswith("/nr_requests"):
            kernel.write(depth, f"{value}\n")

    monkeypatch.setattr(tune_apply, "_write", of_7_3)
    before = kernel.everything()
    apply(kernel, "read-latency")
    assert kernel.read(depth) == "32\n"
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_a_disk_that_is_gone_is_no_failure(kernel: Kernel) -> None:
    apply(kernel, "unplug", 20.0)
    for name in ("max_bytes", "max_ratio_fine", "strict_limit", "max_ratio"):
        (kernel.root / f"sys/class/bdi/8:0/{name}").unlink()
    done, failed = tune_apply.undo(kernel.machine)
    assert not failed
    assert any("gone with its disk" in line for line in done)


def test_a_multipath_map_is_known_by_its_uuid(kernel: Kernel) -> None:
    kernel.write("/run/udev/data/b253:0", "E:DM_NAME=mpatha\nE:DM_UUID=mpath-3600508b4\n")
    assert tune_facts.identity_of(kernel.machine, "253:0") == ("DM_UUID", "mpath-3600508b4")
    kernel.write("/run/udev/data/b8:0", "E:DM_UUID=mpath-3600508b4\n")
    apply(kernel, "read-latency")
    head, rule = kernel.read(UDEV_FILE).splitlines()
    assert f"{head}\n" == persist.HEAD  # it is not by kernel name
    assert 'ENV{DM_UUID}=="mpath-3600508b4"' in rule


@pytest.mark.parametrize("udev", ["E:ID_SERIAL=Other_1\n", ""])
@pytest.mark.parametrize(("goal", "rate", "name"), [("read-latency", 450.0, "sda"), ("unplug", 20.0, "8:0")])
def test_another_disk_of_that_name_is_left_alone(kernel: Kernel, goal: str, rate: float, name: str, udev: str) -> None:
    before = kernel.everything()
    apply(kernel, goal, rate)
    serial = kernel.read("/run/udev/data/b8:0")
    kernel.write("/run/udev/data/b8:0", udev)
    applied = kernel.everything()
    says = rf"^{name} was the disk with ID_SERIAL=Model_3_S1234 and has (ID_SERIAL=Other_1|none) now: [^\n]*$"
    with pytest.raises(WbError, match=says):
        tune_apply.undo(kernel.machine)
    with pytest.raises(WbError, match=says):
        apply(kernel, "database", 50.0)
    assert kernel.everything() == applied
    kernel.write("/run/udev/data/b8:0", serial)
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_a_backup_without_disks_is_one_of_before(kernel: Kernel) -> None:
    before = kernel.everything()
    apply(kernel, "read-latency")
    data = json.loads(kernel.read(BACKUP))
    assert data.pop("disks") == {"sda": ["ID_SERIAL", "Model_3_S1234"]}
    kernel.write(BACKUP, json.dumps(data))
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_undo_that_fails_keeps_the_backup(kernel: Kernel) -> None:
    apply(kernel, "read-latency")
    kernel.refuse = "scheduler"
    _, failed = tune_apply.undo(kernel.machine)
    assert failed
    assert (kernel.root / BACKUP.lstrip("/")).exists()
    kernel.refuse = ""
    assert tune_apply.undo(kernel.machine)[1] == []


def test_undo_without_backup(kernel: Kernel) -> None:
    with pytest.raises(WbError, match="nothing was applied"):
        tune_apply.undo(kernel.machine)


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"version": 1}', '{"version": 2, "values": [], "files": {}}',
    '{"version": 1, "values": [["/etc/passwd", "x"]], "files": {}}',
    '{"version": 1, "values": [["/sys/block/../../etc/queue/x", "x"]], "files": {}}',
    '{"version": 1, "values": [], "files": {"/etc/shadow": "x"}}',
    '{"version": 1, "values": [], "files": {}, "disks": {"sda": "x"}}',
    '{"version": 1, "values": [], "files": {"/etc/sysctl.d/90-calm-writeback.conf": 3}}',
])
def test_damaged_backup(kernel: Kernel, text: str) -> None:
    kernel.write(BACKUP, text)
    before = kernel.everything()
    with pytest.raises(WbError, match=r"restore the values by hand"):
        tune_apply.undo(kernel.machine)
    assert kernel.everything() == before


def test_nothing_to_change(kernel: Kernel) -> None:
    kernel.patched()
    assert apply(kernel, "read-latency") == ["nothing to change"]
    assert not (kernel.root / BACKUP.lstrip("/")).exists()


def test_backup_is_written_before_anything_is_changed(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(machine: Machine, file: str, value: str) -> None:
        data = json.loads(machine.text(BACKUP) or "")
        assert next(f for f, _ in data["values"]).endswith("scheduler")
        raise KeyboardInterrupt
    monkeypatch.setattr(tune_apply, "_write", stop)
    with pytest.raises(KeyboardInterrupt):
        apply(kernel, "read-latency")


def test_without_serial_number(kernel: Kernel) -> None:
    (kernel.root / "run/udev/data/b8:0").unlink()
    apply(kernel, "read-latency")
    assert 'KERNEL=="sda"' in kernel.read(UDEV_FILE)
    assert "check it after hardware changes" in kernel.read(UDEV_FILE)


def test_udev_compares_a_name_that_has_a_slash(kernel: Kernel) -> None:
    """KERNEL=="etherd!e0.0" is no disk of udev's, which has put the '/' back that sysfs cannot have."""
    kernel.disk("etherd!e0.0", "152:0")
    facts = tune_facts.read(kernel.machine, "/srv", "152:0")
    tune_apply.apply(kernel.machine, facts, tune_rules.recommend(facts, measured(), "read-latency"))
    assert kernel.read("/sys/devices/etherd!e0.0/queue/max_sectors_kb") == "128\n"
    assert 'KERNEL=="etherd/e0.0", ATTR{queue/max_sectors_kb}="128"' in kernel.read(UDEV_FILE)


def test_a_scheduler_that_changes_wbt_when_it_comes_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.virtual()
    kernel.queue(rotational="1", wbt_lat_usec="75000")
    before = kernel.everything()
    apply(kernel, "read-latency")
    assert kernel.read("/sys/devices/sda/queue/wbt_lat_usec") == "2000\n"
    store = kernel.store

    def resets(machine: Machine, file: str, value: str) -> None:
        store(machine, file, value)
        if file.endswith("scheduler"):
            kernel.queue(wbt_lat_usec="2000")

    monkeypatch.setattr(tune_apply, "_write", resets)
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.everything() == before


def test_a_path_of_a_multipath_nvme_is_set_for_now_only(kernel: Kernel) -> None:
    """It got a rule with KERNEL=="nvme0c0n1", for an uevent that the kernel never sends."""
    kernel.disk("nvme0n1", "259:0")
    kernel.disk("nvme0c0n1", "")
    kernel.write("/run/udev/data/b259:0", "E:ID_SERIAL=NV_1\n")
    facts = tune_facts.read(kernel.machine, "/srv", "259:0")
    done = tune_apply.apply(kernel.machine, facts, tune_rules.recommend(facts, measured(), "read-latency"))
    assert kernel.read("/sys/devices/nvme0c0n1/queue/max_sectors_kb") == "128\n"
    assert done[-1].startswith("nvme0c0n1: a path of a multipath NVMe") and "for now only" in done[-1]
    assert not (kernel.root / UDEV_FILE.lstrip("/")).exists()
    assert json.loads(kernel.read(BACKUP))["disks"] == {"nvme0c0n1": ["ID_SERIAL", "NV_1"]}
    kernel.write("/run/udev/data/b259:0", "E:ID_SERIAL=NV_2\n")
    with pytest.raises(WbError, match="nvme0c0n1 was the disk with ID_SERIAL=NV_1 and has ID_SERIAL=NV_2 now"):
        tune_apply.undo(kernel.machine)
    kernel.write("/run/udev/data/b259:0", "E:ID_SERIAL=NV_1\n")
    assert tune_apply.undo(kernel.machine)[1] == []
    assert kernel.read("/sys/devices/nvme0c0n1/queue/max_sectors_kb") == "1280\n"


def test_a_bdi_of_no_disk_gets_no_rule(kernel: Kernel) -> None:
    (kernel.root / "sys/class/bdi/8:0").rename(kernel.root / "sys/class/bdi/8:1")
    done = apply(kernel, "unplug", 20.0)
    assert any("for now only" in line for line in done)
    assert not (kernel.root / UDEV_FILE.lstrip("/")).exists()
