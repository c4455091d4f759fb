"""A row for each of several things: forests and bars."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Patch

from analysis.plots.canvas import CHARACTER, LINE, SMALL, head, small_multiples, write
from analysis.plots.figure import GRID, INK, Look, Svg, Tips, style, to_svg

_BESIDE = 30  # characters of a line beside a bar


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


def forest(points: Sequence[Point], label: str, *, zero: bool = False) -> Svg:
    """A row for each point, the first one at the bottom; ``zero`` is marked where it matters."""
    tips = Tips()
    with style():
        beside = sum(max(len(getattr(p, part)) for p in points) for part in ("name", "said"))
        canvas, (axis,) = small_multiples(1, 2.6 + CHARACTER * beside, 0.9 + 0.26 * len(points))
        if zero:
            axis.axvline(0, color=INK, linewidth=0.9)
        for place, point in enumerate(points):
            look = point.look
            if point.low is not None and point.high is not None:
                axis.plot([point.low, point.high], [place] * 2, color=look.color, linewidth=1.6)
            (sign,) = axis.plot(
                [point.value], [place], color=look.color, marker=look.marker, markersize=5.5,
                linestyle="none", markerfacecolor="none" if point.hollow else look.color,
            )  # fmt: skip
            tips.add(sign, point.tip)
            write(axis, point.said, (1, place), (5, 0), ("axes fraction", "data"), va="center")
        axis.set_yticks(range(len(points)), [point.name for point in points])
        axis.set_ylim(-0.6, len(points) - 0.4)
        axis.set_xlabel(label)
        return to_svg(canvas, tips)


@dataclass(frozen=True)
class Bar:
    """Part of a row, from ``left`` on; one without a width is a mark."""

    row: str
    left: float
    width: float
    color: str = INK
    tip: str = ""
    said: str = ""


def bars(
    panels: Mapping[str, Sequence[Bar]], rows: Sequence[str], label: str, *,
    key: Mapping[str, str] | None = None, joined: bool = False,
) -> Svg:  # fmt: skip
    """Panels with the same rows, the first one at the top.

    Args:
        key: words -> colour, of parts that all rows have.
        joined: each bar begins where the one before it ends; the axis then does not begin at 0.
    """
    named = [textwrap.fill(row, _BESIDE, max_lines=3, placeholder=" …") for row in rows]
    high = max(0.28, LINE * max(name.count("\n") + 1 for name in named))
    tips = Tips()
    with style():
        wide = 5.0 if len(panels) == 1 else 3.4
        longest = max(map(len, key or [""]))
        across = 2 if 2 * (0.5 + CHARACTER * longest) < wide * len(panels) else 1
        around = 0.9 if not key else 0.8 + 0.2 * -(-len(key) // across)
        canvas, axes = small_multiples(len(panels), wide, around + high * len(rows))
        for axis, (panel, drawn) in zip(axes, panels.items(), strict=True):
            _row_of_bars(axis, drawn, rows, tips, joined=joined)
            axis.set_xlabel(label)
            head(axis, panel)
        axes[0].set_yticks(range(len(rows)), named, fontsize=SMALL)
        axes[0].set_ylim(len(rows) - 0.4, -0.6)  # shared by all panels
        if key:
            canvas.legend([Patch(color=colour) for colour in key.values()], key,
                          loc="outside upper left", ncols=across, fontsize=8.5)  # fmt: skip
        return to_svg(canvas, tips)


def _row_of_bars(
    axis: Any, drawn: Sequence[Bar], rows: Sequence[str], tips: Tips, *, joined: bool
) -> None:
    before: Bar | None = None
    for bar in drawn:
        place = rows.index(bar.row)
        if joined and before is not None:
            axis.plot([bar.left] * 2, [rows.index(before.row), place], color=GRID, linewidth=0.7)
        before = bar
        if bar.width:
            (artist,) = axis.barh([place], [bar.width], left=bar.left, height=0.62, linewidth=0,
                                  color=bar.color)  # fmt: skip
        else:
            (artist,) = axis.plot([bar.left], [place], color=bar.color, marker="|", markersize=11,
                                  markeredgewidth=2)  # fmt: skip
        if bar.tip:
            tips.add(artist, bar.tip)
        write(axis, bar.said, (bar.left + max(bar.width, 0), place), (4, 0), va="center")
    if joined:
        ends = [end for bar in drawn for end in (bar.left, bar.left + bar.width)]
        span = max(ends) - min(ends) or 0.1 * max(ends)
        axis.set_xlim(min(ends) - 0.1 * span, max(ends) + 0.35 * span)
        axis.locator_params(axis="x", nbins=4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
