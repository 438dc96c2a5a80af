# SPDX-License-Identifier: GPL-2.0
"""Kernel packages in guests: what does not hold there is named. The guests themselves: wb package --guest."""

import json
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from wblib.cli import main
from wblib.ship import package_guest as pg
from wbtop.errors import WbError

STATE = "scheduler none\nmax_sectors_kb 1280\nstrict_limit 0"


def named(*whats: str) -> str:
    """watch's report with backing devices of these names."""
    return json.dumps({"devices": [{"name": "b", "what": what} for what in whats]})


def printed(**changes: object) -> str:
    """What a guest in which everything is right prints, with ``changes`` of parts: output, or output and code."""
    watch = {"notes": [], "throttle": {}, "tasks": [{"pid": 105, "slept_ms": 1900.0, "cause": "global"}],
             "devices": [{"name": "vda", "write_rate": 0.9 * pg.DISK_BPS, "read": {"max_us": 9e4}, "dirty": 4096}]}
    field = {"facts": {"fs": "ext4"}, "medians": {"A": {"drain_s": 1.5}}}
    parts = {"mount": "", "version": "wb 1.0", "release": "6.1.0-x", "watch": json.dumps(watch, indent=1),
             "view": "wb watch: 1.0 s", "left": "", "field": json.dumps(field, indent=1), "page": "<!doctype html>",
             "names": named(*pg.NAMED.values()), "held": "", "before": STATE, "tune": "{}",
             "apply-read-latency": "", "state-read-latency": "max_sectors_kb 128",
             "apply-unplug": "", "state-unplug": "strict_limit 1", "undo": "", "after": STATE}
    text = "".join(f"wb-guest-has {kind}\n" for kind in changes.get("has", pg.NAMED))
    for name, good in parts.items():
        said = changes.get(name, good)
        out, code = said if isinstance(said, tuple) else (said, 0)
        text += f"wb-guest-begin {name}\n{out}\nwb-guest-end {name} {code}\n"
        text += f"wb-guest-err {name} {changes[name + '_err']}\n" if f"{name}_err" in changes else ""
    text += "wb-guest-series\n" if changes.get("series") else ""
    return f"{text}wb-guest-writer {changes.get('writer', 105)}\nwb-guest-over\n"


def problems(**changes: object) -> list[str]:
    return [name for name, problem in pg.judge(printed(**changes), "6.1.0-x", "1.0") if problem]


def test_all_is_right() -> None:
    assert problems() == []


BLIND = {"notes": ["3 trace lines were not understood"], "throttle": {}, "tasks": [], "devices": []}


@pytest.mark.parametrize(("changes", "named"), [
    ({"watch": ""}, "every event is understood"), ({"watch": json.dumps(BLIND)}, "every event is understood"),
    ({"watch": json.dumps(BLIND | {"notes": []})}, "the writer is seen to sleep"),
    ({"writer": 9}, "for the system's limit"), ({"field": ("", 1)}, "field ends well"),
    ({"view_err": "Traceback (most recent call last):"}, "view ends well"), ({"release": "5"}, "it is that kernel"),
    ({"left": "wb-watch-9-reads"}, "no instance of tracing is left"), ({"version": "wb 2"}, "version"),
    ({"field": json.dumps({"facts": {"fs": "tmpfs"}})}, "field measured on ext4 of vda"),
    ({"tune": ("", 1)}, "tune ends well"), ({"after": "scheduler none"}, "everything is as it was after undo"),
    ({"state-read-latency": "max_sectors_kb 1280"}, "max_sectors_kb is set for reads"),
    ({"state-unplug": "strict_limit 0"}, "strict_limit is set for unplugging")])
def test_what_is_wrong_is_named(changes: dict[str, object], named: str) -> None:
    assert named in problems(**changes)


def test_what_has_a_backing_device_has_a_name() -> None:
    unnamed = {"names": named("wb-mapped", "/tmp/image", "")}
    assert problems(**unnamed) == ["a device of fuse is named"]
    assert problems(**unnamed, has=["loop", "device-mapper"]) == []
    assert len(problems(names="")) == 3


def of_the_series(**more: object) -> dict[str, object]:
    watch = {"source": "counters", "notes": [], "throttle": {},
             "tasks": [{"pid": 105, "slept_ms": 1900.0, "cause": "global"}],
             "devices": [{"name": "vda", "write_rate": 0.9 * pg.DISK_BPS, "read": {"max_us": 9e4}, "dirty": 4096,
                          "inflight_estimated": False}]}
    return {"series": True, "watch": json.dumps(watch | more), "state-read-latency": "wbt_policy requests [bytes]",
            "state-unplug": "max_drain_ms 2000", "held": held()}


def held(task: float = 1900.12, disk: float = 1900.12, system: float = 1900.1, sleeps: int = 40) -> str:
    """watch's second report, on one line, with the sleep that each counter has, in ms."""
    return json.dumps({"throttle": {"slept_ms": system, "sleeps": 40},
                       "tasks": [{"pid": 105, "slept_ms": task, "sleeps": sleeps}],
                       "devices": [{"name": "loop0", "slept_ms": 0.0}, {"name": "vda", "slept_ms": disk}]})


def test_on_a_kernel_with_the_series_its_knobs_and_counters_are_looked_at() -> None:
    assert problems(**of_the_series()) == []
    for changes, named in (({"state-read-latency": "wbt_policy [requests] bytes"}, "wbt_policy is set for reads"),
                           ({"state-unplug": "max_drain_ms 0"}, "max_drain_ms is set for unplugging")):
        assert named in problems(**of_the_series() | changes)
    assert "watch reads the kernel's counters" in problems(**of_the_series(source="tracepoints"))
    for report in (held(task=1900.2), held(disk=1900.0), held(system=1901), held(0, 0, 0), held(50, 50, 50),
                   held(sleeps=39), ""):
        assert problems(**of_the_series() | {"held": report}) == ["task, disk and system count the same sleep"]


def test_a_kernel_that_we_have_built(tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    image.write_bytes(b"i")
    assert pg.own(image) is None
    (tmp_path / "release").write_text("6.12.117\n")
    assert pg.own(image) == "6.12.117"
    assert pg.own(tmp_path / "k.deb") is None


def kernel_package(tmp_path: Path, files: dict[str, bytes]) -> Path:
    root = tmp_path / "p"
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text("Package: k\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n")
    deb = tmp_path / "k.deb"
    subprocess.run(["dpkg-deb", "--build", root, deb], check=True, capture_output=True)
    return deb


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")
@pytest.mark.parametrize("files", [{"boot/vmlinuz-6.1.0-x": b"i"}, {"usr/lib/modules/6.1.0-x/vmlinuz": b"i"}])
def test_unpack(files: dict[str, bytes], tmp_path: Path) -> None:
    release, image = pg.unpack([kernel_package(tmp_path, files)], tmp_path / "root")
    assert release == "6.1.0-x"
    assert image.read_bytes() == b"i"
    with pytest.raises(WbError, match="not a package of one kernel"):
        pg.unpack([kernel_package(tmp_path / "q", {"usr/x": b""})], tmp_path / "none")


def test_modules_come_in_the_order_of_their_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "lib/modules/6.1.0-x"
    base.mkdir(parents=True)
    (base / "virtio_ring.ko").write_bytes(b"ring")
    (base / "virtio_blk.ko.xz").write_bytes(lzma.compress(b"blk"))
    monkeypatch.setattr(pg, "run", lambda *_, **__: None)
    monkeypatch.setattr(pg, "need", lambda name, _package: name)

    def show_depends(argv: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        known = f"insmod {base}/virtio_ring.ko\ninsmod {base}/virtio_blk.ko.xz \n"
        return subprocess.CompletedProcess(argv, 0, known if argv[-1] == "virtio_blk" else "builtin ext4\n", "")
    monkeypatch.setattr(pg.subprocess, "run", show_depends)
    assert pg.modules(tmp_path, "6.1.0-x") == [("virtio_ring.ko", b"ring"), ("virtio_blk.ko", b"blk")]
    assert pg.modules(tmp_path, "7") == []


def test_no_such_package(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wblib.ship.package.build", lambda out: (out / "wb", out / "deb"))
    assert main(["package", "--out", str(tmp_path), "--guest", str(tmp_path / "no.deb")]) == 2
    assert "no such file" in capsys.readouterr().err
