"""Figure of what a step loses: the parts that lead from the ideal step to the measured one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from analysis.figures import PART_PALETTE, Figure, left_out, n_of
from analysis.plots.rows import Bar, bars
from analysis.table import (
    Row,
    count,
    estimate_in,
    plain_rows,
    runs_in_words,
    significant,
)
from analysis.topics.names import with_context
from analysis.topics.scaling.cause import MODELLED, PARTS, largest_cause
from analysis.topics.scaling.loss import Loss, losses, lost
from analysis.topics.scaling.step_figure import PARTS as OF_A_STEP
from analysis.topics.topic import Topic, reference_technique

KEY = "waterfall"
MOST_PANELS = 8
_COMMUNICATION = ("communication", "exposed", "bandwidth", "latency")
COLOURS = {
    **{part: OF_A_STEP[part][1] for part in ("input", "compute", "rest")},
    **dict.fromkeys(_COMMUNICATION, OF_A_STEP["exposed"][1]),
    "waiting": PART_PALETTE[3],
    "negotiation": PART_PALETTE[2],
}
#: Shorter than any clock shows: what rounding leaves of a difference.
_NOTHING_MS = 1e-6
IDEAL, MEASURED = "ideal step", "measured step"


def figure(found: Loss, reference: str | None = None) -> Figure | None:
    """A panel for each series at its largest rank count, the reference's first; None where no parts
    are known."""
    known = found.table.data.dropna(subset="lost").sort_values("gpus", kind="stable")
    largest = known.drop_duplicates("series", keep="last")
    other = largest["technique"] != reference
    largest = largest.assign(first=~other).sort_values(["gpus", "first", "lost"], ascending=False)
    shown = largest.head(MOST_PANELS)
    if not len(shown):
        return None
    data = found.parts.merge(shown[["series", "gpus", "step_s", "ideal_s"]])
    order = [part for part in PARTS if (data["part"] == part).any()]
    rows = [row | {"ranks": f"{row['gpus']} {found.what}"} for row in plain_rows(shown)]
    panels = {
        f"{with_context(row)}\n{row['ranks']}, batch {count(row['global_batch'])}":
            [*_bars(row, plain_rows(data[data["series"] == row["series"]]))]
        for row in rows
    }  # fmt: skip
    svg = bars(panels, [IDEAL, *(PARTS[part] for part in order), MEASURED], "ms", joined=True)
    return Figure(KEY, _title(rows), _caption(shown, order, len(largest)), data, svg)


def _bars(row: Row, parts: Sequence[Row]) -> Iterable[Bar]:
    ideal, step = 1000 * row["ideal_s"], 1000 * row["step_s"]
    yield Bar(IDEAL, ideal, 0, said=significant(ideal))
    at = ideal
    for own in parts:
        wide, part = 1000 * own["seconds"], own["part"]
        yield Bar(PARTS[part], at, wide, COLOURS[part],
                  f"{with_context(row)}, {row['ranks']}: {_said(own)}", _change(wide),
                  "////" if part in MODELLED else None)  # fmt: skip
        at += wide
    yield Bar(MEASURED, step, 0, said=significant(step))


def _change(milliseconds: float) -> str:
    if abs(milliseconds) < _NOTHING_MS:
        return "0"
    return ("+" if milliseconds > 0 else "") + significant(milliseconds)


def _said(own: Row) -> str:
    text = f"{PARTS[own['part']]} {_change(1000 * own['seconds'])} ms"
    if own["low"] is not None:
        text += f" ({_change(1000 * own['low'])} to {_change(1000 * own['high'])})"
    return f"{text}, {100 * own['share']:+.1f} % of the ideal step, {runs_in_words(own['n'])}"


def _title(rows: Sequence[Row]) -> str:
    """Of the first panel."""
    first = rows[0]
    whose = f" of {with_context(first)}" if len(rows) > 1 else ""
    step, cause = f"On {first['ranks']} a step{whose} is", largest_cause(first)
    if cause is None or first["lost_low"] is None:
        return f"{step} not shown to be longer than the ideal one"
    part = f"largest part: {PARTS[cause.part]}" if cause.decided else (
        "which part is largest is undecided"
    )  # fmt: skip
    longer = estimate_in(first, "lost").text(lambda share: significant(100 * share, 2))
    return f"{step} {longer} % longer than the ideal one; {part}"


def _caption(shown: pd.DataFrame, order: Sequence[str], total: int) -> str:
    text = (
        "What leads from the ideal step to the measured one, in milliseconds, at the largest rank "
        f"count of each condition: means over its completed runs ({n_of(shown['n'])}). "
        "A bar to the left saves time. The ideal "
        "step is that of the smallest rank count, for the images that a rank has. Axes do not "
        "begin at 0."
    )
    if MODELLED & set(order):
        text += " Hatched: measured communication, divided by a model of the network."
    return text + left_out(len(shown), total, "conditions, those of the most ranks, of these the "
                           "reference and the largest losses")  # fmt: skip


TOPIC = Topic(
    tables=(losses,), plots=(lambda of: figure(of.made(lost), reference_technique(of.order)),)
)
