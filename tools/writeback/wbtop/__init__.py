# SPDX-License-Identifier: GPL-2.0
"""The part of wb for a user's own machine: watch, tune, field. Standard library only, nothing of the rig."""

VERSION = "1.0"
