# SPDX-License-Identifier: GPL-2.0
"""README and Documentation: their commands, options, links and targets of make exist; commands can be pasted;
nothing is left to fill in.
"""

import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest

from wblib import cli
from wblib.base.paths import ROOT
from wblib.catalog import axes, suites

DIRECTORY = ROOT / "Documentation"
PAGES = [ROOT / "README", *sorted(DIRECTORY.glob("*.md"))]
# What stands for a word of the reader's.
PLACES = {"CASE": "read-latency", "NAME": "read-latency", "SUITE": "block", "SET": "block-fixes", "...": ""}
# How the blocks begin that are no commands.
SAMPLES = ("dirty MiB", "results/", "read    die", "guide.md")


def code(text: str) -> list[str]:
    """Lines of code and what is in backquotes, without remarks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    lines = [*"\n".join(blocks).splitlines(), *re.findall(r"^    (\S.*)", text, re.M)]
    return [re.split(r"\s{2,}", line.strip())[0] for line in lines] + re.findall(r"`([^`\n]+)`", text)


def commands(path: Path) -> list[list[str]]:
    """Every "wb ..." of a page, as words."""
    found = []
    for part in (p for line in code(path.read_text()) for p in re.split(r"[;|&>]+", line)):
        words = part.strip().removeprefix("sudo ").removeprefix("tools/writeback/")
        if re.match(r"wb [a-z]", words):
            found.append([w for w in (PLACES.get(w, w) for w in shlex.split(words)[1:]) if w])
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_exist(path: Path) -> None:
    parser = cli.parser()
    for words in commands(path):
        if len(words) == 1:  # named in a sentence
            assert re.search(rf"^    {words[0]}\b", parser.format_help(), re.M), words
            continue
        try:
            args = parser.parse_args(words)
        except SystemExit as exc:
            assert exc.code == 0, f"{path.name}: wb {shlex.join(words)}"  # --help
            continue
        if words[0] == "run":
            axes.validate(args.case, axes.given_axes(args))
        if words[0] == "bench":
            suites.suite(args.suite)


def test_all_pages_have_commands() -> None:
    assert sum(len(commands(p)) for p in PAGES) >= 90


def blocks_of_commands(path: Path) -> list[str]:
    """What a reader pastes into a shell: fenced blocks without a language, in README those that are indented."""
    text = path.read_text()
    if path.suffix:
        blocks = [b for language, b in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S) if not language]
    else:
        blocks = [textwrap.dedent(b) for b in re.findall(r"^(?: {4}.*\n)+", text, re.M)]
    return [b for b in blocks if not b.startswith(SAMPLES)]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_can_be_pasted(path: Path) -> None:
    for block in blocks_of_commands(path):
        for line in block.splitlines():
            assert not re.search(r"(^|\S) {2,}[^ #]", line.split(" # ")[0]), f"a remark without '#': {line}"
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)


def test_blocks_of_commands_are_found() -> None:
    assert sum(len(blocks_of_commands(p)) for p in PAGES) >= 25


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_targets_of_make_exist(path: Path) -> None:
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {w for line in code(path.read_text()) for w in re.findall(r"(?:^|; |&& )make ([a-z][a-z-]*)", line)}
    assert named <= there


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / target).exists(), target
    for target in re.findall(r"\bDocumentation/[a-z-]+\.md\b", text):
        assert (ROOT / target).exists(), target
    assert not re.search(r"@[A-Z]{3,}@|TODO|\?\?\?|^<{7} ", text, re.M)


def test_every_page_is_named_in_the_readme() -> None:
    listed = set(re.findall(r"^    ([a-z-]+\.md)  ", (ROOT / "README").read_text(), re.M))
    assert listed == {p.name for p in PAGES[1:]}
    assert len(listed) <= 7


def test_pages_named_by_the_sources_exist() -> None:
    for path in (p for pattern in ("*.py", "*.sh", "*.[ch]") for p in (ROOT / "tools").rglob(pattern)):
        if "tests" in path.parts:
            continue
        for name in re.findall(r"\bDocumentation/([a-z-]+\.md)\b", path.read_text(errors="replace")):
            assert (DIRECTORY / name).exists(), f"{path}: {name}"
