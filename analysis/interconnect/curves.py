"""Bandwidth and time of collectives over their size, beside what such links should give."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from analysis.plots import GRID, Figure, looks, style, to_svg

_COLUMNS = ["way", "operation", "place", "mode", "ranks", "bytes", "median_s", "busbw"]
Lines = Sequence[tuple[str, float]]


def bandwidth_figure(frame: pd.DataFrame, ranks: int, expected: Lines) -> Figure:
    """expected: labels and bus bandwidths in bit/s, drawn as levels."""
    part = _pipelined(frame, ranks)
    caption = (
        "Bus bandwidth, calls back to back, median: algorithm bandwidth times the factor of "
        "nccl-tests, so that it can be held against a link's rate. Solid: Horovod; dashed: plain "
        "sockets between the same ranks."
    )
    svg = _draw(part, "busbw", 1e-6, "bus bandwidth, Mbit/s", expected)
    return Figure("bandwidth", "Bandwidth of collectives", caption, part[_COLUMNS], svg)


def latency_figure(frame: pd.DataFrame, ranks: int) -> Figure:
    part = frame[(frame["ranks"] == ranks) & (frame["mode"] == "blocked")]
    part = part[part["place"] == "out"]
    caption = (
        "Time of one call, slowest rank, median; all ranks met before each. Solid: Horovod, whose "
        "cycle adds to small ones; dashed: plain sockets."
    )
    svg = _draw(part, "median_s", 1e6, "time of a call, microseconds", ())
    return Figure("call_time", "Time of collectives", caption, part[_COLUMNS], svg)


def _pipelined(frame: pd.DataFrame, ranks: int) -> pd.DataFrame:
    part = frame[(frame["ranks"] == ranks) & (frame["mode"] == "pipelined")]
    return part[part["place"] == "out"].reset_index(drop=True)


def _draw(part: pd.DataFrame, column: str, scale: float, label: str, levels: Lines) -> str | None:
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
                rows["bytes"], rows[column] * scale, color=look.color,
                linestyle="-" if way == "horovod" else "--",
                label=str(operation).replace("_", "-") if way == "horovod" else None,
            )  # fmt: skip
        for text, level in levels:
            axis.axhline(level * scale, color=GRID, linewidth=1, linestyle=":")
            axis.annotate(text, (1, level * scale), xycoords=("axes fraction", "data"),
                          ha="right", va="bottom", fontsize=8)  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("bytes")
        axis.set_ylabel(label)
        axis.legend(ncols=2)
        return to_svg(canvas)
