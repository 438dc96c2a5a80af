# SPDX-License-Identifier: GPL-2.0
"""Running cases: one, a suite, both lanes, the published incidents, on this machine.

May import: base, catalog, kernel, guest, results, report, wbtop.
"""
