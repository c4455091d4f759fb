"""Bandwidth and time of collectives over their size, beside what such links should give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from analysis.figures import Figure, looks
from analysis.interconnect.show.words import bits, seconds, size
from analysis.plots.lines import Axis, Line, lines

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
    colours = looks(list(dict.fromkeys(part["operation"])))
    drawn = [
        Line(rows["bytes"], rows[column],
             replace(colours[str(operation)], dashes="-" if way == "horovod" else "--"),
             str(operation).replace("_", "-") if way == "horovod" else "", size=0)
        for (operation, way), rows in part.groupby(["operation", "way"], sort=False)
    ]  # fmt: skip
    x = Axis("size", "binary", size)
    return lines({"": drawn}, x, Axis(label, "decades", unit), levels=levels)
