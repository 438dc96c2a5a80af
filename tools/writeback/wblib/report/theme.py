# SPDX-License-Identifier: GPL-2.0
"""How the pictures look: narrow enough for a phone, light and dark, the same bytes every time."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import figure

WIDTH_IN = 4.2
DPI = 220
FONT = 10.0  # points; at 343 CSS pixels, a phone's page, they are 11.3 pixels high
SMALL = 9.0  # ticks, legends, names of points: 10.2 pixels there


@dataclass(frozen=True)
class Theme:
    """Colours of one scheme. colours: by role; Okabe and Ito's palette, lightened for the dark scheme."""

    name: str
    back: str
    text: str
    grid: str
    colours: Mapping[str, str]

    def colour(self, role: str) -> str:
        """The colour of a role; for another kernel's name one of its own."""
        known = self.colours.get(role) or self.colours.get(role.partition("@")[0])  # stock@7.3
        return known or self.colours["def"[sum(role.encode()) % 3]]


LIGHT = Theme("light", "#ffffff", "#1a1a1a", "#d8d8d8", {
    "stock": "#D55E00", "patched": "#0072B2", "tree": "#009E73", "idle": "#CC79A7", "direct": "#8a8a8a",
    "a": "#D55E00", "b": "#0072B2", "c": "#009E73", "d": "#CC79A7", "e": "#B8860B", "f": "#56B4E9", "g": "#555555",
    "band": "#000000",
})
DARK = Theme("dark", "#16181c", "#e6e6e6", "#3a3d43", {
    "stock": "#FF8A3D", "patched": "#5AB4F0", "tree": "#33C79A", "idle": "#E79CC7", "direct": "#9a9a9a",
    "a": "#FF8A3D", "b": "#5AB4F0", "c": "#33C79A", "d": "#E79CC7", "e": "#E0B33A", "f": "#A5D8F7", "g": "#b5b5b5",
    "band": "#ffffff",
})


@dataclass(frozen=True)
class Drawn:
    """One picture. svg, dark: SVG of both schemes; png: of the light one."""

    name: str
    alt: str
    svg: bytes
    dark: bytes
    png: bytes


Maker = Callable[[Any, Theme], Any]


def _context(theme: Theme, name: str) -> Any:
    return {
        "font.size": FONT, "font.family": "DejaVu Sans", "axes.titlesize": FONT, "legend.fontsize": SMALL,
        "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
        "figure.facecolor": theme.back, "savefig.facecolor": theme.back, "figure.constrained_layout.w_pad": 0.1,
        "axes.facecolor": theme.back, "text.color": theme.text, "axes.labelcolor": theme.text,
        "axes.edgecolor": theme.text, "xtick.color": theme.text, "ytick.color": theme.text, "grid.color": theme.grid,
        "axes.grid": True, "axes.axisbelow": True, "grid.linewidth": 0.7, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False, "svg.hashsalt": name, "svg.fonttype": "path",
        "path.simplify": True, "path.simplify_threshold": 0.2,
    }


_DIGITS = re.compile(rb"-?[0-9]+\.[0-9]{3,}")


def _shorter(svg: bytes) -> bytes:
    """Coordinates with two decimals: a hundredth of a point cannot be seen, and half of the bytes go.

    What is below 1 stays, it may be a scale.
    """
    head, mark, body = svg.partition(b"<svg")
    return head + mark + _DIGITS.sub(
        lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip(".").encode() if abs(float(m[0])) >= 1 else m[0], body)


def draw(name: str, alt: str, make: Maker) -> Drawn:
    """The picture that ``make(pyplot, theme)`` returns as a figure. name: of the files; alt: what it shows."""
    def render(theme: Theme, *kinds: str) -> dict[str, bytes]:
        return figure.render(lambda plt: make(plt, theme), _context(theme, name), kinds, DPI)

    light, dark = render(LIGHT, "svg", "png"), render(DARK, "svg")
    return Drawn(name, alt, _shorter(light["svg"]), _shorter(dark["svg"]), light["png"])


def plain(axis: Any) -> None:
    """Numbers instead of powers of ten on a logarithmic axis, enough of them for its range.

    axis: axis.xaxis or axis.yaxis, when all data is drawn and its limits are set.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
    low, high = axis.get_view_interval()
    if high < 4 * low:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(10, (1.0,) if high >= 60 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda v, _pos: f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(figure: Any, axis: Any, columns: int = 2) -> None:
    """The legend of ``axis`` under everything, where it cannot cover data."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2, columnspacing=1,
                  handletextpad=0.6)
