"""Lines with their intervals and points, each with its name at its end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from analysis.plots.canvas import CHARACTER, LINE, SMALL, head, shortened, small_multiples, write
from analysis.plots.figure import GRID, INK, Look, Svg, style, tip, to_svg

Numbers: TypeAlias = "Sequence[float | None] | pd.Series[Any] | NDArray[Any]"
_BAND = 0.15  # opacity: bands lie on each other
#: Points between bars at one place, and from the first to the last of many.
_APART, _ALL_APART = 5, 18
_MOST_TICKS = 7  # words as long as 256 KiB stand apart


@dataclass(frozen=True)
class Axis:
    """Words and scale of an axis: ``values`` and the logarithmic ``octaves`` have ticks at the
    points that are drawn, ``decades`` at the parts ``at`` of each power of ten."""

    label: str
    scale: Literal["linear", "values", "octaves", "decades"] = "linear"
    write: Callable[[float], str] = "{:,g}".format
    at: Sequence[float] = (1, 2, 5)
    low: float | None = None
    high: float | None = None
    whole: bool = False

    def shape(self, axes: Any, name: Literal["x", "y"], ticks: Collection[float] = ()) -> None:
        """After the drawing, which would move an end that is not given."""
        axis = getattr(axes, f"{name}axis")
        is_log = self.scale in ("octaves", "decades")
        if self.scale == "linear":
            axis.set_major_locator(MaxNLocator(5, integer=self.whole, steps=[1, 2, 5, 10]))
        else:
            if is_log:
                getattr(axes, f"set_{name}scale")("log", base=10 if self.scale == "decades" else 2)
            axis.set_major_locator(
                LogLocator(base=10, subs=self.at, numticks=12)
                if self.scale == "decades"
                else FixedLocator(sorted(ticks), _MOST_TICKS)
            )
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: self.write(value)))
        words = f"{self.label} (log)" if is_log else self.label
        axes.set(**{f"{name}label": words, f"{name}lim": (self.low, self.high)})


@dataclass(frozen=True)
class Line:
    """Points, the line through them, and their intervals.

    name: written at its end. low, high: a band, or a bar at each point. width: 0 for points alone.
    size: of the points; 0 for a line alone. tips: of the points.
    """

    x: Numbers
    y: Numbers
    look: Look
    name: str = ""
    low: Numbers | None = None
    high: Numbers | None = None
    bars: bool = False
    width: float = 1.4
    size: float = 4.5
    hollow: Sequence[bool] | bool = False
    tips: Sequence[str] = ()

    @property
    def has_bars(self) -> bool:
        """A band needs two points."""
        if self.low is None or self.high is None:
            return False
        return self.bars or int(np.isfinite(_numbers(self.low) + _numbers(self.high)).sum()) < 2


def lines(
    panels: Mapping[str, Sequence[Line]], x: Axis, y: Axis, *,
    levels: Sequence[tuple[str, float]] = (),
    borders: Mapping[str, tuple[str, float]] | None = None,
) -> Svg:  # fmt: skip
    """Panels side by side, with one y axis.

    Args:
        levels: what to write at a line across all panels, and where.
        borders: the same of an upright line in a panel.
    """
    own = [[shortened(line.name) for line in drawn if line.name] for drawn in panels.values()]
    longest = max((len(name) for names in own for name in names), default=0)
    most = max(map(len, own))
    with style():
        canvas, axes = small_multiples(
            len(panels),
            (3.6 if len(panels) == 1 else 2.5) + CHARACTER * longest,
            max(3.1 if len(panels) == 1 else 2.4, 0.8 + LINE * most),
        )
        for axis, (panel, drawn) in zip(axes, panels.items(), strict=True):
            places = np.cumsum([line.has_bars for line in drawn]) - 1.0
            apart = min(_APART, _ALL_APART / max(places[-1], 1))
            for line, place in zip(drawn, places - places[-1] / 2, strict=True):
                _draw(axis, line, apart * place if line.has_bars else 0)
            x.shape(axis, "x", {float(at) for one in drawn if one.size for at in _numbers(one.x)})
            head(axis, panel)
            for number, (text, at) in enumerate(levels):
                axis.axhline(at, color=GRID, linewidth=1, linestyle=":")
                write(axis, text, (0.01, at), (2, -1 if number else 1),
                      ("axes fraction", "data"), va="top" if number else "bottom")  # fmt: skip
            if borders and panel in borders:
                text, at = borders[panel]
                axis.axvline(at, color=GRID, linewidth=1, linestyle="--")
                write(axis, text, (at, 0.02), (3, 0), ("data", "axes fraction"), va="bottom")
        y.shape(axes[0], "y")  # shared by all panels
        names = [_name_ends(axis, drawn) for axis, drawn in zip(axes, panels.values(), strict=True)]
        canvas.draw_without_rendering()  # which lays it out
        canvas.set_layout_engine("none")
        for axis, written in zip(axes, names, strict=True):
            _spread(axis, written)
        return to_svg(canvas)


def _numbers(values: Numbers) -> NDArray[np.float64]:
    return pd.Series(values, dtype="Float64").to_numpy(float, na_value=np.nan)


def _draw(axis: Any, line: Line, aside: float) -> None:
    """``aside``: points to the right, of everything; the data stay what they are."""
    moved = ScaledTranslation(aside / 72, 0, axis.figure.dpi_scale_trans)
    artists: list[Any] = []
    look, x, y = line.look, _numbers(line.x), _numbers(line.y)
    drawn = {"color": look.color, "alpha": look.alpha, "zorder": 2 + look.alpha}
    if line.width:
        artists += axis.plot(x, y, **drawn, linewidth=line.width, linestyle=look.dashes)
    if line.low is not None and line.high is not None:
        low, high = _numbers(line.low), _numbers(line.high)
        there = np.isfinite(low + high)
        if line.has_bars:
            under = drawn | {"zorder": 1 + look.alpha}  # the points of all lines
            artists.append(axis.vlines(x[there], low[there], high[there], linewidth=1.2, **under))
        else:
            axis.fill_between(x, low, high, color=look.color, alpha=_BAND * look.alpha, linewidth=0)
    for artist in artists:
        artist.set_transform(axis.transData + moved)
    if not line.size:
        return
    hollow = np.broadcast_to(np.asarray(line.hollow, bool), x.shape)
    for these, face in ((~hollow, look.color), (hollow, "none")):
        places = np.flatnonzero(these & np.isfinite(y))
        # points with tips are parts of their own
        for at in places[:, None] if line.tips else [places] if len(places) else []:
            (points,) = axis.plot(x[at], y[at], **drawn, marker=look.marker, linestyle="none",
                                  markersize=line.size, markerfacecolor=face)  # fmt: skip
            points.set_transform(axis.transData + moved)
            if line.tips:
                tip(points, line.tips[at[0]])


def _name_ends(axis: Any, drawn: Sequence[Line]) -> list[Any]:
    """The names next to the panel, each joined with the end of its line."""
    written = []
    for line in drawn:
        x, y = _numbers(line.x), _numbers(line.y)
        if line.name and (there := np.flatnonzero(np.isfinite(y))).size:
            end = max(there, key=lambda at: x[at])
            look = line.look
            written.append(axis.annotate(
                shortened(line.name), (x[end], y[end]), (1.03, 0.5), fontsize=SMALL,
                textcoords="axes fraction", va="center", ha="left", annotation_clip=False,
                color=INK, alpha=0.7 if look.alpha < 1 else 1,
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
    gap = 72 * LINE / (axis.bbox.height * 72 / axis.figure.dpi)
    order = np.argsort(wanted, kind="stable")
    room = gap * np.arange(len(order))
    placed = isotonic_regression(wanted[order] - room).x
    placed = np.clip(placed, 0, max(0.0, 1 - room[-1])) + room
    for place, at in zip(order, placed, strict=True):
        written[place].set_position((1.03, at))
