# SPDX-License-Identifier: GPL-2.0
"""What can be measured: the cases as they describe themselves, the modelled disks, and the suites of cells.

May import: base, wbtop.
"""
