# SPDX-License-Identifier: GPL-2.0
"""``wb field``: A against B on this machine's own disk, under loads of known size, as one page and one JSON.

May import: watch, tune.
"""
