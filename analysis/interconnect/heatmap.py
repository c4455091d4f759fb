"""The directed matrix as a picture: who reaches what with whom."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from analysis.plots import GRID, INK, Figure, style, to_svg

Grid = npt.NDArray[np.float64]

#: Beyond this many nodes numbers do not fit into the squares, beyond that no names beside them.
_NUMBERS, _NAMES = 16, 64
_COLOURS = "cividis"  # reads the same to colour-blind readers and in print


def rate_heatmap(pairs: pd.DataFrame, names: Sequence[str], middle: float) -> Figure:
    """Rates as shares of the median node's: row sends, column receives; failed pairs hatched.

    pairs: of the phase "tournament". middle: bit/s.
    """
    grid = _grid(pairs.assign(share=pairs["rate"] / middle), names, "share")
    failed = _failed(pairs)
    caption = (
        "Rate as a share of the median node's, row sends, column receives. A dark row or column "
        "is a node's direction, a dark square a link. Hatched: nothing came through; empty: not "
        "measured."
    )
    data = pairs[["sender", "receiver", "rate", "error"]].reset_index(drop=True)
    svg = _draw(grid, names, failed, "share of the median", "{:.2f}", 0.0, 1.05)
    return Figure("rates", "Who reaches what with whom", caption, data, svg)


def latency_heatmap(pairs: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Half round trips of 8 bytes in microseconds; the same layout."""
    grid = _grid(pairs.assign(us=pairs["latency_s"] * 1e6), names, "us")
    failed = _failed(pairs)
    caption = "Half of a round trip of 8 bytes, the median of 51, in microseconds."
    data = pairs[["sender", "receiver", "latency_s", "latency_min_s"]].reset_index(drop=True)
    top = float(np.nanmax(grid)) if np.isfinite(grid).any() else 1.0
    svg = _draw(grid, names, failed, "microseconds", "{:.0f}", 0.0, top, turned=True)
    return Figure("latency", "Latency", caption, data, svg)


def _failed(pairs: pd.DataFrame) -> set[tuple[str, str]]:
    rows = pairs[pairs["error"].notna()]
    return {(str(a), str(b)) for a, b in zip(rows["sender"], rows["receiver"], strict=True)}


def _grid(pairs: pd.DataFrame, names: Sequence[str], column: str) -> Grid:
    wide = pairs.pivot_table(index="sender", columns="receiver", values=column, aggfunc="last")
    return wide.reindex(index=list(names), columns=list(names)).to_numpy(dtype=float)


def _draw(
    grid: Grid,
    names: Sequence[str],
    failed: set[tuple[str, str]],
    unit: str,
    number: str,
    low: float,
    high: float,
    *,
    turned: bool = False,
) -> str:
    """turned: large is dark, where large is bad."""
    count = len(names)
    colours = mpl.colormaps[f"{_COLOURS}_r" if turned else _COLOURS]
    with style():
        side = min(9.0, 2.4 + 0.45 * count)
        canvas = Canvas(figsize=(side + 0.9, side), layout="constrained")
        FigureCanvasSVG(canvas)
        axis = canvas.subplots()
        axis.grid(visible=False)
        image = axis.imshow(grid, cmap=colours, vmin=low, vmax=high, aspect="equal")
        for row, column in np.ndindex(count, count):
            if (names[row], names[column]) in failed:
                axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="///",
                                         edgecolor=GRID, linewidth=0))  # fmt: skip
            elif count <= _NUMBERS and np.isfinite(grid[row, column]):
                level = (grid[row, column] - low) / (high - low)
                dark = level > 0.55 if turned else level < 0.55
                axis.text(column, row, number.format(grid[row, column]), ha="center", va="center",
                          color="#ffffff" if dark else "#000000", fontsize=8)  # fmt: skip
        ticks = range(count) if count <= _NAMES else []
        axis.set_xticks(list(ticks), [names[n] for n in ticks], rotation=90)
        axis.set_yticks(list(ticks), [names[n] for n in ticks])
        axis.set_xlabel("receives")
        axis.set_ylabel("sends")
        bar = canvas.colorbar(image, ax=axis, shrink=0.8)
        bar.set_label(unit, color=INK)
        bar.outline.set_visible(False)
        return to_svg(canvas)
