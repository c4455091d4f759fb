"""Does a technique reach more than the reference? One family, planned with the sweep.

Each technique against the reference, per workload, at the largest rank count (then batch) that the
plan has for both: Welch's t over runs, Holm over the family, Bonferroni's intervals beside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from analysis import fmt
from analysis.plots.figure import PALE, Figure, left_out, n_of
from analysis.plots.rows import Point, forest
from analysis.records.frames import in_order
from analysis.table import Column, Row, Table, estimate_in, frame, plain_rows, types
from analysis.topics.comparisons.arms import CALLED, NOT_COMPARED, PLACE, SERIES, ArmPairs, arms
from analysis.topics.comparisons.contrast import (
    HIGHER,
    LOWER,
    UNDECIDED,
    Contrast,
    contrasts,
    further_in_words,
)
from analysis.topics.names import namer, only, place_namer
from analysis.topics.topic import Answer, Rows, Sweep, Topic, reference_technique, varies

KEY, MOST_ROWS = "against_reference", 24
#: Of an undecided row that has no p: an arm has one run, or all runs of both are identical.
UNTESTED = "not tested"
NO_PAIR = "no planned cell of {} with the same data, model, library, epochs, ranks and batch"
#: How a sentence says a verdict: of one technique, of several.
_ENDS = {
    HIGHER: ("ends higher than", "end higher than"),
    LOWER: ("ends lower than", "end lower than"),
    UNDECIDED: ("does not differ detectably from", "do not differ detectably from"),
    UNTESTED: ("is not tested against", "are not tested against"),
}
_DIFFERENCE = Contrast(simultaneous=True, further=True)
COLUMNS = (
    *ArmPairs.columns(Column("reference", "string", heading="against")),
    *_DIFFERENCE.columns,
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
    rows = [row | {"difference_note": NO_PAIR.format(row["reference"])} for row in known]
    rows += [
        {"technique": name, CALLED: name, "reference": reference,
         "difference_note": f"no planned cell of {name} is known"}
        for name in techniques if name not in {reference, *found["technique"]}
    ]  # fmt: skip
    apart = frame([row | {"verdict": NOT_COMPARED} for row in rows], COLUMNS)
    size = len(pairs) + len(rows)
    both = ArmPairs(found.loc[pairs["arm"]], found.loc[pairs["arm_reference"]])
    tested = contrasts({_DIFFERENCE: both.accuracy}, size)
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
    known = of.made(claims).data.dropna(subset="p").sort_values("difference", kind="stable")
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
        "be larger, and p then too small."
    )
    return (
        f"One family of {'at least ' if unknown else ''}{fmt.counted(size, 'planned comparison')}: "
        "every technique against the reference at the largest rank count that the plan has for "
        "both, and there at the largest batch. Every other comparison of rows in this report is "
        f"exploratory and uncorrected.{more if unknown else ''}"
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


def _against(of: Sweep) -> Iterable[Answer]:
    """The confirmatory family in a few words."""
    if not (found := of.rows(claims)):
        return
    by: dict[str, list[Row]] = {verdict: [] for verdict in _ENDS}
    # the largest difference first, unknown ones last
    for row in sorted(found, key=lambda r: (r["difference"] is None, -abs(r["difference"] or 0))):
        untested = row["verdict"] == UNDECIDED and row["p_holm"] is None
        by.setdefault(UNTESTED if untested else row["verdict"], []).append(row)
    said = [_said(verdict, rows, found) for verdict, rows in by.items() if rows]
    batch = only([row["global_batch"] for row in found])
    text = f"at batch {fmt.count(batch)}, {said[0]}" if batch is not None else said[0]
    yield Answer(
        "techniques", "Which technique is better than the reference?", fmt.sentence(text), "claims",
        "tests", [*said[1:], further_in_words(by[UNDECIDED])],
    )  # fmt: skip


def _said(verdict: str, rows: Rows, found: Rows) -> str:
    """Of the rows with one verdict; ``found``: all rows."""
    one = only([row["reference"] for row in found])
    reference, name_of = one or "the reference", namer(found)
    names = [name_of(row) + ("" if one else f" against {row['reference']}") for row in rows]
    if verdict not in _ENDS:
        note = only([row["difference_note"] for row in rows]) or ""
        why = fmt.joined([verdict, str(note)], ": ") if verdict == NOT_COMPARED else verdict
        return f"no claim about {fmt.some(names)}{f' against {one}' if one else ''} ({why})"
    # with the interval of the family, whose test decides
    first, (ends, end) = rows[0], _ENDS[verdict]
    each, other = fmt.runs(first["n"]), first["n_reference"]
    measured = f"{estimate_in(first, 'difference_family').text(fmt.SIGNED)}, {each} "
    measured += "each" if first["n"] == other else f"against {other}"
    if len(rows) == 1:
        which = f"1 of {len(found)} ({names[0]})" if found[1:] else names[0]
        return f"{which} {ends} {reference}: accuracy {measured}"
    which = f"{len(rows)} of {len(found)} ({fmt.some(names)}) {end} {reference}"
    if verdict == UNDECIDED and len(rows) == len(found):
        which = f"none of {len(found)} differs detectably from {reference}"
    return f"{which}; largest difference in accuracy: {names[0]} {measured}"


TOPIC = Topic((claims,), (figure,), (_against,), asks=varies("technique_label"))
