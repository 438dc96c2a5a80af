# SPDX-License-Identifier: GPL-2.0
"""A small checkout of this project with a small "Linux" as its base, driven through its own wb."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
LINES = "".join(f"line {n}\n" for n in range(1, 41))
FILES = ("mm/page-writeback.c", "block/blk-wbt.c", "fs/ext4/inode.c", "include/linux/writeback.h", "lib/other.c")


def linux(top: Path, version: str = "6.12") -> Path:
    """A directory that pretends to be a kernel source."""
    major, minor = version.split(".")
    top.mkdir(parents=True)
    (top / "Makefile").write_text(f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = 117\n")
    for name in FILES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(LINES)
    # What Linux' own .gitignore hides must still be part of the base.
    # Its end is Debian's, which hides every new file.
    (top / ".gitignore").write_text("*.o\n# Debian packaging: ignore everything\n/*\n!/debian/\n")
    (top / "lib/blob.o").write_text("blob\n")
    return top


class Checkout:
    """``wb`` and git in a copy of the project."""

    def __init__(self, top: Path) -> None:
        self.top = top / "checkout"
        self.linux = linux(top / "linux")
        self.tree = self.top / "build/tree"
        tools = self.top / "tools/writeback"
        tools.mkdir(parents=True)
        for name in ("wb", "base", "cc"):
            shutil.copy2(TOOLS / name, tools / name)
        for name in ("wblib", "wbtop", "config"):
            shutil.copytree(TOOLS / name, tools / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("mm", "fs/ext4", "block"):
            (self.top / name).mkdir(parents=True)

    def wb(self, *args: str, ok: bool = True, base: Path | None = None) -> str:
        """Run wb; returns stdout, or for a run that must fail its one line of stderr."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "WB_"))}
        env["BASE"] = str(base or self.linux)
        done = subprocess.run([sys.executable, str(self.top / "tools/writeback/wb"), *args], env=env, text=True,
                              capture_output=True, check=False)
        if ok:
            assert done.returncode == 0, done.stderr
            return done.stdout
        assert done.returncode in (1, 2), done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("wb: ")]
        assert len(lines) == 1, done.stderr
        assert done.stderr.endswith(f"{lines[0]}\n"), done.stderr
        return lines[0]

    def git(self, *args: str) -> str:
        """Run git in the working tree, as somebody with a peculiar configuration."""
        env = {**os.environ, "GIT_AUTHOR_NAME": "Jörg Tést", "GIT_AUTHOR_EMAIL": "j@example.org",
               "GIT_COMMITTER_NAME": "Jörg Tést", "GIT_COMMITTER_EMAIL": "j@example.org",
               "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "diff.noprefix", "GIT_CONFIG_VALUE_0": "true",
               "GIT_CONFIG_KEY_1": "format.signature", "GIT_CONFIG_VALUE_1": "peculiar"}
        return subprocess.run(["git", "-C", str(self.tree), *args], env=env, text=True, capture_output=True,
                              check=True).stdout

    def commit(self, subject: str, changes: dict[str, str]) -> None:
        """Commit ``changes`` (file -> new content) to the working tree."""
        for name, text in changes.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        self.git("add", "-A")
        if changes:
            self.git("add", "-f", "--", *changes)
        self.git("commit", "-q", "-m", f"{subject}\n\nWhy: because the body of a patch matters.\n\n"
                 "Signed-off-by: Jörg Tést <j@example.org>")

    def files(self) -> dict[str, bytes]:
        """Patch files and their content, in the order of their numbers."""
        found = [p for d in ("mm", "fs/ext4", "block") for p in (self.top / d).glob("*.patch")]
        return {str(p.relative_to(self.top)): p.read_bytes() for p in sorted(found, key=lambda p: p.name)}
