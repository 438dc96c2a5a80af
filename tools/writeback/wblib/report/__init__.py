# SPDX-License-Identifier: GPL-2.0
"""Results as pictures and as one page.

May import: base, catalog, results, wbtop.
"""
