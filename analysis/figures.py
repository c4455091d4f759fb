"""Style and rendering of figures: object API in a style context, no global state, one SVG out."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from markupsafe import escape
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

#: Stand-ins that no palette uses: replaced by currentColor and none, so that a page can be dark.
INK, PAPER = "#010203", "#fdfefe"
GRID = "#8a8f98"
#: Okabe and Ito 2008, told apart by colour-blind readers, without the yellow and black that one
#: of a light and a dark page would swallow; then four more, which dashes help to tell apart.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1",
           "#a6761d", "#c1272d", "#8a8a00", "#808890")  # fmt: skip
_UNDASHED = 7
#: No divisor in common with the number of colours, so that a colour comes round with another one.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (4, 2)), (0, (3, 1, 1, 1)), (0, (1, 1)))
#: Characters of a line above the narrowest panel.
_HEAD = 34
#: Of a legend: the rows that a canvas has room for, and inches of each further one.
_LEGEND_ROWS, _LEGEND_ROW = 3, 0.19
#: Runs that a figure draws one by one; of more it draws bands.
MOST_RUNS = 50
_STYLE = {
    "svg.fonttype": "none",  # text stays text: selectable, searchable, small
    "svg.hashsalt": "horoscale",  # equal data give equal files
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "savefig.facecolor": PAPER,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color",
         "ytick.color"), INK),
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How one technique is drawn, the same in every figure."""

    color: str
    marker: str
    dashes: Any


@dataclass(frozen=True)
class Figure:
    """One figure with the numbers in it. Without ``svg`` the caption says why it is not drawn."""

    key: str
    title: str
    caption: str
    data: pd.DataFrame
    svg: str | None


@contextmanager
def style() -> Iterator[None]:
    """The look of every figure, on matplotlib's own defaults, whatever a matplotlibrc says; leaves
    its settings as they were."""
    # not mpl.style, which reads the user's style sheets; the backend cannot change here
    defaults = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}
    with mpl.rc_context(defaults | _STYLE):
        yield


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look per technique label, by its place; lines are dashed where colours get alike."""
    return {
        label: Look(
            PALETTE[i % len(PALETTE)],
            MARKERS[i % len(MARKERS)],
            DASHES[i // _UNDASHED % len(DASHES)],
        )
        for i, label in enumerate(labels)
    }


def looks_of(seen: Mapping[str, Look], data: pd.DataFrame) -> dict[str, Look]:
    """The looks of those techniques that the data have, in the order of all."""
    there = set(data["technique"])
    return {label: look for label, look in seen.items() if label in there}


def small_multiples(panels: int, series: int, *, share_y: bool) -> tuple[Canvas, list[Any]]:
    """A canvas with ``panels`` axes in full rows where it can; call within :func:`style`.

    ``series``: lines in a panel, which take more room where they are many.
    """
    columns = {1: 1, 2: 2, 4: 2, 8: 4}.get(panels, 3)
    rows = -(-panels // columns)
    wide, high = (2.6, 2.4) if series < _UNDASHED else (3.9, 3.6)
    canvas = Canvas(figsize=(max(wide * columns, 4.6), high * rows + 0.7), layout="constrained")
    FigureCanvasSVG(canvas)
    grid = canvas.subplots(rows, columns, squeeze=False, sharey=share_y)
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    return canvas, axes[:panels]


def octaves(
    axis: Any, values: Iterable[float], label: str, write: Callable[[float], str] = "{:,.0f}".format
) -> None:
    """A logarithmic x axis, base 2, with a tick at each of the values."""
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_xlabel(f"{label} (log)")


def decades(
    axis: Any, write: Callable[[float], str] = "{:g}".format, at: Sequence[float] = (1, 2, 5)
) -> None:
    """Ticks of a logarithmic axis, ``axis.xaxis`` or ``axis.yaxis``, in each power of ten."""
    axis.set_major_locator(LogLocator(base=10, subs=at, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def sideways(place: int, count: int, by: float) -> float:
    """Factor on x of one of ``count`` neighbours, ``by`` octaves apart, so that none hides
    another."""
    return float(2 ** (by * (place - (count - 1) / 2)))


def head(axis: Any, panel: str) -> None:
    """The panel's name above it, broken so that it stays above its own axes."""
    lines = [part for line in panel.splitlines() for part in textwrap.wrap(line, _HEAD) or [""]]
    axis.set_title("\n".join(lines), loc="left")


def legend(canvas: Canvas, seen: Mapping[str, Look], signs: Mapping[str, dict[str, Any]]) -> None:
    """One legend below all panels: the techniques drawn, then what the other signs mean.

    ``signs``: meaning -> properties of the line or marker.
    """
    drawn = {
        label: Line2D([], [], color=look.color, linestyle=look.dashes, marker=look.marker,
                      markersize=4, linewidth=1.6)
        for label, look in seen.items()
    }  # fmt: skip
    drawn |= {label: Line2D([], [], color=GRID, **sign) for label, sign in signs.items()}
    columns = _columns(drawn, canvas.get_figwidth())
    rows = -(-len(drawn) // columns)
    canvas.set_figheight(canvas.get_figheight() + _LEGEND_ROW * max(0, rows - _LEGEND_ROWS))
    canvas.legend(
        drawn.values(),
        drawn.keys(),
        loc="outside lower center",
        ncols=columns,
        fontsize=8.5,
        handlelength=3,
    )


def _columns(labels: Iterable[str], inches: float) -> int:
    """Of a legend: three, or as many as fit side by side, by some 5 points a character and 45 for
    the line before it."""
    widest = 45 + 5 * max((len(label) for label in labels), default=0)
    return min(3, max(1, int(inches * 72 // widest)))


class Tips:
    """What a reader sees when the pointer rests on a part of a figure."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, artist: Artist, text: str) -> None:
        artist.set_gid(name := f"tip{len(self._texts)}")
        self._texts[name] = text

    def into(self, svg: str) -> str:
        """SVG with a title element in each part."""
        for name, text in self._texts.items():
            start = f'<g id="{name}">'
            svg = svg.replace(start, f"{start}<title>{escape(text)}</title>", 1)
        return svg


def to_svg(canvas: Canvas, tips: Tips | None = None) -> str:
    """The figure as a standalone SVG file: dark ink on white; call within :func:`style`."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return tips.into(out.getvalue()) if tips else out.getvalue()


def standalone(svg: str) -> str:
    """For a file of its own, which is looked at on any background."""
    return svg.replace(PAPER, "#ffffff").replace(INK, "#1b1f24")


def inline(svg: str, key: str, title: str) -> str:
    """For a page: no prolog, no metadata, ids of its own, the page's ink, as wide as its box.

    ``title`` must be safe as the text of an attribute.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{key}-', body)
    body = re.sub(r'(xlink:href="|href="|url\()#', rf"\1#{key}-", body)
    body = body.replace(PAPER, "none").replace(INK, "currentColor")
    head, rest = body.split(">", 1)
    points = float(re.search(r'width="([\d.]+)pt"', head)[1])  # type: ignore[index]
    # never so small that its text cannot be read, never blown up: 96 px are 72 points
    least, most = 0.75 * points * 96 / 72, 1.3 * points * 96 / 72
    head = re.sub(r'\s(width|height|xmlns(:\w+)?|version)="[^"]*"', "", head)
    size = f"width:100%;min-width:{least:.0f}px;max-width:{most:.0f}px"
    return f'{head} style="{size}" role="img" aria-label="{title}">{rest}'


def hidden(seen: Mapping[str, Look], labels: Iterable[str]) -> str:
    """As :func:`left_out`, of the techniques that have data for a figure; ``labels``: theirs."""
    every = set(labels)
    return left_out(
        len(every & set(seen)), len(every),
        "techniques, the reference and those with the highest accuracy at the largest batch",
    )  # fmt: skip


def left_out(drawn: int, total: int, what: str) -> str:
    """The end of a caption: that not all are drawn; empty where all are."""
    return f" Shown: {drawn:,} of {total:,} {what}." if drawn < total else ""
