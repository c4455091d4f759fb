"""A square matrix of filled squares with their texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from analysis.plots.canvas import small_multiples
from analysis.plots.figure import GRID, INK, PALETTE, Svg, style, to_svg


@dataclass(frozen=True)
class Matrix:
    """Square: ``fills`` (0 to 1, NaN for an empty square) by row and column, with their texts;
    ``hatched``: places (row, column)."""

    fills: NDArray[np.float64]
    texts: Sequence[Sequence[str]]
    names: Sequence[str]
    hatched: Collection[tuple[int, int]] = ()


def squares(matrix: Matrix, rows: str, columns: str, *, most_texts: int, most_names: int) -> Svg:
    """Squares filled with one colour, so that an empty one shows the page, light or dark.

    Args:
        rows, columns: what they are.
        most_texts: rows beyond which texts do not fit into the squares; ``most_names``: beyond
            which names do not fit beside them.
    """
    side = max(2.3, 0.8 + 0.38 * min(len(matrix.names), most_texts))
    with style():
        canvas, (axis,) = small_multiples(1, side, side + 0.4)
        _squares(axis, matrix, texts=len(matrix.names) <= most_texts)
        names = matrix.names if len(matrix.names) <= most_names else []
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set(xlabel=columns, ylabel=rows)
        return to_svg(canvas)


def _squares(axis: Any, matrix: Matrix, *, texts: bool) -> None:
    fills, size = matrix.fills, len(matrix.names)
    places = [(row, column) for row, column in np.ndindex(size, size) if fills[row, column] >= 0]
    axis.add_collection(PatchCollection(
        [Rectangle((column - 0.5, row - 0.5), 1, 1) for row, column in places], linewidths=0,
        facecolors=[(*to_rgb(PALETTE[0]), fills[place]) for place in places],
    ))  # fmt: skip
    for row, column in matrix.hatched:
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="///",
                                 edgecolor=GRID, linewidth=0))  # fmt: skip
    for row, column in places if texts else []:
        axis.text(column, row, matrix.texts[row][column], ha="center", va="center", fontsize=7,
                  color="#ffffff" if fills[row, column] > 0.5 else INK)  # fmt: skip
    axis.grid(visible=False)
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
    axis.tick_params(length=0)
    for edge in axis.spines.values():
        edge.set(visible=True, color=GRID, linewidth=0.6)
