"""Figure of the final accuracy against the global batch, or of each condition where there is one
batch: means with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from analysis.figures import (
    Figure,
    Look,
    Tips,
    head,
    hidden,
    left_out,
    legend,
    looks_of,
    octaves,
    sideways,
    small_multiples,
    style,
    to_svg,
)
from analysis.records.labels import without_batch
from analysis.table import Row, count, estimate_in, number, plain_rows, runs_in_words
from analysis.topics.topic import with_context

KEY = "accuracy_by_batch"
MOST_PANELS, MOST_ROWS = 4, 16
_SIDEWAYS = 0.04  # of an octave, between neighbours, so that no interval hides another
_three = number(3)


def figure(reached: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """``reached``: the table of conditions; ``seen``: the look of each technique drawn. None
    where no condition has an accuracy."""
    known = reached[reached["validation_accuracy"].notna()]
    more = hidden(seen, known["technique_label"])
    known = known[known["technique_label"].isin(list(seen))]
    if not len(known):
        return None
    several = known["global_batch"].nunique() > 1
    found = (_against_batch if several else _forest)(known, seen)
    return replace(found, caption=found.caption + more)


def _against_batch(known: pd.DataFrame, seen: Mapping[str, Look]) -> Figure:
    low, high = known["global_batch"].min(), known["global_batch"].max()
    title = f"Accuracy from batch {count(low)} to {count(high)}"
    # under weak scaling each rank count has one batch: lines then join rank counts
    several = known.groupby(["gpus", "epochs"])["global_batch"].nunique().max() > 1
    every = [own for _, own in known.groupby(["gpus", "epochs"] if several else ["epochs"])]
    panels = every[-MOST_PANELS:]
    lengths = known["epochs"].nunique() > 1
    there = looks_of(seen, known.assign(technique=known["technique_label"]))
    tips = Tips()
    with style():
        canvas, axes = small_multiples(len(panels), len(there), share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            _lines(axis, panel, there, tips)
            counts = sorted(set(panel["gpus"]))
            named = ", ".join(map(str, counts)) + (" rank" if counts == [1] else " ranks")
            head(axis, named + (f", {panel['epochs'].iloc[0]} epochs" if lengths else ""))
        axes[0].set_ylabel("validation accuracy")
        legend(canvas, there, {})
        svg = to_svg(canvas, tips)
    caption = (
        "Mean validation accuracy after the last epoch of the runs that completed, with its 95 % "
        "t interval over seeds; points are shifted sideways a little so that none hides another."
    ) + left_out(len(panels), len(every), "panels, those of the most ranks")
    return Figure(KEY, title, caption, known, svg)


def _lines(axis: Any, panel: pd.DataFrame, there: Mapping[str, Look], tips: Tips) -> None:
    for place, (label, look) in enumerate(there.items()):
        own = panel[panel["technique_label"] == label].sort_values("global_batch")
        shift = sideways(place, len(there), _SIDEWAYS)
        # what differs in more than the batch is no line
        for _, line in own.groupby(own["context"].map(without_batch), sort=False):
            _line(axis, plain_rows(line), look, shift, tips)
    octaves(axis, panel["global_batch"], "global batch")


def _line(axis: Any, rows: Sequence[Row], look: Look, shift: float, tips: Tips) -> None:
    x = [row["global_batch"] * shift for row in rows]
    axis.plot(x, [row["validation_accuracy"] for row in rows], color=look.color,
              linewidth=1.4, linestyle=look.dashes)  # fmt: skip
    for at, row in zip(x, rows, strict=True):
        found = estimate_in(row, "validation_accuracy")
        if found.low is not None and found.high is not None:
            axis.plot([at, at], [found.low, found.high], color=look.color, linewidth=1.2)
        (point,) = axis.plot([at], [row["validation_accuracy"]], color=look.color,
                             marker=look.marker, markersize=5, linestyle="none")  # fmt: skip
        said = f"{with_context(row)}, batch {count(row['global_batch'])}: "
        tips.add(point, f"{said}{found.text(_three)}, {runs_in_words(found.n)}")


def _forest(known: pd.DataFrame, seen: Mapping[str, Look]) -> Figure:
    ordered = known.sort_values("validation_accuracy", ascending=False, kind="stable")
    # of many, the best of each technique first: none vanishes
    turn = ordered.groupby("technique_label", sort=False, observed=True).cumcount()
    shown = ordered.assign(turn=turn).sort_values("turn", kind="stable").head(MOST_ROWS)
    rows = plain_rows(shown.sort_values("validation_accuracy"))
    tips = Tips()
    with style():
        canvas = Canvas(figsize=(6.2, 0.9 + 0.3 * len(rows)), layout="constrained")
        FigureCanvasSVG(canvas)
        axis = canvas.subplots()
        for place, row in enumerate(rows):
            look, found = (
                seen[row["technique_label"]],
                estimate_in(row, "validation_accuracy"),
            )
            if found.low is not None and found.high is not None:
                axis.plot([found.low, found.high], [place, place], color=look.color, linewidth=1.6)
            (point,) = axis.plot([row["validation_accuracy"]], [place], color=look.color,
                                 marker=look.marker, markersize=5.5, linestyle="none")  # fmt: skip
            tips.add(point, f"{with_context(row)}: {found.text(_three)}, {runs_in_words(found.n)}")
        axis.set_yticks(range(len(rows)), [_named(row) for row in rows])
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.set_xlabel("validation accuracy")
        svg = to_svg(canvas, tips)
    caption = (
        "Mean validation accuracy after the last epoch of the runs that completed, with its 95 % "
        "t interval over seeds."
    ) + left_out(len(rows), len(known), "conditions, of each technique the highest")
    return Figure(KEY, "Accuracy of each condition", caption, known, svg)


def _named(row: Mapping[str, Any]) -> str:
    ranks = "1 rank" if row["gpus"] == 1 else f"{row['gpus']} ranks"
    name = with_context(dict(row))
    return f"{name if len(name) <= 40 else name[:39] + '…'}, {ranks}"
