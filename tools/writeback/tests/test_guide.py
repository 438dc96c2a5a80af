# SPDX-License-Identifier: GPL-2.0
"""Documentation/guide.md: its commands exist, and what it quotes is on the pages that measured it."""

import re
import shlex

from wblib import cli
from wblib.base.paths import ROOT
from wblib.catalog import axes, suites

PAGES = ROOT / "Documentation"
TEXT = (PAGES / "guide.md").read_text()
QUOTED = ("block.md", "mm.md", "ext4.md", "tune.md", "rig.md")


def commands() -> list[list[str]]:
    """Every "wb ..." in backquotes or in a block of code, without remarks."""
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)).splitlines()
    found = [line.split("   ")[0] for line in blocks] + re.findall(r"`([^`\n]+)`", TEXT)
    words = [shlex.split(c.removeprefix("sudo ").split(";")[0]) for c in found if re.match(r"(sudo )?wb [a-z]", c)]
    return [w[1:] for w in words]


def test_commands_exist() -> None:
    given = commands()
    assert len(given) >= 15
    for words in given:
        args = cli.parser().parse_args(words)
        if words[0] == "run":
            axes.validate(args.case, axes.given_axes(args))
        if words[0] == "bench":
            suites.suite(args.suite)


def test_what_is_quoted_is_on_its_page() -> None:
    """"a → b" of sections 1 to 3, which measure nothing themselves; the table of section 5 is cited in 3."""
    pages = "\n".join((PAGES / name).read_text() for name in QUOTED) + (ROOT / "README").read_text()
    there = set(re.findall(r"[0-9]+(?:\.[0-9]+)?", pages))
    sections = TEXT[TEXT.index("## 1."):TEXT.index("## 4.")]
    pairs = re.findall(r"\b([0-9.]+[0-9]|[0-9]) → \**([0-9.]+[0-9]|[0-9])\b", sections)
    assert len(pairs) >= 12
    for before, after in pairs:
        assert before in there, f"{before} → {after}"
        assert after in there, f"{before} → {after}"


def test_nothing_is_left_to_fill_in() -> None:
    assert not re.search(r"@[A-Z]|TODO|\?\?\?", TEXT)
    for target in re.findall(r"\]\(([a-z]+\.md)\)", TEXT):
        assert (PAGES / target).exists()
