# SPDX-License-Identifier: GPL-2.0
"""From a kernel's source to its image: the base, the patch queue, configurations, builds.

May import: base, catalog, wbtop.
"""
