# SPDX-License-Identifier: GPL-2.0
"""The one exception that reaches the user as a single line."""

from __future__ import annotations


class WbError(Exception):
    """What happened and what to do, in one line; ``wb`` prints it and exits with ``code``.

    code: 1 for a failed run or build, 2 for wrong usage.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
