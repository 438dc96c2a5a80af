# SPDX-License-Identifier: GPL-2.0
"""The part of wb for a user's own machine: watch, tune, field. Standard library only, nothing of the rig.

What all three stand on is here: the command line, errors, what /proc and /sys say (machine), statistics; a package
for each of them says which of the others it may import.
"""

VERSION = "1.0"
