"""Does a technique reach more than the reference? One family, planned with the sweep.

Each technique against the reference, per workload, at the largest rank count (then batch) that the
plan has for both. Pairs of the other techniques are a family of their own (ranking.py): no pair is
in both, so that the two cannot contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from analysis import fmt
from analysis.plots.figure import PALE, Figure, left_out, n_of
from analysis.plots.rows import Point, forest
from analysis.records.frames import in_order
from analysis.table import Column, Table, estimate_in, frame, plain_rows, types
from analysis.topics.comparisons.arms import CALLED, PLACE, SERIES, ArmPairs, arms
from analysis.topics.comparisons.claim import Claim, cautions, needed, sentences, told
from analysis.topics.comparisons.contrast import (
    HIGHER,
    LOWER,
    NOT_COMPARED,
    UNDECIDED,
    UNTESTED,
    Contrast,
    contrasts,
)
from analysis.topics.names import namer, only, place_namer
from analysis.topics.topic import Answer, Sweep, Topic, reference_technique, varies

KEY, MOST_ROWS = "against_reference", 24
FAMILIES = (
    "Techniques are compared in two families that share no comparison: each against the reference, "
    "and all pairs of the others. All simultaneous intervals of a family hold together with 95 %."
)
NO_PAIR = "no planned cell of {} with the same data, model, library, epochs, ranks and batch"
#: How a sentence says a result of one technique, and of several.
_VERBS = {
    HIGHER: ("ends higher than {} in accuracy", "end higher than {} in accuracy"),
    LOWER: ("ends lower than {} in accuracy", "end lower than {} in accuracy"),
    UNDECIDED: ("does not differ detectably from {} in accuracy",
                "do not differ detectably from {} in accuracy"),
    UNTESTED: ("is not tested against {} in accuracy", "are not tested against {} in accuracy"),
    NOT_COMPARED: ("is not compared with {}", "are not compared with {}"),
}  # fmt: skip
DIFFERENCE = Contrast(further=True)
COLUMNS = (
    *ArmPairs.columns(Column("reference", "string", heading="against")),
    *DIFFERENCE.columns,
    Column("family", "Int64", description="comparisons planned; at least, where cells are unknown"),
)


def claims(of: Sweep) -> Table:
    """Each technique against each setting of the reference; see COLUMNS. One without such a pair
    in the plan has a row, and counts in the family."""
    planned, techniques = of.frames.planned, of.order
    reference = reference_technique(techniques)
    found = of.made(arms)
    pairs, alone = _pairs(found, reference)
    known = plain_rows(alone[["technique", CALLED, "context", "framework", "reference"]])
    rows = [row | {"verdict_why": NO_PAIR.format(row["reference"])} for row in known]
    rows += [
        {"technique": name, CALLED: name, "reference": reference,
         "verdict_why": f"no planned cell of {name} is known"}
        for name in techniques if name not in {reference, *found["technique"]}
    ]  # fmt: skip
    rows = [row | {"verdict": NOT_COMPARED, "difference_note": row["verdict_why"]} for row in rows]
    apart = frame(rows, COLUMNS)
    size = len(pairs) + len(rows)
    both = ArmPairs(found.loc[pairs["arm"]], found.loc[pairs["arm_reference"]])
    tested = contrasts({DIFFERENCE: both.accuracy}, size)
    lost = len(planned) - int(planned["known"].sum())
    made = pd.concat([frame(both.rows("reference") | tested, COLUMNS), apart])
    made = made.assign(family=size).astype(types(COLUMNS))
    return Table(
        "claims",
        f"Claims: techniques against {reference or 'a reference'}",
        COLUMNS,
        in_order(made, techniques),
        intro=_intro(size, lost),
    )


def figure(of: Sweep) -> Figure | None:
    """Forest of the differences, the highest one at the top; None without a tested one."""
    tested = of.made(claims).data.dropna(subset="difference_family_low")
    known = tested.sort_values("difference", kind="stable")
    rows = plain_rows(known.tail(MOST_ROWS))
    if not rows:
        return None
    name_of, several = place_namer(known), known["reference"].nunique() > 1
    points = []
    for row in rows:
        found, verdict, name = estimate_in(row, "difference_family"), row["verdict"], name_of(row)
        points.append(Point(
            name + (f" against {row['reference']}" if several else ""),
            *found[:3], replace(of.seen.get(row["technique_label"], PALE), alpha=1),
            f"{name}: {found.text(fmt.SIGNED)}, {verdict}, {row['n']} runs and "
            f"{row['n_reference']} of {row['reference']}",
            f"{fmt.SIGNED(found.value)} {verdict}", hollow=verdict == UNDECIDED,
        ))  # fmt: skip
    svg = forest(points, "difference in validation accuracy")
    caption = (
        "Mean validation accuracy less the reference's, at the largest batch that both have "
        f"({n_of(pd.concat([known['n'], known['n_reference']]))} runs each), with simultaneous "
        "95 % intervals: all of them hold together. Hollow: undecided."
    )
    caption += left_out(len(rows), len(known), "techniques, those with the highest difference")
    title = f"Difference from {'the reference' if several else rows[0]['reference']}"
    if (batch := only([*known["global_batch"]])) is not None:
        title += f" at batch {fmt.count(batch)}"
    return Figure(KEY, title, caption, known, svg)


def _intro(size: int, unknown: int) -> str:
    more = (
        f" The config of {fmt.counted(unknown, 'planned cell')} could not be read: the family may "
        "be larger, and intervals then too narrow."
    )
    return (
        f"One family of {'at least ' if unknown else ''}{fmt.counted(size, 'planned comparison')}: "
        "every technique against the reference at the largest rank count that the plan has for "
        f"both, and there at the largest batch. {FAMILIES}{more if unknown else ''}"
    )


def _pairs(found: pd.DataFrame, reference: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(Arms beside the reference's at their largest common scale, pairs of series without one)."""
    found = found.reset_index(names="arm")
    own, both = found["technique"] == reference, [*SERIES, "reference"]
    left = found[~own]
    right = found.loc[own, [*SERIES, *PLACE, "arm"]].rename(columns={CALLED: "reference"})
    where = ["workload", "framework"]
    pairs = left.merge(right, on=[*where, *PLACE], suffixes=("", "_reference"))
    pairs = pairs.sort_values([*PLACE], kind="stable").drop_duplicates(both, keep="last")
    settings = right[[*where, "reference"]].drop_duplicates()
    every = left.drop_duplicates([*SERIES]).merge(settings, on=where, how="left")
    there = every[both].merge(pairs[both], how="left", indicator="there")["there"]
    alone = every[(there == "left_only").to_numpy()]
    return pairs, alone.assign(reference=alone["reference"].fillna(str(reference)))


def _answer(of: Sweep) -> Iterable[Answer]:
    """The family in a few words."""
    if not (rows := of.rows(claims)):
        return
    name_of, one = namer(rows), only([row["reference"] for row in rows])
    found = [
        Claim.of(row, DIFFERENCE, name_of(row) + ("" if one else f" against {row['reference']}"),
                 row["reference"], "", "_reference")
        for row in rows
    ]  # fmt: skip
    first, *more = sentences(found, _VERBS, one or "the reference")
    batch = only([row["global_batch"] for row in rows])
    where = "in this sweep" if batch is None else f"at batch {fmt.count(batch)}"
    more += [*cautions(found), needed(found)]
    question = "Which technique is better than the reference?"
    yield from told("techniques", "claims", "tests", [(question, f"{where}, {first}", more)])


TOPIC = Topic((claims,), (figure,), (_answer,), asks=varies("technique_label"))
