"""How far does it scale? Efficiency against ranks: what is measured, with its interval, and what a
model says of the next doublings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, hidden, n_of, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import Column, Estimate, Row, estimate_in, frame, plain_rows
from analysis.topics.names import mode, namer, ranks_text, with_context
from analysis.topics.scaling.efficiency import chosen, throughputs
from analysis.topics.scaling.loss import largest_cause, losses
from analysis.topics.scaling.more_ranks import ahead, uneven
from analysis.topics.topic import Answer, Rows, Sweep, Topic, varies

MOST_PANELS = 4
#: Of a y axis: an interval that is wider says no more.
_HIGHEST = 1.6
#: Efficiency below this is worth a word.
_GOOD = 0.9
COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("kind", "string"), Column("technique_label", "string"),
    Column("context", "string"), Column("series", "Int64"), Column("gpus", "Int64"),
    Column("nodes", "string"), Column("n", "Int64"), Column("efficiency"),
    Column("efficiency_low"), Column("efficiency_high"),
)  # fmt: skip


def figure(of: Sweep) -> Figure | None:
    """A panel per scaling mode, batch and whatever else differs; None where no series has an
    efficiency on several rank counts."""
    seen, data = of.seen, numbers(of.made(throughputs).data, of.made(ahead).data)
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
        levels=(("ideal", 1.0), ("0.9", 0.9)), borders=borders,
    )  # fmt: skip
    measured = drawn["kind"] == "measured"
    caption = fmt.joined([
        "Throughput per rank, relative to that of the smallest rank count, with its 95 % "
        f"interval ({n_of(drawn.loc[measured, 'n'])} completed runs). Dotted: 1 and 0.9.",
        "Dashed upright: from here on, ranks are on several nodes." if borders else "",
        "" if measured.all() else "Dashed, hollow: a model's forecast with its 95 % interval.",
    ])  # fmt: skip
    caption += more + hidden(seen, data["technique_label"])
    return Figure("efficiency", "Efficiency against ranks", caption, data, svg)


def numbers(scaling: pd.DataFrame, ahead: pd.DataFrame) -> pd.DataFrame:
    """A row per series and rank count with an efficiency, then per count of a forecast, of series
    with two rank counts."""
    known = scaling[scaling["efficiency"].notna()].assign(kind="measured")
    known = known[known.groupby("series")["gpus"].transform("nunique") > 1]
    further = ahead[ahead["efficiency"].notna() & ahead["series"].isin(set(known["series"]))]
    several = bool((known.groupby("technique_label")["context"].nunique() > 1).any())
    rows = [*plain_rows(known), *(row | {"kind": "forecast"} for row in plain_rows(further))]
    panels = ([mode(row).replace(",", " scaling,"), row["context"] if several else ""]
              for row in rows)  # fmt: skip
    made = (row | {"panel": fmt.joined(of, "\n")} for row, of in zip(rows, panels, strict=True))
    return frame([*made], COLUMNS)


def border(panel: pd.DataFrame) -> float | None:
    """Rank count between those on one node and those on several; None where there is none."""
    measured = panel[panel["nodes"].notna()]
    one = measured["nodes"] == "1"
    last, first = measured.loc[one, "gpus"].max(), measured.loc[~one, "gpus"].min()
    if pd.isna(last) or pd.isna(first) or first <= last:
        return None
    return float(last * first) ** 0.5


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    for label, look in seen.items():
        for _, own in panel[panel["technique_label"] == label].groupby("series", sort=False):
            ahead = own["kind"] == "forecast"
            yield _line(own[~ahead], look, "" if ahead.any() else label)
            if ahead.any():
                # from the last measured count on
                onward = own[ahead | ahead.shift(-1, fill_value=False)]
                hollow = ahead[onward.index].tolist()
                dashed = replace(look, dashes=(0, (4, 2)))
                yield replace(_line(onward, dashed, label), hollow=hollow, bars=False)


def _line(rows: pd.DataFrame, look: Look, name: str) -> Line:
    return Line(
        rows["gpus"], rows["efficiency"], look, name, rows["efficiency_low"],
        rows["efficiency_high"], bars=True, tips=[_tip(row) for row in plain_rows(rows)],
    )  # fmt: skip


def _tip(row: Row) -> str:
    found = Estimate(*(row[f"efficiency{end}"] for end in ("", "_low", "_high")))
    n = "forecast" if row["kind"] == "forecast" else fmt.runs(row["n"])
    return f"{with_context(row)}, {ranks_text(row['gpus'])}: {found.text(fmt.TWO)}, {n}"


def _how_far(of: Sweep) -> Iterable[Answer]:
    """Efficiency and its largest loss."""
    one, known = chosen(of)
    if one is None:
        return
    verdict = (
        f"at {ranks_text(one['gpus'])}, {namer(known)(one)} reaches an efficiency of "
        f"{estimate_in(one, 'efficiency').text(fmt.TWO)}, {fmt.runs(one['n'])}"
    )
    speedup, n0 = fmt.significant(one["speedup"]), ranks_text(one["n0"])
    times = f"that is {speedup} times the throughput of {n0}"
    low = _below([row for row in known if row["series"] == one["series"]])
    yield Answer("scaling", "How far does it scale?", fmt.sentence(verdict), "scaling",
                 "efficiency", [times, low, _cause(of, one)])  # fmt: skip


def _below(series: Rows) -> str:
    """From which count on the efficiency of one series is shown to stay low; empty where it is
    not."""
    low = [*takewhile(lambda row: (row["efficiency_high"] or 1) < _GOOD, reversed(series))]
    return f"its efficiency is below {_GOOD} from {low[-1]['gpus']} ranks on" if low else ""


def _cause(of: Sweep, row: Row) -> str:
    """The largest loss of this row of the scaling table, as a sentence."""
    place = row["series"], row["gpus"]
    loss = next((r for r in of.rows(losses) if (r["series"], r["gpus"]) == place), None)
    if loss is None or loss["lost"] is None:
        return ""
    if why := of.made(uneven).get(place):
        return why
    cause = largest_cause(loss)
    return f"largest cause of lost efficiency: {cause}" if cause else ""


TOPIC = Topic(
    tables=(throughputs,),
    plots=(figure,),
    answers=(_how_far,),
    asks=varies("gpus"),
)
