"""Figure of the best learning rate against the global batch, beside the square root and the linear
rule, whose claim it tests."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import GRID, Figure, Look, left_out, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.records.labels import without_batch
from analysis.table import plain_rows
from analysis.topics.names import place_namer

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
    drawn = [line for name, look in seen.items()
             for line in _lines(name, data[data["line"] == name], look)]  # fmt: skip
    svg = lines({"": drawn}, Axis("global batch", "octaves"),
                Axis("best base learning rate", "decades"))  # fmt: skip
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
    name = place_namer(best.assign(global_batch=0))
    names = [name(row | {"context": without_batch(row["context"] or "")})
             for row in plain_rows(best)]  # fmt: skip
    best = best.assign(line=names).sort_values("accuracy", ascending=False, kind="stable")
    best = best.drop_duplicates(["line", "global_batch"])
    batches = best.groupby("line")["global_batch"].transform("nunique")
    shown = ["line", "global_batch", "base_lr", "tied_min", "tied_max", "accuracy", "n",
             "best_note"]  # fmt: skip
    return best.loc[batches > 1, shown].sort_values("global_batch", kind="stable")


def _lines(name: str, own: pd.DataFrame, look: Look) -> Iterable[Line]:
    batches, found = (own[column].to_numpy(float) for column in ("global_batch", "base_lr"))
    ends = np.array([batches[0], batches[-1]])
    for rule, (power, dashes) in _RULES.items():
        yield Line(ends, found[0] * (ends / batches[0]) ** power, Look(GRID, "", dashes), rule,
                   width=0.9, size=0)  # fmt: skip
    tips = [f"{name}, batch {fmt.count(row['global_batch'])}: {row['base_lr']:g}"
            for row in plain_rows(own)]  # fmt: skip
    yield Line(batches, found, look, name, own["tied_min"], own["tied_max"], bars=True, size=5.5,
               hollow=own["best_note"].notna().tolist(), tips=tips)  # fmt: skip
