"""Figures of an interconnect run: who reaches what with whom, and collectives over their size,
beside what such links should give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.interconnect.finding import bits, size
from analysis.plots.figure import Figure, Svg, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.plots.matrix import squares

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
            f"receives. Colour: full at {fmt.significant(longest)}."
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
    failed = square(pairs, names, pairs["error"].notna()).eq(other=True).to_numpy()
    filled = square(pairs, names, fills).astype(float).clip(_FAINTEST, 1).mask(failed).to_numpy()
    texts = square(pairs, names, numbers.map(form.format, na_action="ignore")).to_numpy().tolist()
    hatched = {(int(a), int(b)) for a, b in np.argwhere(failed)}
    return squares(filled, texts, names, hatched, "sends", "receives")


def square(pairs: pd.DataFrame, names: Sequence[str], values: pd.Series[Any]) -> pd.DataFrame:
    """Row sends, column receives; null: not measured, or no value."""
    last = pairs.assign(value=values).drop_duplicates(["sender", "receiver"], keep="last")
    wide = last.pivot(index="sender", columns="receiver", values="value")
    return wide.reindex(index=[*names], columns=[*names])


def curves(calls: pd.DataFrame, ranks: int, line: float | None) -> Figure:
    """Of all ranks, out of place. line: of the links, bit/s, to draw beside."""
    levels = [("line", line), ("80 % of it", _COLLECTIVE * line)] if line else []
    own = calls.query("ranks == @ranks and place == 'out' and mode == 'pipelined'")
    colours = looks(list(dict.fromkeys(own["operation"])))
    drawn = [
        Line(rows["bytes"], rows["busbw"],
             replace(colours[str(operation)], dashes="-" if way == "horovod" else "--"),
             str(operation).replace("_", "-") if way == "horovod" else "", size=2.5)
        for (operation, way), rows in own.groupby(["operation", "way"], sort=False)
    ]  # fmt: skip
    x, y = Axis("size", "octaves", size), Axis("bus bandwidth", "decades", bits)
    return Figure(
        "bandwidth", "Bandwidth of collectives",
        "Bus bandwidth, calls back to back, median: algorithm bandwidth times the factor of "
        "nccl-tests, so that it can be held against a link's rate. Solid: Horovod; dashed: plain "
        "sockets between the same ranks. Small messages may pass a shaper or a switch's buffer at "
        "once, and then show more than the line.",
        own[_CALLS], lines({"": drawn}, x, y, levels=levels) if drawn else None,
    )  # fmt: skip
