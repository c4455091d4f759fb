"""Figure of what a sigmoid of the last hidden layer gets, over training: its percentiles over the
validation images, as in Ioffe and Szegedy 2015 (1502.03167), figure 1b and 1c."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.figures import (
    PALETTE,
    Figure,
    head,
    left_out,
    small_multiples,
    style,
    to_svg,
)
from analysis.records.columns import SIGMOID
from analysis.table import count
from analysis.topics.topic import with_context

MOST_PANELS = 6
_PERCENTILES = [column.name for column in SIGMOID]
_ABOUT = ["technique_label", "context", "gpus", "global_batch"]


def figure(epochs: pd.DataFrame) -> Figure | None:
    """A panel per condition, a band and a line per run; None where no record has them."""
    data = numbers(epochs)
    every = list(dict.fromkeys(data["panel"]))
    if not every:
        return None
    panels = every[:MOST_PANELS]
    with style():
        canvas, axes = small_multiples(len(panels), 1, share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            own = data[data["panel"] == panel]
            for place, (_, run) in enumerate(own.groupby("seed")):
                _draw(axis, run, PALETTE[place % len(PALETTE)])
            axis.set_xlabel("step")
            head(axis, panel)
        axes[0].set_ylabel("input of a sigmoid")
        svg = to_svg(canvas)
    caption = (
        "What the first sigmoid of the last hidden layer gets: median (line) and 15th to 85th "
        "percentile (band) over the validation images after each epoch, of completed runs, a "
        "colour per seed."
    ) + left_out(len(panels), len(every), "conditions; the CSV has all")
    return Figure("sigmoid_inputs", "Inputs of a sigmoid over training", caption, data, svg)


def numbers(epochs: pd.DataFrame) -> pd.DataFrame:
    """A row per completed run and epoch."""
    of = (epochs["status"] == "completed") & epochs[_PERCENTILES[0]].notna()
    known = epochs[of].assign(step=epochs.groupby("cell_id")["steps"].cumsum()[of])
    several = {name: known[name].nunique() > 1 for name in ("gpus", "global_batch")}
    places = known[_ABOUT].drop_duplicates()
    places = places.assign(panel=[_panel(row, several) for row in places.to_dict("records")])
    known = known.merge(places, on=_ABOUT, how="left")
    return known[["panel", "cell_id", "seed", "epoch", "step", *_PERCENTILES]]


def _panel(row: dict[Any, Any], several: dict[str, bool]) -> str:
    ranks = f", {row['gpus']} ranks" if several["gpus"] else ""
    batch = f", batch {count(row['global_batch'])}" if several["global_batch"] else ""
    return with_context(row) + ranks + batch


def _draw(axis: Any, run: pd.DataFrame, color: str) -> None:
    steps = run["step"].tolist()
    low, middle, high = (run[name].tolist() for name in _PERCENTILES)
    axis.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
    for edge in (low, high):
        axis.plot(steps, edge, color=color, linewidth=0.6, alpha=0.7)
    axis.plot(steps, middle, color=color, linewidth=1.4)
