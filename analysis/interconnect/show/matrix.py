"""Matrices as pictures: who reaches what with whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from analysis.figures import GRID, INK, Figure, style, to_svg

Grid = npt.NDArray[np.float64]

#: Beyond this many nodes numbers do not fit into the squares, beyond that no names beside them.
_NUMBERS, _NAMES = 16, 64
_COLOURS = "cividis"  # reads the same to colour-blind readers and in print


def rate_heatmap(pairs: pd.DataFrame, names: Sequence[str], middle: float) -> Figure:
    """Rates as shares of the median node's: row sends, column receives; failed pairs hatched.

    pairs: of the phase "tournament". middle: bit/s.
    """
    caption = (
        "Rate as a share of the median node's, row sends, column receives. A dark row or column "
        "is a node's direction, a dark square a link. Hatched: nothing came through; empty: not "
        "measured."
    )
    data = pairs[["sender", "receiver", "rate", "error"]].reset_index(drop=True)
    svg = matrix_svg(
        _grid(pairs.assign(share=pairs["rate"] / middle), names, "share"), names,
        labels=("sends", "receives"), unit="share of the median", number="{:.2f}",
        limits=(0.0, 1.05), hatched=_failed(pairs),
    )  # fmt: skip
    return Figure("rates", "Who reaches what with whom", caption, data, svg)


def latency_heatmap(pairs: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Half round trips of 8 bytes in microseconds; the same layout."""
    grid = _grid(pairs.assign(us=pairs["latency_s"] * 1e6), names, "us")
    caption = "Half of a round trip of 8 bytes, the median of 51, in microseconds."
    data = pairs[["sender", "receiver", "latency_s", "latency_min_s"]].reset_index(drop=True)
    top = float(np.nanmax(grid)) if np.isfinite(grid).any() else 1.0
    svg = matrix_svg(
        grid, names, labels=("sends", "receives"), unit="microseconds", number="{:.0f}",
        limits=(0.0, top), hatched=_failed(pairs), large_is_dark=True,
    )  # fmt: skip
    return Figure("latency", "Latency", caption, data, svg)


def _failed(pairs: pd.DataFrame) -> set[tuple[str, str]]:
    rows = pairs[pairs["error"].notna()]
    return {(str(a), str(b)) for a, b in zip(rows["sender"], rows["receiver"], strict=True)}


def _grid(pairs: pd.DataFrame, names: Sequence[str], column: str) -> Grid:
    wide = pairs.pivot_table(index="sender", columns="receiver", values=column, aggfunc="last")
    return wide.reindex(index=list(names), columns=list(names)).to_numpy(
        dtype=float, na_value=np.nan
    )


def matrix_svg(
    grid: Grid,
    names: Sequence[str],
    *,
    labels: tuple[str, str],
    unit: str,
    number: str,
    limits: tuple[float, float],
    hatched: Collection[tuple[str, str]] = (),
    large_is_dark: bool = False,
) -> str:
    """A square matrix of coloured cells with their numbers, as SVG.

    Args:
        grid: rows x columns in the order of ``names``; NaN leaves a cell empty.
        labels: of the rows' axis and the columns'.
        unit: beside the scale of colours, which spans ``limits``.
        number: format of a cell's number; left out where there are too many cells.
        hatched: row and column names of cells that failed.
        large_is_dark: by default small values are dark, as where small is bad.
    """
    count, (low, high) = len(names), limits
    colours = mpl.colormaps[f"{_COLOURS}_r" if large_is_dark else _COLOURS]
    with style():
        side = min(9.0, 2.4 + 0.45 * count)
        canvas = Canvas(figsize=(side + 0.9, side), layout="constrained")
        FigureCanvasSVG(canvas)
        axis = canvas.subplots()
        axis.grid(visible=False)
        image = axis.imshow(grid, cmap=colours, vmin=low, vmax=high, aspect="equal")
        for row, column in np.ndindex(count, count):
            if (names[row], names[column]) in hatched:
                axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="///",
                                         edgecolor=GRID, linewidth=0))  # fmt: skip
            elif count <= _NUMBERS and np.isfinite(grid[row, column]):
                level = (grid[row, column] - low) / (high - low)
                dark = level > 0.55 if large_is_dark else level < 0.55
                axis.text(column, row, number.format(grid[row, column]), ha="center", va="center",
                          color="#ffffff" if dark else "#000000", fontsize=8)  # fmt: skip
        ticks = range(count) if count <= _NAMES else []
        axis.set_xticks(list(ticks), [names[n] for n in ticks], rotation=90)
        axis.set_yticks(list(ticks), [names[n] for n in ticks])
        axis.set_xlabel(labels[1])
        axis.set_ylabel(labels[0])
        bar = canvas.colorbar(image, ax=axis, shrink=0.8)
        bar.set_label(unit, color=INK)
        bar.outline.set_visible(False)
        return to_svg(canvas)
