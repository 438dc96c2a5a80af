# SPDX-License-Identifier: GPL-2.0
"""The parts of the report's page, a module each."""
