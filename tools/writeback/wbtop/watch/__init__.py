# SPDX-License-Identifier: GPL-2.0
"""``wb watch``: who sleeps for dirty memory and for which limit, from counters and a tracing instance of its own.

May import: no other package.
"""
