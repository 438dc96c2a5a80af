# SPDX-License-Identifier: GPL-2.0
"""Work on the patches: the git tree, bisecting, the law alone, mail.

May import: base, catalog, kernel, results, run, wbtop.
"""
