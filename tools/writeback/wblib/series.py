# SPDX-License-Identifier: GPL-2.0
"""``wb series``: the patch queue as files, as a git tree, and its checks."""

from .patchqueue import patches, patchset_hash

__all__ = ["patches", "patchset_hash"]
