# SPDX-License-Identifier: GPL-2.0
"""Pictures with matplotlib that are the same bytes everywhere."""

import io
from collections.abc import Callable
from typing import Any


def png(make: Callable[[Any], Any], font_size: float) -> bytes:
    """The PNG of the figure that ``make(pyplot)`` returns; font_size: points."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # Not the user's matplotlibrc.
    matplotlib.rcdefaults()
    with matplotlib.rc_context({"font.size": font_size, "font.family": "DejaVu Sans"}):
        try:
            figure = make(plt)
            figure.tight_layout()
            out = io.BytesIO()
            figure.savefig(out, format="png", metadata={"Software": None})
        finally:
            plt.close("all")
    return out.getvalue()
