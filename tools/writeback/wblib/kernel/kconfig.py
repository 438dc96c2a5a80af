# SPDX-License-Identifier: GPL-2.0
"""Kernel configurations: fragments on top of allnoconfig, and the proof that each line took effect."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from wblib.base.paths import CONFIGS
from wbtop.errors import WbError

# User Mode Linux, the kernel of the fast lane, and what is on top of slim in each flavour.
UML, UML_DEBUG, UML_FOREIGN = "uml", "uml-debug", "uml-foreign"
_ON_SLIM = {"slim": (), "tracing": ("tracing",), "debug": ("debug",), "kcsan": ("kcsan",), "btrfs": ("btrfs",),
            UML: ("uml",), UML_DEBUG: ("debug", "uml", "uml-debug"), UML_FOREIGN: ("uml", "uml-foreign")}
FLAVOURS = tuple(_ON_SLIM)


def add_flavour(parser: argparse.ArgumentParser) -> None:
    """The option --flavour, one of FLAVOURS."""
    parser.add_argument("--flavour", default="slim", help=f"kernel flavour: {', '.join(FLAVOURS)} (default slim)")


def fragments(flavour: str, series: bool = False, line: str = "") -> str:
    """The options of a flavour, one per line, a later fragment replacing an earlier one.

    series: the kernel has the series: add config/patched.config (options that only
    the series knows), if there is one.  line: the kernel line; behind NAME.config
    comes NAME-LINE.config, what is different there, if there is one.
    """
    if flavour not in FLAVOURS:
        raise WbError(f"unknown flavour '{flavour}': choose from {', '.join(FLAVOURS)}", 2)
    return joined(["slim", *_ON_SLIM[flavour], *(["patched"] if series else [])], line)


def joined(names: Sequence[str], line: str = "") -> str:
    """The fragments ``names`` as one, each with what is different in ``line`` behind it."""
    files = [CONFIGS / f"{name}{suffix}.config" for name in names for suffix in ("", f"-{line}")]
    return merge([f.read_text() for f in files if f.exists()])


def is_uml(flavour: str) -> bool:
    """Whether a kernel of ``flavour`` is a program for the host, not a machine's."""
    return flavour in (UML, UML_DEBUG, UML_FOREIGN)


def with_hz(top: str, hz: int = 1000) -> str:
    """The text ``top`` of a Kconfig with HZ as in the other lanes: of two defaults the first counts."""
    return re.sub(r"^(mainmenu .*\n)", rf"\1\nconfig HZ\n\tint\n\tdefault {hz}\n", top, count=1, flags=re.M)


def merge(texts: list[str]) -> str:
    """Concatenate fragments: the last line about an option wins, comments go.

    "# CONFIG_X does not apply" takes an option of an earlier fragment back.
    """
    last: dict[str, str] = {}
    for line in "\n".join(texts).splitlines():
        match = re.match(r"(?:# )?(CONFIG_\w+)(?:=| is not set$| does not apply$)", line.strip())
        if match:
            last.pop(match.group(1), None)
            if line.strip().endswith(" does not apply"):
                continue
            last[match.group(1)] = line.strip()
    return "".join(f"{line}\n" for line in last.values())


def lost(wanted: str, config: Path) -> list[str]:
    """The lines of ``wanted`` that are not in ``config``."""
    have = set(config.read_text().splitlines())
    on = {line.partition("=")[0] for line in have if "=" in line}
    return [line for line in wanted.splitlines()
            if (line.split()[1] in on if line.startswith("#") else line not in have)]


def check(wanted: str, config: Path) -> None:
    """WbError that names the options of ``wanted`` that did not take effect."""
    if missing := lost(wanted, config):
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise WbError(f"options without effect: {', '.join(missing[:5])}{more}: a dependency is missing in "
                      "tools/writeback/config, or this base does not have them")
