"""Figure of what a sigmoid of the last hidden layer gets, over training: its percentiles over the
validation images, as in Ioffe and Szegedy 2015 (1502.03167), figure 1b and 1c."""

from __future__ import annotations

import json
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
from analysis.table import count, plain_rows
from analysis.topics.topic import with_context

MOST_PANELS = 6
PERCENTILES = ("p15", "p50", "p85")


def figure(runs: pd.DataFrame) -> Figure | None:
    """A panel per condition, a band and a line per run; None where no record has them."""
    data = numbers(runs)
    every = list(dict.fromkeys(data["condition"]))
    if not every:
        return None
    panels = every[:MOST_PANELS]
    with style():
        canvas, axes = small_multiples(len(panels), 1, share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            own = data[data["condition"] == panel]
            for place, (_, run) in enumerate(own.groupby("cell_id", sort=False)):
                _draw(axis, run, PALETTE[place % len(PALETTE)])
            axis.set_xlabel("step")
            head(axis, panel)
        axes[0].set_ylabel("input of a sigmoid")
        svg = to_svg(canvas)
    caption = (
        "What the first sigmoid of the last hidden layer gets: median (line) and 15th to 85th "
        "percentile (band) over the validation images after each epoch, a colour per seed."
    ) + left_out(len(panels), len(every), "conditions; the CSV has all")
    return Figure("sigmoid_inputs", "Inputs of a sigmoid over training", caption, data, svg)


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per run and epoch."""
    known = runs[runs["sigmoid_inputs"].notna()].sort_values("seed", kind="stable")
    several = known["global_batch"].nunique() > 1
    rows = [
        {"condition": with_context(run) + (f", batch {count(run['global_batch'])}" if several
                                           else ""),
         "cell_id": run["cell_id"], "seed": run["seed"], "step": step,
         **dict(zip(PERCENTILES, percentiles, strict=True))}
        for run in plain_rows(known)
        for step, *percentiles in json.loads(run["sigmoid_inputs"])
        if percentiles
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["condition", "cell_id", "seed", "step", *PERCENTILES])


def _draw(axis: Any, run: pd.DataFrame, color: str) -> None:
    steps = run["step"].tolist()
    low, middle, high = (run[name].tolist() for name in PERCENTILES)
    axis.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
    for edge in (low, high):
        axis.plot(steps, edge, color=color, linewidth=0.6, alpha=0.7)
    axis.plot(steps, middle, color=color, linewidth=1.4)
