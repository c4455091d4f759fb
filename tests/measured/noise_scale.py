"""The noise scale over training: by what it grew, and its curve, for docs/results.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.plots.figure import Figure, Look, hidden, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.stats.intervals import means
from analysis.topics.convergence.noise import over_runs, shared
from analysis.topics.names import panel_name
from analysis.topics.topic import Sweep

MOST_PANELS = 6
_PANEL = ["context", "gpus", "global_batch"]


def growth(first: pd.DataFrame, last: pd.DataFrame, count: int) -> pd.DataFrame:
    """From one epoch of each condition to another, by ``row``: the parts of an Estimate.

    Epochs of a run are not independent, so that the runs' own quotients are what varies. Without a
    value where a run is censored: a mean of the others would be of the low ones.
    """
    of = ["row", "cell_id", "epoch", "noise_b_simple", "noise_censored"]
    both = first[of].merge(last[of], on=["row", "cell_id"], suffixes=("", "_last"))
    cut = (both["noise_censored"] | both["noise_censored_last"]).fillna(False)
    sizes = [both[name].where(both[name] > 0) for name in ("noise_b_simple", "noise_b_simple_last")]
    quotient = (sizes[1] / sizes[0]).mask(cut).to_numpy(float, na_value=np.nan)
    rows = both["row"].to_numpy()
    found = means(quotient, rows, count, "positive")
    none = pd.Series(np.bincount(rows, cut, count) > 0)
    return found.assign(**{end: found[end].mask(none) for end in ("value", "low", "high")})


def figure(of: Sweep) -> Figure:
    """Against the step, as in McCandlish et al. 2018 (1812.06162), figure 4: a panel per context,
    rank count and batch, a line per technique."""
    every_technique, seen = numbers(of.made(shared)), of.seen
    data = every_technique[every_technique["technique"].isin(list(seen))]
    # the largest batches come last
    panels, more = panels_of(data[::-1], MOST_PANELS, "panels; the CSV has all")
    ends = pd.concat(panels)[["value", "low", "high"]]
    y = Axis("noise scale, images", "decades", low=ends.min().min() / 1.3,
             high=ends.max().max() * 1.3)  # fmt: skip
    by_panel = {panel: [*_lines(own[::-1], seen)] for panel, own in [*panels.items()][::-1]}
    svg = lines(by_panel, Axis("step", low=0), y)
    caption = (
        "B_simple at the end of each epoch: geometric mean over the completed runs of a condition, "
        "with its 95 % interval as a band. Hollow: the squared gradient of a run cannot be told "
        "from zero, so that only a lower bound is known."
    )
    caption += more + hidden(seen, every_technique["technique"])
    return Figure("noise_curve", "Noise scale over training", caption, data, svg)


def numbers(known: pd.DataFrame) -> pd.DataFrame:
    """A row per condition and epoch: ``value`` with ``low`` and ``high``; without a value ``low``
    is a bound."""
    known = known.assign(at=known.groupby(["row", "epoch"]).ngroup())
    known = known.sort_values("at", kind="stable")
    first = known.drop_duplicates("at")
    found = over_runs(known.assign(row=known["at"]), len(first))
    # a lower end without an upper one is a bound
    found["value"] = found["value"].mask(found["low"].notna() & found["high"].isna())
    found["low"] = found["low"].where(found["low"] > 0)  # a bound of zero says nothing
    made = pd.DataFrame({
        "panel": [panel_name(*place) for place in first[_PANEL].itertuples(index=False)],
        "technique": first["technique_label"].array, "row": first["row"].array,
        "epoch": first["epoch"].array, "step": first["step"].array,
        **{name: found[name].array for name in ("value", "low", "high", "n")},
    })  # fmt: skip
    # epochs of too few steps have neither; two with a point or a bound make a curve
    shown = made["value"].notna() | made["low"].notna()
    return made[shown.groupby(made["row"]).transform("sum") > 1].reset_index(drop=True)


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    for label, look in seen.items():
        for _, own in panel[panel["technique"] == label].groupby("row", sort=False):
            bound = own["value"].isna()
            yield Line(own["step"], own["value"], look, label if not bound.all() else "",
                       own["low"].mask(bound), own["high"], size=3)  # fmt: skip
            yield Line(own["step"][bound], own["low"][bound], replace(look, marker="^"),
                       label if bound.all() else "", width=0, hollow=True)  # fmt: skip
