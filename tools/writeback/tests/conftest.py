# SPDX-License-Identifier: GPL-2.0
"""Lets the tests import wblib from wherever pytest is started."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from wblib.kernel.patchqueue import clean_env

# A hook's or a user's git settings are not those of the tests' own repositories.
clean = clean_env()
os.environ.clear()
os.environ.update(clean)
# Nor is the base of "make check BASE=7.3" theirs: each test names its own.
os.environ.pop("BASE", None)
