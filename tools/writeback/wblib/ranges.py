# SPDX-License-Identifier: GPL-2.0
"""That of the user's part, under the name that the rig's modules use."""

from wbtop.ranges import add_timeout, number, whole

__all__ = ["add_timeout", "number", "whole"]
