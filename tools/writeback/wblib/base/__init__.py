# SPDX-License-Identifier: GPL-2.0
"""What every command stands on: directories, processes, progress, locks and whole files, the venv.

May import: wbtop.
"""
