"""Figure of efficiency against ranks: what is measured, with its interval, and what a model says of
the next doublings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.figures import Figure, Look, hidden, n_of, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import Column, Estimate, number, plain_rows, runs_in_words, types
from analysis.topics.topic import mode, ranks_text, with_context

KEY, TITLE = "efficiency", "Efficiency against ranks"
MOST_PANELS = 4
LEVELS = (("ideal", 1.0), ("0.9", 0.9))
#: Of a y axis: an interval that is wider says no more.
_HIGHEST = 1.6
COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("kind", "string"), Column("technique_label", "string"),
    Column("context", "string"), Column("series", "Int64"), Column("gpus", "Int64"),
    Column("nodes", "string"), Column("n", "Int64"), Column("efficiency"),
    Column("efficiency_low"), Column("efficiency_high"),
)  # fmt: skip


def figure(scaling: pd.DataFrame, ahead: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """A panel per scaling mode, batch and whatever else differs.

    Args:
        scaling: the table of efficiency.py.
        ahead: the table of forecasts.py.
        seen: look of each technique that is drawn.

    Returns:
        None where no series of these has an efficiency on several rank counts.
    """
    data = numbers(scaling, ahead)
    shown = data[data["technique_label"].isin(list(seen))]
    panels, more = panels_of(shown, MOST_PANELS, "panels; the CSV has all")
    if not panels:
        return None
    borders = {name: ("several nodes", at) for name, own in panels.items() if (at := border(own))}
    drawn = shown[shown["panel"].isin(list(panels))]
    ends = drawn[["efficiency", "efficiency_low", "efficiency_high"]]
    low = max(0.0, math.floor(10 * ends.min().min() - 1) / 10)
    high = min(_HIGHEST, max(1.1, ends.max().max() + 0.02))
    svg = lines(
        {name: [*_lines(own, seen)] for name, own in panels.items()},
        Axis("ranks", "octaves"), Axis("efficiency", low=low, high=high),
        levels=LEVELS, borders=borders,
    )  # fmt: skip
    caption = _caption(drawn, borders=bool(borders))
    caption += " The axis does not begin at 0." if low else ""
    caption += more
    return Figure(KEY, TITLE, caption + hidden(seen, data["technique_label"]), data, svg)


def numbers(scaling: pd.DataFrame, ahead: pd.DataFrame) -> pd.DataFrame:
    """A row per series and rank count with an efficiency, then per count of a forecast, of series
    with two rank counts."""
    known = scaling[scaling["efficiency"].notna()].assign(kind="measured")
    known = known[known.groupby("series")["gpus"].transform("nunique") > 1]
    further = ahead[ahead["efficiency"].notna() & ahead["series"].isin(set(known["series"]))]
    several = bool((known.groupby("technique_label")["context"].nunique() > 1).any())
    parts, wanted = [], types(COLUMNS)
    for part in (known, further.assign(kind="forecast", n=None)):
        panels = [_panel(row, several=several) for row in plain_rows(part)]
        parts.append(part.assign(panel=panels).reindex(columns=list(wanted)).astype(wanted))
    return pd.concat(parts, ignore_index=True)


def _panel(row: Mapping[str, Any], *, several: bool) -> str:
    scaling = mode(row).replace(",", " scaling,")
    return f"{scaling}\n{row['context']}" if several and row["context"] else scaling


def border(panel: pd.DataFrame) -> float | None:
    """Rank count between those on one node and those on several; None where there is none."""
    measured = panel[panel["nodes"].notna()]
    one = measured["nodes"] == "1"
    if one.all() or not one.any() or measured.loc[~one, "gpus"].min() <= (
        last := int(measured.loc[one, "gpus"].max())
    ):  # fmt: skip
        return None
    return float((last * measured.loc[~one, "gpus"].min()) ** 0.5)


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    for label, look in seen.items():
        for _, own in panel[panel["technique_label"] == label].groupby("series", sort=False):
            measured, ahead = (own[own["kind"] == kind] for kind in ("measured", "forecast"))
            named = label if len(ahead) == 0 else ""
            yield _line(measured, look, named)
            if len(ahead):
                dashed = replace(look, dashes=(0, (4, 2)))
                onward = pd.concat([measured.tail(1), ahead])
                hollow = (onward["kind"] == "forecast").tolist()
                yield replace(_line(onward, dashed, label), hollow=hollow, bars=False)


def _line(rows: pd.DataFrame, look: Look, name: str) -> Line:
    return Line(
        rows["gpus"], rows["efficiency"], look, name, rows["efficiency_low"],
        rows["efficiency_high"], bars=True, tips=[_tip(row) for row in plain_rows(rows)],
    )  # fmt: skip


def _tip(row: Mapping[str, Any]) -> str:
    found = Estimate(*(row[f"efficiency{end}"] for end in ("", "_low", "_high")))
    n = "forecast" if row["kind"] == "forecast" else runs_in_words(row["n"])
    return f"{with_context(dict(row))}, {ranks_text(row['gpus'])}: {found.text(number(2))}, {n}"


def _caption(drawn: pd.DataFrame, *, borders: bool) -> str:
    n = n_of(drawn.loc[drawn["kind"] == "measured", "n"])
    text = (
        "Throughput against the smallest rank count's in proportion to ranks, with its 95 % "
        "interval, which holds the spread of that baseline "
        f"({n} completed runs). "
        "Dotted: 1 and 0.9."
    )
    if borders:
        text += " Dashed upright: from here on, ranks are on several nodes."
    if (drawn["kind"] == "forecast").any():
        text += " Dashed, hollow: a model's forecast with its 95 % interval."
    return text
