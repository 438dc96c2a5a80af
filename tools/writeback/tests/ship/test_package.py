# SPDX-License-Identifier: GPL-2.0
"""The user's part as a single file and as a package: built twice, unpacked, run without anything of the checkout."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from wblib.ship import package

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")


def run(*words: str | Path, cwd: Path) -> str:
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True,
                          env={"PATH": "/usr/bin:/bin"}).stdout


def test_both_work_alone_and_are_the_same_bytes_again(tmp_path: Path) -> None:
    single, deb = package.build(tmp_path / "one")
    again = package.build(tmp_path / "two")
    assert [p.read_bytes() for p in (single, deb)] == [p.read_bytes() for p in again]
    root = tmp_path / "root"
    run("dpkg-deb", "-x", deb, root, cwd=tmp_path)
    for wb in (single, root / "usr/bin/wb"):
        assert run(wb, "--version", cwd=tmp_path) == f"wb {package.VERSION}\n"
        assert all(f"\n    {c} " in run(wb, "--help", cwd=tmp_path) for c in ("watch", "tune", "field"))
    man = gzip.decompress((root / "usr/share/man/man8/wb.8.gz").read_bytes()).decode()
    assert all(f".SH WB {c}" in man for c in ("WATCH", "TUNE", "FIELD"))
    fields = run("dpkg-deb", "-f", deb, "Depends", "Architecture", cwd=tmp_path)
    assert "python3 (>= 3.9)" in fields
    assert "all" in fields


def test_completion(tmp_path: Path) -> None:
    (tmp_path / "c").write_text(package.completion())
    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{w}'" for w in ("wb", *words))
        return run("bash", "-c", f"source ./c; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _wb; "
                   "printf '%s\n' \"${COMPREPLY[@]}\"", cwd=tmp_path).split()
    assert complete("wa") == ["watch"]
    assert complete("field", "--anon") == ["--anonymize"]
    assert "--simulate" not in complete("tune", "--")
