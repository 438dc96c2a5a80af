# SPDX-License-Identifier: GPL-2.0
"""What runs leave: reading TAP, storing, telling runs apart, comparing, and other tools' formats.

May import: base, catalog, kernel, guest, wbtop.
"""
