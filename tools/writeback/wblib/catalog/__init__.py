# SPDX-License-Identifier: GPL-2.0
"""What can be measured: the cases with their axes, and the suites of cells.

May import: base, wbtop.
"""
