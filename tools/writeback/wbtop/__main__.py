# SPDX-License-Identifier: GPL-2.0
"""Entry point: ``python3 -m wbtop`` and the single file that ``wb package`` makes."""

import sys

if sys.version_info < (3, 9):  # noqa: UP036
    sys.exit("wb: Python 3.9 or newer is needed")

from wbtop.cli import main

sys.exit(main())
