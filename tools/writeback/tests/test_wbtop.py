# SPDX-License-Identifier: GPL-2.0
"""The user's part stands alone: no import of the rig, and syntax of Python 3.9."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1] / "wbtop"


@pytest.mark.parametrize("path", sorted(TOP.glob("*.py")), ids=lambda p: p.name)
def test_a_module_stands_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
            [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names | {"wbtop"}, name


def test_version_and_help_without_the_rig(tmp_path: Path) -> None:
    def wb(*words: str) -> str:
        return subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(TOP.parent)!r})\n"
                               "sys.modules['wblib'] = None\nfrom wbtop.cli import main\nsys.exit(main())", *words],
                              cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert wb("--version").startswith("wb ")
    assert "--simulate" not in wb("tune", "--help")
    assert "--once" in wb("watch", "--help")
