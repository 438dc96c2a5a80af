# SPDX-License-Identifier: GPL-2.0
"""Results as pictures and as one page.

May import: base, catalog, results, wbtop.
"""

GENERATOR = "wb report"  # by which a directory is known to be a report's
