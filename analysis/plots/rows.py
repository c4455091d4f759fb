"""A row for each of several things: forests and bars."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.patches import Patch

from analysis.plots.canvas import CHARACTER, LINE, SMALL, small_multiples, write
from analysis.plots.figure import INK, Look, Svg, style, tip, to_svg

#: Characters of a line beside a bar, and beside a point; inches of all bars.
_BESIDE, _BESIDE_POINT, _WIDE = 30, 40, 5.0


@dataclass(frozen=True)
class Point:
    """A row of a forest: a value with its interval, and what is written right of it."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    look: Look
    tip: str
    said: str = ""
    hollow: bool = False


def forest(points: Sequence[Point], label: str) -> Svg:
    """A row for each point, the first one at the bottom; 0 is marked."""
    named = [textwrap.fill(point.name, _BESIDE_POINT) for point in points]
    beside = max(len(line) for name in named for line in name.splitlines())
    beside += max(len(point.said) for point in points)
    high = max(0.26, LINE * max(name.count("\n") + 1.4 for name in named))
    with style():
        canvas, (axis,) = small_multiples(1, 2.6 + CHARACTER * beside, 0.9 + high * len(points))
        axis.axvline(0, color=INK, linewidth=0.9)
        for place, point in enumerate(points):
            look = point.look
            if point.low is not None and point.high is not None:
                axis.plot([point.low, point.high], [place] * 2, color=look.color, linewidth=1.6)
            (sign,) = axis.plot(
                [point.value], [place], color=look.color, marker=look.marker, markersize=5.5,
                linestyle="none", markerfacecolor="none" if point.hollow else look.color,
            )  # fmt: skip
            tip(sign, point.tip)
            write(axis, point.said, (1, place), (5, 0), ("axes fraction", "data"), va="center")
        axis.set_yticks(range(len(points)), named)
        axis.set_ylim(-0.6, len(points) - 0.4)
        axis.set_xlabel(label)
        return to_svg(canvas)


@dataclass(frozen=True)
class Bar:
    """Part of a row, from ``left`` on."""

    row: str
    left: float
    width: float
    color: str
    tip: str


def bars(drawn: Sequence[Bar], rows: Sequence[str], label: str, key: Mapping[str, str]) -> Svg:
    """Rows of bars, the first one at the top; ``key``: words -> colour, of parts that rows have."""
    named = [textwrap.fill(row, _BESIDE, max_lines=3, placeholder=" …") for row in rows]
    high = max(0.28, LINE * max(name.count("\n") + 1 for name in named))
    across = 2 if 2 * (0.5 + CHARACTER * max(map(len, key))) < _WIDE else 1
    with style():
        around = 0.8 + 0.2 * -(-len(key) // across)
        canvas, (axis,) = small_multiples(1, _WIDE, around + high * len(rows))
        for bar in drawn:
            (artist,) = axis.barh([rows.index(bar.row)], [bar.width], left=bar.left, height=0.62,
                                  linewidth=0, color=bar.color)  # fmt: skip
            tip(artist, bar.tip)
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel(label)
        axis.set_yticks(range(len(rows)), named, fontsize=SMALL)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        canvas.legend([Patch(color=colour) for colour in key.values()], key,
                      loc="outside upper left", ncols=across, fontsize=8.5)  # fmt: skip
        return to_svg(canvas)
