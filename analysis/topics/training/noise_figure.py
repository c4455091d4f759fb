"""Figure of the gradient noise scale against the step, as in McCandlish et al. 2018 (1812.06162),
figure 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from analysis.figures import Figure, Look, hidden, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.topics.topic import panel_name
from analysis.topics.training.noise import over_runs

MOST_PANELS = 6
_PANEL = ["context", "gpus", "global_batch"]


def figure(epochs: pd.DataFrame, runs: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """A panel per context, rank count and batch, a line per technique; ``seen``: the look of each
    technique that is drawn. None where no run measured its noise in two epochs."""
    # steps count from the first epoch, whether or not it measured its noise
    measured = epochs.loc[epochs["noise_steps"].notna(), "cell_id"].unique()
    every_technique = numbers(epochs[epochs["cell_id"].isin(measured)], runs)
    data = every_technique[every_technique["technique"].isin(list(seen))]
    # the largest batches come last
    panels, more = panels_of(data[::-1], MOST_PANELS, "panels; the CSV has all")
    if not panels:
        return None
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


def numbers(epochs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A row per condition and epoch that all its completed runs measured: ``value`` with ``low``
    and ``high``; without a value ``low`` is a bound."""
    about = runs.set_index("cell_id")["condition"]
    of = (epochs["status"] == "completed") & epochs["noise_steps"].notna()
    known = epochs[of].assign(step=epochs.groupby("cell_id")["steps"].cumsum()[of])
    known["row"] = pd.factorize(known["cell_id"].map(about))[0]
    sizes = known.groupby(["row", "epoch"])["cell_id"].transform("size")
    known = known[sizes == known.groupby("row")["cell_id"].transform("nunique")]
    at = known.groupby(["row", "epoch"], sort=True).ngroup().rename("at")
    known = known.assign(at=at).sort_values("at", kind="stable")
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
