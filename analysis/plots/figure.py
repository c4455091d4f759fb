"""What a figure is, its style, and its SVG: object API in a style context, no global state."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure as Canvas

#: Of a file; a page, which may be dark, has its own. Nothing else that is drawn has one of them.
INK, PAPER = "#1b1f24", "#ffffff"
GRID = "#8a8f98"
#: Okabe and Ito 2008, told apart by colour-blind readers, without the yellow and black that one
#: of a light and a dark page would swallow; then four more, which dashes help to tell apart.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1",
           "#a6761d", "#c1272d", "#8a8a00", "#808890")  # fmt: skip
_UNDASHED = 7
#: Of the parts of a step, which share a page with techniques: none of these has a hue of theirs.
PART_PALETTE = ("#8c6bb1", "#c1272d", "#a6761d", "#e08f8f", "#8a8a00", "#c3b0da")
#: Of the reference, on a light and a dark page.
GREY = "#737a86"
#: Techniques in colours next to the reference; the eye tells no more apart.
MOST_COLOURS = 6
#: No divisor in common with the number of colours, so that a colour comes round with another one.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Begins the id of a part with a tip.
_TIP = "tip: "
DASHES = ("-", (0, (4, 2)), (0, (3, 1, 1, 1)), (0, (1, 1)))
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
    dashes: Any = "-"
    alpha: float = 1.0


PALE = Look(GRID, "o", "-", 0.45)


@dataclass(frozen=True)
class Figure:
    """One figure with the numbers in it. Without ``svg`` the caption says why it is not drawn."""

    key: str
    title: str
    caption: str
    data: pd.DataFrame
    svg: Svg | None


@contextmanager
def style() -> Iterator[None]:
    """The look of every figure, on matplotlib's own defaults, whatever a matplotlibrc says; leaves
    its settings as they were."""
    # not mpl.style, which reads the user's style sheets; the backend cannot change here
    defaults = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}
    with mpl.rc_context(defaults | _STYLE):
        yield


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look per label, by its place; lines are dashed where colours get alike."""
    return {
        label: Look(
            PALETTE[i % len(PALETTE)],
            MARKERS[i % len(MARKERS)],
            DASHES[i // _UNDASHED % len(DASHES)],
        )
        for i, label in enumerate(labels)
    }


def roles(labels: Sequence[str], reference: str | None, chosen: Sequence[str]) -> dict[str, Look]:
    """A look per technique label: the reference grey, the first ones of ``chosen`` in colours,
    others pale. Of a few labels all are in colours."""
    others = [label for label in labels if label != reference]
    if len(others) > MOST_COLOURS:
        first = [label for label in dict.fromkeys(chosen) if label in others][:MOST_COLOURS]
        by_label = looks([label for label in others if label in first])
    else:
        by_label = looks(others)
    return {
        label: Look(GREY, "s") if label == reference else by_label.get(label, PALE)
        for label in labels
    }


def tip(artist: Artist, text: str) -> None:
    """What a reader sees of a part of a figure: a pointer rests on it, or it has the focus; see
    :func:`to_svg`."""
    artist.set_gid(_TIP + text.replace('"', "\u201d"))  # it ends the id


class Svg(str):
    """A standalone SVG file, and the canvas that it shows, which other formats are written from."""

    canvas: Canvas


def to_svg(canvas: Canvas) -> Svg:
    """Dark ink on white, each tip a title of its part; call within :func:`style`."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = Svg(re.sub(rf'<g id="{_TIP}([^"]*)">', r"<g><title>\1</title>", out.getvalue()))
    svg.canvas = canvas
    return svg


def inline(svg: str, key: str, title: str) -> str:
    """For a page: no prolog, no metadata, ids of its own, the page's ink, as wide as its box.

    ``title`` must be safe as the text of an attribute.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{key}-', body)
    body = re.sub(r'(xlink:href="|href="|url\()#', rf"\1#{key}-", body)
    # the page's script shows the tip of the part that has the focus
    body, tips = re.subn("<g><title>", '<g class="tip" role="img" tabindex="-1"><title>', body)
    body = body.replace(PAPER, "none").replace(INK, "currentColor")
    head, rest = body.split(">", 1)
    points = float(re.search(r'width="([\d.]+)pt"', head)[1])  # type: ignore[index]
    # never so small that its text cannot be read, never blown up: 96 px are 72 points
    least, most = 0.75 * points * 96 / 72, 1.3 * points * 96 / 72
    head = re.sub(r'\s(width|height|xmlns(:\w+)?|version)="[^"]*"', "", head)
    size = f"width:100%;min-width:{least:.0f}px;max-width:{most:.0f}px"
    # an image hides what is in it from screen readers
    role = "group" if tips else "img"
    return f'{head} style="{size}" role="{role}" aria-label="{title}">{rest}'


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


def n_of(counts: pd.Series[Any]) -> str:
    """``n = 3``, or from the fewest to the most runs; ``n = 0`` of none."""
    low, high = (0, 0) if counts.empty else (counts.min(), counts.max())
    return f"n = {low}" if low == high else f"n = {low} to {high}"


def panels_of(
    data: pd.DataFrame, most: int, what: str, column: str = "panel"
) -> tuple[dict[str, pd.DataFrame], str]:
    """The first ``most`` panels, and what the caption says of the others."""
    found = {str(name): own for name, own in data.groupby(column, sort=False)}
    shown = dict([*found.items()][:most])
    return shown, left_out(len(shown), len(found), what)
