# SPDX-License-Identifier: GPL-2.0
"""The boot check's verdict: one KTAP stream over two boots, whose loss is a failure."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from wblib.base import paths
from wblib.kernel import upstream
from wblib.ship import boot, bootdisk

made: list[bootdisk.Content] = []  # what the disks were made of
FIRST = "BdsDxe: starting Boot0001\nTAP version 13\n1..3\nok 1 it runs\n{second}ok 2 kselftest x\n"


def lines(monkeypatch: pytest.MonkeyPatch, out: Path, first: str, second: str) -> dict[str, str]:
    """What the check says when the two boots print this."""
    def make(content: bootdisk.Content, *_rest: object) -> str:
        made.append(content)
        return "6.1-debian"

    monkeypatch.setattr(boot, "OUT", out / "boot")
    monkeypatch.setattr(boot.deb, "build", lambda _v: SimpleNamespace(release="6.12-calm", headers=out, image=out,
                                                                    kernel=None))
    monkeypatch.setattr(boot.dkms, "build", lambda: out)
    monkeypatch.setattr(boot.kernels, "modules", lambda _k: out)
    monkeypatch.setattr(boot.kernels, "build", lambda _v: SimpleNamespace(image=out))
    monkeypatch.setattr(boot.qemu, "kvm_works", lambda _i: False)
    monkeypatch.setattr(boot.bootdisk, "make", make)
    monkeypatch.setattr(boot.bootdisk, "command", lambda _i, place, _k: [str(place)])

    def execute(argv: list[str], place: Path, **_kw: object) -> tuple[str, float]:
        (place / "ktap").write_text(first if place.name == "first" else second)
        (place / "console.log").write_text("Kernel panic - not syncing: no root\n")
        return "", 1.0

    monkeypatch.setattr(boot.qemu, "execute", execute)
    return dict(boot.lines())


def test_two_boots_are_one_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = lines(monkeypatch, tmp_path, FIRST.format(second=""), "ok 3 Debian is back\n")
    assert len(said) == 4 and not any(said.values())


def test_a_failure_and_what_it_is_in_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nested = "    1..1\n    not ok 1 deep\n"
    said = lines(monkeypatch, tmp_path, FIRST.format(second=nested), "not ok 3 Debian is back\n")
    failed = {name for name, problem in said.items() if problem}
    assert failed == {"boot: kselftest x/deep", "boot: Debian is back"}


@pytest.mark.parametrize("line", upstream.LINES)
def test_each_line_runs_a_case_that_does_not_skip_there(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    monkeypatch.setenv("BASE", line)
    lines(monkeypatch, tmp_path, FIRST.format(second=""), "ok 3 Debian is back\n")
    assert ("ext4-shape" in made[-1].tests) == (line == upstream.LTS)


def test_a_boot_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = lines(monkeypatch, tmp_path, FIRST.format(second=""), "BdsDxe: starting\n")
    assert "kernel panic" in said["boot"]


def test_a_boot_that_ends_early_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = lines(monkeypatch, tmp_path, "TAP version 13\n1..3\nok 1 it runs\n", "ok 2 Debian is back\n")
    assert "2 of 3 results" in said["boot"]


def test_the_disk_boots_by_its_own_loader(tmp_path: Path) -> None:
    if not Path("/usr/share/OVMF").exists():
        pytest.skip("needs the package ovmf")
    argv = bootdisk.command(tmp_path / "disk.img", tmp_path, kvm=False)
    assert "-kernel" not in argv and "-initrd" not in argv
    assert (tmp_path / "vars.fd").exists()


def test_the_stand_in_answers_what_grub_mkconfig_asks() -> None:
    def ask(*words: str) -> str:
        done = subprocess.run([paths.GUEST / "grub-probe", *words], capture_output=True, text=True, check=True,
                              env={"PATH": os.environ["PATH"], "ROOT_UUID": "u", "ROOT_PARTUUID": "p"})
        return done.stdout.strip()

    assert ask("--target=device", "/") == "/dev/vda2"
    assert ask("--device", "/dev/vda2", "--target=fs_uuid") == "u"
    assert ask("-t", "fs", "/boot") == "ext2"
    assert ask("--device", "/dev/vda2", "--target=partuuid") == "p"
