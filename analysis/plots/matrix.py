"""A square matrix of filled squares with their texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from analysis.plots.canvas import small_multiples
from analysis.plots.figure import GRID, INK, PALETTE, Svg, style, to_svg

#: Beyond this many rows texts do not fit into the squares, beyond that no names beside them.
_MOST_TEXTS, _MOST_NAMES = 16, 64
#: Unlike the page's white, this one stays on a dark page.
_WHITE = "#fefefe"


def squares(
    fills: NDArray[np.float64], texts: Sequence[Sequence[str]], names: Sequence[str],
    hatched: Collection[tuple[int, int]], rows: str, columns: str,
) -> Svg:  # fmt: skip
    """Squares filled with one colour, so that an empty one shows the page, light or dark.

    Args:
        fills: 0 to 1, NaN for an empty square, by row and column.
        hatched: places (row, column).
        rows, columns: what they are.
    """
    size = len(names)
    side = max(2.3, 0.8 + 0.38 * min(size, _MOST_TEXTS))
    places = [(row, column) for row, column in np.ndindex(size, size) if fills[row, column] >= 0]
    with style():
        canvas, (axis,) = small_multiples(1, side, side + 0.4)
        axis.add_collection(PatchCollection(
            [Rectangle((column - 0.5, row - 0.5), 1, 1) for row, column in places], linewidths=0,
            facecolors=[(*to_rgb(PALETTE[0]), fills[place]) for place in places],
        ))  # fmt: skip
        for row, column in hatched:
            axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="///",
                                     edgecolor=GRID, linewidth=0))  # fmt: skip
        for row, column in places if size <= _MOST_TEXTS else []:
            axis.text(column, row, texts[row][column], ha="center", va="center", fontsize=7,
                      color=_WHITE if fills[row, column] > 0.5 else INK)  # fmt: skip
        shown = names if size <= _MOST_NAMES else []
        axis.set_xticks(range(len(shown)), shown, rotation=90, fontsize=7)
        axis.set_yticks(range(len(shown)), shown, fontsize=7)
        axis.grid(visible=False)
        axis.set(xlabel=columns, ylabel=rows, xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5),
                 aspect="equal")  # fmt: skip
        axis.tick_params(length=0)
        for edge in axis.spines.values():
            edge.set(visible=True, color=GRID, linewidth=0.6)
        return to_svg(canvas)
