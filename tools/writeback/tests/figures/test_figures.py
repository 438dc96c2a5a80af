# SPDX-License-Identifier: GPL-2.0
"""Figures of the documentation: a number that was edited, a source of other patches and a missing run are found."""

import json
from pathlib import Path

import pytest

from wblib import cli
from wblib.base.paths import ROOT, SELFTESTS
from wblib.catalog import axes as ax
from wblib.check import tiers
from wblib.figures import blocks, command
from wblib.figures.blocks import Block, Want
from wblib.results import store
from wbtop.errors import WbError

PATCH = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
Subject: [PATCH] block: something

{message}
---
diff --git a/Documentation/a.rst b/Documentation/a.rst
--- a/Documentation/a.rst
+++ b/Documentation/a.rst
@@ -1 +1 @@
-{page}
+b
diff --git a/block/a.c b/block/a.c
index 0123..4567 100644
--- a/block/a.c
+++ b/block/a.c
@@ -{at} +1 @@ int f(void)
-a
+{code}
"""
SPEC = """\
[reads]
depends = ["block"]
seeds = 3
cell = "read-latency"
head = "disk"
columns = [
  { head = "published", key = "published" },
  { head = "p99.95", expr = "read_p99_95/1000", kernel = ["stock", "patched"] },
  { head = "none", expr = "{m}_p1", kernel = "stock", m = "read" },
]
rows = [{ label = "sata", cell = "disk=sata", published = "64" }, { label = "nvme", cell = "disk=nvme" }]

[sentence]
depends = ["block"]
kernel = "patched"
text = "It takes {a} ms, {b} of stock."
[sentence.values]
a = { cell = "read-latency disk=nvme", expr = "read_p99_95 / 1000" }
b = { cell = "read-latency disk=nvme", expr = "drain_s", kernel = "stock" }
"""
PAGE = """\
<!-- figures: reads -->
<!-- end -->

  <!-- figures: sentence -->
  old
  <!-- end -->
"""


def patch(root: Path, folder: str, code: str = "b", message: str = "m", page: str = "a", at: int = 1) -> None:
    path = root / folder / "0105-a.patch"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PATCH.format(code=code, message=message, page=page, at=at))
    blocks.patches_hash.cache_clear()


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    """A tree with a page, its data and two patches."""
    for folder in ("block", "fs/ext4"):
        patch(tmp_path, folder)
    (tmp_path / blocks.DATA).mkdir(parents=True)
    (tmp_path / blocks.SPEC).write_text(SPEC)
    (tmp_path / "README").write_text(PAGE)
    data = {}
    for cell, value in (("read-latency", 60000.0), ("read-latency disk=nvme", 1500.0)):
        for kernel, factor in (("stock", 1.0), ("patched", 0.03)):
            hashes = {} if kernel == "stock" else {"block": blocks.patches_hash("block", "6.12", tmp_path)}
            data[Want(cell, kernel, "fast")] = blocks.Entry(
                blocks.base_version("6.12"), hashes, [1, 2, 3],
                {"read_p99_95": [value * factor * n for n in (3, 1, 2)], "drain_s": [2.0] * 3, "read_p1": None},
                blocks.disk_hash(tmp_path))
    blocks.write_data(data, tmp_path)
    command.write_pages(blocks.read_spec(tmp_path).values(), tmp_path)
    return tmp_path


def problems(root: Path) -> dict[str, str]:
    return {name: problem for name, problem in blocks.lint(root) if problem}


def test_text(root: Path) -> None:
    assert (root / "README").read_text() == """\
<!-- figures: reads -->
| disk | published | p99.95 | none |
| --- | --- | --- | --- |
| sata | 64 | 120 → 3.6 | - |
| nvme | - | 3 → 0.09 | - |
<!-- end -->

  <!-- figures: sentence -->
  It takes 0.09 ms, 2 of stock.
  <!-- end -->
"""
    assert not problems(root)
    assert not command.write_pages(blocks.read_spec(root).values(), root)


def test_a_text_is_folded_anew(root: Path) -> None:
    block = Block("t", {"text": "a b\nc d\n\n- e\n  f\n\n", "wrap": 3})
    assert blocks.render(block, {}) == "a b\nc d\n\n- e\n  f"
    assert blocks.render(Block("t", {"text": "\na b\nc\n"}), {}) == "a b c"


def test_a_number_that_was_edited(root: Path) -> None:
    page = root / "README"
    page.write_text(page.read_text().replace("3.6", "3.5"))
    assert "differs from what the data give" in problems(root)["reads"]
    page.write_text(page.read_text().replace("3.5", "3.6").replace("2 of stock", "3 of stock"))
    assert list(problems(root)) == ["sentence"]


def test_lint_of_the_checks_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``wb check --tier lint`` has them as failures."""
    page = root / "README"
    page.write_text(page.read_text().replace("3.6", "3.5"))
    monkeypatch.setattr(tiers.figures, "lint", lambda lint=blocks.lint: lint(root))
    monkeypatch.setattr(tiers, "_command", lambda name, *_args, **_more: tiers.Verdict(name))
    monkeypatch.setattr(tiers.command, "lint", lambda: iter(()))
    monkeypatch.setattr(tiers.kernels, "source", lambda _variant: root)
    for name in ("need", "venv_tool"):
        monkeypatch.setattr(tiers, name, lambda tool, *_package: tool)
    assert [v.name for v in tiers.lint(1) if v.problem] == ["figures: reads"]


def test_patches_that_changed(root: Path) -> None:
    patch(root, "block", code="c")
    found = problems(root)
    assert "measured with other patches of block/" in found["reads"]
    assert "measured with other patches of block/" in found["sentence"]


@pytest.mark.parametrize("same", [{"message": "other"}, {"page": "other"}, {"at": 9}])
def test_what_no_number_depends_on(root: Path, same: dict[str, str]) -> None:
    """A message, the kernel's documentation, line numbers; and another folder."""
    patch(root, "block", **same)  # type: ignore[arg-type]
    patch(root, "fs/ext4", code="c")
    assert not problems(root)


def test_a_row_of_other_folders(root: Path) -> None:
    path = root / blocks.SPEC
    path.write_text(path.read_text().replace('cell = "disk=nvme" }', 'cell = "disk=nvme", depends = ["mm"] }', 1))
    patch(root, "mm")
    assert "read-latency disk=nvme on patched (fast) was measured with other patches of mm/" in problems(root)["reads"]
    patch(root, "block", code="c")
    assert "read-latency on patched" in problems(root)["reads"]


def test_a_patch_of_one_line(root: Path) -> None:
    patch(root, "block/7.3", code="c")
    assert not problems(root)
    patch(root, "block/6.12", code="c")
    assert "other patches" in problems(root)["reads"]


def test_base_that_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "base_version", lambda _line: "6.12.999")
    assert "not 6.12.999" in problems(root)["reads"]


def test_another_model_of_disks(root: Path) -> None:
    """Every figure is stale, the stock kernel's, too."""
    model = root / SELFTESTS.relative_to(ROOT) / "test_modules/model/wbdisk_ssd.c"
    model.parent.mkdir(parents=True)
    model.write_text("/* another disk */\n")
    blocks.disk_hash.cache_clear()
    block = blocks.read_spec(root)["reads"]
    assert all(blocks.stale(block, want, blocks.read_data(root)[want], root).endswith("other models of disks")
               for want in block.wants())
    blocks.disk_hash.cache_clear()


def test_another_script(root: Path) -> None:
    """Stock has no patches that change: what a new part of a test finds there must be seen."""
    script = root / SELFTESTS.relative_to(ROOT) / "replay/read-latency.sh"
    script.parent.mkdir(parents=True)

    def why(text: str) -> list[str]:
        script.write_text(text)
        ax.script_hash.cache_clear()
        block = blocks.read_spec(root)["reads"]
        return [blocks.stale(block, want, blocks.read_data(root)[want], root) for want in block.wants()]

    # Rows from before scripts were kept.
    assert not any(why("# a comment\ntrue\n"))
    data = blocks.read_data(root)
    for want, entry in data.items():
        entry.script = ax.script_hash(want.cell.split()[0], root)
        assert entry.script
    blocks.write_data(data, root)
    assert not any(why("# another comment\ntrue\n"))
    assert all(text.endswith("with another read-latency.sh") for text in why("false\n"))
    ax.script_hash.cache_clear()


def test_another_cpu_of_the_exact_lane(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CPU", "max")
    assert not problems(root)
    data = {Want(w.cell, w.kernel, "exact"): e for w, e in blocks.read_data(root).items()}
    for entry in data.values():
        entry.cpu = "max"
    blocks.write_data(data, root)
    block, want = blocks.read_spec(root)["reads"], next(iter(data))
    kept = blocks.read_data(root)[want]
    assert not blocks.stale(block, want, kept, root)
    monkeypatch.setattr(blocks, "CPU", "max,erms=off")
    assert "measured on max, not max,erms=off" in blocks.stale(block, want, kept, root)


@pytest.mark.parametrize(("old", "new", "words"), [
    ('"seeds": [1, 2, 3]', '"seeds": [1, 2]', "no seed 3"),
    ('"read_p99_95"', '"read_p99"', "read_p99_95 was not kept"),
    ('"lane": "fast"', '"lane": "exact"', "was not measured"),
])
def test_data_that_is_missing(root: Path, old: str, new: str, words: str) -> None:
    path = root / blocks.DATA / "read-latency.json"
    path.write_text(path.read_text().replace(old, new))
    assert words in problems(root)["reads"]


def test_a_number_without_a_source(root: Path) -> None:
    (root / "Documentation/a.md").write_text("Reads take 1.5 → 0.3 ms.\n\n```\n1 -> 2\n```\n")
    assert "not of a block" in problems(root)["Documentation/a.md"]


def test_blocks_on_no_page_and_without_a_declaration(root: Path) -> None:
    page = root / "README"
    page.write_text(page.read_text().replace("figures: reads", "figures: writes"))
    found = problems(root)
    assert "is on no page" in found["reads"]
    assert "README has it" in found["writes"]


def test_python(root: Path) -> None:
    block = Block("e", {"kernel": "stock", "items": {"x": {
        "text": 'one "word" {a}', "command": "wb run", "values": {
            "a": {"cell": "read-latency disk=nvme", "expr": "drain_s*2-1"}}}}})
    made = blocks.render(block, blocks.read_data(root))
    assert made == '"x": Evidence(\n    "one \\"word\\" 3",\n    "wb run"),'


@pytest.mark.parametrize(("text", "words"), [
    ("[a]\ncell = 'read-latency'\ntext = '{x}'\n[a.values]\nx = {expr = 'y', kernel = 'stock'}\n", ""),
    ("[a]\ncell = 'read-latency'\ntext = '{x}'\n[a.values]\nx = {expr = 'y'}\n", "no 'kernel'"),
    ("[a", "figures.toml"),
    ("[a]\nkernel = 'stock'\ncell = 'no-case'\ntext = ''\n[a.values]\nx = {expr = 'y'}\n", "no-case"),
])
def test_bad_specification(root: Path, text: str, words: str) -> None:
    (root / blocks.SPEC).write_text(text)
    if not words:
        assert "was not measured" not in problems(root)["reads"]
        return
    with pytest.raises(WbError, match=words):
        list(blocks.lint(root))


def test_damaged_data(root: Path) -> None:
    for text in ("{", "[1]", "[{}]", json.dumps([{"cell": "a", "kernel": "b", "lane": "c", "x": 1}])):
        (root / blocks.DATA / "read-latency.json").write_text(text)
        with pytest.raises(WbError, match=r"read-latency\.json is no file of 'wb figures'"):
            blocks.read_data(root)


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "lint", lambda: iter([("readme-ab", "stale"), ("readme-what", "")]))
    assert cli.main(["figures"]) == 0
    assert capsys.readouterr().out.startswith("readme-ab: stale\n")
    assert cli.main(["figures", "--check"]) == 1
    assert cli.main(["figures", "--check", "readme-what"]) == 0
    assert cli.main(["figures", "readme-whta"]) == 2
    assert "did you mean readme-what?" in capsys.readouterr().err
    monkeypatch.setenv("BASE", "7.3")
    assert cli.main(["figures", "--refresh"]) == 2
    assert "BASE" in capsys.readouterr().err


def test_refresh_takes_what_is_there(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale runs only, with the seeds and metrics of all blocks; what no block uses goes."""
    monkeypatch.setattr(blocks, "read_spec", lambda read=blocks.read_spec: read(root))
    monkeypatch.setattr(blocks, "read_data", lambda read=blocks.read_data: read(root))
    monkeypatch.setattr(blocks, "write_data", lambda data, write=blocks.write_data: write(data, root))
    path = root / blocks.DATA / "read-latency.json"
    text = path.read_text().replace(blocks.base_version("6.12"), "6.12.1", 1)
    path.write_text(text.replace("[\n", '[\n{"cell": "soak", "kernel": "stock", "lane": "fast", "base": "x", '
                                 '"patches": {}, "seeds": [], "metrics": {}},\n', 1))
    asked = []

    def runs(want: Want, seeds: list[int]) -> list[store.Result]:
        asked.append((want.cell, want.kernel, seeds))
        return [store.Result("read-latency", want.kernel, {}, n, {"read_p99_95": {"value": 5000.0 * n, "unit": "us"},
                             "drain_s": {"value": 2, "unit": "s"}}, {}, "pass", []) for n in seeds]

    ahead: list[int] = []
    monkeypatch.setattr(command.runner, "run_many", lambda runs: ahead.extend(r.seed for r in runs))
    monkeypatch.setattr(command, "_known", lambda _want, job: job.seed == 2)
    monkeypatch.setattr(command, "_runs", runs)
    monkeypatch.setattr(blocks, "stale", lambda b, w, e, stale=blocks.stale: stale(b, w, e, root))
    command.refresh(list(blocks.read_spec().values()))
    assert len(asked) == 1 and asked[0][2] == [1, 2, 3]
    assert ahead == [1, 3]
    entry = blocks.read_data()[Want(asked[0][0], asked[0][1], "fast")]
    assert entry.metrics == {"read_p99_95": [5000.0, 10000.0, 15000.0]}
    assert not [w for w in blocks.read_data() if w.cell == "soak"]


def test_a_result_of_another_script_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be kept as that of the present one, and never be looked at again."""
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(command, "_key", lambda _variant, _lane: "0123")
    monkeypatch.setattr(command.identity, "lane", lambda _r: "fast")
    plain = command.Job("read-latency", dict(command.suites.cell("read-latency").axes), 1, "stock")
    axes = dict((command.suites.in_lane("fast", plain) or plain).axes)
    made = {s: store.Result("read-latency", "stock", axes, 1, {}, {"image_hash": "0123", "script": s}, "pass", [])
            for s in (ax.script_hash("read-latency"), "of another")}
    ran: list[int] = []

    def run_many(*_args: object, **_more: object) -> list[store.Result]:
        ran.append(1)
        return [made["of another"]]

    monkeypatch.setattr(command.runner, "run_many", run_many)
    for script, runs in (("of another", 1), (ax.script_hash("read-latency"), 1)):
        monkeypatch.setattr(store, "scan", lambda _path, script=script: [made[script]])
        command._there.cache_clear()
        list(command._runs(Want("read-latency", "stock", "fast"), [1]))
        assert len(ran) == runs
    command._there.cache_clear()
