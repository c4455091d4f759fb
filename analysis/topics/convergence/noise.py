"""Gradient noise scale: what becomes of it over a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.records.frames import in_order
from analysis.stats.intervals import mean
from analysis.table import Column, Estimate, Row, Table, frame, runs_in_words, significant
from analysis.topics.topic import NAMES, batch_text, ranks_column, reasons

#: Of the epochs that all completed runs of a condition have, those that the table shows.
WHEN = ("first", "middle", "last")


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    shown = []
    for when in WHEN:
        about = (
            "images: geometric mean over completed runs, with the 95 % t interval of the "
            "logarithm; of one run its own value and block bootstrap over its steps; > where the "
            "squared gradient of a run cannot be told from zero: then only a lower bound is known"
        )
        shown += [
            Column(f"{when}_epoch", "Int64"),
            Column(f"{when}_batch", "Int64"),
            Column(when, "Float64", f"B_simple, {when} epoch", about if when == "first" else "",
                   format=significant, estimate=True),
        ]  # fmt: skip
    return (
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", "images per optimizer step; where it grew, "
               "also at the end", cell=lambda row: batch_text(row["global_batch"],
                                                              row["last_batch"])),
        *shown,
        Column("batch_over_noise", "Float64", "B / B_simple", "of the last epoch, with its own "
               "batch: far above 1, steps and not noise limit the run, and a larger batch saves "
               "few of them; far below 1, a larger batch still averages noise away", cell=_ratio),
    )  # fmt: skip


def table(epochs: pd.DataFrame, runs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per condition whose completed runs measured their gradient noise.

    Shown are the first, the middle and the last epoch that every run of the condition has. Where a
    run is censored no mean is taken, since it would be of the low ones: ``low`` is then the
    smallest lower end.
    """
    about = runs.set_index("cell_id")["condition"]
    known = epochs[(epochs["status"] == "completed") & epochs["noise_steps"].notna()]
    known = known.assign(condition=known["cell_id"].map(about))
    rows = [_row(group) for _, group in known.groupby("condition", sort=False, observed=True)]
    made = columns(runs)
    return Table(
        "noise_scale",
        "Noise scale: how large a batch the gradient's noise is worth",
        made,
        in_order(frame(rows, made), techniques),
        intro="B_simple is the trace of the per-image gradient covariance over the squared norm "
        "of the gradient (McCandlish et al. 2018, 1812.06162, appendix A), measured from the "
        "batches of every step. It ignores curvature: read it as an estimate of the critical "
        "batch within a small factor. With batch norm it belongs to the batch that is normalised "
        "together: compare rows of equal batch per rank.",
    )


def _row(group: pd.DataFrame) -> dict[str, Any]:
    first = group.iloc[0]
    about = ("technique", "technique_label", "context", "gpus", "global_batch")
    row: dict[str, Any] = {name: first[name] for name in about}
    counts = group["epoch"].value_counts()
    shared = sorted(counts.index[counts == counts.max()])
    places = (0, (len(shared) - 1) // 2, len(shared) - 1)
    for when, place in zip(WHEN, places, strict=True):
        epoch = group[group["epoch"] == shared[place]]
        row |= _over_runs(epoch).columns(when)
        row |= {f"{when}_epoch": shared[place], f"{when}_batch": epoch["noise_batch_big"].iloc[0]}
    row["batch_over_noise"] = row["last_batch"] / row["last"] if row["last"] else None
    return row


def _over_runs(epoch: pd.DataFrame) -> Estimate:
    """One epoch of one condition over its runs."""
    censored = int(epoch["noise_censored"].sum())
    if censored:
        bounds = epoch["noise_low"]
        # a run without interval bounds nothing
        low = None if bounds.isna().any() else float(bounds.min())
        note = f"censored in {censored} of {runs_in_words(len(epoch))}"
        return Estimate(None if low is None else low, low, None, len(epoch), note)
    # no noise at all, of ranks that see the same images, has no logarithm
    found = epoch[epoch["noise_b_simple"].fillna(0) > 0]
    if len(found) == 1:
        only = found.iloc[0]
        estimate = Estimate(only["noise_b_simple"], only["noise_low"], only["noise_high"], 1,
                            "of one run")  # fmt: skip
    else:
        estimate = mean(found["noise_b_simple"].tolist(), "positive")
    lacking = len(epoch) - len(found)
    if lacking == len(epoch):
        steps = int(epoch["noise_steps"].min())
        note = f"too few steps in an epoch ({steps}), or no noise between the batches of a step"
        return estimate._replace(note=note)
    if lacking:
        told = f"{lacking} of {len(epoch)} runs lack the value"
        return estimate._replace(note=reasons([estimate.note, told]))
    return estimate


def _ratio(row: Row) -> str:
    if row["batch_over_noise"] is None:
        return "n/a"
    bound = "< " if row["last_high"] is None and row["last_low"] is not None else ""
    return bound + significant(row["batch_over_noise"])
