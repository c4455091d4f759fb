"""Figures of an interconnect run: who reaches what with whom, and collectives over their size,
beside what such links should give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import Figure, Svg, looks
from analysis.interconnect.finding import bits, seconds, size
from analysis.plots.lines import Axis, Line, lines
from analysis.plots.matrix import Matrix, squares
from analysis.table import significant

#: Beyond this many nodes numbers do not fit into the squares, beyond that no names beside them.
_NUMBERS, _NAMES = 16, 64
_FAINTEST = 0.08  # so that it is no empty square
_PAIRS = ["sender", "receiver", "rate", "latency_s", "latency_min_s", "error"]
_CALLS = ["way", "operation", "place", "mode", "ranks", "bytes", "median_s", "busbw"]
#: Of a line, what collectives usually reach (ml-engineering by S. Bekman).
_COLLECTIVE = 0.80


def heatmaps(pairs: pd.DataFrame, names: Sequence[str], middle: float) -> list[Figure]:
    """Who reaches what with whom, and latencies; failed pairs hatched.

    pairs: of the phase "tournament". middle: bit/s, of the median node.
    """
    shares, us = pairs["rate"] / middle, 1e6 * pairs["latency_s"]
    longest = us.max()
    return [
        Figure(
            "rates", "Who reaches what with whom",
            "Rate as a share of the median node's, row sends, column receives. A row or column in "
            "full colour is a node's direction, a square a link. Colour: full at 0, faint from the "
            "median on. Hatched: nothing came through; empty: not measured.",
            pairs[_PAIRS], _squares(pairs, names, shares, 1 - shares, "{:.2f}"),
        ),
        Figure(
            "latency", "Latency",
            "Half of a round trip of 8 bytes, the median of 51, in microseconds; row sends, column "
            f"receives. Colour: full at {significant(longest)}."
            if us.notna().any() else "Not measured.",
            pairs[_PAIRS], _squares(pairs, names, us, us / longest, "{:.0f}"),
        ),
    ]  # fmt: skip


def _squares(
    pairs: pd.DataFrame,
    names: Sequence[str],
    numbers: pd.Series[Any],
    fills: pd.Series[Any],
    form: str,
) -> Svg:
    """fills: 0 to 1."""
    wide = pairs.assign(number=numbers, fill=fills)
    wide = wide.drop_duplicates(["sender", "receiver"], keep="last")
    wide = wide.set_index(["sender", "receiver"]).reindex(
        pd.MultiIndex.from_product([names, names])
    )
    failed, filled, number = (
        values.to_numpy().reshape(len(names), len(names))
        for values in (wide["error"].notna(), wide["fill"].astype(float), wide["number"])
    )
    filled = np.where(failed, np.nan, np.clip(filled, _FAINTEST, 1))
    texts = [[form.format(one) for one in row] for row in number]
    matrix = Matrix(filled, texts, names, {(int(a), int(b)) for a, b in np.argwhere(failed)})
    return squares(matrix, "sends", "receives", most_texts=_NUMBERS, most_names=_NAMES)


def curves(calls: pd.DataFrame, ranks: int, line: float | None) -> list[Figure]:
    """Of all ranks, out of place. line: of the links, bit/s, to draw beside."""
    levels = [("line", line), ("80 % of it", _COLLECTIVE * line)] if line else []
    own = calls[(calls["ranks"] == ranks) & (calls["place"] == "out")]
    return [
        _curve(
            "bandwidth", "Bandwidth of collectives",
            "Bus bandwidth, calls back to back, median: algorithm bandwidth times the factor of "
            "nccl-tests, so that it can be held against a link's rate. Solid: Horovod; dashed: "
            "plain sockets between the same ranks. Small messages may pass a shaper or a switch's "
            "buffer at once, and then show more than the line.",
            own[own["mode"] == "pipelined"], "busbw", Axis("bus bandwidth", "decades", bits),
            levels,
        ),
        _curve(
            "call_time", "Time of collectives",
            "Time of one call, slowest rank, median; all ranks met before each. Solid: Horovod, "
            "whose cycle adds to small ones; dashed: plain sockets.",
            own[own["mode"] == "blocked"], "median_s", Axis("time of a call", "decades", seconds),
        ),
    ]  # fmt: skip


def _curve(
    key: str,
    title: str,
    caption: str,
    part: pd.DataFrame,
    column: str,
    y: Axis,
    levels: Sequence[tuple[str, float]] = (),
) -> Figure:
    colours = looks(list(dict.fromkeys(part["operation"])))
    drawn = [
        Line(rows["bytes"], rows[column],
             replace(colours[str(operation)], dashes="-" if way == "horovod" else "--"),
             str(operation).replace("_", "-") if way == "horovod" else "", size=0)
        for (operation, way), rows in part.groupby(["operation", "way"], sort=False)
    ]  # fmt: skip
    svg = lines({"": drawn}, Axis("size", "binary", size), y, levels=levels) if drawn else None
    return Figure(key, title, caption, part[_CALLS], svg)
