# SPDX-License-Identifier: GPL-2.0
"""Lets the tests import wblib from wherever pytest is started."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# A hook's or a user's git settings are not those of the tests' own repositories.
for name in [n for n in os.environ if n.startswith("GIT_")]:
    del os.environ[name]
os.environ |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
