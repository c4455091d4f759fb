"""Does a technique reach more than the reference? One family, planned with the sweep.

Each technique against the reference, per workload, at the largest rank count (then batch) that the
plan has for both: Welch's t over runs, Holm over the family, Bonferroni's intervals beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import PALE, Figure, Look, left_out, n_of
from analysis.plots.canvas import shortened
from analysis.plots.rows import Point, forest
from analysis.records.frames import in_order
from analysis.stats.differences import ALPHA, family
from analysis.stats.power import further_runs
from analysis.table import (
    Column,
    Row,
    Table,
    count,
    estimate_in,
    frame,
    joined,
    plain_rows,
    signed,
    types,
)
from analysis.topics.comparisons.arms import PLACE, arms, outcomes, unknown_cells
from analysis.topics.comparisons.comparison import (
    ABOUT,
    DIFFERENCE,
    FURTHER,
    NOT_COMPARED,
    P_HOLM,
    VERDICT,
    compared,
    counts,
    difference_cells,
    family_interval,
    further_cells,
    interval_cells,
    runs_text,
    side,
)
from analysis.topics.topic import with_context

REFERENCE = "naive"
KEY, MOST_ROWS = "against_reference", 24
_LONGEST = 34  # characters of a name
_PLACES = {"reference": "- {}", "gpus": "{} ranks", "global_batch": "batch {:,}"}
INCONCLUSIVE = "inconclusive"
DISAGREEMENT = "Holm's test decides, while the more cautious interval in the family contains 0"
COLUMNS = (
    *ABOUT,
    Column("reference", "string", heading="against"),
    Column("n", "Int64", heading="runs",
           cell=lambda row: f"{runs_text(row)} / {runs_text(row, '_reference')}",
           description="usable runs of the technique / of the reference, diverged ones included"),
    Column("n_planned", "Int64"),
    Column("n_diverged", "Int64"),
    Column("diverged", estimate=True, description="share of the usable runs, exact interval"),
    Column("n_reference", "Int64"),
    Column("n_planned_reference", "Int64"),
    Column("n_diverged_reference", "Int64"),
    Column("diverged_reference", estimate=True),
    Column("accuracy", description="mean among runs that did not diverge"),
    Column("accuracy_reference"),
    DIFFERENCE,
    Column("difference_family", estimate=True, heading="interval in the family",
           cell=lambda row: family_interval(row, "difference"),
           description="Bonferroni's: all intervals of the family hold together with 95 %"),
    Column("p", description="two-sided, of Welch's test in the family, before Holm's adjustment"),
    P_HOLM,
    VERDICT,
    *FURTHER,
    Column("family", "Int64", description="comparisons planned; at least, where cells are unknown"),
    Column("unknown_cells", "Int64", description="planned cells whose config could not be read"),
)  # fmt: skip
_PAIR = ("workload", "framework", "technique_label", "technique_label_reference")


def reference_technique(techniques: Sequence[str]) -> str | None:
    """The technique that the others are compared with: naive, else the first of the sweep."""
    if REFERENCE in techniques:
        return REFERENCE
    return techniques[0] if techniques else None


def table(planned: pd.DataFrame, runs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """Each technique against the reference; see COLUMNS.

    Args:
        planned: one row per planned cell, see ``records.columns.PLANNED``.
        runs: one row per usable run.
        techniques: names in the order of the manifest; one without a planned cell that is known
            has a row, and counts in the family.
    """
    reference = reference_technique(techniques)
    unknown = unknown_cells(planned)
    found = arms(outcomes(planned, runs))
    pairs, apart = _pairs(found, reference)
    there = {reference, *found["technique"]}
    absent = [name for name in techniques if name not in there]
    size = len(pairs) + len(apart) + len(absent)
    rows = [_apart(row, reference) for row in plain_rows(apart)]
    rows += [
        {"technique": name, "technique_label": name, "reference": reference,
         "verdict": NOT_COMPARED, "difference_note": f"no planned cell of {name} is known"}
        for name in absent
    ]  # fmt: skip
    made = pd.concat([frame(part, COLUMNS) for part in (_tested(pairs, size), rows)])
    made = made.assign(family=size, unknown_cells=unknown).astype(types(COLUMNS))
    return Table(
        "claims",
        f"Claims: techniques against {reference or 'a reference'}",
        COLUMNS,
        in_order(made, techniques),
        intro=_intro(size, unknown),
    )


def figure(claims: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """Forest of the differences, the highest one at the top; None without a tested one."""
    known = claims[claims["p"].notna()].sort_values("difference", kind="stable")
    rows = plain_rows(known.tail(MOST_ROWS))
    if not rows:
        return None
    differ = [name for name in ("reference", "gpus", "global_batch") if known[name].nunique() > 1]
    points = []
    for row in rows:
        found, name = estimate_in(row, "difference_family"), with_context(row)
        verdict = "undecided" if row["verdict"] == INCONCLUSIVE else row["verdict"]
        points.append(Point(
            joined([shortened(name, _LONGEST),
                    *(_PLACES[one].format(row[one]) for one in differ)], ", "),
            *found[:3], replace(seen.get(row["technique_label"], PALE), alpha=1),
            f"{name}: {found.text(signed(3))}, {verdict}, {row['n']} runs and "
            f"{row['n_reference']} of {row['reference']}",
            f"{signed(3)(found.value)} {verdict}", hollow=row["verdict"] == INCONCLUSIVE,
        ))  # fmt: skip
    svg = forest(points, "difference in validation accuracy", zero=True)
    title, caption = _words(known, differ)
    caption += left_out(len(rows), len(known), "techniques, those with the highest difference")
    return Figure(KEY, title, caption, known, svg)


def _words(known: pd.DataFrame, differ: Sequence[str]) -> tuple[str, str]:
    """Title and caption."""
    first = known.iloc[0]
    title = f"Difference from {'the reference' if 'reference' in differ else first['reference']}"
    title += "" if "global_batch" in differ else f" at batch {count(first['global_batch'])}"
    n = n_of(pd.concat([known["n"], known["n_reference"]]))
    return title, (
        "Mean validation accuracy less the reference's, at the largest batch that both have "
        f"({n} runs each), with simultaneous 95 % intervals: all of them hold together. "
        "Hollow: undecided."
    )


def _intro(size: int, unknown: int) -> str:
    many = "1 planned comparison" if size == 1 else f"{size} planned comparisons"
    many = f"at least {many}" if unknown else many
    cells = "1 planned cell is" if unknown == 1 else f"{unknown} planned cells are"
    return joined([
        f"One family of {many}: every technique against the reference at the largest rank count "
        "that the plan has for both, and there at the largest batch. Every other comparison of "
        "rows in this report is exploratory and uncorrected.",
        f"{cells} unknown, since the config could not be read: the family "
        "may be larger, and p then too small." if unknown else "",
    ])  # fmt: skip


def _pairs(found: pd.DataFrame, reference: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(Arms beside the reference's at their largest common scale, series that have none)."""
    own = found["technique"] == reference
    left, right = found[~own], found[own]
    where, both = ["workload", "framework"], list(_PAIR)
    pairs = left.merge(right, on=[*where, *PLACE], suffixes=("", "_reference"))
    pairs = pairs.sort_values(list(PLACE), kind="stable").drop_duplicates(both, keep="last")
    names = [*where, "technique_label"]
    series = left.drop_duplicates(names).merge(
        right[names].drop_duplicates(), on=where, how="left", suffixes=("", "_reference")
    )
    known = series.merge(pairs[both], how="left", on=both, indicator="there")
    return pairs.reset_index(drop=True), series[(known["there"] == "left_only").to_numpy()]


def _apart(row: Row, reference: str | None) -> Row:
    label = row["technique_label_reference"]
    return {
        **{name: row[name] for name in ("technique", "technique_label", "context", "framework")},
        "reference": label or reference,
        "verdict": NOT_COMPARED,
        "difference_note": "the plan has no rank count and batch for both"
        if label else f"no planned cell of {reference or 'a reference'} with the same data, model, "
        "library and epochs",
    }  # fmt: skip


def _tested(pairs: pd.DataFrame, size: int) -> dict[str, Any]:
    """Columns of the pairs' rows."""
    names, others = ([*pairs[f"technique_label{end}"]] for end in ("", "_reference"))
    found = compared(side(pairs, ""), side(pairs, "_reference"), names, others)
    together = family(found.arm, found.other, size)
    further = further_runs(found.arm, found.other, alpha=ALPHA / max(size, 1))
    own = zip(found.verdicts, together.p_holm, found.alone.value, strict=True)
    verdicts = [verdict or _verdict(p, value) for verdict, p, value in own]
    notes = [
        joined([note or "", DISAGREEMENT if disagrees else ""], "; ")
        for note, disagrees in zip(found.notes, together.disagrees, strict=True)
    ]
    n = pairs["n"] + pairs["n_reference"]
    return {
        **{column.name: pairs[column.name].array for column in ABOUT},
        "reference": pairs["technique_label_reference"].array,
        **counts(pairs), **counts(pairs, "_reference"),
        "accuracy": pairs["mean"], "accuracy_reference": pairs["mean_reference"],
        **difference_cells(found, n, [note or None for note in notes]),
        **interval_cells("difference_family", found.alone.value, together.low, together.high, n,
                         None),
        "p": together.p, "p_holm": together.p_holm, "verdict": verdicts,
        **further_cells(further, np.array(verdicts, object) == INCONCLUSIVE),
    }  # fmt: skip


def _verdict(p_holm: float, difference: float) -> str:
    if np.isnan(p_holm) or p_holm >= ALPHA:
        return INCONCLUSIVE
    return "higher" if difference > 0 else "lower"
