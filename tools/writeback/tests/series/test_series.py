# SPDX-License-Identifier: GPL-2.0
"""The patch queue: order, strict application, tree <-> files, incremental source trees."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_checkout import LINES, Checkout, linux

from wblib.kernel import patchqueue, sources, upstream
from wblib.series import bisect, worktree
from wbtop.errors import WbError

LONG = "block, bfq: a subject that is so long that git format-patch folds it over two lines of the mail header, naïvely"


def edit(number: int, text: str = "changed") -> str:
    return LINES.replace(f"line {number}\n", f"{text} {number}\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def series(checkout: Checkout) -> Checkout:
    """Three exported patches, one in each directory."""
    checkout.wb("series", "tree")
    checkout.commit("mm/page-writeback: one", {"mm/page-writeback.c": edit(13), "include/linux/writeback.h": edit(9)})
    checkout.commit("add a file to ext4", {"fs/ext4/new.c": "new\n", "fs/ext4/inode.c": edit(5)})
    checkout.commit(LONG, {"block/blk-wbt.c": edit(7)})
    checkout.wb("series", "export")
    return checkout


def test_empty_series_needs_no_base(checkout: Checkout, tmp_path: Path) -> None:
    nowhere = tmp_path / "absent"
    assert checkout.wb("series", "list", base=nowhere) == ""
    assert checkout.wb("series", "list", "--hash", base=nowhere) == "\n"
    checkout.wb("series", "round-trip", base=nowhere)
    checkout.wb("series", "checkpatch", base=nowhere)
    assert not (checkout.top / "build").exists()


def test_empty_series_gives_a_tree_and_exports_nothing(checkout: Checkout) -> None:
    checkout.wb("series", "tree")
    checkout.wb("series", "tree")
    assert checkout.git("log", "--format=%s").split() == ["base"]
    assert checkout.git("show", "base:lib/blob.o") == "blob\n"
    checkout.wb("series", "export")
    assert checkout.files() == {}


def test_export_assigns_directories_and_numbers(series: Checkout) -> None:
    assert list(series.files()) == [
        "mm/0001-mm-page-writeback-one.patch", "fs/ext4/0002-add-a-file-to-ext4.patch",
        "block/0003-block-bfq-a-subject-that-is-so-long-that-git-format-.patch"]
    text = series.files()["mm/0001-mm-page-writeback-one.patch"].decode()
    assert text.startswith("From 0000000000000000000000000000000000000000 ")
    assert "\nSubject: [PATCH] mm/page-writeback: one\n" in text
    assert "diff --git a/mm/page-writeback.c b/mm/page-writeback.c" in text
    assert "peculiar" not in text


def test_list_shows_unfolded_subjects(series: Checkout) -> None:
    lines = series.wb("series", "list").splitlines()
    assert [line.split("  ")[0] for line in lines] == list(series.files())
    assert lines[0].endswith("mm/page-writeback: one")


def test_round_trip_is_byte_exact_and_ids_are_reproducible(series: Checkout) -> None:
    before = series.files()
    series.wb("series", "tree")
    head = series.git("rev-parse", "HEAD")
    series.wb("series", "export")
    assert series.files() == before
    series.wb("series", "round-trip")
    shutil.rmtree(series.tree)
    series.wb("series", "tree")
    assert series.git("rev-parse", "HEAD") == head
    series.wb("series", "export")
    assert series.files() == before


def test_round_trip_notices_an_edited_file(series: Checkout) -> None:
    patch = series.top / "mm/0001-mm-page-writeback-one.patch"
    patch.write_text(patch.read_text().replace("\n---\n", "\n---\na note that git am drops\n"))
    assert "0001-mm-page-writeback-one.patch is not as exported" in series.wb("series", "round-trip", ok=False)


def test_round_trip_notices_a_patch_in_the_wrong_place(series: Checkout) -> None:
    patch = series.top / "mm/0001-mm-page-writeback-one.patch"
    patch.rename(patch.with_name("0001-other-name.patch"))
    assert "would be exported as mm/0001-mm-page-writeback-one.patch" in series.wb("series", "round-trip", ok=False)


def test_hash_is_kcidb_form(series: Checkout) -> None:
    files = patchqueue.patches(series.top)
    lines = "".join(hashlib.sha256(f.read_bytes()).hexdigest() + "\n" for f in files)
    assert series.wb("series", "list", "--hash").strip() == hashlib.sha256(lines.encode()).hexdigest()


def test_order_is_the_number_whatever_the_directory(tmp_path: Path) -> None:
    for name in ("mm/0003-c.patch", "block/0001-a.patch", "fs/ext4/0002-b.patch", "mm/0000-cover-letter.patch"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [p.name for p in patchqueue.patches(tmp_path)] == ["0001-a.patch", "0002-b.patch", "0003-c.patch"]


@pytest.mark.parametrize(("second", "says"), [("block/0001-b.patch", "number 0001 is used twice"),
                                              ("block/fix.patch", "NNNN-subject.patch")])
def test_bad_names_are_errors(tmp_path: Path, second: str, says: str) -> None:
    for name in ("mm/0001-a.patch", second):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.raises(WbError, match=says):
        patchqueue.patches(tmp_path)


def test_fuzz_is_refused_and_named(series: Checkout, tmp_path: Path) -> None:
    other = linux(tmp_path / "other")
    # Next to the changed line 5: patch(1) would take it with fuzz 1.
    (other / "fs/ext4/inode.c").write_text(edit(3, "moved"))
    error = series.wb("series", "round-trip", ok=False, base=other)
    assert "fs/ext4/0002-add-a-file-to-ext4.patch does not apply without fuzz: in fs/ext4/inode.c" in error
    assert error == series.wb("series", "tree", ok=False, base=other)


def test_an_offset_is_no_fuzz(series: Checkout, tmp_path: Path) -> None:
    other = linux(tmp_path / "other")
    (other / "mm/page-writeback.c").write_text("a line above\n" * 3 + LINES)
    series.wb("series", "tree", base=other)
    assert "changed 13\n" in (series.tree / "mm/page-writeback.c").read_text()


def test_tree_refuses_to_drop_work(series: Checkout) -> None:
    (series.tree / "lib/other.c").write_text(edit(1))
    assert "uncommitted changes (lib/other.c)" in series.wb("series", "tree", ok=False)
    series.commit("mm: more", {})
    assert "commits that were not exported" in series.wb("series", "tree", ok=False)
    series.wb("series", "tree", "--force")
    assert (series.tree / "lib/other.c").read_text() == LINES


def test_new_files_are_work_although_debian_ignores_them(series: Checkout) -> None:
    series.wb("series", "tree")
    (series.tree / "block/new.o").write_text("a build product\n")
    series.wb("series", "tree")
    (series.tree / "block/blk-new.c").write_text("new\n")
    assert "'git add -f' has yet to add (block/blk-new.c)" in series.wb("series", "tree", ok=False)
    series.wb("series", "tree", "--force")


def test_a_flavour_newer_than_the_tree_is_no_work(series: Checkout) -> None:
    series.wb("series", "tree")
    (series.tree / ".git/info/exclude").write_text("")
    (series.tree / sources.ADDED[0]).mkdir()
    (series.tree / sources.ADDED[0] / "new.c").write_text("a build product\n")
    series.wb("series", "tree")


def test_amending_back_and_forth_is_no_work(series: Checkout) -> None:
    series.git("commit", "-q", "--amend", "--no-edit", "--date=2001-01-01T00:00:00Z")
    assert "not exported" in series.wb("series", "tree", ok=False)
    series.git("reset", "-q", "--hard", "HEAD@{1}")
    series.wb("series", "tree")


def test_export_refuses_to_drop_changed_files(series: Checkout) -> None:
    extra = series.top / "mm/0001-mm-page-writeback-one.patch"
    extra.write_bytes(extra.read_bytes().replace(b"because the body", b"since the body"))
    series.commit("mm: more", {"mm/page-writeback.c": edit(20)})
    assert "the patch files changed since" in series.wb("series", "export", ok=False)
    series.wb("series", "export", "--force")
    assert b"because the body" in extra.read_bytes()


def test_export_keeps_numbers_and_removes_stale_files(series: Checkout) -> None:
    (series.top / "mm/0000-cover-letter.patch").write_text("kept\n")
    series.git("rebase", "-q", "--onto", "HEAD~2", "HEAD~1")
    series.wb("series", "export")
    assert [Path(n).name[:4] for n in series.files()] == ["0000", "0001", "0003"]
    assert (series.top / "mm/0000-cover-letter.patch").read_text() == "kept\n"


@pytest.mark.parametrize(("known", "numbers"), [
    ([None, None], [1, 2]),
    ([105, 110], [105, 110]),
    ([110, 105], [105, 110]),  # they changed places
    ([105, None, 110], [105, 106, 110]),
    ([105, None, 106, 110], [105, 106, 107, 110]),  # no room: what is behind it moves up
    ([199, None, 205], [199, 201, 205]),  # NN00 is a cover letter
])
def test_files_keep_their_numbers(known: list[int | None], numbers: list[int]) -> None:
    assert worktree.numbers(known) == numbers


@pytest.fixture
def mainline(series: Checkout, tmp_path: Path) -> Path:
    """A base of the other line: lines have moved, and block/ has other ones around what the third patch changes."""
    tree = linux(tmp_path / "mainline", "7.3")
    for name in ("mm/page-writeback.c", "fs/ext4/inode.c"):
        (tree / name).write_text("new in 7.3\n" + LINES)
    series.tree = series.top / "build/tree@7.3"
    return tree


def test_a_patch_of_both_lines_exists_once(series: Checkout, mainline: Path) -> None:
    before = series.files()
    series.wb("series", "tree", base=mainline)
    assert series.git("show", "HEAD:mm/page-writeback.c") == "new in 7.3\n" + edit(13)
    series.wb("series", "export", base=mainline)
    assert series.files() == before
    series.wb("series", "round-trip", base=mainline)
    series.wb("series", "round-trip")


def test_a_patch_that_one_line_changes_becomes_two(series: Checkout, mainline: Path) -> None:
    before = series.files()
    block = "0003-block-bfq-a-subject-that-is-so-long-that-git-format-.patch"
    series.wb("series", "tree", base=mainline)
    (series.tree / "block/blk-wbt.c").write_text(edit(7, "changed otherwise"))
    series.git("commit", "-q", "-a", "--amend", "--no-edit")
    series.wb("series", "export", base=mainline)
    assert (series.top / "block/6.12" / block).read_bytes() == before[f"block/{block}"]
    assert b"+changed otherwise 7" in (series.top / "block/7.3" / block).read_bytes()
    assert not (series.top / "block" / block).exists()
    for base_of, where in ((mainline, "7.3"), (series.linux, "6.12")):
        series.wb("series", "round-trip", base=base_of)
        listed = series.wb("series", "list", base=base_of).splitlines()
        assert [line.split()[0] for line in listed] == [*list(before)[:2], f"block/{where}/{block}"]
    assert series.wb("series", "list", "--base", "7.3").count("block/7.3/") == 1


def test_a_commit_that_one_line_drops_stays_with_the_other(series: Checkout, mainline: Path) -> None:
    series.wb("series", "tree", base=mainline)
    series.git("rebase", "-q", "--onto", "HEAD~2", "HEAD~1")
    series.wb("series", "export", base=mainline)
    assert (series.top / "fs/ext4/6.12/0002-add-a-file-to-ext4.patch").is_file()
    assert len(series.wb("series", "list", base=mainline).splitlines()) == 2
    assert len(series.wb("series", "list").splitlines()) == 3
    series.wb("series", "round-trip")


def test_a_new_commit_does_not_take_the_number_of_another_line(series: Checkout, mainline: Path) -> None:
    series.wb("series", "tree", base=mainline)
    last = series.git("rev-parse", "HEAD").strip()
    series.git("reset", "-q", "--hard", "HEAD~2")
    (series.tree / "mm/new.c").write_text("new\n")
    series.git("add", "-f", "mm/new.c")
    series.git("commit", "-q", "-m", "mm: add a file")
    series.git("cherry-pick", last)
    series.wb("series", "export", base=mainline)
    assert (series.top / "fs/ext4/6.12/0002-add-a-file-to-ext4.patch").is_file()
    assert (series.top / "mm/7.3/0002-mm-add-a-file.patch").is_file()
    series.wb("series", "round-trip")
    series.wb("series", "round-trip", base=mainline)


def test_a_stand_in_that_the_series_does_not_apply_to_is_no_base(
    series: Checkout, mainline: Path, tmp_path: Path,
) -> None:
    files = patchqueue.patches(series.top, "7.3")
    stand_in = upstream.Base(mainline, "i", False, "7.3", substitute=True)
    patchqueue.scratch_repo(stand_in, files, tmp_path / "applies")
    (mainline / "block/blk-wbt.c").write_text(edit(7, "not as it was"))
    with pytest.raises(upstream.NoBase, match=r"7\.3\S* cannot be had, .*different: .*0003-\S+ does not"):
        patchqueue.scratch_repo(stand_in, files, tmp_path / "no base")
    with pytest.raises(WbError) as caught:
        patchqueue.scratch_repo(upstream.Base(mainline, "i", False, "7.3"), files, tmp_path / "asked for")
    assert not isinstance(caught.value, upstream.NoBase)


def test_a_line_that_there_is_not(checkout: Checkout) -> None:
    assert "behind @ choose from 6.12, 7.3" in checkout.wb("build", "--kernel", "stock@5.4", ok=False)
    assert "it is 6.12 or 7.3, or the path" in checkout.wb("series", "tree", "--base", "5.4", ok=False)


def test_existing_directory_beats_the_rules(series: Checkout) -> None:
    old = series.top / "block/0003-block-bfq-a-subject-that-is-so-long-that-git-format-.patch"
    old.rename(series.top / "mm" / old.name)
    series.wb("series", "tree")
    series.wb("series", "export")
    assert f"mm/{old.name}" in series.files()


def test_commit_of_no_directory_is_named(series: Checkout) -> None:
    series.commit("lib: elsewhere", {"lib/other.c": edit(1)})
    assert "commit 'lib: elsewhere' is in no known directory" in series.wb("series", "export", ok=False)
    assert len(series.files()) == 3


def test_merge_is_refused(series: Checkout) -> None:
    series.git("checkout", "-q", "-b", "side", "HEAD~1")
    series.commit("mm: side", {"lib/other.c": edit(1)})
    series.git("checkout", "-q", "series")
    series.git("merge", "-q", "--no-edit", "side")
    assert "merge" in series.wb("series", "export", ok=False)


def test_unknown_verb_and_missing_patch(checkout: Checkout) -> None:
    assert "no such patch" in checkout.wb("series", "checkpatch", "absent.patch", ok=False)


def test_patched_source_is_incremental(series: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    stock, dest = series.top / "build/src/stock", series.top / "build/src/patched"
    monkeypatch.setattr(sources, "BUILD", series.top / "build")
    (stock / "out-slim").mkdir()
    origin = upstream.Base(stock, "ident", False)
    files = patchqueue.patches(series.top)

    sources.sync_patched(origin, stock, dest, files)
    assert not (dest / "out-slim").exists()
    assert (dest / "mm/page-writeback.c").read_text() == edit(13)
    assert (dest / "fs/ext4/new.c").read_text() == "new\n"
    assert (stock / "mm/page-writeback.c").read_text() == LINES, "the pristine tree was written through a hard link"
    (dest / "out-slim").mkdir()

    for name in ("mm/page-writeback.c", "lib/other.c", "fs/ext4/inode.c"):
        os.utime(dest / name, (1, 1))
    sources.sync_patched(origin, stock, dest, files[:1])
    assert (dest / "out-slim").exists(), "objects of unchanged files are kept"
    assert (dest / "fs/ext4/inode.c").read_text() == LINES
    assert not (dest / "fs/ext4/new.c").exists()
    assert (dest / "fs/ext4/inode.c").stat().st_mtime > 1, "make must see that the file changed"
    assert (dest / "mm/page-writeback.c").stat().st_mtime == 1
    assert (dest / "lib/other.c").stat().st_mtime == 1


def test_interrupted_update_is_finished(series: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    stock, dest = series.top / "build/src/stock", series.top / "build/src/patched"
    monkeypatch.setattr(sources, "BUILD", series.top / "build")
    origin = upstream.Base(stock, "ident", False)
    files = patchqueue.patches(series.top)
    sources.sync_patched(origin, stock, dest, [])
    with monkeypatch.context() as m:
        done = []

        def stop_after_one(new: Path, old: Path) -> None:
            if done:
                raise KeyboardInterrupt
            done.append(old)
            old.unlink(missing_ok=True)
            old.write_text("half-way")

        m.setattr(sources, "replace", stop_after_one)
        with pytest.raises(KeyboardInterrupt):
            sources.sync_patched(origin, stock, dest, files)
    sources.sync_patched(origin, stock, dest, [])
    assert (dest / done[0].relative_to(dest)).read_text() == LINES


def test_content_hash_sees_bytes_modes_and_absence(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("a")
    seen = {sources.content_hash(["one"], tmp_path)}
    one.chmod(0o755)
    seen.add(sources.content_hash(["one"], tmp_path))
    one.write_text("b")
    seen.add(sources.content_hash(["one"], tmp_path))
    one.unlink()
    seen.add(sources.content_hash(["one"], tmp_path))
    seen.add(sources.content_hash([], tmp_path))
    assert len(seen) == 5


@pytest.mark.parametrize(("names", "dirs"), [
    (["mm/page-writeback.c", "mm/internal.h"], ["mm/"]),
    (["fs/ext4/inode.c", "fs/fs-writeback.c"], ["fs/"]),
    (["include/linux/writeback.h"], ["block/", "fs/", "mm/"]),
    (["Documentation/admin-guide/sysctl/vm.rst"], []),
])
def test_bisect_targets(names: list[str], dirs: list[str]) -> None:
    assert bisect.targets(names) == dirs


@pytest.mark.parametrize(("source", "checked"), [("../mm/a.c", True), ("mm/a.c", True), ("../mm/b.c", False),
                                                 ("../fs/mm/a.c", False)])
def test_bisect_checks_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, checked: bool) -> None:
    script, sparse = tmp_path / "check", tmp_path / "sparse"
    script.write_text(bisect.checker(["include/a.h", "mm/a.c", "mm/c.c"], "sparse -Da=b"))
    sparse.write_text("#!/bin/sh\necho $*\n")
    sparse.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(["sh", str(script), "-Wall", source], check=True, capture_output=True, text=True)
    assert done.stdout == (f"-Da=b -Wall {source}\n" if checked else "")


@pytest.mark.parametrize(("knows", "command"), [("new", "sparse"), ("old", "sparse -D__typeof_unqual__=__typeof__"),
                                                ("broken", "")])
def test_sparse_reads_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows: str, command: str) -> None:
    program, valid = tmp_path / "sparse", tmp_path / "scripts/checker-valid.sh"
    says = {"new": "", "old": "case $* in *-D*) ;; *) echo error: __typeof_unqual__ ;; esac", "broken": "echo error"}
    program.write_text(f"#!/bin/sh\n{says[knows]}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bisect.sparse(tmp_path) == "sparse"  # as 6.12, which has no such script
    valid.parent.mkdir()
    valid.write_text("$@ x.c 2>&1 | awk -v c=1 '/error/{c=0}END{print c}'\n")
    assert bisect.sparse(tmp_path) == command


def test_bisect_warnings_ignore_lines_and_paths() -> None:
    log = ("../mm/a.c:12:5: warning: unused variable 'x' [-Wunused-variable]\n"
           "mm/a.c:99:5: warning: unused variable 'x' [-Wunused-variable]\n"
           "../mm/a.c:3: warning: Function parameter 'y' not described in 'f'\n  CC      mm/a.o\n")
    assert bisect.warnings(log) == {("mm/a.c", "warning: unused variable 'x' [-Wunused-variable]"),
                                    ("mm/a.c", "warning: Function parameter 'y' not described in 'f'")}


# Like kbuild: compiles what is newer than its object, which is when a warning is seen.
KBUILD = r"""
.PHONY: allnoconfig mm/ fs/ block/
allnoconfig: ; @:
mm/ fs/ block/:
	@for c in $$(find $@ -name '*.c'); do o=$(O)/$$c.o; \
		if [ ! -e $$o ] || [ $$c -nt $$o ]; then \
			mkdir -p $${o%/*}; touch -r $$c $$o; echo CC $$c; \
			sed -n "s|^unused.*|$$c:1:1: warning: unused|p" $$c; \
		fi; done
"""


def test_bisect_goes_on_behind_what_passed(series: Checkout) -> None:
    def built(*, ok: bool = True) -> tuple[str, list[str]]:
        for log in series.top.glob("build/log/bisect-*.log"):
            log.unlink()
        said = series.wb("series", "bisect-check", ok=ok)
        return said, [log.stem[-4:] for log in sorted(series.top.glob("build/log/bisect-*.log"))]

    with (series.linux / "Makefile").open("a") as makefile:
        makefile.write(KBUILD)
    assert built()[1] == ["0000", "0001", "0002", "0003"]
    passed = next((series.top / "build/bisect").iterdir())
    assert built()[1] == []

    (ext4,) = (series.top / "fs/ext4").glob("*.patch")
    good = ext4.read_text()
    ext4.write_text(good.replace("+new", "+unused"))
    # The object exists when it runs again: a warning must not be lost with it.
    for _ in range(2):
        said, logs = built(ok=False)
        assert "new warning in fs/ext4/new.c: warning: unused: see" in said
        assert logs == ["0002"]
    ext4.write_text(good.replace("+new", "+newer"))
    assert built()[1] == ["0002", "0003"]
    ext4.write_text(good.replace("\n---\n", "\nAnother word.\n---\n", 1))
    assert built()[1] == []
    ext4.write_text(good)
    passed.write_text("[1")
    assert len(built()[1]) == 1
