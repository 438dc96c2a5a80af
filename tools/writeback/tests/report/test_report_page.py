# SPDX-License-Identifier: GPL-2.0
"""wb report: the page's links, commands and bytes, and what it says when something is missing."""

import base64
import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report_tree

from wblib import cli
from wblib.base.paths import TOOLS
from wblib.catalog import axes, suites
from wblib.results import store

pytest.importorskip("matplotlib")
VOID = {"meta", "link", "img", "source", "br", "wbr"}
PICTURES = {"read-latency-cdf-fifo", "timeline-fifo", "pareto-fifo", "dirty-limits-10_20", "dirty-limits-100mb_50mb",
            "pauses-20", "drain-step", "ext4"}


def report(*argv: str) -> int:
    args = cli.parser().parse_args(["report", *argv])
    return int(args.func(args))


class Checker(HTMLParser):
    """Balanced tags, ids, links and commands of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.commands: list[str] = []
        self.missing = 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {k: v or "" for k, v in attrs}
        assert not any(k.startswith("on") for k in named)
        assert tag not in ("script", "iframe", "object")
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if tag == "a" else []
        self.loads += [named[k] for k in ("src", "srcset") if k in named]
        self.loads += [named["href"]] if tag == "link" else []
        self.missing += named.get("class") == "missing"
        self.commands += [""] if tag == "pre" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self.open:
            self.commands[-1] += data


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A result tree and its report."""
    root = report_tree.make(tmp_path_factory.mktemp("tree") / "results")
    out = root.parent / "page"
    assert report(str(root), "-o", str(out)) == 0
    return root, out


def everything(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_files(made: tuple[Path, Path]) -> None:
    _, out = made
    assert {p.name for p in out.iterdir()} == {"index.html", "figures", "json"}
    assert {p.name for p in (out / "figures").iterdir()} == {
        f"{n}{end}" for n in PICTURES for end in (".svg", "-dark.svg", ".png")}
    assert all(p.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for p in (out / "figures").glob("*.png"))
    assert all(p.stat().st_size < 100_000 for p in (out / "figures").glob("*.svg"))
    assert [store.load(p) for p in (out / "json").rglob("*.json")]


def test_same_bytes_elsewhere_in_another_process(made: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = made
    shutil.copytree(root, tmp_path / "copy")
    done = subprocess.run([sys.executable, str(TOOLS / "wb"), "report", str(tmp_path / "copy"), "-o",
                           str(tmp_path / "page")], env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert everything(tmp_path / "page") == everything(out)


def test_every_link_has_its_target(made: tuple[Path, Path]) -> None:
    _, out = made
    page = Checker((out / "index.html").read_text())
    assert len(page.ids) == len(set(page.ids))
    assert len(page.links) > 100
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (out / link).is_file(), link


def test_nothing_is_loaded_from_outside(made: tuple[Path, Path]) -> None:
    _, out = made
    text = (out / "index.html").read_text()
    page = Checker(text)
    assert all(u.startswith("data:") for u in page.loads)
    assert len(page.loads) == 2 * len(PICTURES) + 1
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))
    for svg in (base64.b64decode(m) for m in re.findall(r"svg\+xml;base64,([A-Za-z0-9+/=]+)", text)):
        assert not re.search(rb'(href|src)="(?!#)|@import|<script|url\((?!#)', svg)
        assert str(out).encode() not in svg
    assert str(out) not in text
    assert str(made[0]) not in text


def test_every_command_is_one(made: tuple[Path, Path]) -> None:
    _, out = made
    found = Checker((out / "index.html").read_text())
    tips = re.findall(r'title="([^"]*)"', (out / "index.html").read_text())
    commands = [*found.commands, *map(html.unescape, tips)]
    assert len(commands) > 50
    for command in set(commands):
        loop = re.fullmatch(r"for s in [0-9 ]+; do (.*); done", command)
        words = shlex.split((loop[1] if loop else command).replace("$s", "1"))
        assert words[0] == "wb"
        args = cli.parser().parse_args(words[1:])
        if words[1] == "run":
            axes.validate(args.case, axes.given_axes(args))
        else:
            suites.suite(args.suite)


def test_a_number_leads_to_its_seeds_and_their_command(made: tuple[Path, Path]) -> None:
    text = (made[1] / "index.html").read_text()
    name = "patched-read-latency-fifo-xfs-none-wbt-default-buffered"
    command = "for s in 1 2 3; do wb run read-latency --kernel patched --disk fifo --seed $s; done"
    assert f'<a href="#src-{name}" title="{command}">2.302</a>' in text  # the median of 2.201, 2.302, 2.403
    source = text[text.index(f'id="src-{name}"'):].split('<div id="src-')[0]
    assert [f"json/{name}/seed-{s}.json" in source for s in (1, 2, 3)] == [True] * 3
    assert store.load(made[1] / "json" / name / "seed-2.json").value("read_p99_95") == pytest.approx(2302)


def test_published_tables_link_every_figure_of_ours(made: tuple[Path, Path]) -> None:
    text = (made[1] / "index.html").read_text()
    for part, linked in (("osm", 7 * 6), ("suse", 8 * 2), ("ext4", 15 * 2), ("reads", 5 * 5)):
        body = text[text.index(f'<section id="{part}">'):].split("</section>")[0]
        table = body[body.index("<tbody>"):body.index("</tbody>")]
        assert table.count("<a ") == linked, part


def test_stale_files_go_and_foreign_ones_are_safe(
    made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "page"
    shutil.copytree(made[1], out)
    (out / "mine.txt").touch()
    ext4 = made[0] / "stock-1111aaaa" / "ext4-nodelalloc"
    assert report(str(ext4), "-o", str(out)) == 0
    assert {p.name for p in (out / "figures").iterdir()} == {"ext4.svg", "ext4-dark.svg", "ext4.png"}
    assert [p.parent.name for p in (out / "json").rglob("*.json")] == ["stock-ext4-nodelalloc-fifo"]
    assert (out / "mine.txt").exists()
    page = Checker((out / "index.html").read_text())
    assert page.missing >= 9  # every other part says what makes it, and ext4 what patched needs
    assert "wb run ext4-nodelalloc --kernel stock --seed 1" in page.commands
    assert {"wb bench peers", "wb run dirty-limits --kernel patched", "wb run dirty-ratio-dd --kernel stock",
            "wb run ext4-nodelalloc --kernel patched", "wb bench demo --kernel stock patched",
            "wb run read-latency --kernel patched --disk fifo --trace-control 1"} <= set(page.commands)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("<p>a page of somebody")
    for place, words in ((tmp_path / "other", "not empty and not a report"), (out / "mine.txt", "is a file")):
        assert cli.main(["report", str(ext4), "-o", str(place)]) == 2
        assert words in capsys.readouterr().err
    assert (tmp_path / "other" / "index.html").read_text() == "<p>a page of somebody"


def test_kernel_names_and_titles_are_escaped(tmp_path: Path) -> None:
    data = report_tree.ext4(tmp_path / "results", "stock")
    result = store.load(data.parent / "result.json")
    result.kernel = "<b>&'\""
    store.write(result, data.parent / "result.json")
    assert report(str(tmp_path / "results"), "-o", str(tmp_path / "page"), "--title", "<i>x</i>") == 0
    text = (tmp_path / "page" / "index.html").read_text()
    assert "<b>&'" not in text
    assert "<i>" not in text
    assert "&lt;i&gt;x&lt;/i&gt;" in text
    Checker(text)
