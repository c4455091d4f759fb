"""Figures of accuracy against epochs or training time, for each technique."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, hidden, left_out, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import Column, types
from analysis.topics.names import only, panel_name
from analysis.topics.topic import Sweep

COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("technique", "string"), Column("gpus", "Int64"),
    Column("global_batch", "Int64"), Column("epoch", "Int64"), Column("train_s_so_far"),
    Column("n", "Int64"), Column("value"), Column("low"), Column("high"),
)  # fmt: skip
_NEEDED = ("cell_id", "status", "technique_label", "context", "gpus", "global_batch", "epoch",
           "train_s_so_far")  # fmt: skip
#: Panels of one figure; the CSV of the epochs has all.
MOST_PANELS = 6
#: Epochs that are drawn as points.
_MOST_POINTS = 20
_ACCURACY = "validation_accuracy"
_BY_PANEL = ("context", "gpus", "global_batch")
_AXES = {"epoch": Axis("epoch", whole=True), "train_s_so_far": Axis("training seconds", low=0)}
_SECONDS = (
    "Seconds are of training alone, without validation and the batch-norm statistics computed for "
    "it, all attempts of a run together; a mean is placed at the mean of its runs' seconds after "
    "the same epoch."
)


def accuracy(of: Sweep) -> Figure | None:
    return figure(of.frames.epochs, of.seen, target=only([*of.runs["target_accuracy"]]))


def accuracy_in_time(of: Sweep) -> Figure | None:
    target = only([*of.runs["target_accuracy"]])
    return figure(of.frames.epochs, of.seen, against="train_s_so_far", target=target)


def figure(
    epochs: pd.DataFrame, seen: Mapping[str, Look],
    against: Literal["epoch", "train_s_so_far"] = "epoch", target: float | None = None,
) -> Figure | None:  # fmt: skip
    """Small multiples per rank count, batch and whatever else differs; None without a value.

    Args:
        epochs: one row per run and epoch.
        seen: look of each technique that is drawn, in drawing order.
        target: accuracy to be reached; None or NA where there is none.
    """
    known = epochs[_ACCURACY].notna()
    more = hidden(seen, epochs.loc[known, "technique_label"].unique())
    known &= epochs["technique_label"].isin(list(seen))
    # of a million rows only what is drawn is copied, and nothing where all are
    drawn = epochs if known.all() else epochs.loc[known, [*_NEEDED, _ACCURACY]]
    data = numbers(drawn)
    if not len(data):
        return None
    panels = {str(panel): [*_lines(own, seen, against)]
              for panel, own in data.groupby("panel", sort=False)}  # fmt: skip
    levels = [] if target is None or pd.isna(target) else [(f"target {target:g}", target)]
    svg = lines(panels, _AXES[against], Axis("validation accuracy"), levels=levels)
    runs = drawn.drop_duplicates("cell_id")
    done = runs["status"] == "completed"
    band = "; band: from the lowest to the highest of them" if data["n"].max() > 1 else ""
    lost = fmt.counted(int((~done).sum()), "run")
    in_time = against == "train_s_so_far"
    caption = fmt.joined([
        f"Line: mean of the completed runs of a technique, {n_of(data['n'])}, as far as all of "
        f"them ran{band}. One panel per rank count and global batch.",
        _SECONDS if in_time else "",
        "" if done.all() else f"Not drawn: {lost} that diverged.",
    ])  # fmt: skip
    every = len(runs.loc[done, list(_BY_PANEL)].drop_duplicates())
    caption += left_out(len(panels), every, "panels") + more
    title = f"Validation accuracy against {'training time' if in_time else 'epochs'}"
    return Figure(f"{_ACCURACY}_in_time" if in_time else _ACCURACY, title, caption, data, svg)


def numbers(epochs: pd.DataFrame) -> pd.DataFrame:
    """What the figure shows: a row per panel, technique and epoch.

    A mean is over the completed runs of one technique in one panel, as far as all of them go: runs
    with a target end early, and those that are left are the slow ones.
    """
    # texts are compared run by run: a million rows of them take seconds and gigabytes
    runs, _ = pd.factorize(epochs["cell_id"])
    first = epochs.loc[~pd.Series(runs, epochs.index).duplicated()].reset_index(drop=True)
    done = first[first["status"] == "completed"].sort_values(list(_BY_PANEL), kind="stable")
    panels = done[list(_BY_PANEL)].drop_duplicates().tail(MOST_PANELS)
    panels = panels.assign(panel=[panel_name(*row) for row in panels.itertuples(index=False)])
    shown = done.reset_index(names="run").merge(panels, on=list(_BY_PANEL))
    shown["line"] = shown.groupby(["panel", "technique_label"], sort=False).ngroup()
    line = np.full(len(first), -1)
    line[shown["run"]] = shown["line"]
    values = pd.DataFrame({
        "line": line[runs], "epoch": epochs["epoch"].array, "value": epochs[_ACCURACY].array,
        "train_s_so_far": epochs["train_s_so_far"].array,
    })  # fmt: skip
    by_epoch = values[values["line"] >= 0].groupby(["line", "epoch"])
    means = by_epoch.mean().assign(
        n=by_epoch.size(), low=by_epoch["value"].min(), high=by_epoch["value"].max()
    )
    means = means.reset_index()
    means = means[means["n"] == means["line"].map(shown["line"].value_counts())]
    about = shown.drop_duplicates("line").assign(technique=shown["technique_label"])
    about = about.set_index("line")[["panel", "technique", "gpus", "global_batch"]]
    wanted = types(COLUMNS)
    return means.join(about, on="line")[[*wanted]].astype(wanted)


def _lines(data: pd.DataFrame, seen: Mapping[str, Look], against: str) -> Iterable[Line]:
    for label, look in seen.items():
        own = data[data["technique"] == label]
        yield Line(own[against], own["value"], look, label, own["low"], own["high"],
                   size=3 * (len(own) <= _MOST_POINTS))  # fmt: skip
