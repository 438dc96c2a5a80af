# SPDX-License-Identifier: GPL-2.0
"""Host side of calm-writeback: builds kernels, runs the cases in QEMU, compares results."""
