# SPDX-License-Identifier: GPL-2.0
"""Pictures with matplotlib that are the same bytes everywhere."""

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# What matplotlib writes into a file about itself and the day.
_NO_METADATA = {"svg": {"Date": None, "Creator": None, "Format": None, "Type": None}, "png": {"Software": None}}


def render(make: Callable[[Any], Any], style: Mapping[str, Any], kinds: Iterable[str],
           dpi: float | str = "figure") -> dict[str, bytes]:
    """The figure that ``make(pyplot)`` returns, once per kind (svg, png). style: rcParams over the defaults."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = {}
    # Not the user's matplotlibrc.
    matplotlib.rcdefaults()
    with matplotlib.rc_context(dict(style)):
        try:
            figure = make(plt)
            for kind in kinds:
                out = io.BytesIO()
                figure.savefig(out, format=kind, dpi=dpi, metadata=_NO_METADATA[kind])
                found[kind] = out.getvalue()
        finally:
            plt.close("all")
    return found


def png(make: Callable[[Any], Any], font_size: float) -> bytes:
    """The PNG of the figure that ``make(pyplot)`` returns, laid out tightly; font_size: points."""
    def tight(plt: Any) -> Any:
        figure = make(plt)
        figure.tight_layout()
        return figure

    return render(tight, {"font.size": font_size, "font.family": "DejaVu Sans"}, ["png"])["png"]
