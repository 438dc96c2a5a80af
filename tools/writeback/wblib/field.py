# SPDX-License-Identifier: GPL-2.0
"""``wb field``, of the user's part."""

from wbtop.field import register

__all__ = ["register"]
