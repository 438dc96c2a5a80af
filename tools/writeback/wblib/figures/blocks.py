# SPDX-License-Identifier: GPL-2.0
"""Figures in README, Documentation and cover letters: text that stands between two markers and is made from results.

Documentation/results/figures.toml says what stands in each block, the JSON files beside it hold
the metrics that the blocks use, with a hash of the patches that were measured.  A block is right
as long as its text is what the data give, and the data are of the patches that it depends on.
``wb figures`` (command.py) measures and rewrites.
"""

import ast
import functools
import hashlib
import json
import operator
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wblib.base import fs
from wblib.base.paths import PATCH_DIRS, ROOT, SELFTESTS
from wblib.catalog import axes as ax
from wblib.catalog import suites
from wblib.catalog.spec import CPU
from wblib.kernel import upstream
from wbtop.errors import WbError
from wbtop.stats import median, short, table
from wbtop.stats import number as exact

DATA = Path("Documentation/results")
SPEC = DATA / "figures.toml"
PICTURES = "pictures.json"
# Where blocks may stand, as patterns below the root.
PAGES = ("README", "Documentation/*.md", "tools/writeback/wbtop/tune/evidence.py",
         *(f"{folder}/*.cover" for folder in PATCH_DIRS))
LAW = "law"
WIDTH = 120
_BLOCK = re.compile(r"^(?P<open>(?P<indent> *)(?P<mark><!--|#) figures: (?P<name>[a-z0-9-]+)(?: -->)?\n)"
                    r"(?:.*?\n)??(?P<close> *(?P=mark) end(?: -->)?)$", re.M | re.S)
# A measured change that stands in a page without a source.
_LOOSE = re.compile(r"\d[\d.,]*(?: ?[^\s|]+)? (?:→|->) \**\d")
_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@dataclass(frozen=True)
class Want:
    """What is measured for a number: a cell ("CASE axis=value ..."), on a kernel, in a lane."""

    cell: str
    kernel: str
    lane: str

    @property
    def line(self) -> str:
        """The kernel line."""
        return self.kernel.partition("@")[2] or upstream.LTS

    @property
    def stock(self) -> bool:
        """Whether the kernel has nothing of ours."""
        return self.kernel.startswith("stock")


@dataclass
class Entry:
    """What was measured: per metric a value for each seed, None for a metric that such a run does not have.

    base: the pinned version of the kernel's source.  patches: a hash per folder.  disk: a hash of wbdisk's models.
    cpu: of the exact lane.  script: a hash of the case's script; empty: not known.
    """

    base: str
    patches: dict[str, str]
    seeds: list[int]
    metrics: dict[str, list[float] | None] = field(default_factory=dict)
    disk: str = ""
    cpu: str = ""
    script: str = ""


Data = dict[Want, Entry]


@dataclass(frozen=True)
class Number:
    """One number: an expression of metrics, of one run. depends: the patch folders whose change makes it stale."""

    want: Want
    expr: str
    depends: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A block of the specification."""

    name: str
    spec: Mapping[str, Any]

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return suites.seeds(str(self.spec.get("seeds", 1)))

    def numbers(self, *parts: Mapping[str, Any]) -> list[Number]:
        """The numbers that a row and a column make together; several kernels make several."""
        merged: dict[str, Any] = {}
        for part in (self.spec, *parts):
            merged |= {k: v for k, v in part.items() if isinstance(v, str) or k in ("kernel", "depends")}
        words = " ".join(str(part["cell"]) for part in (self.spec, *parts) if "cell" in part)
        try:
            kernels = merged["kernel"] if isinstance(merged["kernel"], list) else [merged["kernel"]]
            if "line" in merged:
                kernels = [upstream.in_line(k, merged["line"]) for k in kernels]
            expr = merged["expr"].format_map(merged)
            depends = tuple(merged.get("depends", ()))
            return [Number(Want(cell(words), k, merged.get("lane", "fast")), expr, depends) for k in kernels]
        except KeyError as exc:
            raise WbError(f"{SPEC}: {self.name}: no {exc} for '{words}'") from exc

    def places(self) -> Iterator[tuple[Mapping[str, Any], ...]]:
        """What makes up each place of the block that has numbers."""
        for row in self.spec.get("rows", ()):
            yield from ((row, column) for column in self.spec["columns"] if "key" not in column)
        for item in (self.spec, *self.spec.get("items", {}).values()):
            yield from ((value,) for value in item.get("values", {}).values())

    def every(self) -> list[Number]:
        """All its numbers."""
        return [n for parts in self.places() for n in self.numbers(*parts)]

    @property
    def picture(self) -> str:
        """The file of a picture, else empty."""
        return str(self.spec.get("picture", ""))

    def wants(self) -> list[Want]:
        """What has to be measured for it."""
        return list(dict.fromkeys(n.want for n in self.every()))


def cell(words: str) -> str:
    """``words`` with axes in order, those at their defaults left out."""
    case, *pairs = sorted(words.split(), key=lambda word: "=" in word)
    words = " ".join([case, *pairs])
    if case == LAW:
        return " ".join([case, *sorted(pairs)])
    checked = suites.cell(words)
    defaults = suites.cell(case).axes
    return " ".join([case, *(f"{k}={v}" for k, v in checked.axes.items() if v != defaults[k])])


# ---- files -------------------------------------------------------------------

def read_spec(root: Path = ROOT) -> dict[str, Block]:
    """The blocks by name."""
    try:
        return {name: Block(name, spec) for name, spec in tomllib.loads((root / SPEC).read_text()).items()}
    except (OSError, tomllib.TOMLDecodeError) as exc:
        raise WbError(f"{SPEC}: {exc}") from exc


def read_data(root: Path = ROOT) -> Data:
    """Everything that was measured."""
    found: Data = {}
    for path in sorted((root / DATA).glob("*.json")):
        try:
            for one in json.loads(path.read_text()) if path.name != PICTURES else ():
                want = Want(one.pop("cell"), one.pop("kernel"), one.pop("lane"))
                found[want] = Entry(**one)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
            raise WbError(f"{path.relative_to(root)} is no file of 'wb figures': {exc}") from exc
    return found


def write_data(data: Data, root: Path = ROOT) -> None:
    """One file per case, one line per run."""
    files: dict[str, list[str]] = {}
    for want, entry in sorted(data.items(), key=lambda item: (item[0].cell, item[0].kernel, item[0].lane)):
        one = {"cell": want.cell, "kernel": want.kernel, "lane": want.lane, "base": entry.base,
               "patches": dict(sorted(entry.patches.items())), "seeds": entry.seeds,
               "metrics": dict(sorted(entry.metrics.items())), "disk": entry.disk,
               **{k: v for k, v in (("cpu", entry.cpu), ("script", entry.script)) if v}}
        files.setdefault(want.cell.split()[0], []).append(json.dumps(one))
    for old in (root / DATA).glob("*.json"):
        if old.name != PICTURES and old.stem not in files:
            old.unlink()
    for case, lines in files.items():
        fs.write_atomic(root / DATA / f"{case}.json", "[\n" + ",\n".join(lines) + "\n]\n")


def read_pictures(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """File name -> its own hash, the bases and the patches that it shows."""
    path = root / DATA / PICTURES
    return dict(json.loads(path.read_text())) if path.exists() else {}


def pages(root: Path = ROOT) -> list[Path]:
    """The files that may have blocks."""
    return [path for pattern in PAGES for path in sorted(root.glob(pattern))]


# ---- what is current -----------------------------------------------------------

@functools.cache
def patches_hash(folder: str, line: str, root: Path = ROOT) -> str:
    """Hash of what the patches of a folder change in code, whatever their messages and documentation say."""
    digest = hashlib.sha256()
    for path in sorted([*(root / folder).glob("*.patch"), *(root / folder / line).glob("*.patch")],
                       key=lambda p: p.name):
        for diff in re.split(r"^(?=diff --git )", path.read_text(errors="surrogateescape"), flags=re.M)[1:]:
            if not diff.startswith("diff --git a/Documentation/"):
                # As in patchqueue.essence(): blob ids and line numbers say nothing.
                text = re.sub(r"^(index .*\n|@@ .*)", "", diff, flags=re.M)
                digest.update(text.encode(errors="surrogateescape"))
    return digest.hexdigest()[:12]


@functools.cache
def disk_hash(root: Path = ROOT) -> str:
    """Hash of wbdisk's models: every figure is of them, the stock kernel's, too."""
    digest = hashlib.sha256()
    for path in sorted((root / SELFTESTS.relative_to(ROOT) / "test_modules/model").glob("*.[ch]")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def base_version(line: str) -> str:
    """The pinned version of a line's source."""
    return upstream.pins(line)["VERSION"]


def cpu_of(want: Want) -> str:
    """QEMU's CPU model, where the lane has one."""
    return CPU if want.lane == "exact" else ""


def stale(block: Block, want: Want, entry: Entry | None, root: Path = ROOT) -> str:
    """Why ``entry`` is not good for ``block``; empty if it is."""
    what = f"{want.cell} on {want.kernel} ({want.lane})"
    if entry is None:
        return f"{what} was not measured"
    if entry.base != base_version(want.line):
        return f"{what} was measured on {entry.base}, not {base_version(want.line)}"
    if entry.disk != disk_hash(root):
        return f"{what} was measured with other models of disks"
    if entry.script and entry.script != ax.script_hash(want.cell.split()[0], root):
        return f"{what} was measured with another {want.cell.split()[0]}.sh"
    if entry.cpu != cpu_of(want):
        return f"{what} was measured on {entry.cpu or 'no named CPU'}, not {cpu_of(want) or 'any'}"
    if not want.stock:
        for folder in depends_of(block, want):
            if entry.patches.get(folder) != patches_hash(folder, want.line, root):
                return f"{what} was measured with other patches of {folder}/"
    if missing := set(block.seeds) - set(entry.seeds):
        return f"{what}: no seed {min(missing)}"
    if names := metrics_of(block, want) - set(entry.metrics):
        return f"{what}: {min(names)} was not kept"
    return ""


def depends_of(block: Block, want: Want) -> list[str]:
    """The patch folders that what a block takes of a run depends on."""
    return sorted({folder for n in block.every() if n.want == want for folder in n.depends})


def metrics_of(block: Block, want: Want) -> set[str]:
    """The metrics of a run that a block uses."""
    return {node.id for n in block.every() if n.want == want for node in ast.walk(ast.parse(n.expr))
            if isinstance(node, ast.Name)}


# ---- numbers ---------------------------------------------------------------------

def _evaluate(node: ast.expr, metrics: Mapping[str, float]) -> float:
    if isinstance(node, ast.Name):
        return metrics[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, metrics), _evaluate(node.right, metrics))
    raise WbError(f"{SPEC}: '{ast.unparse(node)}' is neither a metric, a number nor + - * / of them")


def value(number: Number, entry: Entry) -> float | None:
    """Median of the expression over all seeds that were run, the same in each block; None without its metrics."""
    tree = ast.parse(number.expr, mode="eval").body
    found = []
    for at in range(len(entry.seeds)):
        metrics = {k: v[at] for k, v in entry.metrics.items() if v is not None}
        try:
            found.append(_evaluate(tree, metrics))
        except (KeyError, ZeroDivisionError):
            return None
    return median(found)


def _shown(block: Block, data: Data, *parts: Mapping[str, Any]) -> str:
    texts = []
    for number in block.numbers(*parts):
        entry = data[number.want]
        texts.append((exact if block.spec.get("digits") == 4 else short)(value(number, entry)))
    return " → ".join(texts)


# ---- blocks ----------------------------------------------------------------------

def render(block: Block, data: Data) -> str:
    """The text of a block, without its indentation."""
    if block.spec.get("items"):
        return "\n".join(_python(name, item, block, data) for name, item in block.spec["items"].items())
    if "text" in block.spec:
        return _wrapped(_filled(block.spec, block, data).strip("\n"), int(block.spec.get("wrap", WIDTH)))
    head = [str(block.spec.get("head", "")), *(str(c["head"]) for c in block.spec["columns"])]
    rows = [[str(r["label"]), *(_place(block, data, r, c) for c in block.spec["columns"])] for r in block.spec["rows"]]
    if block.spec.get("style") == "text":
        return table(head, rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))


def _place(block: Block, data: Data, row: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    if "key" in column:
        return str(row.get(column["key"], "-"))
    return _shown(block, data, row, column)


def _wrapped(text: str, width: int) -> str:
    """Paragraphs folded anew, as numbers have lengths of their own; lists stay as they are."""
    parts = [p if re.match(r"[-|]", p) else textwrap.fill(p, width, break_on_hyphens=False, break_long_words=False)
             for p in text.split("\n\n")]
    return "\n\n".join(parts)


def _filled(item: Mapping[str, Any], block: Block, data: Data) -> str:
    values = {name: _shown(block, data, v) for name, v in item.get("values", {}).items()}
    try:
        return str(item["text"]).format_map(values)
    except KeyError as exc:
        raise WbError(f"{SPEC}: {block.name}: the text names {exc}, which has no value") from exc


def _python(name: str, item: Mapping[str, Any], block: Block, data: Data) -> str:
    """An entry of a dictionary of Evidence."""
    def literal(text: str) -> str:
        parts = textwrap.wrap(text, WIDTH - 20, drop_whitespace=False, break_on_hyphens=False)
        return "\n    ".join(json.dumps(p, ensure_ascii=False) for p in parts)

    text = _filled(item, block, data).strip().replace("→", "->")
    return f'"{name}": Evidence(\n    {literal(text)},\n    {literal(item["command"])}),'


def blocks_in(text: str) -> list[str]:
    """The names of the blocks in a page."""
    return [m["name"] for m in _BLOCK.finditer(text)]


def rewritten(text: str, made: Mapping[str, str]) -> str:
    """A page with the blocks of ``made`` as they are to be; the others stay."""
    def one(match: re.Match[str]) -> str:
        if match["name"] not in made:
            return match[0]
        return f"{match['open']}{textwrap.indent(made[match['name']], match['indent'])}\n{match['close']}"

    return _BLOCK.sub(one, text)


def loose(text: str) -> list[str]:
    """Measured changes ("1.5 -> 0.3 ms") outside of blocks and of code."""
    outside = re.sub(r"^```.*?^```$", "", _BLOCK.sub("", text), flags=re.M | re.S)
    return [m[0] for m in _LOOSE.finditer(outside)]


def lint(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """(check, problem) for each block and page."""
    spec, data = read_spec(root), read_data(root)
    problems = {name: next(filter(None, (stale(b, w, data.get(w), root) for w in b.wants())), "")
                for name, b in spec.items()}
    for name, block in spec.items():
        if block.picture:
            problems[name] = problems[name] or picture_problem(block, root)
    made = {name: render(block, data) for name, block in spec.items() if not problems[name] and not block.picture}
    seen: set[str] = set()
    for path in pages(root):
        text, where = path.read_text(), str(path.relative_to(root))
        for name in blocks_in(text):
            seen.add(name)
            if name not in spec:
                problems[name] = f"{where} has it, {SPEC} does not"
        if not any(problems[name] for name in blocks_in(text)) and rewritten(text, made) != text:
            changed = [n for n in blocks_in(text) if rewritten(text, {n: made[n]}) != text]
            problems[changed[0]] = f"{where} differs from what the data give"
        if path.suffix != ".cover" and (bare := loose(text)):
            yield where, f"'{bare[0]}' is not of a block of {SPEC}"
    for name, problem in problems.items():
        if not problem and name not in seen and not spec[name].picture:
            problem = "is on no page"
        yield name, f"{problem}: wb figures --refresh {name}" if problem else ""


def picture_problem(block: Block, root: Path = ROOT) -> str:
    """Why the picture of a block is not the one that its sources give; empty if it is."""
    kept = read_pictures(root).get(block.picture)
    path = root / "Documentation" / block.picture
    if kept is None or not path.is_file():
        return f"{block.picture} was not drawn"
    if hashlib.sha256(path.read_bytes()).hexdigest()[:12] != kept["sha256"]:
        return f"{block.picture} is not the picture that was drawn"
    now = picture_sources(block, root)
    return "" if kept["of"] == now else f"{block.picture} shows other kernels"


def picture_sources(block: Block, root: Path = ROOT) -> dict[str, str]:
    """What a picture depends on: the pinned base of each kernel, and its patches."""
    return {f"{w.kernel}: {folder}": base_version(w.line) if w.stock else patches_hash(folder, w.line, root)
            for w in block.wants() for folder in depends_of(block, w)}
