# SPDX-License-Identifier: GPL-2.0
"""Where things are: every directory is derived from the checkout, never configured."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
TOOLS = ROOT / "tools" / "writeback"
CONFIGS = TOOLS / "config"
GUEST = TOOLS / "guest"
SELFTESTS = ROOT / "tools" / "testing" / "selftests" / "writeback"
PATCH_DIRS = ("mm", "fs/ext4", "block")
# WB_BUILD and WB_RESULTS let a small checkout disk keep its bulk elsewhere.
BUILD = Path(os.environ.get("WB_BUILD", ROOT / "build")).absolute()
RESULTS = Path(os.environ.get("WB_RESULTS", ROOT / "results")).absolute()
