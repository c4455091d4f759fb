"""Steps to the target against the global batch: the critical batch of each technique.

A series holds the runs of one technique on one workload, whatever their batch is made of: ranks,
images per rank or accumulated batches. Where a batch was run at several learning rates, it is that
of the fewest steps which counts (Shallue et al. 2018, 1811.03600, section 4.2). The law and its
fit: analysis/prediction/critical_batch.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.prediction.critical_batch import CriticalBatch, fit_critical_batch
from analysis.prediction.laws import Refusal
from analysis.records.frames import in_order
from analysis.records.labels import technique_labels, without_batch, without_rate
from analysis.table import Column, Estimate, Row, Table, count, frame, significant
from analysis.topics.comparisons.arms import SERIES
from analysis.topics.topic import NAMES

GROWS = "the batch grows within a run: its steps belong to no single batch"


def images(value: Any) -> str:
    """A batch that was fitted: tenths of an image only below ten."""
    return significant(value, 2)


def _batches(row: Row) -> str:
    low, high = count(row["batch_low"]), count(row["batch_high"])
    return f"{row['batches']} of {row['batches_tried']}, {low} to {high}"


def _epochs(row: Row) -> str:
    low, high = count(row["epochs_low"]), count(row["epochs_high"])
    return low if low == high else f"{low} to {high}"


COLUMNS = (
    *NAMES,
    Column("series", "Int64"),
    Column("target", "string", "target", only_if_varied=True),
    Column("batches", "Int64", "batches", "global batches at which a run reached the target, of "
           "those that were run: the smallest and the largest of these", cell=_batches),
    Column("batches_tried", "Int64"),
    Column("batch_low", "Int64"),
    Column("batch_high", "Int64"),
    Column("reached", "Int64", "reached", "runs that reached the target; the others, diverged "
           "ones among them, are censored: they enter as more steps than they had",
           cell=lambda row: f"{row['reached']} of {row['reached'] + row['censored']}"),
    Column("censored", "Int64"),
    Column("epochs_low", "Int64", "epochs", "until the target, of the runs that reached it",
           cell=_epochs),
    Column("epochs_high", "Int64"),
    Column("steps_min", "Float64", "S_min", "steps that no batch, however large, falls below, "
           "with the 95 % interval of the profile likelihood; < and >: a bound, where the "
           "interval has one end", unit="steps", format=significant, estimate=True),
    Column("critical_batch", "Float64", "B_crit", "global batch that needs twice S_min steps and "
           "twice the fewest images: far below it twice the batch saves half of the steps, far "
           "above it none; interval likewise", unit="images", format=images, estimate=True),
    Column("sd", "Float64", description="of the log of steps, between runs"),
    Column("cells", "string"),
)  # fmt: skip


def table(found: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per series of :func:`points`, with the law's parameters or why there are none."""
    rows = [_row(group) for _, group in found.groupby("series", sort=False)]
    return Table(
        "critical_batch",
        "Critical batch: how far a larger batch saves steps",
        COLUMNS,
        in_order(frame(rows, COLUMNS), techniques),
        intro="S(B) = S_min (1 + B_crit / B) steps to the target at batch B (McCandlish et al. "
        "2018, 1812.06162, section 2.3), fitted to the runs of one technique, of several learning "
        "rates at a batch to those of the rate with the fewest steps. Steps count to the "
        "end of an epoch, and until the target was held: where runs take few epochs, B_crit comes "
        "out too large.",
    )


def points(goals: pd.DataFrame, runs: pd.DataFrame, settings: Mapping[str, str]) -> pd.DataFrame:
    """The runs of series with a target at two batches or more, with the number of the ``series``.

    ``steps``: to the target; of a run that is not ``met``, the steps that it had. A run that had
    none is left out. ``grows``: its batch did. ``technique_label``: without the learning rate.

    Args:
        settings: of techniques as JSON, by ``technique_settings``.
    """
    about = runs.set_index("cell_id").rename(columns={"steps": "budget"})
    about = about[["workload", "framework", "global_batch_last", "budget", "technique_settings",
                   "base_lr"]]  # fmt: skip
    known = goals.join(about, on="cell_id")
    met = known["met"].fillna(False).astype(bool)
    known = known.assign(
        met=met,
        steps=known["steps"].where(met, known["budget"]),
        grows=(known["global_batch_last"] > known["global_batch"]).fillna(False),
    )
    others = {name: without_rate(text) for name, text in settings.items()}
    other = known["technique_settings"].map(others)
    known = known.assign(technique_label=other.map(technique_labels(others.values())))
    known = known[known["steps"] > 0]
    series = known.groupby(list(SERIES), sort=False)
    known = known.assign(series=series.ngroup())
    return _of_best_rates(known[series["global_batch"].transform("nunique") > 1])


def _of_best_rates(known: pd.DataFrame) -> pd.DataFrame:
    """At each batch the runs of one rate. Of those with the most runs, since a search gives the
    rate that it found more seeds, it is that of the least median; a run that did not get there
    counts as one that took for ever."""
    taken = known["steps"].astype(float).where(known["met"], np.inf)
    rates = known.assign(taken=taken).groupby(["series", "global_batch", "base_lr"])["taken"]
    found = rates.agg(["size", "median"]).reset_index()
    found = found.sort_values(["size", "median"], ascending=[False, True], kind="stable")
    best = found.drop_duplicates(["series", "global_batch"])[["series", "global_batch", "base_lr"]]
    return known.merge(best, on=["series", "global_batch", "base_lr"])


def _row(group: pd.DataFrame) -> Row:
    first, reached = group.iloc[0], group[group["met"]]
    tried = group["global_batch"]
    names = ("technique", "technique_label", "series", "target")
    least, critical, sd = _fitted(group)
    return {
        **{name: first[name] for name in names},
        "context": without_batch(first["context"]),
        "batches": reached["global_batch"].nunique(), "batches_tried": tried.nunique(),
        "batch_low": tried.min(), "batch_high": tried.max(),
        "reached": len(reached), "censored": len(group) - len(reached),
        "epochs_low": reached["epoch"].min(), "epochs_high": reached["epoch"].max(),
        **least.columns("steps_min"), **critical.columns("critical_batch"), "sd": sd,
        "cells": " ".join(group["cell_id"]),
    }  # fmt: skip


def _fitted(group: pd.DataFrame) -> tuple[Estimate, Estimate, float | None]:
    """S_min, B_crit and the sd of log steps."""
    if group["grows"].any():
        found: CriticalBatch | Refusal = Refusal(GROWS)
    else:
        batches, steps, met = (group[name].tolist() for name in ("global_batch", "steps", "met"))
        found = fit_critical_batch(batches, steps, met)
    if isinstance(found, Refusal):
        none = Estimate(None, n=int(group["met"].sum()), note=found.reason)
        return none, none, None
    return found.steps_min, found.batch, found.sd
