"""Does a technique reach more than the reference? One family, planned with the sweep.

Each technique against the reference, per workload, at the largest rank count (then batch) that the
plan has for both: Welch's t over runs, Holm over the family, Bonferroni's intervals beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.figures import PALE, Figure, left_out, n_of
from analysis.plots.canvas import shortened
from analysis.plots.rows import Point, forest
from analysis.records.frames import in_order
from analysis.table import (
    Column,
    Row,
    Table,
    count,
    estimate_in,
    frame,
    joined,
    plain_rows,
    runs_in_words,
    signed,
    types,
)
from analysis.topics.comparisons.arms import (
    ABOUT,
    ALL_DIVERGED,
    NOT_COMPARED,
    PLACE,
    SERIES,
    SOME_DIVERGED,
    about,
    accuracy_pairs,
    arms,
    counts,
    outcomes,
    picked,
    run_columns,
    runs_text,
    unknown_cells,
)
from analysis.topics.comparisons.contrast import (
    DIFFERENCE,
    FURTHER,
    P_HOLM,
    VERDICT,
    Contrast,
    contrasts,
    family_interval,
    further_in_words,
)
from analysis.topics.names import namer, only, with_context
from analysis.topics.topic import (
    Answer,
    Sweep,
    Topic,
    reference_technique,
    sentence,
    some,
    varies,
)

KEY, MOST_ROWS = "against_reference", 24
_LONGEST = 34  # characters of a name
_PLACES = {"reference": "- {}", "gpus": "{} ranks", "global_batch": "batch {:,}"}
INCONCLUSIVE = "inconclusive"
#: Of an undecided row that has no p: an arm has one run, or all runs of both are identical.
UNTESTED = "not tested"
#: How a sentence says a verdict: of one technique, of several.
_ENDS = {
    "higher": ("ends higher than", "end higher than"),
    "lower": ("ends lower than", "end lower than"),
    INCONCLUSIVE: ("does not differ detectably from", "do not differ detectably from"),
}
COLUMNS = (
    *ABOUT,
    Column("reference", "string", heading="against"),
    *run_columns(
        heading="runs", cell=lambda row: f"{runs_text(row)} / {runs_text(row, '_reference')}",
        description="usable runs of the technique / of the reference, diverged ones included",
    ),
    *run_columns("_reference"),
    Column("accuracy", description="mean among runs that did not diverge"),
    Column("accuracy_reference"),
    DIFFERENCE,
    Column("difference_family", estimate=True, heading="interval in the family",
           cell=lambda row: family_interval(row, "difference", signed(3)),
           description="Bonferroni's: all intervals of the family hold together with 95 %"),
    Column("p", description="two-sided, of Welch's test in the family, before Holm's adjustment"),
    P_HOLM,
    VERDICT,
    *FURTHER,
    Column("family", "Int64", description="comparisons planned; at least, where cells are unknown"),
    Column("unknown_cells", "Int64", description="planned cells whose config could not be read"),
)  # fmt: skip


def claims(of: Sweep) -> Table:
    """Each technique against the reference; see COLUMNS. One without a planned cell that is known
    has a row, and counts in the family."""
    planned, techniques = of.frames.planned, of.order
    reference = reference_technique(techniques)
    unknown = unknown_cells(planned)
    found = arms(outcomes(planned, of.runs))
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
    tested = _tested(picked(found, pairs["arm"]), picked(found, pairs["arm_reference"]), size)
    made = pd.concat([frame(part, COLUMNS) for part in (tested, rows)])
    made = made.assign(family=size, unknown_cells=unknown).astype(types(COLUMNS))
    return Table(
        "claims",
        f"Claims: techniques against {reference or 'a reference'}",
        COLUMNS,
        in_order(made, techniques),
        intro=_intro(size, unknown),
    )


def figure(of: Sweep) -> Figure | None:
    """Forest of the differences, the highest one at the top; None without a tested one."""
    every = of.made(claims).data
    tested = every.dropna(subset="p")
    known = tested.sort_values("difference", kind="stable")
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
            *found[:3], replace(of.seen.get(row["technique_label"], PALE), alpha=1),
            f"{name}: {found.text(signed(3))}, {verdict}, {row['n']} runs and "
            f"{row['n_reference']} of {row['reference']}",
            f"{signed(3)(found.value)} {verdict}", hollow=row["verdict"] == INCONCLUSIVE,
        ))  # fmt: skip
    svg = forest(points, "difference in validation accuracy", zero=True)
    title, caption = _words(known, differ)
    caption += left_out(len(rows), len(known), "techniques, those with the highest difference")
    if others := [with_context(row) for row in plain_rows(every[every["p"].isna()])]:
        caption += f" Not tested, so not drawn: {some([*dict.fromkeys(others)])}."
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
    about = found.assign(arm=found.index)
    own = found["technique"] == reference
    left, right = about[~own], about.loc[own, [*SERIES, *PLACE, "arm"]]
    where, both = ["workload", "framework"], [*SERIES, "technique_label_reference"]
    pairs = left.merge(right, on=[*where, *PLACE], suffixes=("", "_reference"))
    pairs = pairs.sort_values(list(PLACE), kind="stable").drop_duplicates(both, keep="last")
    series = left.drop_duplicates(list(SERIES)).merge(
        right[list(SERIES)].drop_duplicates(), on=where, how="left", suffixes=("", "_reference")
    )
    known = series.merge(pairs[both], how="left", on=both, indicator="there")
    return pairs, series[(known["there"] == "left_only").to_numpy()]


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


def _tested(arm: pd.DataFrame, other: pd.DataFrame, size: int) -> dict[str, Any]:
    """Columns of the rows of arms beside those of the reference."""
    names, others = ([*rows["technique_label"]] for rows in (arm, other))
    asked = accuracy_pairs(arm, other, names, others)
    found = contrasts([Contrast("difference", asked, then=INCONCLUSIVE)], size, simultaneous=True)
    return {
        **about(arm), **counts(arm), **counts(other, "_reference"), **found, "reference": others,
        "accuracy": arm["mean"], "accuracy_reference": other["mean"],
    }  # fmt: skip


def _against(of: Sweep) -> Iterable[Answer]:
    """The confirmatory family in a few words."""
    if not (found := of.rows(claims)):
        return
    references = list(dict.fromkeys(row["reference"] for row in found if row["reference"]))
    reference = references[0] if len(references) == 1 else "the reference"
    labels = {row["technique_label"] for row in found}
    what = "techniques" if len(labels) == len(found) and len(references) < 2 else "comparisons"
    name_of = namer(found)

    def named(row: Row) -> str:
        other = f" against {row['reference']}" if len(references) > 1 and row["reference"] else ""
        return f"{name_of(row)}{other}"

    def measured(row: Row) -> str:
        # with the interval of the family, whose test decides
        text = f"{named(row)} {estimate_in(row, 'difference_family').text(signed(3))}"
        each, other = runs_in_words(row["n"]), row["n_reference"]
        return f"{text}, {each} each" if row["n"] == other else f"{text}, {each} against {other}"

    by: dict[str, list[Row]] = {verdict: [] for verdict in _ENDS}
    # the largest difference first, unknown ones last
    for row in sorted(found, key=lambda r: (r["difference"] is None, -abs(r["difference"] or 0))):
        open_ = row["verdict"] == INCONCLUSIVE and row["p_holm"] is None
        by.setdefault(UNTESTED if open_ else row["verdict"], []).append(row)
    said = []
    for verdict, (one, many) in _ENDS.items():
        if rows := by[verdict]:
            ends = f"{len(rows)} of {len(found)} {what} {one if len(rows) == 1 else many}"
            if verdict == INCONCLUSIVE and len(rows) == len(found):
                ends = f"none of {len(found)} {what} differs detectably from"
            elif verdict == INCONCLUSIVE and len(rows) > 1:
                ends = ends.replace(" do ", f" ({some([*map(named, rows)])}) do ")
            most = ": " if len(rows) == 1 else "; largest difference: "
            said.append(f"{ends} {reference}{most}{measured(rows[0])}")
    said += [f"{verdict}: {some([*map(named, rows)])}" for verdict, rows in by.items()
             if rows and verdict not in _ENDS]  # fmt: skip
    if len(found) == 1:
        said = [_one_against(found[0], reference)]
    batch = only([row["global_batch"] for row in found])
    text = f"at batch {count(batch)}, {said[0]}" if batch is not None else said[0]
    yield Answer(
        "techniques", "Which technique is better than the reference?", sentence(text), "claims",
        "tests", {verdict: len(rows) for verdict, rows in by.items() if rows},
        [*said[1:], further_in_words(by[INCONCLUSIVE])],
    )  # fmt: skip


def _one_against(row: Row, reference: str) -> str:
    """A family of one."""
    name, note = row["technique_label"], row["difference_note"]
    difference = estimate_in(row, "difference").text(signed(3))
    if row["n"] == row["n_reference"] and (row["n"] or 0) > 1:
        difference += f", {runs_in_words(row['n'])} each"
    if row["verdict"] in ("higher", "lower"):
        return f"{name} ends {row['verdict']} than {reference}: difference {difference}"
    if row["verdict"] == INCONCLUSIVE:
        why = f" ({note})" if note else ""
        return f"{name} against {reference} is undecided: difference {difference}{why}"
    if row["verdict"] == SOME_DIVERGED:
        return f"{name} against {reference} confirms nothing: some runs diverged"
    if row["verdict"] == ALL_DIVERGED:
        return f"all runs of {name} diverged"
    return f"not compared with {reference}: {name}" + (f" ({note})" if note else "")


TOPIC = Topic(
    tables=(claims,),
    plots=(figure,),
    answers=(_against,),
    asks=varies("technique_label"),
)
