# SPDX-License-Identifier: GPL-2.0
"""``wb report``: results as one static page with pictures; Documentation/report.md says how to read it."""

from .command import register

__all__ = ["register"]
