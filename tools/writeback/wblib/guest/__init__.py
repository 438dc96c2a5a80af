# SPDX-License-Identifier: GPL-2.0
"""A kernel's machine: the initramfs, the command lines of the lanes, running one guest.

May import: base, catalog, kernel, wbtop.
"""
