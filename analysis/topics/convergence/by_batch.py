"""Figure of the final accuracy against the global batch, or of each condition where there is one
batch: means with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from analysis.plots.canvas import shortened
from analysis.plots.figure import GREY, Figure, Look, hidden, left_out, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.plots.rows import Point, forest
from analysis.records.labels import without_batch
from analysis.table import Row, count, estimate_in, plain_rows, runs_in_words
from analysis.topics.names import ranks_text, with_context
from analysis.topics.topic import THREE

KEY = "accuracy_by_batch"
MOST_PANELS, MOST_ROWS = 4, 16
_MEANS = "Mean validation accuracy after the last epoch of the runs that completed"
_INTERVALS = ", with its 95 % t interval over seeds"


def figure(reached: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """``reached``: the table of conditions; ``seen``: the look of each technique drawn. None
    where no condition has an accuracy."""
    known = reached[reached["validation_accuracy"].notna()]
    more = hidden(seen, known["technique_label"])
    known = known[known["technique_label"].isin(list(seen))]
    if not len(known):
        return None
    several = known["global_batch"].nunique() > 1
    found = (_against_batch if several else _by_condition)(known, seen)
    return replace(found, caption=found.caption + more)


def _against_batch(known: pd.DataFrame, seen: Mapping[str, Look]) -> Figure:
    low, high = known["global_batch"].min(), known["global_batch"].max()
    # under weak scaling each rank count has one batch: lines then join rank counts
    several = known.groupby(["gpus", "epochs"])["global_batch"].nunique().max() > 1
    every = [own for _, own in known.groupby(["gpus", "epochs"] if several else ["epochs"])]
    drawn = every[-MOST_PANELS:]
    lengths = known["epochs"].nunique() > 1
    panels = {}
    for own in drawn:
        counts = sorted(set(own["gpus"]))
        name = ", ".join(map(str, counts)) + (" rank" if counts == [1] else " ranks")
        name += f", {own['epochs'].iloc[0]} epochs" if lengths else ""
        panels[name] = [*_lines(own, seen)]
    svg = lines(panels, Axis("global batch", "octaves"), Axis("validation accuracy"))
    n = n_of(pd.concat(drawn)["validation_accuracy_n"])
    grey = [f" Grey: the reference, {name}." for name, look in seen.items() if look.color == GREY]
    caption = f"{_means(known, ' as a band')} ({n}).{''.join(grey)}"
    caption += left_out(len(drawn), len(every), "panels, those of the most ranks")
    return Figure(KEY, f"Accuracy from batch {count(low)} to {count(high)}", caption, known, svg)


def _means(known: pd.DataFrame, drawn: str = "") -> str:
    """``drawn``: how intervals are."""
    some = known["validation_accuracy_low"].notna().any()
    return _MEANS + (_INTERVALS + drawn if some else "")


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    """What differs in more than the batch is no line."""
    contexts = panel["context"].map(without_batch)
    for label, look in seen.items():
        own = panel[panel["technique_label"] == label].sort_values("global_batch")
        by_context = own.groupby(contexts, sort=False)
        for context, line in by_context:
            yield Line(
                line["global_batch"], line["validation_accuracy"], look,
                f"{label}; {context}" if len(by_context) > 1 else label,
                line["validation_accuracy_low"], line["validation_accuracy_high"],
                tips=[f"{with_context(row)}, batch {count(row['global_batch'])}: {_told(row)}"
                      for row in plain_rows(line)],
            )  # fmt: skip


def _told(row: Row) -> str:
    found = estimate_in(row, "validation_accuracy")
    return f"{found.text(THREE)}, {runs_in_words(found.n)}"


def _by_condition(known: pd.DataFrame, seen: Mapping[str, Look]) -> Figure:
    ordered = known.sort_values("validation_accuracy", ascending=False, kind="stable")
    # of many, the best of each technique first: none vanishes
    turn = ordered.groupby("technique_label", sort=False, observed=True).cumcount()
    shown = ordered.assign(turn=turn).sort_values("turn", kind="stable").head(MOST_ROWS)
    rows = plain_rows(shown.sort_values("validation_accuracy"))
    points = [
        Point(f"{shortened(with_context(row), 40)}, {ranks_text(row['gpus'])}",
              *estimate_in(row, "validation_accuracy")[:3],
              replace(seen[row["technique_label"]], alpha=1), f"{with_context(row)}: {_told(row)}")
        for row in rows
    ]  # fmt: skip
    caption = f"{_means(known)}."
    caption += left_out(len(rows), len(known), "conditions, of each technique the highest")
    svg = forest(points, "validation accuracy")
    return Figure(KEY, "Accuracy of each condition", caption, known, svg)
