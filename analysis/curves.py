"""Figures of a quantity against epochs or training time: every run a thin line, the mean of each
technique thick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.frames import frame
from analysis.plots import (
    Figure,
    Look,
    empty,
    head,
    legend,
    looks_of,
    small_multiples,
    style,
    to_svg,
)

_TEXT, _INT, _REAL = "string", "Int64", "Float64"
COLUMNS: dict[str, str] = {
    "panel": _TEXT, "kind": _TEXT, "technique": _TEXT, "cell_id": _TEXT, "status": _TEXT,
    "gpus": _INT, "global_batch": _INT, "seed": _INT, "epoch": _INT,
    "train_s_so_far": _REAL, "n": _INT, "value": _REAL,
}  # fmt: skip
_OF_A_RUN = ("cell_id", "status", "seed", "epoch", "train_s_so_far")
#: A wider range than this is read better on a log axis.
_LOG_RANGE = 10


_AXES = {"epoch": "epoch", "train_s_so_far": "training seconds"}
_DIVERGED = {"diverged: last value": {"marker": "x", "linestyle": ":", "linewidth": 1}}


@dataclass(frozen=True)
class Quantity:
    """A column of the epochs frame and how it is drawn."""

    column: str
    key: str
    title: str
    axis: str
    log: bool
    against: Literal["epoch", "train_s_so_far"] = "epoch"


ACCURACY = Quantity(
    "validation_accuracy",
    "validation_accuracy",
    "Validation accuracy against epochs",
    "validation accuracy",
    log=False,
)
ACCURACY_IN_TIME = Quantity(
    "validation_accuracy",
    "validation_accuracy_in_time",
    "Validation accuracy against training time",
    "validation accuracy",
    log=False,
    against="train_s_so_far",
)
LOSS = Quantity(
    "train_loss", "train_loss", "Training loss against epochs", "training loss", log=True
)


def curves(
    epochs: pd.DataFrame, quantity: Quantity, seen: Mapping[str, Look], why: str, note: str = ""
) -> Figure:
    """Small multiples per rank count (and batch, and whatever else differs); see COLUMNS.

    ``epochs`` with the runs' clock. ``seen``: look per technique label, in drawing order. ``why``:
    said where no value is known. ``note``: the end of the caption.
    """
    drawn = epochs[epochs[quantity.column].notna()]
    data = curve_data(drawn, quantity.column)
    if not len(data):
        return empty(quantity.key, quantity.title, why, data)
    panels = list(dict.fromkeys(data["panel"]))
    there = looks_of(seen, data)
    with style():
        canvas, axes = small_multiples(len(panels), len(there), share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, data[data["panel"] == panel], seen, quantity.against)
            head(axis, panel)
            axis.set_xlabel(_AXES[quantity.against])
        axes[0].set_ylabel(quantity.axis)
        if quantity.log and _wide(data["value"]):
            _log_axis(axes[0])  # shared by all panels
        legend(canvas, there, _DIVERGED if (data["status"] == "diverged").any() else {})
        svg = to_svg(canvas)
    caption = " ".join(part for part in (_caption(data, quantity), note) if part)
    return Figure(quantity.key, quantity.title, caption, data, svg)


def curve_data(epochs: pd.DataFrame, column: str) -> pd.DataFrame:
    """The numbers of the figure: a row per run and epoch, then per mean and epoch.

    A mean is over the completed runs of one technique in one panel, as far as all of them go: runs
    with a target end early, and those that are left are the slow ones.
    """
    ordered = epochs.sort_values(["context", "gpus", "global_batch"], kind="stable")
    rows: list[dict[str, Any]] = []
    for _, panel in ordered.groupby(["gpus", "global_batch", "context"], sort=False):
        gpus, batch = int(panel["gpus"].iloc[0]), int(panel["global_batch"].iloc[0])
        title = _panel(gpus, batch, str(panel["context"].iloc[0]))
        about = {"panel": title, "gpus": gpus, "global_batch": batch}
        rows += [
            {**about, "kind": "run", "technique": row["technique_label"], "value": row[column],
             **{name: row[name] for name in _OF_A_RUN}}
            for _, row in panel.iterrows()
        ]  # fmt: skip
        completed = panel[panel["status"] == "completed"]
        runs_of = completed.groupby("technique_label")["cell_id"].nunique().to_dict()
        rows += [
            {**about, "kind": "mean", "technique": label, "epoch": epoch, "n": len(group),
             "train_s_so_far": group["train_s_so_far"].mean(), "value": group[column].mean()}
            for (label, epoch), group in completed.groupby(["technique_label", "epoch"], sort=False)
            if len(group) == runs_of[label]
        ]  # fmt: skip
    return frame(rows, COLUMNS)


def _panel(gpus: int, batch: int, context: str) -> str:
    ranks = "1 rank" if gpus == 1 else f"{gpus} ranks"
    return f"{ranks}, batch {batch:,}" + (f"\n{context}" if context else "")


def _draw(axis: Any, data: pd.DataFrame, seen: Mapping[str, Look], against: str) -> None:
    for label, look in seen.items():
        own = data[data["technique"] == label]
        for _, run in own[own["kind"] == "run"].groupby("cell_id", sort=False):
            diverged = run["status"].iloc[0] == "diverged"
            x, y = _points(run, against)
            axis.plot(
                x, y, color=look.color, linewidth=0.8, alpha=0.55,
                linestyle=":" if diverged else "-", marker="." if len(x) == 1 else None,
            )  # fmt: skip
            if diverged:
                axis.plot(
                    x[-1:], y[-1:], color=look.color, marker="x", markersize=7, linestyle="none",
                    markeredgewidth=1.8,
                )  # fmt: skip
        x, y = _points(own[own["kind"] == "mean"], against)
        axis.plot(
            x, y, color=look.color, linewidth=1.6, linestyle=look.dashes,
            marker=look.marker if len(x) <= 20 else None, markersize=3,
        )  # fmt: skip
    axis.xaxis.set_major_locator(MaxNLocator(integer=against == "epoch", nbins=6))
    if against != "epoch":
        axis.set_xlim(left=0)  # seconds are compared as lengths


def _points(rows: pd.DataFrame, against: str) -> tuple[list[float], list[float]]:
    ordered = rows.sort_values("epoch")
    return [float(x) for x in ordered[against]], [float(v) for v in ordered["value"]]


def _log_axis(axis: Any) -> None:
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _wide(column: pd.Series[Any]) -> bool:
    low, high = float(column.min()), float(column.max())
    return low > 0 and high > _LOG_RANGE * low


def _caption(data: pd.DataFrame, quantity: Quantity) -> str:
    means = data[data["kind"] == "mean"]
    runs = data[data["kind"] == "run"]
    diverged = runs[runs["status"] == "diverged"]["cell_id"].nunique()
    text = (
        f"Each of the {runs['cell_id'].nunique()} runs is a thin line (one seed each); a thick "
        f"line is the mean of the completed runs of a technique{_range(means['n'].tolist())}. "
        "One panel per rank count and global batch. No interval is drawn: the runs are."
    )
    if quantity.against == "train_s_so_far":
        text += (
            " Seconds are of training alone (not of validation, nor of statistics that batch norm "
            "takes anew for it), all starts of a run together; a mean is placed at "
            "the mean of its runs' seconds after the same epoch."
        )
    if diverged:
        text += f" {diverged} diverged: dotted, a cross at the last value, in no mean."
    if quantity.log and _wide(data["value"]):
        text += " Logarithmic axis."
    return text


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f", n = {low}" if low == high else f", n = {low} to {high}"
