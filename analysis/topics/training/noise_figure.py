"""Figure of the gradient noise scale against the step, as in McCandlish et al. 2018 (1812.06162),
figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import (
    Figure,
    Look,
    decades,
    head,
    hidden,
    left_out,
    legend,
    looks_of,
    small_multiples,
    style,
    to_svg,
)
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
    every = list(dict.fromkeys(data["panel"]))
    panels = every[-MOST_PANELS:]
    if not panels:
        return None
    there = looks_of(seen, data)
    with style():
        canvas, axes = small_multiples(len(panels), len(there), share_y=True)
        ends = data.loc[data["panel"].isin(panels), ["value", "low", "high"]]
        lowest, highest = ends.min().min(), ends.max().max()
        axes[0].set_yscale("log")  # shared by all panels
        axes[0].set_ylim(lowest / 1.3, highest * 1.3)
        decades(axes[0].yaxis, "{:,g}".format)
        for axis, panel in zip(axes, panels, strict=True):
            for label, look in there.items():
                own = data[(data["panel"] == panel) & (data["technique"] == label)]
                for _, line in own.groupby("row", sort=False):
                    _draw(axis, line, look)
            axis.set_xlim(left=0)
            axis.set_xlabel("step")
            head(axis, panel)
        axes[0].set_ylabel("noise scale, images (log)")
        bound = {"at least": {"marker": "^", "markerfacecolor": "none", "linestyle": "none"}}
        bounds = data["value"].isna() & data["low"].notna()
        legend(canvas, there, bound if bounds.any() else {})
        svg = to_svg(canvas)
    caption = (
        "B_simple at the end of each epoch: geometric mean over the completed runs of a condition, "
        "with its 95 % interval as a band. Hollow: the squared gradient of a run cannot be told "
        "from zero, so that only a lower bound is known."
    ) + left_out(len(panels), len(every), "panels; the CSV has all")
    caption += hidden(seen, every_technique["technique"])
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


def _draw(axis: Any, line: pd.DataFrame, look: Look) -> None:
    steps, value, low, high = (
        line[name].to_numpy(float, na_value=np.nan) for name in ("step", "value", "low", "high")
    )
    bound = np.isnan(value)
    axis.plot(steps, value, color=look.color, linewidth=1.4, linestyle=look.dashes,
              marker=look.marker, markersize=3)  # fmt: skip
    axis.fill_between(steps, np.where(bound, np.nan, low), high, color=look.color, alpha=0.15,
                      linewidth=0)  # fmt: skip
    axis.plot(steps[bound], low[bound], color=look.color, marker="^", markersize=4.5,
              markerfacecolor="none", linestyle="none")  # fmt: skip
