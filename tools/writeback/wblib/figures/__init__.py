# SPDX-License-Identifier: GPL-2.0
"""Figures of the documentation: text between markers that is made from result files.

May import: base, catalog, kernel, report, results, run, series, wbtop.
"""
