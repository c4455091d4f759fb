"""Figure of what a sigmoid of the last hidden layer gets, over training: its percentiles over the
validation images, as in Ioffe and Szegedy 2015 (1502.03167), figure 1b and 1c."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.plots.figure import Figure, looks, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import plain_rows
from analysis.topics.names import place_namer
from train.record.run import RunRecord

MOST_PANELS = 6
_PERCENTILES = ["sigmoid_p15", "sigmoid_p50", "sigmoid_p85"]
_ABOUT = ["technique_label", "context", "gpus", "global_batch"]


def figure(epochs: pd.DataFrame, records: Iterable[RunRecord]) -> Figure | None:
    """A panel per condition, a band and a line per run; None where no record has them."""
    data = numbers(epochs, records)
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


def numbers(epochs: pd.DataFrame, records: Iterable[RunRecord]) -> pd.DataFrame:
    """A row per completed run and epoch."""
    inputs = pd.DataFrame(
        [(record.cell_id, epoch.epoch, *epoch.sigmoid_input)
         for record in records for epoch in record.epochs if epoch.sigmoid_input],
        columns=["cell_id", "epoch", *_PERCENTILES],
    )  # fmt: skip
    known = epochs.assign(step=epochs.groupby("cell_id")["steps"].cumsum())
    known = known[known["status"] == "completed"].merge(inputs, on=["cell_id", "epoch"])
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
