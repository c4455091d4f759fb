"""The pictures that topics draw: lines with their names at their ends, forests, bars and matrices.
Each function returns one SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from analysis.figures import GRID, INK, PALETTE, Look, Tips, style, to_svg

#: Characters of a line above a panel, of a name at the end of a line, and beside a bar.
_HEAD, _NAME, _BESIDE = 34, 30, 30
#: Inches: of all columns, of a character, and of a name's line.
_WIDEST, _CHARACTER, _LINE = 9.0, 0.068, 0.155
_SMALL = 8  # points of a text inside a plot
#: A band would hide what lies below it, as often as many are drawn.
_BAND = 0.15
Numbers: TypeAlias = "Sequence[float | None] | pd.Series[Any] | NDArray[Any]"


@dataclass(frozen=True)
class Axis:
    """Words and scale of an axis: ``octaves`` have a tick at each point that is drawn, ``decades``
    at the parts ``at`` of each power of ten, ``binary`` at a few powers of two."""

    label: str
    scale: Literal["linear", "octaves", "decades", "binary"] = "linear"
    write: Callable[[float], str] = "{:,g}".format
    at: Sequence[float] = (1, 2, 5)
    low: float | None = None
    high: float | None = None
    whole: bool = False

    @property
    def words(self) -> str:
        return self.label if self.scale == "linear" else f"{self.label} (log)"

    def shape(self, axes: Any, name: Literal["x", "y"], ticks: Collection[float] = ()) -> None:
        axis = getattr(axes, f"{name}axis")
        if self.scale == "linear":
            axis.set_major_locator(MaxNLocator(6, integer=self.whole, steps=[1, 2, 5, 10]))
        else:
            getattr(axes, f"set_{name}scale")("log", base=10 if self.scale == "decades" else 2)
            axis.set_major_locator({
                "octaves": FixedLocator(sorted(ticks)),
                "decades": LogLocator(base=10, subs=self.at, numticks=12),
                "binary": LogLocator(base=16, subs=(8.0,)),
            }[self.scale])  # fmt: skip
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: self.write(value)))
        getattr(axes, f"set_{name}label")(self.words)

    def limit(self, axes: Any, name: Literal["x", "y"]) -> None:
        """After the drawing, which moves an end that is not given."""
        if self.low is not None or self.high is not None:
            getattr(axes, f"set_{name}lim")(self.low, self.high)


@dataclass(frozen=True)
class Line:
    """Points, the line through them, and their intervals.

    name: written at its end. low, high: a band, or a bar at each point. width: 0 for points alone.
    size: of the points, one for all or one each; 0 for a line alone. tips: of the points.
    """

    x: Numbers
    y: Numbers
    look: Look
    name: str = ""
    low: Numbers | None = None
    high: Numbers | None = None
    bars: bool = False
    width: float = 1.4
    size: float | Sequence[float] = 4.5
    hollow: Sequence[bool] | bool = False
    tips: Sequence[str] = ()


def lines(
    panels: Mapping[str, Sequence[Line]], x: Axis, y: Axis, *,
    levels: Sequence[tuple[str, float]] = (),
    borders: Mapping[str, tuple[str, float]] | None = None,
) -> str:  # fmt: skip
    """Panels side by side, with one y axis.

    Args:
        levels: what to write at a line across all panels, and where.
        borders: the same of an upright line in a panel.
    """
    own = [[shortened(line.name) for line in drawn if line.name] for drawn in panels.values()]
    longest = max((len(name) for names in own for name in names), default=0)
    most = max(map(len, own))
    tips = Tips()
    with style():
        canvas, axes = small_multiples(
            len(panels),
            (3.6 if len(panels) == 1 else 2.5) + _CHARACTER * longest,
            max(3.1 if len(panels) == 1 else 2.4, 0.8 + _LINE * most),
        )
        y.shape(axes[0], "y")  # shared by all panels
        for axis, (panel, drawn) in zip(axes, panels.items(), strict=True):
            x.shape(axis, "x", {float(at) for one in drawn if one.size for at in _numbers(one.x)})
            for line in drawn:
                _draw(axis, line, tips)
            x.limit(axis, "x")
            _head(axis, panel)
            for text, at in levels:
                axis.axhline(at, color=GRID, linewidth=1, linestyle=":")
                _write(axis, text, (0.01, at), (2, 2), ("axes fraction", "data"), va="bottom")
            for text, at in [borders[panel]] if borders and panel in borders else []:
                axis.axvline(at, color=GRID, linewidth=1, linestyle="--")
                _write(axis, text, (at, 0.02), (3, 0), ("data", "axes fraction"), va="bottom")
        y.limit(axes[0], "y")
        names = [_name_ends(axis, drawn) for axis, drawn in zip(axes, panels.values(), strict=True)]
        layout = canvas.get_layout_engine()
        assert layout is not None
        layout.execute(canvas)
        canvas.set_layout_engine("none")
        for axis, written in zip(axes, names, strict=True):
            _spread(axis, written)
        return to_svg(canvas, tips)


def _numbers(values: Numbers) -> NDArray[np.float64]:
    if isinstance(values, pd.Series):
        return values.to_numpy(float, na_value=np.nan)
    return np.array([np.nan if value is None else value for value in values], float)


def _draw(axis: Any, line: Line, tips: Tips) -> None:
    look, x, y = line.look, _numbers(line.x), _numbers(line.y)
    drawn = {"color": look.color, "alpha": look.alpha, "zorder": 2 + look.alpha}
    if line.width:
        axis.plot(x, y, **drawn, linewidth=line.width, linestyle=look.dashes)
    if line.low is not None and line.high is not None:
        low, high = _numbers(line.low), _numbers(line.high)
        if line.bars or np.isfinite(low + high).sum() < 2:
            there = np.isfinite(low + high)
            axis.vlines(x[there], low[there], high[there], **drawn, linewidth=1.2)
        else:
            axis.fill_between(x, low, high, color=look.color, alpha=_BAND * look.alpha, linewidth=0)
    hollow = np.broadcast_to(np.asarray(line.hollow, bool), x.shape)
    sizes = np.broadcast_to(np.asarray(line.size, float), x.shape)
    signs = {**drawn, "marker": look.marker, "linestyle": "none"}
    if line.tips:
        for place, tip in enumerate(line.tips):
            face = "none" if hollow[place] else look.color
            (point,) = axis.plot(x[place : place + 1], y[place : place + 1], **signs,
                                 markersize=sizes[place], markerfacecolor=face)  # fmt: skip
            tips.add(point, tip)
        return
    for is_hollow in (False, True):
        these = (hollow == is_hollow) & np.isfinite(y) & (sizes > 0)
        if these.any():
            face = "none" if is_hollow else look.color
            axis.plot(x[these], y[these], **signs, markersize=sizes.max(), markerfacecolor=face)


def _name_ends(axis: Any, drawn: Sequence[Line]) -> list[Any]:
    """The names beside the panel, each joined with the end of its line."""
    written = []
    for line in drawn:
        x, y = _numbers(line.x), _numbers(line.y)
        if line.name and (there := np.flatnonzero(np.isfinite(y))).size:
            end = max(there, key=lambda at: x[at])
            look = line.look
            written.append(axis.annotate(
                shortened(line.name), (x[end], y[end]), (1.03, 0.5), fontsize=_SMALL,
                textcoords="axes fraction", va="center", ha="left", annotation_clip=False,
                color=INK, alpha=0.7 if look.is_pale else 1,
                arrowprops={"arrowstyle": "-", "color": look.color, "alpha": look.alpha,
                            "linewidth": 0.7, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
            ))  # fmt: skip
    return written


def _spread(axis: Any, written: Sequence[Any]) -> None:
    """Moves names up and down, as little as possible, so that none lies on another."""
    if not written:
        return
    axis.get_xlim(), axis.get_ylim()  # the limits are known when they are asked for
    to_axes = axis.transData + axis.transAxes.inverted()
    wanted = np.array([to_axes.transform(text.xy)[1] for text in written])
    gap = 72 * _LINE / (axis.bbox.height * 72 / axis.figure.dpi)
    order = np.argsort(wanted, kind="stable")
    room = gap * np.arange(len(order))
    placed = isotonic_regression(wanted[order] - room).x
    placed = np.clip(placed, 0, max(0.0, 1 - room[-1])) + room
    for place, at in zip(order, placed, strict=True):
        written[place].set_position((1.03, at))


def _write(axis: Any, text: str, at: Any, by: Any, coordinates: Any = "data", **how: Any) -> None:
    axis.annotate(text, at, by, xycoords=coordinates, textcoords="offset points", fontsize=_SMALL,
                  **how)  # fmt: skip


def shortened(name: str, most: int = _NAME) -> str:
    """Without its middle: names of settings differ at their ends."""
    return name if len(name) <= most else f"{name[: most // 3]}…{name[most // 3 + 1 - most :]}"


def small_multiples(
    panels: int, wide: float = 2.6, high: float = 2.4, *, share_y: bool = True
) -> tuple[Canvas, list[Any]]:
    """A canvas with ``panels`` axes of some inches, in full rows where it can; call within
    ``style()``."""
    columns = min({1: 1, 2: 2, 4: 2}.get(panels, 3), max(1, int(_WIDEST // wide)))
    rows = -(-panels // columns)
    canvas = Canvas(figsize=(max(wide * columns, 4.6), high * rows), layout="constrained")
    FigureCanvasSVG(canvas)
    axes = list(canvas.subplots(rows, columns, squeeze=False, sharey=share_y).flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    return canvas, axes[:panels]


def _head(axis: Any, panel: str) -> None:
    """The panel's name above it, broken so that it stays above its own axes."""
    parts = [part for line in panel.splitlines() for part in textwrap.wrap(line, _HEAD) or [""]]
    axis.set_title("\n".join(parts), loc="left")


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


def forest(points: Sequence[Point], label: str, *, zero: bool = False) -> str:
    """A row for each point, the first one at the bottom; ``zero`` is marked where it matters."""
    tips = Tips()
    with style():
        beside = sum(max(len(getattr(p, part)) for p in points) for part in ("name", "said"))
        canvas, (axis,) = small_multiples(1, 2.6 + _CHARACTER * beside, 0.9 + 0.26 * len(points))
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
            _write(axis, point.said, (1, place), (5, 0), ("axes fraction", "data"), va="center")
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
    hatch: str | None = None


def bars(
    panels: Mapping[str, Sequence[Bar]], rows: Sequence[str], label: str, *,
    key: Mapping[str, str] | None = None, joined: bool = False,
) -> str:  # fmt: skip
    """Panels with the same rows, the first one at the top.

    Args:
        key: words -> colour, of parts that all rows have.
        joined: each bar begins where the one before it ends; the axis then does not begin at 0.
    """
    named = [textwrap.fill(row, _BESIDE, max_lines=3, placeholder=" …") for row in rows]
    high = max(0.28, _LINE * max(name.count("\n") + 1 for name in named))
    tips = Tips()
    with style():
        wide = 5.0 if len(panels) == 1 else 2.4 + 2 / min(len(panels), 3)
        around = 0.9 if not key else 0.8 + 0.2 * -(-len(key) // 2)
        canvas, axes = small_multiples(len(panels), wide, around + high * len(rows))
        for axis, (panel, drawn) in zip(axes, panels.items(), strict=True):
            _row_of_bars(axis, drawn, rows, tips, joined=joined)
            axis.set_xlabel(label)
            _head(axis, panel)
        axes[0].set_yticks(range(len(rows)), named, fontsize=_SMALL)
        axes[0].set_ylim(len(rows) - 0.4, -0.6)  # shared by all panels
        if key:
            canvas.legend([Patch(color=colour) for colour in key.values()], key,
                          loc="outside upper left", ncols=2, fontsize=8.5)  # fmt: skip
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
                                  color=bar.color, edgecolor=INK, hatch=bar.hatch)  # fmt: skip
        else:
            (artist,) = axis.plot([bar.left], [place], color=bar.color, marker="|", markersize=11,
                                  markeredgewidth=2)  # fmt: skip
        if bar.tip:
            tips.add(artist, bar.tip)
        _write(axis, bar.said, (bar.left + max(bar.width, 0), place), (4, 0), va="center")
    if joined:
        ends = [end for bar in drawn for end in (bar.left, bar.left + bar.width)]
        span = max(ends) - min(ends) or 0.1 * max(ends)
        axis.set_xlim(min(ends) - 0.1 * span, max(ends) + 0.35 * span)
        axis.locator_params(axis="x", nbins=4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


@dataclass(frozen=True)
class Matrix:
    """Square: ``fills`` (0 to 1, NaN for an empty square) by row and column, with their texts;
    ``hatched``: places (row, column)."""

    fills: NDArray[np.float64]
    texts: Sequence[Sequence[str]]
    names: Sequence[str]
    hatched: Collection[tuple[int, int]] = ()


def matrices(
    panels: Mapping[str, Matrix], rows: str, columns: str, *, most_texts: int, most_names: int
) -> str:
    """Squares filled with one colour, so that an empty one shows the page, light or dark.

    Args:
        rows, columns: what they are.
        most_texts: rows beyond which texts do not fit into the squares; ``most_names``: beyond
            which names do not fit beside them.
    """
    largest = max(len(matrix.names) for matrix in panels.values())
    side = max(2.3, 0.8 + 0.38 * min(largest, most_texts))
    with style():
        canvas, axes = small_multiples(len(panels), side, side + 0.4, share_y=False)
        for axis, (panel, matrix) in zip(axes, panels.items(), strict=True):
            _squares(axis, matrix, texts=len(matrix.names) <= most_texts)
            named = list(range(len(matrix.names))) if len(matrix.names) <= most_names else []
            names = [matrix.names[at] for at in named]
            axis.set_xticks(named, names, rotation=90, fontsize=7)
            axis.set_yticks(named, names, fontsize=7)
            axis.set(xlabel=columns, ylabel=rows)
            _head(axis, panel)
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
