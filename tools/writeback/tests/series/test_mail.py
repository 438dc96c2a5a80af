# SPDX-License-Identifier: GPL-2.0
"""Sets of patches: what belongs to one, that it applies by itself, and the mails made of it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_checkout import LINES, Checkout

from wblib.base.paths import ROOT, SELFTESTS
from wblib.catalog.suites import Job
from wblib.results.store import Result
from wblib.series import mail

COVER = "block: two changes\n\nWhy both.\n\n{}@TABLE metrics=read_p50:us:1\nread-latency disk=fifo\n@END\n"


def edit(number: int, text: str = "changed") -> str:
    return LINES.replace(f"line {number}\n", f"{text} {number}\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Two sets: 01 has two patches, 02 one on top of them."""
    made = Checkout(tmp_path)
    # Covers name cells.
    shutil.copytree(SELFTESTS, made.top / "tools/testing/selftests/writeback",
                    ignore=shutil.ignore_patterns("*.c", "*.o", "*.ko", "law"))
    made.wb("series", "tree")
    one = edit(7)
    two = one.replace("line 9\n", "changed 9\n")
    made.commit("block: one", {"block/blk-wbt.c": one})
    made.commit("block: two", {"block/blk-wbt.c": two})
    made.commit("mm: three", {"block/blk-wbt.c": two.replace("changed 9\n", "again 9\n"), "mm/new.c": "new\n"})
    made.wb("series", "export")
    for path, number in zip(sorted(p for d in ("mm", "block") for p in (made.top / d).glob("*.patch")),
                            ("0105", "0110", "0205"), strict=True):
        path.rename(path.with_name(number + path.name[4:]))
    (made.top / "block/0100-block-fixes.cover").write_text(COVER.format(""))
    (made.top / "mm/0200-mm-new.cover").write_text(COVER.format("Depends-on: block-fixes\n"))
    made.wb("series", "tree")
    return made


def test_sets_are_listed(checkout: Checkout) -> None:
    lines = checkout.wb("series", "mail", "--base", str(checkout.linux)).splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [["01", "block-fixes", "2"], ["02", "mm-new", "1"]]


def test_mails_of_a_set(checkout: Checkout) -> None:
    said = checkout.wb("series", "mail", "mm-new", "--dry-run", "--no-table", "-v", "3", "--base", str(checkout.linux))
    assert "0001-mm-three.patch  mm: three" in said
    out = checkout.top / "build/mail/mm-new"
    cover = (out / "0000-cover-letter.patch").read_text()
    assert "Subject: [PATCH v3 0/1] block: two changes" in cover
    assert "Applies to Linux 6.12.117." in cover
    assert 'On top of the set "block: two changes".' in cover
    assert "block-fixes" not in cover
    assert "mm/new.c" in cover
    assert "[table of 1 cells: without --no-table]" in cover
    only = (out / "0001-mm-three.patch").read_text()
    assert "Subject: [PATCH v3 1/1] mm: three" in only
    ident = cover.split("Message-ID: ")[1].split("\n")[0]
    assert f"In-Reply-To: {ident}" in only
    assert "again 9" in only
    # The same again, to the byte.
    checkout.wb("series", "mail", "02", "--dry-run", "--no-table", "-v", "3", "--base", str(checkout.linux))
    assert (out / "0001-mm-three.patch").read_text() == only


def test_a_table_has_stock_and_patched_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_jobs(jobs: Sequence[Job], _parallel: int, *, lane: str) -> list[Result]:
        assert lane == "fast"
        value = {"stock@7.3": 90_000, "patched@7.3": 700}
        return [Result(j.case, j.kernel, j.axes, j.seed, {"read_p50": {"value": value[j.kernel], "unit": "us"},
                                                          "drain_s": {"value": 2.5, "unit": "s"}}, {}, "pass", [])
                for j in jobs]

    monkeypatch.setattr(mail.bench, "run_jobs", run_jobs)
    text = ("Before.\n@TABLE metrics=read_p50:p50-ms:1000,drain_s:drain,read_max\nan SSD: read-latency disk=fifo\n"
            "read-latency disk=sata fs=ext4\n@END\nAfter.\n")
    lines = mail.filled(text, "7.3", measure=True).splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("Before.", "stock -> patched", "After.")
    assert lines[3].split() == ["p50", "ms", "drain", "read_max"]
    assert " ".join(lines[5].split()) == "an SSD 90 -> 0.7 2.5 -> 2.5 - -> -"
    assert " ".join(lines[6].split()).startswith("read-latency disk=sata fs=ext4 90 -> 0.7")


def test_nothing_is_sent_and_there_is_no_such_set(checkout: Checkout) -> None:
    base = ("--base", str(checkout.linux))
    assert "wb never sends mail" in checkout.wb("series", "mail", "mm-new", *base, ok=False)
    assert "no set 'absent': choose from block-fixes, mm-new, selftests" in checkout.wb(
        "series", "mail", "absent", *base, ok=False)


def test_a_set_that_does_not_say_what_it_needs(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    def problems() -> list[str]:
        monkeypatch.setenv("BASE", str(checkout.linux))
        monkeypatch.setattr(mail, "BUILD", checkout.top / "build")
        monkeypatch.setattr(mail.upstream, "LINES", ("6.12",))
        monkeypatch.setattr(mail.patchqueue, "patches", lambda line: real(checkout.top, line))
        monkeypatch.setattr(mail.sets, "__defaults__", (checkout.top,))
        mail.upstream._locate.cache_clear()
        return [f"{name}: {problem}" for name, problem in mail.lint() if problem]

    real = mail.patchqueue.patches
    assert problems() == []
    cover = checkout.top / "mm/0200-mm-new.cover"
    cover.write_text(COVER.format(""))
    assert "set mm-new applies by itself: " in problems()[0]
    cover.unlink()
    assert "0205-mm-three.patch: is of no set" in problems()[0]


@pytest.mark.parametrize(("name", "count"), [
    ("block/a.c", 2), ("Documentation/a.rst", 0), ("block/blk-wbt-kunit.c", 0), ("fs/ext4/extents-test.c", 0),
    ("tools/testing/selftests/a.sh", 0), ("mm/testing.c", 2),
])
def test_tests_and_documents_are_not_counted(tmp_path: Path, name: str, count: int) -> None:
    path = tmp_path / "0105-a.patch"
    path.write_text(f"Subject: a\n+ not this\n---\ndiff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"
                    "@@ -1,1 +1,3 @@\n+one\n+two\n context\n")
    assert mail.added(path) == count


def test_every_case_is_mailed() -> None:
    parts = mail.selftest_parts()
    top = SELFTESTS.relative_to(ROOT)
    cases = {str(p.relative_to(ROOT)) for p in SELFTESTS.glob("*/*.sh") if p.parent.name != "tools"}
    assert cases and cases <= {name for part in parts for name in part}
    assert all(parts), "a patch without a file"
    assert f"{top}/Makefile" in parts[-1]
    assert not [n for part in parts for n in part if "/replay/" in n or "/law/" in n]
    # What vger takes.
    assert max(sum((ROOT / n).stat().st_size for n in part) for part in parts) < 100_000


def test_markers_of_figures_are_not_mailed() -> None:
    text = "a\n\n<!-- figures: cover-extents -->\n4 times\n<!-- end -->\n\nb\n"
    assert mail.filled(text, "7.3", measure=False) == "a\n\n4 times\n\nb\n"


@pytest.mark.parametrize(("line", "said"), [("7.3", "a\n\nnew\n\nb\n"), ("6.12", "a\n\nold\nolder\n\nb\n")])
def test_what_is_of_one_line_is_not_mailed_to_the_other(line: str, said: str) -> None:
    text = "a\n\n@LINE 7.3\nnew\n@END\n@LINE 6.12\nold\nolder\n@END\n\nb\n"
    assert mail.filled(text, line, measure=False) == said
    only = "a\n\n@LINE 5.10\nold\n@END\n\nb\n"
    assert mail.filled(only, line, measure=False) == "a\n\nb\n"
