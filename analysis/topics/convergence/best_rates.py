"""Figure of the best learning rate against the global batch, beside the square root and the linear
rule, whose claim it tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import (
    GRID,
    Figure,
    Look,
    Tips,
    decades,
    left_out,
    legend,
    looks,
    octaves,
    small_multiples,
    style,
    to_svg,
)
from analysis.records.labels import without_batch
from analysis.table import count, plain_rows

MOST_LINES = 6
_RULES = {"linear rule": (1.0, "--"), "square root rule": (0.5, ":")}


def figure(rates: pd.DataFrame) -> Figure | None:
    """``rates``: the table of learning_rates.py. A line per technique; None where none has its best
    rate at two batches or more."""
    data = numbers(rates)
    names = list(dict.fromkeys(data["line"]))
    if not names:
        return None
    seen = looks(names[:MOST_LINES])
    tips = Tips()
    with style():
        canvas, (axis,) = small_multiples(1, len(seen), share_y=True)
        for name, look in seen.items():
            _draw(axis, name, data[data["line"] == name], look, tips)
        octaves(axis, data["global_batch"], "global batch")
        axis.set_yscale("log")
        decades(axis.yaxis)
        axis.set_ylabel("best base learning rate (log)")
        edges = {"at the end of its list": {"marker": "o", "markerfacecolor": "none",
                                            "linestyle": "none"}}  # fmt: skip
        rules = {rule: {"linestyle": dashes} for rule, (_, dashes) in _RULES.items()}
        drawn = data[data["line"].isin(list(seen))]
        legend(canvas, seen, rules | (edges if drawn["best_note"].notna().any() else {}))
        svg = to_svg(canvas, tips)
    caption = (
        "The rate with the highest mean accuracy at each batch, of those tried; the bar: the rates "
        "that are not shown to differ from it. Hollow: it is the lowest or the highest that was "
        "tried, so a bound. Grey: what the two rules make of the rate at the smallest batch. Where "
        "the technique itself scales base_lr, a level line says that its rule holds."
    ) + left_out(len(seen), len(names), "lines; the CSV has all")
    return Figure("best_rates", "The best learning rate by batch", caption, data, svg)


def numbers(rates: pd.DataFrame) -> pd.DataFrame:
    """Best rates, with the lowest and the highest that is tied with each, and the ``line`` that
    they belong to; a line has two batches or more. Of a batch that was made in several ways it is
    that of the highest accuracy."""
    best = rates[rates["best"]]
    tied = rates[rates["tied"].fillna(False)].groupby("line")["base_lr"].agg(["min", "max"])
    best = best.join(tied.add_prefix("tied_"), on="line")
    several = best["gpus"].nunique() > 1
    names = [
        ", ".join(
            part
            for part in (
                row["technique_label"],
                without_batch(row["context"] or ""),
                f"{row['gpus']} ranks" if several else "",
            )
            if part
        )
        for row in plain_rows(best)
    ]
    best = best.assign(line=names).sort_values("accuracy", ascending=False, kind="stable")
    best = best.drop_duplicates(["line", "global_batch"])
    batches = best.groupby("line")["global_batch"].transform("nunique")
    shown = ["line", "global_batch", "base_lr", "tied_min", "tied_max", "accuracy", "n",
             "best_note"]  # fmt: skip
    return best.loc[batches > 1, shown].sort_values("global_batch", kind="stable")


def _draw(axis: Any, name: str, own: pd.DataFrame, look: Look, tips: Tips) -> None:
    batches, found = (own[column].to_numpy(float) for column in ("global_batch", "base_lr"))
    for power, dashes in _RULES.values():
        ruled = found[0] * (np.array([batches[0], batches[-1]]) / batches[0]) ** power
        axis.plot([batches[0], batches[-1]], ruled, color=GRID, linewidth=0.9, linestyle=dashes)
    axis.plot(batches, found, color=look.color, linewidth=1.4, linestyle=look.dashes)
    for row in plain_rows(own):
        if row["tied_min"] is not None:
            axis.plot([row["global_batch"]] * 2, [row["tied_min"], row["tied_max"]],
                      color=look.color, linewidth=1.2)  # fmt: skip
        (point,) = axis.plot(
            [row["global_batch"]], [row["base_lr"]], color=look.color, marker=look.marker,
            markersize=5.5, markerfacecolor="none" if row["best_note"] else look.color,
        )  # fmt: skip
        tips.add(point, f"{name}, batch {count(row['global_batch'])}: {row['base_lr']:g}")
