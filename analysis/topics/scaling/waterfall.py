"""Figure of what a step loses: the parts that lead from the ideal step to the measured one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.figures import (
    GRID,
    INK,
    PALETTE,
    Figure,
    Tips,
    head,
    left_out,
    small_multiples,
    style,
    to_svg,
)
from analysis.table import Row, count, plain_rows, runs_in_words, significant
from analysis.topics.scaling.cause import MODELLED, PARTS, largest_cause
from analysis.topics.scaling.loss import Loss
from analysis.topics.scaling.step_figure import PARTS as OF_A_STEP
from analysis.topics.topic import with_context

KEY = "waterfall"
MOST_PANELS = 8
_COMMUNICATION = ("communication", "exposed", "bandwidth", "latency")
COLOURS = {
    **{part: OF_A_STEP[part][1] for part in ("input", "compute", "rest")},
    **dict.fromkeys(_COMMUNICATION, OF_A_STEP["exposed"][1]),
    "waiting": PALETTE[3],
    "negotiation": PALETTE[2],
}
IDEAL, MEASURED = "ideal step", "measured step"
_LABEL = 28  # characters of a line beside a bar
_ROW, _AROUND = 0.28, 0.9  # inches of a bar, and of what is around those of a panel


def figure(found: Loss) -> Figure | None:
    """A panel for each series at its largest rank count; None where no parts are known."""
    known = found.table.data.dropna(subset="lost").sort_values("gpus", kind="stable")
    largest = known.drop_duplicates("series", keep="last")
    largest = largest.sort_values(["gpus", "lost"], ascending=False)
    shown = largest.head(MOST_PANELS)
    if not len(shown):
        return None
    data = found.parts.merge(shown[["series", "gpus", "step_s", "ideal_s"]])
    order = [part for part in PARTS if (data["part"] == part).any()]
    rows, tips = plain_rows(shown), Tips()
    with style():
        canvas, axes = small_multiples(len(rows), 1, share_y=True)
        high = axes[0].get_gridspec().nrows * (_AROUND + _ROW * (len(order) + 2))
        canvas.set_size_inches(canvas.get_figwidth(), high)
        for axis, row in zip(axes, rows, strict=True):
            row["ranks"] = f"{row['gpus']} {found.what}"
            _draw(axis, row, plain_rows(data[data["series"] == row["series"]]), order, tips)
        labels = [IDEAL, *(PARTS[part] for part in order), MEASURED]
        axes[0].set_yticks(
            range(len(labels)), [textwrap.fill(text, _LABEL) for text in labels], fontsize=8
        )
        axes[0].set_ylim(len(labels) - 0.4, -0.6)  # shared by all panels
        svg = to_svg(canvas, tips)
    return Figure(KEY, _title(rows), _caption(shown, order, len(largest)), data, svg)


def _draw(axis: Any, row: Row, parts: Sequence[Row], order: Sequence[str], tips: Tips) -> None:
    ideal, step = 1000 * row["ideal_s"], 1000 * row["step_s"]
    at, ends, last = ideal, [ideal, step], 0
    bars = []
    for own in parts:
        place, wide = order.index(own["part"]) + 1, 1000 * own["seconds"]
        axis.plot([at, at], [last, place], color=GRID, linewidth=0.7)
        hatch = "////" if own["part"] in MODELLED else None
        (bar,) = axis.barh([place], [wide], left=at, height=0.62, color=COLOURS[own["part"]],
                           edgecolor=INK, linewidth=0, hatch=hatch)  # fmt: skip
        tips.add(bar, f"{with_context(row)}, {row['ranks']}: {_said(own)}")
        bars.append((place, min(at, at + wide), max(at, at + wide), wide))
        at, last = at + wide, place
        ends.append(at)
    axis.plot([at, at], [last, len(order) + 1], color=GRID, linewidth=0.7)
    span = max(ends) - min(ends) or 0.1 * ideal
    axis.set_xlim(min(ends) - 0.3 * span, max(ends) + 0.35 * span)
    for place, low, high, wide in bars:
        _write(axis, high if wide >= 0 else low, place, _change(wide), 1 if wide >= 0 else -1)
    for place, value in ((0, ideal), (len(order) + 1, step)):
        axis.plot([value], [place], color=INK, marker="|", markersize=11, markeredgewidth=2)
        _write(axis, value, place, significant(value), 1)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.locator_params(axis="x", nbins=4)
    axis.set_xlabel("ms")
    head(axis, f"{with_context(row)}\n{row['ranks']}, batch {count(row['global_batch'])}")


def _write(axis: Any, x: float, y: float, text: str, side: int) -> None:
    """Beside a bar: right of it (1) or left (-1)."""
    axis.annotate(text, (x, y), (4 * side, 0), textcoords="offset points", fontsize=8,
                  va="center", ha="left" if side > 0 else "right")  # fmt: skip


def _change(milliseconds: float) -> str:
    return ("+" if milliseconds > 0 else "") + significant(milliseconds)


def _said(own: Row) -> str:
    text = f"{PARTS[own['part']]} {_change(1000 * own['seconds'])} ms"
    if own["low"] is not None:
        text += f" ({_change(1000 * own['low'])} to {_change(1000 * own['high'])})"
    return f"{text}, {100 * own['share']:+.1f} % of the ideal step, {runs_in_words(own['n'])}"


def _title(rows: Sequence[Row]) -> str:
    """Of the first panel in which a loss is shown."""
    for row in rows:
        if cause := largest_cause(row):
            whose = f" of {with_context(row)}" if len(rows) > 1 else ""
            said = f"On {row['ranks']} a step{whose} is {significant(100 * row['lost'], 2)} %"
            part = f"largest part: {PARTS[cause.part]}" if cause.decided else (
                "which part is largest is not decided"
            )  # fmt: skip
            return f"{said} longer than the ideal one; {part}"
    return "No step is shown to be longer than the ideal one"


def _caption(shown: pd.DataFrame, order: Sequence[str], total: int) -> str:
    low, high = shown["n"].min(), shown["n"].max()
    text = (
        "What leads from the ideal step to the measured one, in milliseconds, at the largest rank "
        f"count of each condition: means over its completed runs (n = "
        f"{low if low == high else f'{low} to {high}'}). A bar to the left saves time. The ideal "
        "step is that of the smallest rank count, for the images that a rank has. Axes do not "
        "begin at 0."
    )
    if MODELLED & set(order):
        text += " Hatched: measured communication, divided by a model of the network."
    return text + left_out(len(shown), total, "conditions, of the most ranks and the largest loss")
