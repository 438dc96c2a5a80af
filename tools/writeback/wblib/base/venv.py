# SPDX-License-Identifier: GPL-2.0
"""Python packages that are only in the project's venv, for a wb that was started outside of it."""

import importlib.util
import os
import sys

from .paths import BUILD


def has(module: str) -> bool:
    """Whether ``module`` can be imported, if need be after going on as a new process in the venv.

    Call it before work that would be lost.
    """
    if importlib.util.find_spec(module) is not None:
        return True
    python = BUILD / "venv" / "bin" / "python"
    if python.exists() and not os.environ.get("WB_IN_VENV"):
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ["WB_IN_VENV"] = "1"
        os.execv(python, [str(python), *sys.orig_argv[1:]])
    return False
