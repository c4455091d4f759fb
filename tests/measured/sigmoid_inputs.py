"""Figure of what a sigmoid of the last hidden layer gets, over training: its percentiles over the
validation images, as in Ioffe and Szegedy 2015 (1502.03167), figure 1b and 1c."""

from __future__ import annotations

import pandas as pd

from analysis.figures import Figure, looks, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.records.columns import SIGMOID
from analysis.table import plain_rows
from analysis.topics.topic import place_namer

MOST_PANELS = 6
_PERCENTILES = [column.name for column in SIGMOID]
_ABOUT = ["technique_label", "context", "gpus", "global_batch"]


def figure(epochs: pd.DataFrame) -> Figure | None:
    """A panel per condition, a band and a line per run; None where no record has them."""
    data = numbers(epochs)
    panels, more = panels_of(data, MOST_PANELS, "conditions; the CSV has all")
    if not panels:
        return None
    svg = lines(
        {panel: _lines(own) for panel, own in panels.items()}, Axis("step"),
        Axis("input of a sigmoid"),
    )  # fmt: skip
    caption = (
        "What the first sigmoid of the last hidden layer gets: median (line) and 15th to 85th "
        "percentile (band) over the validation images after each epoch, of completed runs, a "
        "colour per seed."
    )
    return Figure("sigmoid_inputs", "Inputs of a sigmoid over training", caption + more, data, svg)


def numbers(epochs: pd.DataFrame) -> pd.DataFrame:
    """A row per completed run and epoch."""
    of = (epochs["status"] == "completed") & epochs[_PERCENTILES[0]].notna()
    known = epochs[of].assign(step=epochs.groupby("cell_id")["steps"].cumsum()[of])
    places = known[_ABOUT].drop_duplicates()
    places = places.assign(panel=[*map(place_namer(known), plain_rows(places))])
    known = known.merge(places, on=_ABOUT, how="left")
    return known[["panel", "cell_id", "seed", "epoch", "step", *_PERCENTILES]]


def _lines(panel: pd.DataFrame) -> list[Line]:
    low, middle, high = _PERCENTILES
    runs = {f"seed {seed}": run for seed, run in panel.groupby("seed")}
    return [
        Line(run["step"], run[middle], look, name, run[low], run[high], size=0)
        for (name, run), look in zip(runs.items(), looks(list(runs)).values(), strict=True)
    ]
