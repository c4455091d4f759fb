"""Figure of where a steady step goes: its parts, for each condition or rank count."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from analysis.figures import GRID, PALETTE, Figure, Look, Tips, hidden, left_out, style, to_svg
from analysis.table import Column, frame, joined, plain_rows, significant
from analysis.topics.scaling.cause import PARTS as WORDS
from analysis.topics.topic import with_context

KEY, TITLE = "step_parts", "Where a step goes"
MOST_ROWS = 12
_SEEN = 1e-3  # milliseconds: less is rounding
#: Part -> (its words, colour); in the order in which a step has them.
PARTS = {
    "input": (WORDS["input"], PALETTE[4]),
    "compute": ("forward and backward pass", PALETTE[0]),
    "update": ("update", PALETTE[5]),
    "exposed": (WORDS["communication"], PALETTE[1]),
    "rest": (WORDS["rest"], GRID),
}
#: Part that records may lack -> part that then holds it.
_WITHIN = {"update": "compute", "exposed": "rest"}
_WIDE = 36  # characters of a name on one line
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
    tips = Tips()
    names = list(dict.fromkeys(data["name"]))
    with style():
        shown = [textwrap.fill(name, _WIDE, max_lines=3, placeholder=" …") for name in names]
        lines = max(name.count("\n") + 1 for name in shown)
        high = max(0.3, 0.16 * lines)
        canvas = Canvas(figsize=(6.2, 1.3 + high * len(names)), layout="constrained")
        FigureCanvasSVG(canvas)
        axis = canvas.subplots()
        for place, name in enumerate(reversed(names)):
            _draw(axis, place, known[known["name"] == name], tips)
        axis.set_yticks(range(len(names)), list(reversed(shown)))
        axis.set_xlabel("milliseconds of a step")
        drawn = [part for part in PARTS if (known.loc[known["part"] == part, "milliseconds"]).any()]
        canvas.legend(
            [Patch(color=PARTS[part][1]) for part in drawn], [PARTS[part][0] for part in drawn],
            loc="outside lower center", ncols=2, fontsize=8.5,
        )  # fmt: skip
        svg = to_svg(canvas, tips)
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


def _draw(axis: Any, place: int, own: pd.DataFrame, tips: Tips) -> None:
    left, step = 0.0, own["milliseconds"].sum()
    for row in plain_rows(own):
        (words, colour), wide = PARTS[row["part"]], row["milliseconds"]
        (bar,) = axis.barh([place], [wide], left=left if wide > 0 else 0, height=0.62, color=colour)
        left += max(wide, 0)
        tips.add(bar, f"{row['name']}: {words} {significant(wide)} ms, {100 * wide / step:.0f} %")


def _unknown(data: pd.DataFrame) -> list[str]:
    """Sentences: where the parts are that some condition lacks."""
    lacking = data[data["milliseconds"].isna()]
    said = []
    for part, own in lacking.groupby("part", sort=False)["name"]:
        whose = "" if len(own) == data["name"].nunique() else f" for {'; '.join(own)}"
        words, other = (PARTS[name][0] for name in (str(part), _WITHIN[str(part)]))
        said.append(f"Not known{whose}: {words}; it is in the bar '{other}'.")
    return said


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
    several = {name: rows[name].nunique() > 1 for name in ("gpus", "global_batch")}
    parts = []
    for row in plain_rows(rows):
        known = {
            "input": row["input_s"],
            "compute": row["compute_s"] - (row["update_s"] or 0.0),
            "update": row["update_s"],
            "exposed": row["exposed_s"],
        }
        known["rest"] = row["step_s"] - sum(value or 0.0 for value in known.values())
        name = with_context(row)
        ranks = "1 rank" if row["gpus"] == 1 else f"{row['gpus']} ranks"
        name += f", {ranks}" if several["gpus"] else ""
        name += f", batch {row['global_batch']:,}" if several["global_batch"] else ""
        parts += [
            {"name": name, "part": part, "milliseconds": None if value is None else 1000 * value}
            for part, value in known.items()
        ]
    return frame(parts, COLUMNS)
