# SPDX-License-Identifier: GPL-2.0
"""``wb tune`` of the user's part, with the replay on the modelled disk that only a checkout can do."""

import argparse
from typing import Any

from wbtop.tune import command as tune

from . import tune_simulate


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb tune`` with --simulate."""
    tune.register(sub, _simulate)


def _simulate(facts: Any, measured: Any, advice: Any, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    plan = tune_simulate.plan(facts, measured, advice, args.goal, args.kernel)
    found = tune_simulate.run(plan, args.goal, range(1, args.seeds + 1))
    return found, tune_simulate.render(found)
