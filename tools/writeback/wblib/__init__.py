# SPDX-License-Identifier: GPL-2.0
"""Host side of calm-writeback: builds kernels, runs the cases in QEMU and User Mode Linux, compares results.

Each package says what it is for and which others it may import; there are no cycles.
"""
