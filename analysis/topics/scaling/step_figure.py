"""Figure of where a steady step goes: its parts, for each condition or rank count."""

from __future__ import annotations

import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from analysis.figures import GRID, PALETTE, Figure, Tips, empty, left_out, style, to_svg
from analysis.table import significant
from analysis.topics.topic import with_context

KEY = "step_parts"
MOST_ROWS = 12
#: Part -> (its words, colour); in the order in which a step has them.
PARTS = {
    "input": ("waiting for input", PALETTE[4]),
    "compute": ("forward and backward pass", PALETTE[0]),
    "update": ("update", PALETTE[5]),
    "exposed": ("communication that nothing hides", PALETTE[1]),
    "rest": ("rest", GRID),
}


def figure(runs: pd.DataFrame) -> Figure:
    """Mean over completed runs of each condition's steady step, at the largest rank counts."""
    data = numbers(runs)
    title = "Where a step goes"
    if not len(data):
        return empty(KEY, title, "no record has the parts of a step", data)
    tips = Tips()
    names = list(dict.fromkeys(data["name"]))
    with style():
        canvas = Canvas(figsize=(6.2, 1.3 + 0.3 * len(names)), layout="constrained")
        FigureCanvasSVG(canvas)
        axis = canvas.subplots()
        for place, name in enumerate(reversed(names)):
            left, own = 0.0, data[data["name"] == name]
            for row in own.itertuples():
                if not row.milliseconds > 0:
                    continue
                (bar,) = axis.barh([place], [row.milliseconds], left=left, height=0.62,
                                   color=PARTS[row.part][1])  # fmt: skip
                left += row.milliseconds
                share = row.milliseconds / own["milliseconds"].sum()
                tips.add(bar, f"{name}: {PARTS[row.part][0]} {significant(row.milliseconds)} ms, "
                         f"{100 * share:.0f} %")  # fmt: skip
        axis.set_yticks(range(len(names)), list(reversed(names)))
        axis.set_xlabel("milliseconds of a step")
        drawn = [
            part for part in PARTS if (data.loc[data["part"] == part, "milliseconds"] > 0).any()
        ]
        canvas.legend(
            [Patch(color=PARTS[part][1]) for part in drawn], [PARTS[part][0] for part in drawn],
            loc="outside lower center", ncols=2, fontsize=8.5,
        )  # fmt: skip
        svg = to_svg(canvas, tips)
    caption = (
        "Steady-state step of a rank, mean over ranks and completed runs. Communication is what "
        "the backward pass does not hide, waiting for slower ranks included."
    ) + left_out(len(names), _measured(runs)["condition"].nunique(), "conditions")
    return Figure(KEY, title, caption, data, svg)


def _measured(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[(runs["status"] == "completed") & runs["step_s"].notna()]


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per condition and part, in milliseconds; parts add up to the step."""
    done = _measured(runs)
    columns = ["step_s", "input_s", "compute_s", "update_s", "exposed_s"]
    by_condition = done.groupby("condition", sort=False, observed=True)
    means = by_condition[columns].mean().astype("Float64")
    about = by_condition[["technique_label", "context", "gpus", "global_batch"]].first()
    rows = about.join(means).sort_values(["gpus", "global_batch"], kind="stable").tail(MOST_ROWS)
    several = {name: rows[name].nunique() > 1 for name in ("gpus", "global_batch")}
    parts = []
    for row in rows.to_dict("records"):
        update = row["update_s"] if pd.notna(row["update_s"]) else 0.0
        exposed = row["exposed_s"] if pd.notna(row["exposed_s"]) else 0.0
        known = {
            "input": row["input_s"],
            "compute": row["compute_s"] - update,
            "update": update,
            "exposed": exposed,
        }
        known["rest"] = row["step_s"] - sum(known.values())
        name = with_context({str(k): v for k, v in row.items()})
        ranks = "1 rank" if row["gpus"] == 1 else f"{row['gpus']} ranks"
        name += f", {ranks}" if several["gpus"] else ""
        name += f", batch {row['global_batch']:,}" if several["global_batch"] else ""
        parts += [{"name": name, "part": part, "milliseconds": 1000 * float(value)}
                  for part, value in known.items()]  # fmt: skip
    return pd.DataFrame(parts, columns=["name", "part", "milliseconds"])
