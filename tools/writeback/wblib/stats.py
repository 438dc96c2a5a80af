# SPDX-License-Identifier: GPL-2.0
"""That of the user's part, under the name that the rig's modules use."""

from wbtop.stats import Summary, iqr, median, number, quantile, short, summary, table

__all__ = ["Summary", "iqr", "median", "number", "quantile", "short", "summary", "table"]
