# SPDX-License-Identifier: GPL-2.0
"""The base: found, checked, extracted whole or not at all."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_checkout import LINES, Checkout, linux

from wblib.base import fs
from wblib.base.paths import TOOLS
from wblib.kernel import upstream
from wbtop.errors import WbError


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build directory of its own for the module under test."""
    top = tmp_path / "build"
    for name, value in (("BUILD", top), ("SRC", top / "src")):
        monkeypatch.setattr(upstream, name, value)
    monkeypatch.setattr(fs, "BUILD", top)
    upstream._locate.cache_clear()
    return top


def tarball(tree: Path) -> Path:
    path = tree.parent / "linux.tar.xz"
    subprocess.run(["tar", "-C", tree.parent, "-cJf", path, tree.name], check=True)
    return path


def test_pins_are_complete() -> None:
    for line in upstream.LINES:
        assert len(upstream.pins(line)["SHA256"]) == 64
        assert upstream.pins(line)["PACKAGE"].endswith(line)


def test_tarball_is_extracted_once(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin = upstream.locate(str(tarball(linux(tmp_path / "linux-source-6.12"))))
    assert "is not the tested" in capsys.readouterr().err
    assert not origin.pinned
    stock = upstream.stock(origin)
    assert (stock / "mm/page-writeback.c").read_text() == LINES
    assert json.loads((stock / upstream.STAMP).read_text())["version"] == "6.12.117"
    (stock / "mm/page-writeback.c").write_text("still the same tree")
    assert upstream.stock(origin) == stock
    assert (stock / "mm/page-writeback.c").read_text() == "still the same tree"


def test_the_newest_of_several_versions() -> None:
    assert upstream.newest(["linux-source-7.9", "linux-source-7.10", "linux-source-7.3", "linux-source-7.9"]) == [
        "linux-source-7.10", "linux-source-7.9", "linux-source-7.3"]


def test_what_stands_in_for_the_pinned_mainline(build: Path, tmp_path: Path) -> None:
    if (Path("/usr/src") / f"{upstream.pins(upstream.MAINLINE)['PACKAGE']}.tar.xz").exists():
        pytest.skip("this machine has mainline's own package")
    made = tarball(linux(tmp_path / "linux-source-7.10", "7.10"))
    (build / "dl").mkdir(parents=True)
    (build / "dl/linux-source-7.9.tar.xz").write_bytes(b"not this one")
    stand_in = build / "dl/linux-source-7.10.tar.xz"
    shutil.copy(made, stand_in)
    found = upstream.locate(upstream.MAINLINE)
    assert (found.path, found.line, found.substitute) == (stand_in, upstream.MAINLINE, True)
    assert not upstream.locate(str(made)).substitute  # that is what was asked for


def test_tree_is_copied_without_git(build: Path, tmp_path: Path) -> None:
    tree = linux(tmp_path / "linux")
    (tree / ".git").mkdir()
    stock = upstream.stock(upstream.locate(str(tree)))
    assert (stock / "lib/blob.o").exists()
    assert not (stock / ".git").exists()


def test_another_base_replaces_the_tree(build: Path, tmp_path: Path) -> None:
    upstream.stock(upstream.locate(str(linux(tmp_path / "one"))))
    other = linux(tmp_path / "two")
    (other / "lib/other.c").write_text("other\n")
    stock = upstream.stock(upstream.locate(str(other)))
    assert (stock / "lib/other.c").read_text() == "other\n"
    assert sorted(p.name for p in stock.parent.iterdir()) == ["stock"]


def test_changed_tree_is_another_base(build: Path, tmp_path: Path) -> None:
    tree = linux(tmp_path / "linux")
    before = upstream.locate(str(tree)).ident
    (tree / "lib/other.c").write_text("other\n")
    upstream._locate.cache_clear()
    assert upstream.locate(str(tree)).ident != before


def test_wrong_version_leaves_nothing(build: Path, tmp_path: Path) -> None:
    with pytest.raises(WbError, match=r"is Linux 6\.11\.117, the series is for 6\.12\.y and 7\.3\.y"):
        upstream.locate(str(linux(tmp_path / "linux", "6.11")))
    with pytest.raises(WbError, match=r"is Linux 6\.11\.117"):
        upstream.locate(str(tarball(tmp_path / "linux")))
    assert not (build / "src").exists()


def test_not_a_kernel(build: Path, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    with pytest.raises(WbError, match="not a Linux source tree"):
        upstream.locate(str(tmp_path))
    with pytest.raises(WbError, match="no such file or directory"):
        upstream.locate(str(tmp_path / "absent"))


def test_built_tree_is_refused(build: Path, tmp_path: Path) -> None:
    tree = linux(tmp_path / "linux")
    (tree / ".config").write_text("")
    with pytest.raises(WbError, match="make mrproper"):
        upstream.locate(str(tree))


def test_truncated_tarball_leaves_nothing(build: Path, tmp_path: Path) -> None:
    path = tarball(linux(tmp_path / "linux"))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(WbError, match=r"extracting linux\.tar\.xz failed"):
        upstream.stock(upstream.locate(str(path)))
    assert list((build / "src").iterdir()) == []


def test_no_space_is_said_before_work(build: Path, tmp_path: Path) -> None:
    with pytest.raises(WbError, match=r"needs 1e\+09 GiB in .* are free: free some, or set WB_BUILD"):
        fs.need_space(build / "not/yet/there", 1e9, "the kernel source")


@pytest.mark.parametrize("extracted", [False, True])
def test_fetch_copies_only_what_exists(build: Path, tmp_path: Path, extracted: bool) -> None:
    origin = upstream.locate(str(tarball(linux(tmp_path / "linux"))))
    if extracted:
        upstream.stock(origin)
    out = tmp_path / "out"
    upstream.fetch(origin, ["block/blk-wbt.c", "block/not-there.c"], out)
    assert [str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()] == ["block/blk-wbt.c"]


def test_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    error = checkout.wb("build", ok=False, base=linux(tmp_path / "old", "5.10"))
    assert "old is Linux 5.10.117" in error
    assert "6.12" in error


def test_without_package_lists_a_dry_run_says_what_would_be_done(tmp_path: Path) -> None:
    tools = tmp_path / "tools/writeback"
    tools.mkdir(parents=True)
    for name in ("base", "requirements.txt"):
        shutil.copy(TOOLS / name, tools)
    script = tools / "install-deps"
    # Whatever this machine has installed.
    script.write_text((TOOLS / "install-deps").read_text().replace("/usr/src/", f"{tmp_path}/"))
    for name, code in (("apt-cache", 100), ("apt-get", 0), ("dpkg-query", 0), ("sudo", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    env = {k: v for k, v in os.environ.items() if k not in ("BASE", "WB_BUILD")}
    done = subprocess.run(["bash", script, "--dry-run"], env=env | {"PATH": f"{tmp_path}:{env['PATH']}"},
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    package = upstream.pins()["PACKAGE"]
    assert f"{package} is not in the package lists here; after the update: {upstream.pins()['VERSION']}" in done.stdout
    assert re.search(rf"^\+ .*apt-get install .* {package} ", done.stdout, re.MULTILINE)
    assert not (tmp_path / "build").exists()
