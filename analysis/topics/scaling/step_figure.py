"""Figure of where a steady step goes: its parts, for each condition and rank count."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis import fmt
from analysis.plots.figure import GRID, PART_PALETTE, Figure, hidden, left_out
from analysis.plots.rows import Bar, bars
from analysis.table import Row, plain_rows
from analysis.topics.names import place_namer
from analysis.topics.scaling.loss import PARTS as WORDS
from analysis.topics.scaling.loss import losses, parts_of, timed
from analysis.topics.scaling.series import by_series
from analysis.topics.topic import Sweep, Topic

MOST_ROWS = 12
#: What the parts may exceed the step by, as a share of it.
MOST_OVER = 0.1
#: Part -> (its words, colour); in the order in which a step has them.
PARTS = {
    "input": (WORDS["input"], PART_PALETTE[4]),
    "compute": (WORDS["compute"], PART_PALETTE[0]),
    "update": ("update", PART_PALETTE[5]),
    "communication": (WORDS["communication"], PART_PALETTE[1]),
    "exposed": (WORDS["exposed"], PART_PALETTE[1]),
    "waiting": (WORDS["waiting"], PART_PALETTE[3]),
    "negotiation": (WORDS["negotiation"], PART_PALETTE[2]),
    "rest": (WORDS["rest"], GRID),
}
_DECIMALS = 6  # of milliseconds: less is the rounding of a sum


def figure(of: Sweep) -> Figure | None:
    """Mean over completed runs of each condition's steady step; None where no record of the
    techniques that are drawn has its parts."""
    every = timed(of.made(by_series))
    runs = every[every["technique_label"].isin(list(of.seen))]
    if not len(runs):
        return None
    data = numbers(runs)
    fits = data["rest"] >= -MOST_OVER * data[[*PARTS]].sum(axis=1)
    rows, known = plain_rows(data[fits]), data.loc[fits, [*PARTS]]
    caption = "" if fits.all() else (
        f"Not drawn: {fmt.counted(int((~fits).sum()), 'condition')} whose parts do not fit the "
        "step. Parts are measured in sampled steps, and these take longer than others by more "
        f"than {fmt.percent(MOST_OVER)}."
    )  # fmt: skip
    if not rows:
        return Figure("step_parts", "Where a step goes", caption, data, None)
    key = dict(PARTS[part] for part in PARTS if (known[part] > 0).any())
    svg = bars([bar for row in rows for bar in _bars(row)], [row["name"] for row in rows],
               "milliseconds of a step", key)  # fmt: skip
    within = {
        "update": (known["update"].isna(), "compute"),
        "exposed": (known["exposed"].isna() & known["communication"].isna(), "rest"),
    }
    caption = fmt.joined([
        "Steady-state step, mean over ranks and completed runs. Computing is that of the fastest "
        "rank; what the others compute longer is waiting. Communication is what the backward pass "
        "does not hide.",
        *(f"Bars without {PARTS[part][0]} have it within {PARTS[other][0]}."
          for part, (lacks, other) in within.items() if lacks.any()),
        caption,
    ])  # fmt: skip
    total = every.drop_duplicates(["series", "condition"])
    caption += left_out(len(data), len(total), "conditions")
    caption += hidden(of.seen, total["technique_label"])
    return Figure("step_parts", "Where a step goes", caption, data, svg)


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per condition, with the milliseconds of each part, null where some of its runs lacks
    it: known parts add up to the step. Of more rows than a figure has, those of the series with the
    most ranks, then the largest batches."""
    group = runs.groupby(["series", "condition"], sort=False).ngroup()
    update = runs["update_s"].astype(float)
    update = update.where(update.notna().groupby(group).transform("all"))
    parts = pd.DataFrame(parts_of(runs, group.to_numpy()), runs.index).assign(update=update)
    parts["compute"] -= update.fillna(0)
    means = (1000 * parts[[*PARTS]].groupby(group).mean()).round(_DECIMALS)
    rows = runs.assign(group=group).drop_duplicates("group").set_index("group").join(means)
    of = rows.groupby("series")
    most, batch = -of["gpus"].transform("max"), -of["global_batch"].transform("max")
    rows = rows.assign(most=most, batch=batch, fewer=-rows["gpus"])
    order = ["most", "batch", "series"]
    shown = rows.sort_values([*order, "fewer"]).head(MOST_ROWS).sort_values([*order, "gpus"])
    names = [*map(place_namer(shown), plain_rows(shown))]
    return shown.assign(name=names)[["name", *PARTS]].reset_index(drop=True)


def _bars(row: Row) -> Iterable[Bar]:
    name, left = row["name"], 0.0
    for part, (words, colour) in PARTS.items():
        if (wide := row[part] or 0) > 0:
            yield Bar(name, left, wide, colour, f"{name}: {words} {fmt.significant(wide)} ms")
            left += wide


TOPIC = Topic(tables=(losses,), plots=(figure,))
