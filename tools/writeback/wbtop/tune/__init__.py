# SPDX-License-Identifier: GPL-2.0
"""``wb tune``: facts and a measurement of a disk, rules that turn them into settings, applying and undoing those.

May import: no other package.
"""
