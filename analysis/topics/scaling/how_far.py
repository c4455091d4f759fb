"""How far does it scale, and are more ranks worth it? Efficiency against ranks with its interval,
what each added rank gave, and in the figure what a model says of the next doublings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, hidden, n_of, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import Column, Estimate, Row, estimate_in, frame, plain_rows
from analysis.topics.names import mode, ranks_text, ratio_text, with_context
from analysis.topics.scaling.efficiency import every_series, throughputs
from analysis.topics.scaling.loss import PARTS, SAMPLED_LONGER, UNDECIDED, largest_cause, losses
from analysis.topics.scaling.more_ranks import ahead, uneven
from analysis.topics.scaling.series import Series
from analysis.topics.topic import MOST_CHARACTERS, Answer, Rows, Sweep, Topic, varies

MOST_PANELS = 4
#: Of a y axis: an interval that is wider says no more.
_HIGHEST = 1.6
#: Efficiency below this is worth a word.
_GOOD = 0.9
#: What an added rank must at least give, as a share of what one gave before.
WORTH_IT = 0.7
_REST = "the table has {} more series"
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
        "Throughput per rank, relative to that of the smallest measured rank count, with its 95 % "
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
    panels = ([mode(row).replace(",", " scaling,", 1), row["context"] if several else ""]
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


def answers(of: Sweep) -> Iterable[Answer]:
    """Efficiency and its largest loss, or why there is none; then what each added rank gave."""
    if not of.made(every_series):
        return
    main, *others = of.made(every_series)
    known = main.known
    more = [_below(known), _cause(of, known[-1])] if known[1:] else []
    if known[2:]:
        times = fmt.significant(known[-1]["speedup"])
        more.insert(0, f"that is {times} times the throughput of {ranks_text(known[0]['gpus'])}")
    verdict, *more = _fitting(_reached(main), [_reached(one)[0] for one in others], more)
    yield Answer("scaling", "How far does it scale?", fmt.sentence(verdict), "scaling",
                 "efficiency", more)  # fmt: skip
    if known[1:]:
        worth, *beyond = _worth_it(main)
        also = [_worth_it(one)[0] for one in others if one.known[1:]]
        verdict, *more = _fitting([worth], also, beyond)
        yield Answer("more_ranks", "Are more ranks worth it?", fmt.sentence(verdict), "scaling",
                     "gains", more)  # fmt: skip


def _fitting(first: Sequence[str], others: Sequence[str], more: Sequence[str]) -> list[str]:
    """``first``, then sentences on other series and ``more`` as an answer has room for them."""
    said = [*first]

    def room(*texts: str) -> bool:
        return sum(len(text) + 2 for text in (*said, *texts)) <= MOST_CHARACTERS

    for text in others:
        said += [text] if room(text, _REST) else []
    if left := len(first) + len(others) - len(said):
        said.append(_REST.format(left))
    for text in filter(None, more):
        said += [text] if room(text) else []
    return said


def _reached(series: Series) -> list[str]:
    """The efficiency at the most ranks, then what is missing; or that alone."""
    if not series.known[1:]:
        return series.gaps
    first, *_, last = series.known
    relative = f" relative to {ranks_text(first['gpus'])}" if first["gpus"] > 1 else ""
    relative += f" (planned baseline: {series.baseline})" * (series.baseline < first["gpus"])
    who = series.name or last["technique_label"]
    interval = estimate_in(last, "efficiency").text(fmt.TWO)
    reached = f"at {ranks_text(last['gpus'])}, {who} reaches an efficiency of {interval}"
    return [f"{reached}{relative}, {fmt.runs(last['n'])}", *series.gaps]


def _below(known: Rows) -> str:
    """From which count on the efficiency of one series is shown to stay low; empty where it is
    not."""
    low = [*takewhile(lambda row: (row["efficiency_high"] or 1) < _GOOD, reversed(known))]
    return f"its efficiency is below {_GOOD} from {low[-1]['gpus']} ranks on" if low else ""


def _cause(of: Sweep, row: Row) -> str:
    """The largest loss of this row of the scaling table, as a sentence."""
    place = row["series"], row["gpus"]
    loss = next((r for r in of.rows(losses) if (r["series"], r["gpus"]) == place), None)
    if loss is None or loss["lost_low"] is None:
        return ""
    if why := of.made(uneven).get(place):
        return why
    cause = largest_cause(loss)
    if cause.startswith((UNDECIDED, PARTS["rest"])) or (cause and loss["why"] == SAMPLED_LONGER):
        return "no single measured part explains the loss"
    return f"the main loss is {cause}" if cause else ""


def _worth_it(series: Series) -> list[str]:
    """Whether added ranks are shown to be worth it, from the ends of the intervals; then what those
    beyond gave."""
    steps = [*pairwise(series.known)]
    paid = len([*takewhile(lambda step: (step[1]["marginal_low"] or 0) >= WORTH_IT, steps)])
    fewer, row = steps[max(paid - 1, 0)]
    first, last, speed = fewer["gpus"], row["gpus"], estimate_in(row, "speedup")
    who = "the second rank" if (first, last) == (1, 2) else f"each rank from {first} to {last}"
    share = "one rank's throughput" if first == 1 else "the throughput that a rank had before"
    gives = f"{who} adds {_percent(row)} of {share} (required: {fmt.percent(WORTH_IT)})"
    if paid:
        upto = f", up to {last} ranks" if steps[1:] else ""
        verdict = f"yes{upto}{series.whose}: {gives}"
    elif speed.low is None or speed.high is None:
        verdict = f"untested{series.whose}: {gives}, without an interval"
    elif speed.low <= 1:
        are = "are slower" if speed.high < 1 else "are not shown to be faster"
        ranks, than = "two" if last == 2 else last, "one" if first == 1 else first
        verdict = f"{ranks} ranks{series.whose} {are}: {speed.text(ratio_text)} times {than}"
    else:
        no = "no" if (row["marginal_high"] or 1) < WORTH_IT else "undecided"
        verdict = f"{no}{series.whose}: {gives}"
    beyond = fmt.some([_gain(*step) for step in steps[max(paid, 1) :]])
    return [verdict, f"each added rank gives {beyond}" if beyond else ""]


def _gain(fewer: Row, row: Row) -> str:
    nodes = f" ({fewer['nodes']} to {row['nodes']} nodes)" if fewer["nodes"] != row["nodes"] else ""
    return f"{_percent(row)} from {fewer['gpus']} to {row['gpus']}{nodes}"


def _percent(row: Row) -> str:
    """84 % (79 to 89 %)."""
    return estimate_in(row, "marginal").text(fmt.percent).replace(" % to ", " to ")


TOPIC = Topic(plots=(figure,), tables=(throughputs,), answers=(answers,), asks=varies("gpus"))
