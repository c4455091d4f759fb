"""Gradient noise scale of the first and the last epoch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.frames import in_order
from analysis.stats.intervals import means
from analysis.table import Column, Table, estimates_as, frame
from analysis.topics.names import NAMES, lacking, ranks_column
from analysis.topics.topic import Sweep, Topic

#: Of the epochs that all completed runs of a condition have, those that the table shows.
WHEN: dict[str, Literal["min", "max"]] = {"first": "min", "last": "max"}
_ABOUT = ["technique", "technique_label", "context", "gpus", "global_batch"]
_NEEDED = [*_ABOUT, "cell_id", "epoch", "noise_steps", "noise_b_simple", "noise_low",
           "noise_high", "noise_censored"]  # fmt: skip


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    about = (
        "images: geometric mean over completed runs, with the 95 % t interval of the logarithm; of "
        "one run its own value and block bootstrap over its steps; > where the squared gradient of "
        "a run cannot be told from zero: then only a lower bound is known"
    )
    return (
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", "images per optimizer step; where it grows "
               "within a run, of its first epoch"),
        *(Column(when, "Float64", f"B_simple, {when} epoch", about if when == "first" else "",
                 format=fmt.significant, estimate=True) for when in WHEN),
    )  # fmt: skip


def table(of: Sweep) -> Table:
    """One row per condition whose completed runs measured their gradient noise.

    Where a run is censored no mean is taken, since it would be of the low ones: ``low`` is then the
    smallest lower end.
    """
    made = columns(of.runs)
    return Table(
        "noise_scale",
        "Noise scale: how large a batch the gradient's noise is worth",
        made,
        in_order(frame(_rows(of.made(shared)), made), of.order),
        intro="B_simple is the trace of the per-image gradient covariance over the squared norm "
        "of the gradient (McCandlish et al. 2018, 1812.06162, appendix A), measured from the "
        "batches of every step. It ignores curvature: read it as an estimate of the critical "
        "batch within a small factor: a batch far above it saves few steps, one far below it still "
        "averages noise away. With batch norm it belongs to the batch that is normalised together: "
        "compare rows of equal batch per rank.",
    )


def shared(of: Sweep) -> pd.DataFrame:
    """Epochs whose noise every completed run of a condition measured, with the number of their
    ``row`` in the table, and the ``step`` at which they end, from the first epoch on."""
    condition, epochs = of.runs.set_index("cell_id")["condition"], of.frames.epochs
    measured = (epochs["status"] == "completed") & epochs["noise_steps"].notna()
    own = epochs[epochs["cell_id"].isin(epochs.loc[measured, "cell_id"].unique())]
    known = own.assign(step=own.groupby("cell_id")["steps"].cumsum())[measured.loc[own.index]]
    known = known[[*_NEEDED, "step"]]
    known = known.assign(row=pd.factorize(known["cell_id"].map(condition))[0])
    known = known.sort_values("row", kind="stable")
    size = known.groupby(["row", "epoch"])["cell_id"].transform("size")
    return known[size == size.groupby(known["row"]).transform("max")]


def _rows(known: pd.DataFrame) -> dict[str, Any]:
    """Columns of the table, from :func:`shared`."""
    about, at = known.drop_duplicates("row"), known.groupby("row")["epoch"]
    ends = {when: known[known["epoch"] == at.transform(least)] for when, least in WHEN.items()}
    made: dict[str, Any] = {name: about[name].array for name in _ABOUT}
    for when, epoch in ends.items():
        made |= estimates_as(when, over_runs(epoch, len(about)))
    return made


def over_runs(epoch: pd.DataFrame, count: int) -> pd.DataFrame:
    """One epoch of each condition over its runs, by ``row``: the parts of an Estimate."""
    rows = epoch["row"].to_numpy()
    # no noise at all, of ranks that see the same images, has no logarithm
    positive = epoch["noise_b_simple"].where(epoch["noise_b_simple"] > 0)
    found = means(positive.to_numpy(float, na_value=np.nan), rows, count, "positive")
    single = (found["n"] == 1).to_numpy()
    own = epoch[positive.notna() & single[rows]]
    for part, name in {"value": "b_simple", "low": "low", "high": "high"}.items():
        found.loc[single, part] = own[f"noise_{name}"].to_numpy(float, na_value=np.nan)
    by_row = epoch.groupby("row")
    censored = by_row["noise_censored"].sum().to_numpy(int)
    # a run without interval bounds nothing
    bounds = by_row["noise_low"].min().where(by_row["noise_low"].count() == by_row.size())
    runs = by_row.size().tolist()
    notes = found["note"].mask(single, "of one run")
    none = [
        f"too few steps in an epoch ({steps}), or no noise between the batches of a step"
        for steps in by_row["noise_steps"].min()
    ]
    told = zip(notes, found["n"], runs, censored, none, strict=True)
    cut = pd.Series(censored > 0)
    low = bounds.to_numpy(float, na_value=np.nan)
    return found.assign(
        value=found["value"].mask(cut, low),
        low=found["low"].mask(cut, low),
        high=found["high"].mask(cut),
        n=found["n"].mask(cut, pd.Series(runs)),
        note=np.array([_note(*row) for row in told], object),
    )


def _note(note: str | None, n: int, runs: int, censored: int, none: str) -> str | None:
    """``none``: why no run has a value."""
    if censored:
        return f"censored in {censored} of {fmt.runs(runs)}"
    return lacking(note, n, runs, runs, None if n else none)


TOPIC = Topic(tables=(table,))
