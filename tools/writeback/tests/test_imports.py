# SPDX-License-Identifier: GPL-2.0
"""Which package may import which: each says so itself, and nothing goes in a circle."""

import ast
import re
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1]
WBLIB, WBTOP = TOOLS / "wblib", TOOLS / "wbtop"
PACKAGES = sorted(p.parent.name for p in WBLIB.glob("*/__init__.py"))
MODULES = sorted(WBLIB.glob("*/**/*.py"))


def imported(path: Path) -> set[str]:
    """Full names of the modules, and perhaps of what is in them, that ``path`` imports anywhere."""
    package = ".".join(path.relative_to(TOOLS).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            names |= {f"{base}.{a.name}" for a in node.names}
    return names


def packages(names: set[str]) -> set[str]:
    """The packages of this project in ``names``."""
    inside = {n.split(".")[1] for n in names if n.startswith("wblib.")}
    return inside | {"wbtop" for n in names if n.split(".")[0] == "wbtop"}


def allowed(package: str, top: Path = WBLIB) -> set[str]:
    """What the package says that it may import."""
    doc = ast.get_docstring(ast.parse((top / package / "__init__.py").read_text())) or ""
    found = re.search(r"^May import: ([\w, ]+)\.$", doc, re.M)
    assert found, f"{package} does not say what it may import"
    return set(found[1].split(", "))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(WBLIB)))
def test_a_module_imports_what_its_package_may(path: Path) -> None:
    mine = path.relative_to(WBLIB).parts[0]
    assert packages(imported(path)) - {mine} <= allowed(mine)


@pytest.mark.parametrize("path", sorted(WBTOP.rglob("*.py")), ids=lambda p: str(p.relative_to(WBTOP)))
def test_a_users_module_imports_what_its_package_may(path: Path) -> None:
    rooms = {p.parent.name for p in WBTOP.glob("*/__init__.py")}
    mine = path.relative_to(WBTOP).parent.name
    others = {n.split(".")[1] for n in imported(path) if n.startswith("wbtop.")} & rooms - {mine}
    assert others <= (allowed(mine, WBTOP) if mine else set())


def test_no_circle() -> None:
    order = list(TopologicalSorter({p: allowed(p) for p in PACKAGES}).static_order())
    assert order[0] == "wbtop" and set(order) == {"wbtop", *PACKAGES}
    modules = {".".join(p.relative_to(TOOLS).with_suffix("").parts): imported(p)
               for top in (WBLIB, WBTOP) for p in top.rglob("*.py")}
    graph = {m: {n if n in modules else n.rpartition(".")[0] for n in names} & modules.keys() - {m}
             for m, names in modules.items()}
    TopologicalSorter(graph).prepare()
