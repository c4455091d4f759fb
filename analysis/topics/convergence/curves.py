"""Figures of a quantity against epochs or training time, for each technique."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from analysis.figures import MOST_RUNS, Figure, Look, hidden, left_out, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import Column, frame, joined, types
from analysis.topics.names import panel_name

COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("kind", "string"), Column("technique", "string"),
    Column("cell_id", "string"), Column("status", "string"), Column("gpus", "Int64"),
    Column("global_batch", "Int64"), Column("seed", "Int64"), Column("epoch", "Int64"),
    Column("train_s_so_far"), Column("n", "Int64"), Column("value"), Column("low"), Column("high"),
)  # fmt: skip
_NEEDED = ("cell_id", "status", "technique_label", "context", "gpus", "global_batch", "seed",
           "epoch", "train_s_so_far")  # fmt: skip
#: A wider range than this is read better on a log axis.
_LOG_RANGE = 10
#: Panels of one figure; the CSV of the epochs has all.
MOST_PANELS = 6
_BY_PANEL = ("context", "gpus", "global_batch")
_AXES = {"epoch": Axis("epoch", whole=True), "train_s_so_far": Axis("training seconds", low=0)}


@dataclass(frozen=True)
class Quantity:
    """A column of the epochs frame and how it is drawn."""

    column: str
    key: str
    title: str
    axis: str
    log: bool
    against: Literal["epoch", "train_s_so_far"] = "epoch"


ACCURACY = Quantity("validation_accuracy", "validation_accuracy",
                    "Validation accuracy against epochs", "validation accuracy",
                    log=False)  # fmt: skip
ACCURACY_IN_TIME = replace(
    ACCURACY, key="validation_accuracy_in_time", against="train_s_so_far",
    title="Validation accuracy against training time",
)  # fmt: skip
LOSS = Quantity("train_loss", "train_loss", "Training loss against epochs", "training loss",
                log=True)  # fmt: skip


def figure(
    epochs: pd.DataFrame, quantity: Quantity, seen: Mapping[str, Look], note: str = ""
) -> Figure | None:
    """Small multiples per rank count, batch and whatever else differs; None without a value.

    Args:
        epochs: one row per run and epoch.
        seen: look of each technique that is drawn, in drawing order.
        note: the end of the caption.
    """
    known = epochs[quantity.column].notna()
    more = hidden(seen, epochs.loc[known, "technique_label"].unique())
    known &= epochs["technique_label"].isin(list(seen))
    # of a million rows only what is drawn is copied, and nothing where all are
    drawn = epochs if known.all() else epochs.loc[known, [*_NEEDED, quantity.column]]
    data = numbers(drawn, quantity.column)
    if not len(data):
        return None
    panels = {str(panel): [*_lines(own, seen, quantity.against)]
              for panel, own in data.groupby("panel", sort=False)}  # fmt: skip
    log = quantity.log and _wide(data["value"])
    y = Axis(quantity.axis, "decades" if log else "linear")
    svg = lines(panels, _AXES[quantity.against], y)
    drawn = drawn.drop_duplicates("cell_id")
    every = len(drawn.drop_duplicates(list(_BY_PANEL)))
    lost = drawn[drawn["status"] == "diverged"].groupby(list(_BY_PANEL))["cell_id"].nunique()
    diverged = int(lost[[panel_name(*place) in panels for place in lost.index]].sum())
    caption = _caption(data, quantity, diverged) + left_out(len(panels), every, "panels") + more
    caption = " ".join(part for part in (caption, note) if part)
    return Figure(quantity.key, quantity.title, caption, data, svg)


def numbers(epochs: pd.DataFrame, column: str) -> pd.DataFrame:
    """What the figure shows: a row per run and epoch, then per mean and epoch.

    A mean is over the completed runs of one technique in one panel, as far as all of them go: runs
    with a target end early, and those that are left are the slow ones. Above MOST_RUNS runs in all,
    ``low`` and ``high`` (the 5th and 95th percentile) stand for the single runs.
    """
    if not len(epochs):
        return frame([], COLUMNS)
    # texts are compared run by run: a million rows of them take seconds and gigabytes
    runs, _ = pd.factorize(epochs["cell_id"])
    first = epochs.loc[~pd.Series(runs, index=epochs.index).duplicated()].reset_index(drop=True)
    panels = first.sort_values(list(_BY_PANEL), kind="stable")[list(_BY_PANEL)]
    panels = panels.drop_duplicates().tail(MOST_PANELS)
    panels = panels.assign(panel=[panel_name(*row) for row in panels.itertuples(index=False)])
    order = {name: place for place, name in enumerate(panels["panel"])}
    first = first.merge(panels, on=list(_BY_PANEL), how="left")
    first = first.assign(technique=first["technique_label"])
    by_line = ["panel", "technique", "gpus", "global_batch"]
    first["line"] = first.groupby(by_line, sort=False, dropna=False).ngroup()
    done = (first["status"] == "completed") & first["panel"].notna()
    values = pd.DataFrame({
        "line": first["line"].to_numpy()[runs], "epoch": epochs["epoch"].array,
        "value": epochs[column].array, "train_s_so_far": epochs["train_s_so_far"].array,
    })  # fmt: skip
    completed = values if done.all() else values[done.to_numpy()[runs]]
    by_epoch = completed.groupby(["line", "epoch"])
    means = by_epoch.mean().assign(n=by_epoch.size())
    shown = first["panel"].notna()
    many = int(shown.sum()) > MOST_RUNS
    if many:
        low, high = (by_epoch["value"].quantile(share) for share in (0.05, 0.95))
        means = means.assign(low=low, high=high)
    means = means.reset_index()
    means = means[means["n"] == means["line"].map(first.loc[done, "line"].value_counts())]
    of_lines = first.drop_duplicates("line").set_index("line")[by_line]
    means = means.join(of_lines, on="line").assign(kind="mean")
    parts = [means]
    if not many:
        own = shown.to_numpy()[runs]
        about = first.drop(columns=["epoch", "train_s_so_far", column]).iloc[runs[own]]
        each = about.reset_index(drop=True).join(values[own].drop(columns="line").reset_index())
        parts = [each.assign(kind="run"), means]
    wanted = types(COLUMNS)
    rows = pd.concat([part.reindex(columns=list(wanted)).astype(wanted) for part in parts])
    rows = rows.assign(place=rows["panel"].map(order)).sort_values("place", kind="stable")
    return rows[list(wanted)].reset_index(drop=True)


def _lines(data: pd.DataFrame, seen: Mapping[str, Look], against: str) -> Iterable[Line]:
    for label, look in seen.items():
        own = data[data["technique"] == label].sort_values("epoch", kind="stable")
        thin = replace(look, marker=".", dashes="-", alpha=0.55 * look.alpha)
        mean, runs = own[own["kind"] == "mean"], own[own["kind"] == "run"]
        # that of a mean, or of a technique without one
        name = "" if len(mean) else label
        for _, run in runs.groupby("cell_id", sort=False, observed=True):
            alone = Line(run[against], run["value"], thin, name, width=0.8, size=0)
            if run["status"].iloc[0] == "diverged":
                last = run[run["value"].notna()].tail(1)
                yield replace(alone, look=replace(thin, dashes=":"))
                yield Line(last[against], last["value"], replace(look, marker="x"), size=7)
            else:
                yield replace(alone, size=4 * (len(run) == 1))
            name = ""
        yield Line(mean[against], mean["value"], look, label, mean["low"], mean["high"],
                   width=1.6, size=3 * (len(mean) <= 20))  # fmt: skip


def _wide(column: pd.Series[Any]) -> bool:
    low, high = float(column.min()), float(column.max())
    return low > 0 and high > _LOG_RANGE * low


def _caption(data: pd.DataFrame, quantity: Quantity, diverged: int) -> str:
    means, runs = (data[data["kind"] == kind] for kind in ("mean", "run"))
    thick = joined(
        ["mean of the completed runs of a technique", n_of(means["n"]) if len(means) else ""], ", "
    )
    if len(runs):
        text = f"Thin line: one of {runs['cell_id'].nunique()} runs; thick line: {thick}. "
    else:
        text = f"Line: {thick}; band: 5th to 95th percentile of its runs. "
    text += "One panel per rank count and global batch."
    if quantity.against == "train_s_so_far":
        text += (
            " Seconds are of training alone (not of validation, nor of statistics that batch norm "
            "takes anew for it), all starts of a run together; a mean is placed at "
            "the mean of its runs' seconds after the same epoch."
        )
    if diverged:
        shown = "dotted, a cross at the last value, in no mean"
        text += f" {diverged:,} diverged: {shown if len(runs) else 'in no mean or band'}."
    if quantity.log and _wide(data["value"]):
        text += " Logarithmic axis."
    return text
