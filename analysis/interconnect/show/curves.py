"""Bandwidth and time of collectives over their size, beside what such links should give."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator

from analysis.figures import GRID, Figure, looks, style, to_svg
from analysis.interconnect.show.words import bits, seconds, size

_COLUMNS = ["way", "operation", "place", "mode", "ranks", "bytes", "median_s", "busbw"]
Lines = Sequence[tuple[str, float]]


def bandwidth_figure(frame: pd.DataFrame, ranks: int, expected: Lines) -> Figure:
    """expected: labels and bus bandwidths in bit/s, drawn as levels."""
    part = _rows(frame, ranks, "pipelined")
    caption = (
        "Bus bandwidth, calls back to back, median: algorithm bandwidth times the factor of "
        "nccl-tests, so that it can be held against a link's rate. Solid: Horovod; dashed: plain "
        "sockets between the same ranks. Small messages may pass a shaper or a switch's buffer at "
        "once, and then show more than the line."
    )
    svg = _draw(part, "busbw", "bus bandwidth", bits, expected)
    return Figure("bandwidth", "Bandwidth of collectives", caption, part[_COLUMNS], svg)


def latency_figure(frame: pd.DataFrame, ranks: int) -> Figure:
    part = _rows(frame, ranks, "blocked")
    caption = (
        "Time of one call, slowest rank, median; all ranks met before each. Solid: Horovod, whose "
        "cycle adds to small ones; dashed: plain sockets."
    )
    svg = _draw(part, "median_s", "time of a call", seconds, ())
    return Figure("call_time", "Time of collectives", caption, part[_COLUMNS], svg)


def _rows(frame: pd.DataFrame, ranks: int, mode: str) -> pd.DataFrame:
    chosen = (frame["ranks"] == ranks) & (frame["mode"] == mode) & (frame["place"] == "out")
    return frame[chosen].reset_index(drop=True)


def _draw(
    part: pd.DataFrame, column: str, label: str, unit: Callable[[float], str], levels: Lines
) -> str | None:
    if part.empty:
        return None
    operations = list(dict.fromkeys(part["operation"]))
    colours = looks(operations)
    with style():
        canvas = Canvas(figsize=(6.4, 3.8), layout="constrained")
        FigureCanvasSVG(canvas)
        axis = canvas.subplots()
        for (operation, way), rows in part.groupby(["operation", "way"], sort=False):
            look = colours[str(operation)]
            axis.plot(
                rows["bytes"], rows[column], color=look.color,
                linestyle="-" if way == "horovod" else "--",
                label=str(operation).replace("_", "-") if way == "horovod" else None,
            )  # fmt: skip
        for number, (text, level) in enumerate(levels):
            axis.axhline(level, color=GRID, linewidth=1, linestyle=":")
            axis.annotate(text, (0.01, level), xycoords=("axes fraction", "data"),
                          ha="left", va="top" if number else "bottom", fontsize=8)  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        # matplotlib's own labels of logarithmic axes are formulas, which pages do not show
        axis.xaxis.set_major_locator(LogLocator(base=16, subs=(8.0,)))
        axis.xaxis.set_major_formatter(lambda value, _: size(value))
        axis.yaxis.set_major_formatter(lambda value, _: unit(value))
        axis.minorticks_off()
        axis.set_xlabel("size")
        axis.set_ylabel(label)
        axis.legend(ncols=2)
        return to_svg(canvas)
