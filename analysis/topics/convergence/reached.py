"""What each condition reaches: one row per condition (all settings but the seed)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.plots.figure import GREY, Figure, Look, hidden, left_out, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.records.labels import without_batch
from analysis.stats.intervals import Kind, shares
from analysis.table import Column, Table, estimate_in, estimates_as, frame, plain_rows
from analysis.topics.convergence import curves
from analysis.topics.names import (
    NAMES,
    all_diverged,
    batch_text,
    diverged_text,
    over_completed,
    ranks_column,
    reasons,
    with_context,
)
from analysis.topics.topic import Sweep, Topic

CHANGED_IMAGES = (
    "training images are cropped, mirrored or cut at random: this accuracy is of the changed "
    "images, lower than that of the same weights on the images as they are"
)
#: Means over the completed runs.
_MEASURES: dict[str, Kind] = {
    "train_accuracy": "share", "validation_accuracy": "share", "train_loss": "real",
    "train_s": "positive", "images_per_s": "positive", "sharpness_largest": "positive",
    "sharpness_scaled": "positive",
}  # fmt: skip
#: Panels of the figure.
MOST_PANELS = 4


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    sharp = runs["sharpness_largest"].notna().any()
    return (
        *NAMES,
        Column("framework", "string"),
        Column("epochs", "Int64"),
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", "images per optimizer step, over all ranks "
               "and accumulated batches; where it grows, first → last epoch",
               cell=lambda row: batch_text(row["global_batch"], row["global_batch_last"])),
        Column("global_batch_last", "Int64"),
        Column("steps", "Int64", "steps", "optimizer steps of a whole run", note="steps_note"),
        Column("steps_note", "string"),
        Column("train_accuracy", "Float64", "training accuracy", "running mean over the last "
               "epoch, while weights change: the metric of the course, no measure of "
               "generalisation; interval likewise", format=fmt.THREE, estimate=True),
        Column("validation_accuracy", "Float64", "validation accuracy", f"{_validated_on(runs)} "
               "after the final epoch (never the best one): mean of the runs that completed, with "
               "its 95 % t interval over seeds", format=fmt.THREE, estimate=True),
        Column("train_loss", "Float64", estimate=True),
        Column("n", "Int64", "runs", "with a seed of their own each"),
        Column("diverged", "Float64", "diverged", "runs that diverged, with the exact 95 % "
               "interval (Clopper and Pearson) of their share; they are in no mean", estimate=True,
               cell=diverged_text, only_if_varied=not (runs["status"] == "diverged").any()),
        Column("train_s", "Float64", "training s", "seconds in training epochs (not in validation,"
               " nor in batch-norm statistics that are computed for it), geometric mean over "
               "completed runs, with the interval of the logarithm", format=fmt.significant,
               estimate=True),
        Column("images_per_s", "Float64", estimate=True),
        Column("sharpness_largest", "Float64", "sharpness" if sharp else "", "largest eigenvalue "
               "of the Hessian where the run ended, on fixed training images, geometric mean over "
               "runs: depends on the scale of the weights", format=fmt.significant, estimate=True),
        Column("sharpness_scaled", "Float64", "scaled sharpness" if sharp else "", "likewise by "
               "changes relative to the norms of the filters, which batch norm leaves arbitrary",
               format=fmt.significant, estimate=True),
    )  # fmt: skip


def conditions(of: Sweep) -> Table:
    """One row per condition.

    Accuracies, losses and seconds are over the runs that completed. ``diverged`` is the share of
    runs that did not; a mean over both kinds would be of neither.
    """
    made = columns(of.runs)
    rows = in_order(frame(_rows(of.runs), made), of.order)
    return Table("convergence", "What each condition reaches", made, rows)


def _rows(runs: pd.DataFrame) -> dict[str, Any]:
    """Columns of the table."""
    # a loss that is zero to the last digit has no curvature, and zero has no logarithm
    positive = [name for name, kind in _MEASURES.items() if kind == "positive"]
    runs = runs.assign(**runs[positive].where(runs[positive] > 0))
    rows, conditions = pd.factorize(runs["condition"])
    first, by_row = runs.drop_duplicates("condition"), runs.groupby(rows)
    done = runs["status"] == "completed"
    planned, lost = by_row.size(), (~done).groupby(rows).sum()
    names = ("technique", "technique_label", "context", "framework", "epochs", "gpus",
             "global_batch")  # fmt: skip
    steps = runs["steps"].where(done).groupby(rows).agg(["min", "max"])
    found = {
        name: over_completed(runs, name, rows, len(conditions), kind)
        for name, kind in _MEASURES.items()
    }
    for name, where, reason in (
        ("train_s", by_row["oversubscribed"].any(), SHARED_CORES),
        ("train_accuracy", first["changes_images"], CHANGED_IMAGES),
    ):
        here = where.to_numpy(bool) & ((name == "train_s") | found[name]["value"].notna())
        notes = zip(here, found[name]["note"], strict=True)
        found[name]["note"] = [reasons([reason, note]) if own else note for own, note in notes]
    made: dict[str, Any] = {
        **{name: first[name].array for name in names},
        "global_batch_last": by_row["global_batch_last"].max().array,
        "steps": steps["min"].where(steps["min"] == steps["max"]).array,
        "steps_note": [
            _steps_note(row["min"], row["max"], of)
            for row, of in zip(plain_rows(steps), planned, strict=True)
        ],
        "n": planned.array,
        **estimates_as("diverged", shares(lost, planned)),
    }
    for name, estimates in found.items():
        made |= estimates_as(name, estimates)
    return made


def _steps_note(least: int | None, most: int | None, planned: int) -> str | None:
    if least is None:
        return all_diverged(planned)
    return None if least == most else f"the runs differ: {least:,} to {most:,}"


def _validated_on(runs: pd.DataFrame) -> str:
    whole, part = "whole held-out split", "a tenth of the training images, which no run trained on,"
    found = set(runs["validate_on"])
    if found == {"train_part"}:
        return part
    return f"{whole}, or where so named {part}" if "train_part" in found else whole


def by_batch(reached: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """Figure of the final accuracy against the global batch; None where accuracies are of one.

    Args:
        reached: the table of conditions.
        seen: the look of each technique drawn.
    """
    known = reached[reached["validation_accuracy"].notna()]
    more = hidden(seen, known["technique_label"])
    known = known[known["technique_label"].isin(list(seen))]
    low, high = known["global_batch"].min(), known["global_batch"].max()
    if known["global_batch"].nunique() < 2:
        return None
    # under weak scaling each rank count has one batch: lines then join rank counts
    several = known.groupby("gpus")["global_batch"].nunique().max() > 1
    every = [own for _, own in known.groupby("gpus")] if several else [known]
    drawn = every[-MOST_PANELS:]
    panels = {}
    for own in drawn:
        counts = sorted(set(own["gpus"]))
        name = ", ".join(map(str, counts)) + (" rank" if counts == [1] else " ranks")
        panels[name] = [*_by_batch(own, seen)]
    svg = lines(panels, Axis("global batch", "octaves"), Axis("validation accuracy"))
    n = n_of(pd.concat(drawn)["validation_accuracy_n"])
    grey = [f" Grey squares: the reference, {name}." for name in seen if seen[name].color == GREY]
    caption = "Mean validation accuracy after the last epoch of the runs that completed"
    if known["validation_accuracy_low"].notna().any():
        caption += ", with its 95 % t interval over seeds as a band"
    caption += f" ({n}).{''.join(grey)}"
    caption += left_out(len(drawn), len(every), "panels, those of the most ranks") + more
    title = f"Accuracy from batch {fmt.count(low)} to {fmt.count(high)}"
    return Figure("accuracy_by_batch", title, caption, known, svg)


def _by_batch(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    """What differs in more than the batch is no line."""
    contexts = panel["context"].map(without_batch)
    for label, look in seen.items():
        own = panel[panel["technique_label"] == label].sort_values("global_batch")
        by_context = own.groupby(contexts, sort=False)
        for context, line in by_context:
            found = [(row, estimate_in(row, "validation_accuracy")) for row in plain_rows(line)]
            yield Line(
                line["global_batch"], line["validation_accuracy"], look,
                f"{label}; {context}" if len(by_context) > 1 else label,
                line["validation_accuracy_low"], line["validation_accuracy_high"],
                tips=[f"{with_context(row)}, batch {fmt.count(row['global_batch'])}: "
                      f"{own.text(fmt.THREE)}, {fmt.runs(own.n)}" for row, own in found],
            )  # fmt: skip


TOPIC = Topic(
    tables=(conditions,),
    plots=(
        lambda of: by_batch(of.made(conditions).data, of.seen),
        curves.accuracy,
    ),
)
