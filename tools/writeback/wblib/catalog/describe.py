# SPDX-License-Identifier: GPL-2.0
"""What the cases say about themselves: ``CASE.sh --describe=json`` of each, read once per content."""

import json
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

from wblib.base import fs
from wblib.base.paths import BUILD, SELFTESTS
from wblib.base.proc import need, say, sha256_text

KEEP_DAYS = 2
# One process, since 37 would take a second: every case believes that it was called by its own name.  A line each.
_ALL = """for f; do said=$(BASH_ARGV0=$f; . "$f" --describe=json) || said=; printf '%s\\n' "${said//$'\\n'/ }"; done"""


def scripts() -> list[str]:
    """The cases below SELFTESTS, as paths from there, by name."""
    found = (p for p in SELFTESTS.glob("*/*.sh") if p.parent.name != "lib")
    return [str(p.relative_to(SELFTESTS)) for p in sorted(found, key=lambda p: p.stem)]


def script(case: str) -> str:
    """The script of ``case``, as a path from the selftests."""
    return next(s for s in scripts() if Path(s).stem == case)


def _key() -> str:
    """Of everything that a description can depend on."""
    files = [*SELFTESTS.glob("*/*.sh"), *SELFTESTS.glob("test_modules/model/*.h")]
    texts = [f"{p.relative_to(SELFTESTS)}\n{p.read_text()}" for p in sorted(files)]
    return sha256_text("".join([_ALL, *scripts(), *texts]))[:16]


@cache
def declared() -> list[dict[str, Any]]:
    """The description of every case that has one; none where wb is installed without the selftests."""
    names = scripts()
    if not names:
        return []
    kept = BUILD / "catalog" / f"{_key()}.json"
    try:
        return [json.loads(line) for line in kept.read_text().splitlines()]
    except OSError:
        pass  # not kept yet
    done = subprocess.run([need("bash", "bash"), "-c", _ALL, "bash", *(f"./{n}" for n in names)], cwd=SELFTESTS,
                          capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    mute = [name for name, line in zip(names, lines, strict=True) if not line.startswith("{")]
    if mute:
        say(f"  {', '.join(mute)}: no case, does not describe itself: {' '.join(done.stderr.split())[:200]}")
    else:
        _keep(kept, done.stdout)
    return [json.loads(line) for line in lines if line.startswith("{")]


def _keep(kept: Path, text: str) -> None:
    """Atomically, as several wb may do it at once; what nobody has written for KEEP_DAYS goes."""
    try:
        fs.write_atomic(kept, text)
        for old in kept.parent.iterdir():
            if time.time() - old.stat().st_mtime > KEEP_DAYS * 86400:
                old.unlink(missing_ok=True)
    except OSError:
        pass  # only slower
