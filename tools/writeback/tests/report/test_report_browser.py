# SPDX-License-Identifier: GPL-2.0
"""The report in a real browser: nothing sticks out, everything loads, nothing complains."""

from collections.abc import Iterator
from pathlib import Path

import headless
import pytest
import report_tree

from wblib import cli
from wblib.report import theme

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.skipif(headless.browser() is None, reason="no Chromium (apt: chromium-headless-shell)")
# What is wider than the page, though it is not inside a box that scrolls.
WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide') &&
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 200))"""
LOADED = """(async () => { await Promise.all([...document.images].map(i => i.decode()));
  return document.images.length; })()"""
SMALL = """[...document.querySelectorAll('body *')].filter(e => e.innerText && !e.children.length &&
  parseFloat(getComputedStyle(e).fontSize) < 10).map(e => e.innerText.slice(0, 80))"""
CHOSEN = "[...document.images].map(i => i.currentSrc === i.src)"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = report_tree.make(tmp_path_factory.mktemp("tree") / "results")
    assert cli.main(["report", str(root), "-o", str(root.parent / "page")]) == 0
    return root.parent / "page" / "index.html"


@pytest.fixture(scope="module")
def page() -> Iterator[headless.Page]:
    with headless.page() as one:
        yield one


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_fits_and_loads(index: Path, page: headless.Page, width: int, scheme: str) -> None:
    page.problems.clear()
    page.show(index, width, scheme)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(LOADED) == 8
    assert page.evaluate(SMALL) == []
    assert page.evaluate("document.images[0].clientWidth") / theme.WIDTH_IN / 72 * theme.SMALL > 10
    assert page.evaluate(CHOSEN) == [scheme == "light"] * 8  # the dark pictures are those of <source>
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 24, 28)")
    assert page.problems == []


def test_the_check_can_fail(index: Path, page: headless.Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(index.read_text().replace(
        "</main>", '<p style="width: 2000px">wide</p><img src="none.png"><script>console.error("x")</script></main>'))
    page.problems.clear()
    page.show(bad, 375, "light")
    assert page.evaluate("document.documentElement.scrollWidth") > 375
    assert page.evaluate(WIDE) != []
    assert page.evaluate("[...document.images].filter(i => !i.naturalWidth).length") == 1
    assert any("none.png" in p or "not loaded" in p for p in page.problems)
    assert any("console" in p for p in page.problems)


def test_a_number_leads_to_its_source(index: Path, page: headless.Page) -> None:
    page.show(index, 375, "light")
    command = page.evaluate("""(() => { document.querySelector('#block td a').click();
        return document.querySelector(':target').querySelector('pre').innerText; })()""")
    assert command.startswith("for s in 1 2 3; do wb run")
