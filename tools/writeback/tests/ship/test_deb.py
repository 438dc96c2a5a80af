# SPDX-License-Identifier: GPL-2.0
"""Packages: the configuration they are built with, and the DKMS package."""

import argparse
import gzip
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from wblib.kernel import upstream
from wblib.ship import deb, dkms
from wbtop.errors import WbError


def test_slim_is_the_measured_kernel_and_what_a_disk_needs() -> None:
    wanted = deb.wanted_config("slim", series=True).splitlines()
    for line in ("CONFIG_HZ_1000=y", "CONFIG_EFI_STUB=y", "CONFIG_VFAT_FS=m", "CONFIG_BLK_WBT_KUNIT_TEST=y"):
        assert line in wanted
    assert "CONFIG_BLK_WBT_KUNIT_TEST=y" not in deb.wanted_config("slim", series=False).splitlines()


def test_a_distribution_s_configuration_loses_its_keys(tmp_path: Path) -> None:
    mine = tmp_path / "my.config"
    mine.write_text('CONFIG_MODULES=y\nCONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/x.pem"\n')
    lines = deb.wanted_config(str(mine), series=True).splitlines()
    # kconfig takes the last line about an option
    keys = [line for line in lines if line.startswith("CONFIG_SYSTEM_TRUSTED_KEYS=")]
    assert keys[-1] == 'CONFIG_SYSTEM_TRUSTED_KEYS=""'
    assert "CONFIG_BLK_WBT_MQ=y" in lines


def test_a_compressed_configuration_is_read(tmp_path: Path) -> None:
    mine = tmp_path / "config.gz"
    mine.write_bytes(gzip.compress(b"CONFIG_MODULES=y\n"))
    assert deb.read_config(str(mine)) == "CONFIG_MODULES=y\n"


def test_only_what_can_be_installed_is_packaged() -> None:
    with pytest.raises(WbError, match="unknown kernel 'replay'") as caught:
        deb.build("replay")
    assert caught.value.code == 2


def test_a_damaged_or_endless_configuration_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "config.gz"
    for data in (b"hello", gzip.compress(b"CONFIG_MODULES=y\n" * 9)[:-9]):
        mine.write_bytes(data)
        with pytest.raises(WbError, match="can be read"):
            deb.read_config(str(mine))
    with pytest.raises(WbError, match="not a kernel configuration"):
        deb.read_config("/dev/zero")


@pytest.mark.parametrize(("text", "said"), [(None, "can be read"), ("hello\n", "not a kernel configuration")])
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    mine = tmp_path / "my.config"
    if text is not None:
        mine.write_text(text)
    with pytest.raises(WbError, match=said) as caught:
        deb.read_config(str(mine))
    assert caught.value.code == 2


def test_copied_objects_know_their_new_name_and_keep_their_time(tmp_path: Path) -> None:
    recorded = tmp_path / "tools/objtool/.check.o.cmd"
    recorded.parent.mkdir(parents=True)
    recorded.write_text("cmd := gcc -o /b/out-slim/tools/check.o\n")
    os.utime(recorded, (1000, 1000))
    deb._rename_tools(tmp_path, "/b/out-slim", "/b/out-deb-slim")
    assert recorded.read_text() == "cmd := gcc -o /b/out-deb-slim/tools/check.o\n"
    assert recorded.stat().st_mtime == 1000


def test_the_dkms_package_is_whole_and_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dkms, "BUILD", tmp_path)
    (tmp_path / "deb").mkdir()
    first = dkms.build().read_bytes()
    package = dkms.build()
    package.unlink()
    assert dkms.build().read_bytes() == first
    root = tmp_path / "x"
    subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    source, = root.glob("usr/src/wbdisk-*")
    conf = (source / "dkms.conf").read_text()
    assert f'PACKAGE_VERSION="{source.name.removeprefix("wbdisk-")}"' in conf
    assert not list(source.rglob("*kunit*.c"))
    objects = (source / "Makefile").read_text()
    assert "kunit" not in objects
    # every object has its source, every source but the headers is an object
    named = {folder + word for folder, words in re.findall(r"\$\(addprefix (\w+/wbdisk_),([\w. ]+)\)", objects)
             for word in words.split()}
    assert named == {str(p.relative_to(source).with_suffix(".o")) for p in source.rglob("*.c")}
    # DKMS skips what does not match: it has to be built for both lines, and nothing older.
    only = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.*)"$', conf, re.M)
    assert only
    releases = (*(upstream.pins(line)["VERSION"] for line in upstream.LINES), "7.10.2-calm", "6.1.0-9-amd64", "6.13.1")
    assert [bool(re.search(only[1], release)) for release in releases] == [True, True, True, False, False]
    fields = subprocess.run(["dpkg-deb", "-f", package, "Depends", "Version"], capture_output=True, text=True,
                            check=True).stdout
    assert "dkms" in fields and dkms.version() in fields


@pytest.mark.parametrize(("words", "files"), [([], "/d/i.deb /d/h.deb"), (["--dkms"], "/d/i.deb /d/h.deb /d/w.deb")])
def test_all_packages_are_installed_by_one_command(
    words: list[str], files: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    made = SimpleNamespace(release="r", version="v", image=Path("/d/i.deb"), headers=Path("/d/h.deb"))
    monkeypatch.setattr(deb, "build", lambda *_: made)
    monkeypatch.setattr(dkms, "build", lambda: Path("/d/w.deb"))
    top = argparse.ArgumentParser()
    deb.register(top.add_subparsers())
    args = top.parse_args(["deb", *words])
    assert args.func(args) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"install    sudo apt install {files}"
