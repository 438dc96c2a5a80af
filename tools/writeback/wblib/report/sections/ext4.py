# SPDX-License-Identifier: GPL-2.0
"""ext4: speed and request size by mount options."""

from collections.abc import Mapping
from typing import Any

from wblib.report.collect import Cell
from wblib.report.theme import SMALL, WIDTH_IN, Drawn, Theme, draw, legend_below
from wblib.results.published import EXT4_MBPS, MOUNTS
from wbtop.stats import short

PANELS = (("cp_mbps", "cp of a large file, MB/s"), ("write_mbps", "dd, MB/s"),
          ("mean_request_kib", "mean write request, KiB"), ("cpu_ns_per_page", "CPU time per page, µs"))
DIVISOR = {"cpu_ns_per_page": 1000}
PUBLISHED = "cp_mbps"


def figure(cells: Mapping[str, Cell]) -> Drawn | None:
    """A panel of bars per metric that was measured; None without any."""
    panels = []
    for metric, title in PANELS:
        values = {k: [(s.median / DIVISOR.get(metric, 1) if (s := c.measured(f"{metric}_{m}")) else None)
                      for m in MOUNTS] for k, c in cells.items()}
        if any(v is not None for mine in values.values() for v in mine):
            panels.append((metric, title, values))
    if not panels:
        return None

    def make(plt: Any, theme: Theme) -> Any:
        from matplotlib.ticker import MaxNLocator
        made, axes = plt.subplots(len(panels), 1, figsize=(WIDTH_IN, 1.75 * len(panels) + 0.5), squeeze=False,
                                  layout="constrained")
        height = 0.8 / len(cells)
        for axis, (metric, title, values) in zip(axes[:, 0], panels, strict=True):
            for n, (kernel, mine) in enumerate(values.items()):
                where = [m + (n - (len(values) - 1) / 2) * height for m in range(len(MOUNTS))]
                there = [(w, v) for w, v in zip(where, mine, strict=True) if v is not None]
                axis.barh([w for w, _ in there], [v for _, v in there], height * 0.92, color=theme.colour(kernel),
                          label=kernel)
                for w, v in there:
                    axis.annotate(short(v), (v, w), xytext=(3, 0),
                                  textcoords="offset points", va="center", fontsize=SMALL)
            if metric == PUBLISHED:
                for m, mount in enumerate(MOUNTS):
                    if mount in EXT4_MBPS:
                        axis.plot([EXT4_MBPS[mount]] * 2, [m - 0.45, m + 0.45], color=theme.text, linewidth=1.5,
                                  linestyle="--", label="published (4.19)")
            axis.set_yticks(range(len(MOUNTS)), [m.replace("_", ",\n", 1) for m in MOUNTS])
            axis.invert_yaxis()
            axis.grid(False, axis="y")
            axis.margins(x=0.17)
            axis.xaxis.set_major_locator(MaxNLocator(6, prune="upper"))  # the last one could stick out
            axis.set_title(title, loc="left")
        legend_below(made, axes[0, 0], 3)
        return made

    return draw("ext4", f"ext4 by mount options: {', '.join(cells)}", make)
