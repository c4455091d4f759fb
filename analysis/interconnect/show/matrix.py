"""Matrices as pictures: who reaches what with whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.figures import Figure
from analysis.plots.matrix import Matrix, matrices

#: Beyond this many nodes numbers do not fit into the squares, beyond that no names beside them.
_NUMBERS, _NAMES = 16, 64
_FAINTEST = 0.08  # so that it is no empty square


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


def _drawn(pairs: pd.DataFrame, names: Sequence[str], form: str) -> str:
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
    return matrices({"": matrix}, "sends", "receives", most_texts=_NUMBERS, most_names=_NAMES)
