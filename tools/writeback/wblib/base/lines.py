# SPDX-License-Identifier: GPL-2.0
"""The lines of kernels that the series is for."""

# LTS is the default: names of its kernels and directories have no suffix.
LTS, MAINLINE = "6.12", "7.3"
LINES = (LTS, MAINLINE)
