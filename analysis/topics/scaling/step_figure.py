"""Figure of where a steady step goes: its parts, for each condition or rank count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from analysis.plots.figure import GRID, PART_PALETTE, Figure, Look, hidden, left_out
from analysis.plots.rows import Bar, bars
from analysis.table import Column, joined, plain_rows, significant, types
from analysis.topics.names import place_namer
from analysis.topics.scaling.loss import PARTS as WORDS
from analysis.topics.topic import Topic

KEY, TITLE = "step_parts", "Where a step goes"
MOST_ROWS = 12
_SEEN = 1e-3  # milliseconds: less is rounding
#: Part -> (its words, colour); in the order in which a step has them.
PARTS = {
    "input": (WORDS["input"], PART_PALETTE[4]),
    "compute": ("forward and backward pass", PART_PALETTE[0]),
    "update": ("update", PART_PALETTE[5]),
    "exposed": (WORDS["communication"], PART_PALETTE[1]),
    "rest": (WORDS["rest"], GRID),
}
#: Part that records may lack -> part that then holds it.
_WITHIN = {"update": "compute", "exposed": "rest"}
_SECONDS = ["step_s", "input_s", "compute_s", "update_s", "exposed_s"]
COLUMNS: tuple[Column, ...] = (
    Column("name", "string"),
    Column("part", "string"),
    Column("milliseconds", description="null where some run of the condition lacks it"),
)


def figure(runs: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """Mean over completed runs of each condition's steady step, at the largest rank counts;
    ``seen``: the look of each technique that is drawn. None where no record of these has its
    parts."""
    data = numbers(runs[runs["technique_label"].isin(list(seen))])
    if not len(data):
        return None
    known = data.dropna()
    names = list(dict.fromkeys(data["name"]))
    drawn = [part for part in PARTS if (known.loc[known["part"] == part, "milliseconds"]).any()]
    svg = bars(
        {"": [bar for name in names for bar in _bars(known[known["name"] == name])]}, names,
        "milliseconds of a step", key=dict(PARTS[part] for part in drawn),
    )  # fmt: skip
    caption = joined([
        "Steady-state step of a rank, mean over ranks and completed runs. Communication is what "
        "the backward pass does not hide.",
        "Left of 0: by how much less the step takes than its parts, which are those of sampled "
        "steps." if (known["milliseconds"] < -_SEEN).any() else "",
        *_unknown(data),
    ])  # fmt: skip
    caption += left_out(len(names), _measured(runs)["condition"].nunique(), "conditions")
    caption += hidden(seen, _measured(runs)["technique_label"])
    return Figure(KEY, TITLE, caption, data, svg)


def _bars(own: pd.DataFrame) -> Iterable[Bar]:
    left, step = 0.0, own["milliseconds"].sum()
    for row in plain_rows(own):
        (words, colour), wide = PARTS[row["part"]], row["milliseconds"]
        tip = f"{row['name']}: {words} {significant(wide)} ms, {100 * wide / step:.0f} %"
        yield Bar(row["name"], left if wide > 0 else 0, wide, colour, tip)
        left += max(wide, 0)


def _unknown(data: pd.DataFrame) -> list[str]:
    """Sentences: where the parts are that some condition lacks."""
    return [
        f"Where it is not known, {PARTS[part][0]} is in the bar '{PARTS[_WITHIN[part]][0]}'."
        for part in data.loc[data["milliseconds"].isna(), "part"].unique()
    ]


def _measured(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[(runs["status"] == "completed") & runs["step_s"].notna()]


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per condition and part, in milliseconds; known parts add up to the step."""
    by_condition = _measured(runs).groupby("condition", sort=False, observed=True)
    means = by_condition[_SECONDS].mean().astype("Float64")
    # parts of some runs do not add up to the step of all
    means = means.where(by_condition[_SECONDS].count().eq(by_condition.size(), axis=0))
    about = by_condition[["technique_label", "context", "gpus", "global_batch"]].first()
    rows = about.join(means).sort_values(["gpus", "global_batch"], kind="stable").tail(MOST_ROWS)
    parts = pd.DataFrame({
        "input": rows["input_s"], "compute": rows["compute_s"] - rows["update_s"].fillna(0),
        "update": rows["update_s"], "exposed": rows["exposed_s"],
    })  # fmt: skip
    known = 1000 * parts.assign(rest=rows["step_s"] - parts.sum(axis=1))
    names = [*map(place_namer(rows), plain_rows(rows))]
    found = known.assign(name=names).melt("name", var_name="part", value_name="milliseconds")
    return found.astype(types(COLUMNS))


TOPIC = Topic(plots=(lambda of: figure(of.runs, of.seen),))
