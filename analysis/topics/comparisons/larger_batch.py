"""What a technique keeps of its accuracy when the batch grows: smallest against largest batch.

Between these two scales of one technique and workload nothing but the batch is meant to differ, and
what makes it (ranks, images per rank, accumulated batches). Both are those of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.records.frames import in_order
from analysis.records.labels import without_batch
from analysis.table import Column, Row, Table, estimate_in, estimates_as, frame
from analysis.topics.comparisons.arms import (
    ABOUT,
    CALLED,
    SERIES,
    ArmPairs,
    accuracies,
    arms,
    of_workload,
    runs_text,
)
from analysis.topics.comparisons.contrast import Contrast, contrasts
from analysis.topics.names import only, ranks_text
from analysis.topics.topic import Answer, Sweep, Topic, groups, varies

#: Pairs of batches that the first screen tells of; the table has all.
_MOST = 2
ENDS = ("small", "large")
_OF_END = ("gpus", "global_batch", "n", "n_planned", "n_diverged")
_CHANGE = Contrast(heading="change", tests=None)


def _of_end(end: str, batch: str) -> tuple[Column, ...]:
    """CSV columns of one end; the page shows both in one cell, but for the accuracies."""
    return (
        *(Column(f"{name}_{end}", "Int64") for name in _OF_END),
        Column(f"accuracy_{end}", estimate=True, heading=f"accuracy, {batch}", format=fmt.THREE,
               description="mean among runs that did not diverge, with Student's t interval"),
    )  # fmt: skip


def _both(row: Row, name: str) -> str:
    first, last = (fmt.count(row[f"{name}_{end}"]) for end in ENDS)
    return first if first == last else f"{first} → {last}"


COLUMNS = (
    *ABOUT[:-2],  # without ranks and batch
    Column("ranks", None, heading="ranks", cell=lambda row: _both(row, "gpus"),
           description="smallest → largest batch, of the same rank count where one has both"),
    Column("batches", None, heading="global batch", cell=lambda row: _both(row, "global_batch"),
           description="where it grows within a run, that of its first epoch"),
    Column("runs", None, heading="runs",
           cell=lambda row: f"{runs_text(row, '_small')} / {runs_text(row, '_large')}",
           description="usable, at the smallest / at the largest batch, diverged ones included"),
    *_of_end("small", "smallest batch"),
    *_of_end("large", "largest batch"),
    *_CHANGE.columns,
)  # fmt: skip


def kept(of: Sweep) -> Table:
    """One row per technique and workload with more than one planned global batch; see COLUMNS.

    ``difference``: mean at the largest batch minus mean at the smallest. Both are of the rank
    count with the widest range of batches, of several the most ranks; else of different counts.
    """
    found = of.made(arms)
    small, large = _ends(found)
    ends = (large.assign(end="the largest batch"), small.assign(end="the smallest batch"))
    rows = {
        **{name: small[name].array for name in ("technique", CALLED, "framework")},
        "context": [*map(without_batch, large["context"])],
        **_end("small", small), **_end("large", large),
        **contrasts({_CHANGE: ArmPairs(*ends, "end").accuracy}),
    }  # fmt: skip
    return Table(
        "larger_batch",
        "Larger batch: what accuracy each technique keeps",
        COLUMNS,
        in_order(frame(rows, COLUMNS), of.order),
        intro="The same technique, data and epochs at the smallest and at the largest global batch "
        "of one rank count, or of all if none has two. Exploratory: no correction for the number "
        "of rows.",
    )


def _ends(found: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Arms of each series: smallest and largest batch, on the ranks with the widest range."""
    batches = found.groupby([*SERIES, "gpus"])["global_batch"]
    found = found.assign(range=batches.transform("max") / batches.transform("min"))
    widest = found.groupby(list(SERIES))["range"].transform("max")
    most = found["gpus"].where(found["range"] == widest)
    most = most.groupby([found[name] for name in SERIES]).transform("max")
    found = found[(widest == 1) | (found["gpus"] == most)]
    ordered = found.sort_values(["global_batch", "gpus"], kind="stable").reset_index(names="arm")
    ends = ordered.groupby(list(SERIES))[["arm", "global_batch"]].agg(["first", "last"])
    grows = ends["global_batch"]["first"] < ends["global_batch"]["last"]
    arms = ends.loc[grows, "arm"].sort_values("first")
    return found.loc[arms["first"]], found.loc[arms["last"]]


def _end(end: str, arms: pd.DataFrame) -> dict[str, Any]:
    return {
        **{f"{name}_{end}": arms[name].array for name in _OF_END},
        **estimates_as(f"accuracy_{end}", accuracies(arms)),
    }


def _what_it_costs(of: Sweep) -> Iterable[Answer]:
    """Who keeps most and least of its accuracy, for each pair of batches and workload."""
    known = [row for row in of.rows(kept) if row["difference"] is not None]
    same = ("global_batch_small", "global_batch_large", "framework", "context")
    compared = groups(known, same)
    for rows in compared[:_MOST]:
        lost = [row for row in rows if row["n_diverged_small"] or row["n_diverged_large"]]
        whole = sorted((r for r in rows if r not in lost), key=lambda row: -row["difference"])
        if not whole:
            continue
        best, worst = whole[0], whole[-1]
        more, losers = [], [row for row in whole if (row["difference_high"] or 0) < 0]
        lose = len(losers)
        if len(whole) == 1:
            text = f"{best[CALLED]} {_change(best)}"
        else:
            shown = f"{lose} of {len(whole)} techniques" if lose else "no technique"
            text = f"{shown} {'are' if lose > 1 else 'is'} shown to lose accuracy"
            if 0 < lose < len(whole):
                text += f": {fmt.some([_named(row) for row in losers])}"
            more = [f"mean changes range from {_named(worst)} to {_named(best)}, not tested "
                    "against each other"]  # fmt: skip
        if lost:
            more.append(f"some runs diverged of {fmt.some([row[CALLED] for row in lost])}")
        ends = " to ".join(fmt.count(best[f"global_batch_{end}"]) for end in ENDS)
        ranks = only([row[f"gpus_{end}"] for row in whole for end in ENDS])
        ends += f" on {ranks_text(ranks)}" if varies("gpus")(of) and ranks else ""
        text = f"from batch {ends}{of_workload(rows, compared)}, {text}"
        yield Answer("larger_batch", "What does a larger batch cost?", fmt.sentence(text),
                     "larger_batch", "runs", more)  # fmt: skip


def _named(row: Row) -> str:
    return f"{row[CALLED]} {estimate_in(row, 'difference').text(fmt.SIGNED)}"


def _change(row: Row) -> str:
    """What is shown of one change of accuracy."""
    low, high = (row[f"difference_{end}"] or 0 for end in ("low", "high"))
    verb = "loses" if high < 0 else "gains" if low > 0 else "is not shown to change in"
    return f"{verb} accuracy: {estimate_in(row, 'difference').text(fmt.SIGNED)}"


TOPIC = Topic(tables=(kept,), answers=(_what_it_costs,), asks=varies("global_batch"))
