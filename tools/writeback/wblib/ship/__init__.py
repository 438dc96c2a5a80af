# SPDX-License-Identifier: GPL-2.0
"""What users install, packages of the kernel, of wbdisk and of ``wb``, and the machines that try them.

May import: base, catalog, kernel, guest, results, wbtop.
"""
