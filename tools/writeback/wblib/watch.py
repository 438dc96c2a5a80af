# SPDX-License-Identifier: GPL-2.0
"""``wb watch``, of the user's part."""

from wbtop.watch import register

__all__ = ["register"]
