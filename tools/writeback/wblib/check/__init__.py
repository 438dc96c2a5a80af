# SPDX-License-Identifier: GPL-2.0
"""What judges the whole: tiers of checks, stress, other projects' suites.

May import: base, catalog, figures, kernel, guest, results, ship, run, series, wbtop.
"""
