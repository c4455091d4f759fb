"""Figures of an interconnect run: who reaches what with whom, and collectives over their size,
beside what such links should give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.figures import Figure, Svg, looks
from analysis.interconnect.finding import bits, seconds, size
from analysis.plots.lines import Axis, Line, lines
from analysis.plots.matrix import Matrix, squares

#: Beyond this many nodes numbers do not fit into the squares, beyond that no names beside them.
_NUMBERS, _NAMES = 16, 64
_FAINTEST = 0.08  # so that it is no empty square
_COLUMNS = ["way", "operation", "place", "mode", "ranks", "bytes", "median_s", "busbw"]
Lines = Sequence[tuple[str, float]]


def rate_heatmap(pairs: pd.DataFrame, names: Sequence[str], middle: float) -> Figure:
    """Rates as shares of the median node's: row sends, column receives; failed pairs hatched.

    pairs: of the phase "tournament". middle: bit/s.
    """
    caption = (
        "Rate as a share of the median node's, row sends, column receives. A row or column in "
        "full colour is a node's direction, a square a link. Colour: full at 0, faint from the "
        "median on. "
        "Hatched: nothing came through; empty: not measured."
    )
    data = pairs[["sender", "receiver", "rate", "error"]].reset_index(drop=True)
    shares = pairs.assign(number=pairs["rate"] / middle, fill=1 - pairs["rate"] / middle)
    return Figure("rates", "Who reaches what with whom", caption, data,
                  _drawn(shares, names, "{:.2f}"))  # fmt: skip


def latency_heatmap(pairs: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Half round trips of 8 bytes in microseconds; the same layout."""
    data = pairs[["sender", "receiver", "latency_s", "latency_min_s"]].reset_index(drop=True)
    us = 1e6 * pairs["latency_s"]
    caption = (
        "Half of a round trip of 8 bytes, the median of 51, in microseconds; row sends, column "
        f"receives. Colour: full at {us.max():.0f}."
        if us.notna().any()
        else "Not measured."
    )
    svg = _drawn(pairs.assign(number=us, fill=us / us.max()), names, "{:.0f}")
    return Figure("latency", "Latency", caption, data, svg)


def _drawn(pairs: pd.DataFrame, names: Sequence[str], form: str) -> Svg:
    """``number`` and ``fill`` (0 to 1) of each pair."""
    wide = pairs.drop_duplicates(["sender", "receiver"], keep="last")
    wide = wide.set_index(["sender", "receiver"]).reindex(
        pd.MultiIndex.from_product([names, names])
    )
    size = len(names)
    failed, fills, numbers = (
        values.to_numpy().reshape(size, size)
        for values in (wide["error"].notna(), wide["fill"].astype(float), wide["number"])
    )
    fills = np.where(failed, np.nan, np.clip(fills, _FAINTEST, 1))
    texts = [[form.format(number) for number in row] for row in numbers]
    matrix = Matrix(fills, texts, names, {(int(a), int(b)) for a, b in np.argwhere(failed)})
    return squares(matrix, "sends", "receives", most_texts=_NUMBERS, most_names=_NAMES)


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
) -> Svg | None:
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
