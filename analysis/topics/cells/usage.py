"""What a sweep used: node-hours by what came of them."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.records.attempts import NOT_PLANNED, REJECTED
from analysis.table import Column, Row, Table, frame, percent, significant
from analysis.topics.names import reasons
from analysis.topics.topic import Caution, Sweep, Topic

REPEATED = "repeated"
#: Outcomes in the order of the rows.
OUTCOMES = (
    "completed", "diverged", REPEATED, "failed", "timeout", "preempted", "cancelled", "lost",
    REJECTED, NOT_PLANNED,
)  # fmt: skip
#: What the other tables show, and what another plan may have wanted.
_NOT_LOST = ("completed", "diverged", NOT_PLANNED)
#: A larger share of node-hours without a result is worth a sentence.
MOST_LOST = 0.1
COLUMNS: tuple[Column, ...] = (
    Column("outcome", "string", "outcome", "completed, diverged: of the runs in the other tables; "
           "repeated: what an attempt took that the next one of such a run had to do again (its "
           "start, epochs without a checkpoint); failed to lost: how an attempt of a cell without "
           "a result ended, also of one that is to go on; rejected: the record cannot be compared; "
           "not in the plan: the present plan does not name the cell"),
    Column("cells", "Int64", "cells"),
    Column("attempts", "Int64", "attempts"),
    Column("node_hours", "Float64", "node-hours", "nodes x time from the start of an attempt to "
           "its end; a node that several cells share counts for each", note="node_hours_note"),
    Column("node_hours_note", "string"),
    Column("rank_hours", "Float64", "rank-hours", "GPU-hours where each rank has a GPU"),
    Column("share", "Float64", "share", "of all node-hours", format=percent),
)  # fmt: skip


def table(attempts: pd.DataFrame) -> Table:
    """One row per outcome. ``attempts``: see ATTEMPTS in analysis/records/columns.py."""
    usual = attempts.groupby("ranks")["nodes"].transform("max")
    needed = ["cell_id", "outcome", "nodes", "ranks", "seconds", "repeated_s"]
    known = attempts[needed].assign(
        nodes=attempts["nodes"].fillna(usual), guessed=attempts["nodes"].isna()
    )
    again = known[known["repeated_s"] > 0]
    parts = known.assign(seconds=known["seconds"] - known["repeated_s"])
    if len(again):
        own = again.assign(seconds=again["repeated_s"], outcome=REPEATED)
        parts = pd.concat([parts, own.astype(parts.dtypes)])
    groups = ((outcome, parts[parts["outcome"] == outcome]) for outcome in OUTCOMES)
    rows = [_row(outcome, own) for outcome, own in groups if len(own)]
    data = frame(rows, COLUMNS)
    if total := data["node_hours"].sum():
        data["share"] = data["node_hours"] / total
    return Table(
        "usage",
        "Node-hours",
        COLUMNS,
        data,
        intro="Of all attempts whose records lie in this sweep's folder, but for those that "
        "FORCE=1 put aside. Time in the queue is not in it.",
    )


def _row(outcome: str, own: pd.DataFrame) -> Row:
    hours = own["seconds"] / 3600
    timed = hours.notna()
    guessed = int((own["guessed"] & own["nodes"].notna() & timed).sum())
    lacking = int((own["nodes"].isna() & timed).sum())
    notes = [
        f"{guessed} of {len(own)} attempts ended before their ranks met: nodes as in the other "
        "attempts of as many ranks" if guessed else None,
        f"without {lacking} of {len(own)} attempts, which ended before their ranks met: their "
        "nodes are not known" if lacking else None,
        f"without {(~timed).sum()} of {len(own)} attempts, which ended before they started a rank: "
        "their time is not known" if not timed.all() else None,
    ]  # fmt: skip
    return {
        "outcome": outcome,
        "cells": own["cell_id"].nunique(),
        "attempts": len(own),
        "node_hours": (hours * own["nodes"]).sum(min_count=1),
        "node_hours_note": reasons(notes),
        "rank_hours": (hours * own["ranks"]).sum(min_count=1),
    }


def without_result(data: pd.DataFrame) -> str | None:
    """A sentence where more than MOST_LOST of the plan's node-hours gave no result so far: an
    attempt that ended early may yet be gone on with. Else None.

    ``data``: of :func:`table`.
    """
    own = data[(data["outcome"] != NOT_PLANNED) & (data["node_hours"] > 0).fillna(False)]
    lost = own[~own["outcome"].isin(_NOT_LOST)]
    gone, total = lost["node_hours"].sum(), own["node_hours"].sum()
    if not total or gone <= MOST_LOST * total:
        return None
    parts = (f"{row.outcome} {significant(row.node_hours)}" for row in lost.itertuples())
    return (
        f"{percent(gone / total)} of the plan's node-hours gave no result, {significant(gone)} of "
        f"{significant(total)}: {', '.join(parts)}."
    )


def node_hours(of: Sweep) -> Table:
    return table(of.frames.attempts)


def _without_result(of: Sweep) -> Iterable[Caution]:
    if lost := without_result(of.made(node_hours).data):
        yield Caution(lost, "none")


TOPIC = Topic(
    tables=(node_hours,),
    cautions=(_without_result,),
    needs=lambda of: True,
)
