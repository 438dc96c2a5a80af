# SPDX-License-Identifier: GPL-2.0
"""Building what the series touches in other ways: which ways, which objects, which warnings are new."""

from pathlib import Path

import pytest

from wblib.series import buildcheck
from wbtop.errors import WbError


def test_ways_are_named_or_refused() -> None:
    assert buildcheck.chosen("arm64,clang,arm64") == ["arm64", "clang"]
    assert buildcheck.chosen(",".join(buildcheck.ALL)) == list(buildcheck.ALL)
    for wrong in ("", ",", "gcc", "clang,gcc"):
        with pytest.raises(WbError, match="is none of clang, sparse") as caught:
            buildcheck.chosen(wrong)
        assert caught.value.code == 2


def test_the_newest_clang_that_the_kernel_takes() -> None:
    assert buildcheck.newest_clang(["clang-9", "clang-19", "clang-cpp", "clang-format-20"], 17) == "clang-19"
    for names in ([], ["clang-14"]):
        with pytest.raises(buildcheck.Missing, match="no clang from 17 on"):
            buildcheck.newest_clang(names, 17)


def test_objects_are_those_of_the_kernel(tmp_path: Path) -> None:
    for name in ("mm/a.c", "block/b.c", "tools/testing/c.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "mm/a.c").write_text('#include "a.h"\n#include "a-test.c"\n')
    (tmp_path / "mm/a-test.c").touch()
    touched = ["mm/a.c", "mm/a-test.c", "block/b.c", "block/b.h", "fs/only-patched.c", "tools/testing/c.c",
               "Documentation/x.rst"]
    assert buildcheck.objects(touched, tmp_path) == ["mm/a.o", "block/b.o"]


def way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, str]) -> None:
    """``wb series build-check`` on two trees, whose compiler prints ``found`` (tree -> log)."""
    for name in ("stock", "patched"):
        (tmp_path / name / "mm").mkdir(parents=True)
        (tmp_path / name / "mm/a.c").touch()
    monkeypatch.setattr(buildcheck, "PLACE", tmp_path / "out")
    monkeypatch.setattr(buildcheck, "BUILD", tmp_path)
    monkeypatch.setattr(buildcheck.fs, "BUILD", tmp_path)
    monkeypatch.setattr(buildcheck.upstream, "locate", lambda: buildcheck.upstream.Base(tmp_path, "i", True))
    monkeypatch.setattr(buildcheck.patchqueue, "patches", lambda **_k: [tmp_path / "p"])
    monkeypatch.setattr(buildcheck.patchqueue, "touched", lambda _p: ["mm/a.c", "include/linux/h.h"])
    monkeypatch.setattr(buildcheck, "_trees", lambda: [tmp_path / "stock", tmp_path / "patched"])
    monkeypatch.setattr(buildcheck, "_arm64", lambda _t: [])
    monkeypatch.setitem(buildcheck.WAYS, "arm64", buildcheck.Way("arm64", lambda _t: ["ARCH=arm64"]))

    def run(argv: list[str], *, log: Path, **_k: object) -> None:
        if "allnoconfig" in argv:
            return
        tree = Path(argv[argv.index("-C") + 1])
        out = Path(next(w for w in argv if w.startswith("O=")).removeprefix("O="))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(found[tree.name].replace("../", f"{tree}/"))
        if "Error 1" not in found[tree.name]:
            (out / "mm").mkdir()
            (out / "mm/a.o").touch()

    monkeypatch.setattr(buildcheck, "run", run)


OLD, NEW = "../mm/a.c:1:2: warning: old [-Wx]\n", "../mm/a.c:9:2: warning: new [-Wx]\n../mm/b.c:1:1: warning: b\n"


def test_what_the_base_does_not_warn_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    way(monkeypatch, tmp_path, {"stock": OLD, "patched": OLD.replace(":1:", ":5:") + NEW})
    assert buildcheck.check(["arm64"]) == 1
    assert capsys.readouterr().out == "FAIL arm64: mm/a.c: warning: new [-Wx]\n"


def test_no_new_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    way(monkeypatch, tmp_path, {"stock": OLD, "patched": OLD})
    assert buildcheck.check(["arm64"]) == 0
    assert capsys.readouterr().out == "ok   arm64: arm64, 1 objects, no new warning\n"


def test_what_does_not_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                             capsys: pytest.CaptureFixture[str]) -> None:
    way(monkeypatch, tmp_path, {"stock": OLD, "patched": "../mm/a.c:3:1: error: no\nmake: Error 1\n"})
    assert buildcheck.check(["arm64"]) == 1
    assert "FAIL arm64: mm/a.o does not build in patched-arm64: mm/a.c:3:1: error: no" in capsys.readouterr().out


def test_an_object_that_is_not_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    absent = "make: *** No rule to make target 'mm/a.o'.  Stop.\nmake: Error 1\n"
    way(monkeypatch, tmp_path, {"stock": absent, "patched": absent})
    assert buildcheck.check(["arm64"]) == 0
    assert "0 objects (1 are not in this configuration)" in capsys.readouterr().out


def test_a_missing_tool_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    way(monkeypatch, tmp_path, {"stock": OLD, "patched": OLD})
    monkeypatch.setattr(buildcheck.shutil, "which", lambda _n: None)
    assert buildcheck.check(["smatch", "arm64", "docs"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in out] == [["SKIP", "smatch:"], ["ok", "arm64:"], ["SKIP", "docs:"]]


def test_warnings_of_pages(tmp_path: Path) -> None:
    log = ("/b/docs/Documentation/mm/x.rst:3: WARNING: Title underline too short.\n"
           "./block/w.c:7: warning: Function parameter 'q' not described\nreading sources... [ 50%] mm/x\n")
    assert buildcheck.doc_warnings(log) == {
        ("Documentation/mm/x.rst", "WARNING: Title underline too short."),
        ("block/w.c", "warning: Function parameter 'q' not described")}
    (tmp_path / "Documentation/accounting").mkdir(parents=True)
    (tmp_path / "Documentation/accounting/psi.rst").write_text(".. _psi:\n")
    assert buildcheck.elsewhere("WARNING: undefined label: 'psi'", tmp_path)
    assert buildcheck.elsewhere("WARNING: unknown document: '/accounting/psi'", tmp_path)
    assert not buildcheck.elsewhere("WARNING: undefined label: 'no'", tmp_path)
    assert not buildcheck.elsewhere("WARNING: Title underline too short.", tmp_path)
