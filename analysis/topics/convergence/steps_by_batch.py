"""Figure of the steps to the target against the global batch: every run a dot, the fitted law."""

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
    looks,
    looks_of,
    octaves,
    sideways,
    small_multiples,
    style,
    to_svg,
)
from analysis.prediction.critical_batch import law
from analysis.table import (
    Column,
    Row,
    count,
    estimate_in,
    plain_rows,
    runs_in_words,
    types,
)
from analysis.topics.convergence.critical_batch import images
from analysis.topics.topic import with_context

KEY = "steps_by_batch"
MOST_PANELS, MOST_LINES = 4, 12
COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("kind", "string"), Column("technique", "string"),
    Column("cell_id", "string"), Column("status", "string"), Column("seed", "Int64"),
    Column("global_batch"), Column("base_lr"), Column("steps"), Column("met", "boolean"),
)  # fmt: skip
_SIDEWAYS = 0.04  # of an octave, between neighbours, so that no dot hides another
_POINTS = 40  # of the line of a law


def figure(found: pd.DataFrame, fitted: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """A panel per workload; ``found``: the points of critical_batch.py; ``fitted``: its table;
    ``seen``: the look of each technique that is drawn; after a search over rates, which labels
    there have, there are looks of their own. None where none of these has two batches."""
    if not len(fitted):
        return None
    data = numbers(found, fitted)
    labels = list(dict.fromkeys(data["technique"]))
    if searched := bool((found["rates"] > 1).any()):
        seen = looks(labels[:MOST_LINES])
    shown = data[data["technique"].isin(list(seen))]
    every = list(dict.fromkeys(shown["panel"]))
    panels = every[:MOST_PANELS]
    if not panels:
        return None
    shown = shown[shown["panel"].isin(panels)]
    there = looks_of(seen, shown)
    with style():
        canvas, axes = small_multiples(len(panels), len(there), share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, shown[shown["panel"] == panel], there)
            head(axis, panel)
        _scale_y(axes[0])
        axes[0].set_ylabel("steps to the target (log)")
        legend(canvas, there, _marks(shown))
        svg = to_svg(canvas)
    caption = _caption(shown) + left_out(len(panels), len(every), "panels; the CSV has all")
    caption += (
        left_out(len(seen), len(labels), "techniques, the first; the CSV has all")
        if searched
        else hidden(seen, labels)
    )
    return Figure(KEY, _title(fitted), caption, data, svg)


def numbers(found: pd.DataFrame, fitted: pd.DataFrame) -> pd.DataFrame:
    """A row per run, then per point of the line of each law."""
    panels = fitted.set_index("series")["context"]
    dots = found.assign(
        kind="run", technique=found["technique_label"], panel=found["series"].map(panels)
    )
    laws = plain_rows(fitted[fitted["critical_batch"].notna()])
    wanted = types(COLUMNS)
    parts = [
        part.reindex(columns=list(wanted)).astype(wanted) for part in (dots, *map(_line, laws))
    ]
    return pd.concat(parts, ignore_index=True)


def _line(row: Row) -> pd.DataFrame:
    batches = np.geomspace(row["batch_low"], row["batch_high"], _POINTS)
    return pd.DataFrame(
        {
            "panel": row["context"] or "",
            "kind": "law",
            "technique": row["technique_label"],
            "global_batch": batches,
            "steps": law(batches, row["steps_min"], row["critical_batch"]),
        }
    )


def _title(fitted: pd.DataFrame) -> str:
    known = plain_rows(fitted[fitted["critical_batch"].notna()].sort_values("critical_batch"))
    if not known:
        low, high = (count(fitted["batch_low"].min()), count(fitted["batch_high"].max()))
        return f"Steps to the target from batch {low} to {high}"
    ends = [f"{_short(row)} images with {with_context(row)}" for row in (known[0], known[-1])]
    if len(known) == 1:
        return f"The critical batch is {ends[0]}"
    return f"Critical batches go from {ends[0]} to {ends[1]}"


def _short(row: Row) -> str:
    """B_crit, or its bound."""
    found = estimate_in(row, "critical_batch")
    known = found.low is not None and found.high is not None
    return images(found.value) if known else found.text(images)


def _draw(axis: Any, data: pd.DataFrame, seen: Mapping[str, Look]) -> None:
    labels = [label for label in seen if (data["technique"] == label).any()]
    for place, label in enumerate(labels):
        look, own = seen[label], data[data["technique"] == label]
        shift = sideways(place, len(labels), _SIDEWAYS)
        law, runs = own[own["kind"] == "law"], own[own["kind"] == "run"]
        axis.plot(law["global_batch"].tolist(), law["steps"].tolist(), color=look.color,
                  linewidth=1.4, linestyle=look.dashes)  # fmt: skip
        # of thousands of runs many end with the same epoch
        for met, part in runs.drop_duplicates(["global_batch", "steps", "met"]).groupby("met"):
            axis.plot(
                [batch * shift for batch in part["global_batch"]], part["steps"].tolist(),
                color=look.color, marker=look.marker, markersize=4.5, alpha=0.85, linestyle="none",
                markerfacecolor=look.color if met else "none",
            )  # fmt: skip
    octaves(axis, data.loc[data["kind"] == "run", "global_batch"], "global batch")


def _scale_y(axis: Any) -> None:
    axis.set_yscale("log")
    decades(axis.yaxis, "{:,g}".format)


def _marks(data: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """What the legend says beside the techniques."""
    if data["met"].fillna(True).all():
        return {}
    return {"target not reached": {"marker": "o", "markerfacecolor": "none", "linestyle": "none",
                                   "markersize": 4.5}}  # fmt: skip


def _caption(data: pd.DataFrame) -> str:
    runs = data[data["kind"] == "run"]
    text = f"{runs_in_words(len(runs))}, one dot each; those of equal steps share one."
    if runs["technique"].nunique() > 1:
        text += " Dots are shifted sideways a little so that no technique hides another."
    if not runs["met"].all():
        text += " Hollow: the target was not reached within these steps, which the fit counts."
    if (data["kind"] == "law").any():
        text += " Lines: S(B) = S_min (1 + B_crit / B), fitted; the table has the intervals."
    return text + " Both axes are logarithmic."
