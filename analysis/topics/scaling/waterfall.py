"""Figure of what a step loses: the parts that lead from the ideal step to the measured one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from analysis.plots.figure import PART_PALETTE, Figure, left_out, n_of
from analysis.plots.rows import Bar, bars
from analysis.table import (
    Estimate,
    Row,
    Table,
    count,
    estimate_in,
    plain_rows,
    runs_in_words,
    signed_percent,
    significant,
)
from analysis.topics.names import with_context
from analysis.topics.scaling.loss import PARTS, largest_cause, losses
from analysis.topics.scaling.step_figure import PARTS as OF_A_STEP
from analysis.topics.topic import Topic, counted, reference_technique

KEY = "waterfall"
MOST_PANELS = 8
COLOURS = {
    **{part: OF_A_STEP[part][1] for part in ("input", "compute", "exposed", "rest")},
    "communication": OF_A_STEP["exposed"][1],
    "waiting": PART_PALETTE[3],
    "negotiation": PART_PALETTE[2],
}
IDEAL, MEASURED = "ideal step", "measured step"


def figure(losses: Table, what: str = "rank", reference: str | None = None) -> Figure | None:
    """A panel for each series at its largest rank count, the reference's first; None where no parts
    are known."""
    known = losses.data.dropna(subset="lost").sort_values("gpus", kind="stable")
    largest = known.drop_duplicates("series", keep="last")
    first = largest["technique"] == reference
    largest = largest.assign(first=first).sort_values(["gpus", "first", "lost"], ascending=False)
    shown = largest.head(MOST_PANELS)
    if not len(shown):
        return None
    rows = [row | {"ranks": counted(row["gpus"], what)} for row in plain_rows(shown)]
    order = [part for part in PARTS if shown[part].notna().any()]
    panels = {
        f"{with_context(row)}\n{row['ranks']}, batch {count(row['global_batch'])}":
            [*_bars(row, order)]
        for row in rows
    }  # fmt: skip
    svg = bars(panels, [IDEAL, *(PARTS[part] for part in order), MEASURED], "ms", joined=True)
    caption = (
        "What leads from the ideal step to the measured one, in milliseconds, at the largest rank "
        f"count of each condition: means over its completed runs ({n_of(shown['n'])}). A bar to "
        "the left saves time. The ideal step is that of the smallest rank count, for the images "
        "that a rank has. Axes do not begin at 0."
    ) + left_out(len(shown), len(largest), "conditions, those of the most ranks, of these the "
                 "reference and the largest losses")  # fmt: skip
    numbers = [{"condition": with_context(row), **{name: row[name] for name in _ABOUT}, **part}
               for row in rows for part in _parts(row, order)]  # fmt: skip
    return Figure(KEY, _title(rows), caption, pd.DataFrame(numbers), svg)


_ABOUT = ("series", "scaling", "gpus", "baseline_gpus", "n", "step_s", "ideal_s")


def _parts(row: Row, order: Sequence[str]) -> Iterable[Row]:
    """Those that are known: seconds, and the share of the ideal step with its interval."""
    for part in order:
        share = estimate_in(row, part)
        if share.value is not None:
            yield {"part": part, "seconds": row["ideal_s"] * share.value,
                   "share": share.value, "low": share.low, "high": share.high}  # fmt: skip


def _bars(row: Row, order: Sequence[str]) -> Iterable[Bar]:
    ideal, step = 1000 * row["ideal_s"], 1000 * row["step_s"]
    yield Bar(IDEAL, ideal, 0, said=significant(ideal))
    at = ideal
    for own in _parts(row, order):
        wide, part = 1000 * own["seconds"], own["part"]
        share = Estimate(own["share"], own["low"], own["high"]).text(signed_percent)
        tip = (f"{with_context(row)}, {row['ranks']}: {PARTS[part]} {_change(wide)} ms, {share} of "
               f"the ideal step, {runs_in_words(row['n'])}")  # fmt: skip
        yield Bar(PARTS[part], at, wide, COLOURS[part], tip, _change(wide))
        at += wide
    yield Bar(MEASURED, step, 0, said=significant(step))


def _change(milliseconds: float) -> str:
    return ("+" if milliseconds > 0 else "") + significant(milliseconds + 0.0)  # no -0


def _title(rows: Sequence[Row]) -> str:
    """Of the first panel."""
    first = rows[0]
    whose = f" of {with_context(first)}" if len(rows) > 1 else ""
    step, cause = f"On {first['ranks']} a step{whose} is", largest_cause(first)
    if cause is None or first["lost_low"] is None:
        return f"{step} not shown to be longer than the ideal one"
    longer = estimate_in(first, "lost").text(lambda share: significant(100 * share, 2))
    return f"{step} {longer} % longer than the ideal one; largest loss: {cause.text}"


TOPIC = Topic(
    tables=(losses,),
    plots=(lambda of: figure(of.made(losses), of.what, reference_technique(of.order)),),
)
