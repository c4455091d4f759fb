"""Which technique reaches most? All of them at one scale, and which pairs differ.

The scale is the largest rank count (then batch) that the plan has for at least two techniques of a
workload. The family is every pair that is not a comparison with the reference (techniques.py).
Undecided pairs are pairs: that A is not shown to differ from B, nor B from C, says nothing of A, C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.table import Column, Row, Table, estimate_in, estimates_as, frame, types
from analysis.topics.comparisons.arms import (
    ABOUT,
    CALLED,
    PLACE,
    ArmPairs,
    accuracies,
    arms,
    of_workload,
    run_columns,
    runs_text,
)
from analysis.topics.comparisons.claim import (
    Claim,
    by_result,
    cautions,
    counts,
    names,
    needed,
    told,
)
from analysis.topics.comparisons.contrast import HIGHER, UNDECIDED, contrasts
from analysis.topics.comparisons.techniques import DIFFERENCE, FAMILIES, claims
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups, reference_technique, varies

#: Arms of one scale whose pairs are listed, from the highest mean on; the family counts all.
MOST_ARMS = 100
RANKING_COLUMNS = (
    Column("place", "Int64", heading="place"),
    *ABOUT,
    *run_columns(heading="runs", cell=runs_text, description="usable runs, diverged ones included"),
    Column("accuracy", estimate=True, heading="accuracy (95 % interval)", format=fmt.THREE,
           description="mean among runs that did not diverge, with Student's t interval of this "
           "row alone"),
)  # fmt: skip
PAIR_COLUMNS = (
    *ArmPairs.columns(Column("second", "string", heading="minus")),
    *DIFFERENCE.columns,
    Column("family", "Int64", description="pairs planned"),
)


def ranked(of: Sweep) -> Table:
    """The arms of each workload's largest scale by falling mean; see RANKING_COLUMNS."""
    found = of.made(_ranked)
    made = found.assign(**estimates_as("accuracy", accuracies(found)))
    rows = {name: made[name].array for name in types(RANKING_COLUMNS)}
    return Table(
        "ranking",
        "Ranking: the techniques at the largest scale",
        RANKING_COLUMNS,
        frame(rows, RANKING_COLUMNS),
        intro="By mean. The table of pairs shows which techniques differ: two rows whose intervals "
        "overlap may still differ.",
    )


def paired(of: Sweep) -> Table:
    """Every pair of the ranking but those with the reference, the higher first."""
    found = of.made(_ranked)
    is_reference = found["technique"] == reference_technique(of.order)
    every = found.assign(reference=is_reference).groupby("scale", sort=False)["reference"]
    n, own = every.size(), every.sum()
    family = int((n * (n - 1) // 2 - own * (n - own)).sum())
    listed = found.groupby("scale", sort=False).head(MOST_ARMS)
    places = listed.assign(first=listed.index, second=listed.index)
    both = places[["scale", "first"]].merge(places[["scale", "second"]], on="scale")
    both = both[both["first"] < both["second"]]
    told = [is_reference[both[side]].to_numpy() for side in ("first", "second")]
    both = both[told[0] == told[1]]
    pairs = ArmPairs(listed.loc[both["first"]], listed.loc[both["second"]])
    rows = {
        **pairs.rows("second"),
        **contrasts({DIFFERENCE: pairs.accuracy}, family),
        "family": np.full(len(both), family),
    }
    return Table(
        "pairs",
        "Pairs of the other techniques",
        PAIR_COLUMNS,
        frame(rows, PAIR_COLUMNS),
        intro=f"One family of {fmt.counted(family, 'pair')}. {FAMILIES} Undecided pairs are no "
        "group: each says something of its two techniques only."
        + (f" Of more than {MOST_ARMS} techniques only pairs of the highest are listed."
           if len(listed) < len(found) else ""),
        folded=True,
    )  # fmt: skip


def _ranked(of: Sweep) -> pd.DataFrame:
    """Arms of the largest scales, by scale and falling mean, with ``scale`` and ``place``."""
    found = of.made(arms)
    scale = ["workload", "framework", *PLACE]
    shared = found[found.groupby(scale, dropna=False)["technique_label"].transform("size") > 1]
    largest = shared.sort_values(list(PLACE), kind="stable").drop_duplicates(scale[:2], keep="last")
    there = shared.merge(largest[scale], on=scale)
    there = there.assign(scale=there.groupby(scale, sort=False, dropna=False).ngroup())
    there = there.sort_values(["scale", "mean"], ascending=[True, False], kind="stable")
    place = there.groupby("scale").cumcount() + 1
    return there.assign(place=place.where(there["with_accuracy"] > 0)).reset_index(drop=True)


def _best_of(of: Sweep) -> Iterable[Answer]:
    """Of each workload with a tested pair: whether the highest mean is shown to be above others."""
    same = ("context", "framework", "gpus", "global_batch")
    workloads = groups(of.rows(paired), same)
    at_batch = varies("global_batch")(of)
    known = [row for row in of.rows(ranked) if row["accuracy"] is not None]
    against = groups(of.rows(claims), same)
    found = []
    for pairs in workloads:
        rows = [row for row in known if all(row[name] == pairs[0][name] for name in same)]
        there = (own for own in against if all(own[0][name] == pairs[0][name] for name in same))
        beside = _claims(next(there, []), "reference")
        among = _claims(pairs, "second")
        if _is_said(beside, among):
            continue
        where = of_workload(rows, workloads)
        where += f" at batch {fmt.count(rows[0]['global_batch'])}" if at_batch else ""
        verdict, *more = _best(rows, among, beside, where)
        more += [*cautions(among), needed(among)]
        found.append(("Which technique is best?", verdict, more))
    yield from told("ranking", "ranking", "pairs", found)


def _claims(rows: Rows, other: str) -> list[Claim]:
    return [Claim.of(row, DIFFERENCE, row[CALLED], row[other], "", f"_{other}") for row in rows]


def _is_said(beside: Sequence[Claim], among: Sequence[Claim]) -> bool:
    """Whether the answer on the reference says it: nothing is shown, or nothing else is tested."""
    shown = any(one.is_shown for one in (*beside, *among))
    tested = any(one.is_shown or one.result == UNDECIDED for one in among)
    return not tested or (bool(beside) and not shown)


def _best(ordered: Rows, among: Sequence[Claim], beside: Sequence[Claim], of: str) -> list[str]:
    """The verdict and what more there is. ``ordered``: rows of one workload by falling mean;
    ``among``, ``beside``: claims on pairs, and on comparisons with the reference; ``of``: which
    workload, where there are several."""
    first, last = ordered[0], ordered[-1]
    name = first[CALLED]
    own = by_result(one if one.subject == name else one.turned() for one in (*beside, *among)
                    if name in (one.subject, one.other))  # fmt: skip
    above = own.pop(HIGHER, [])
    if not above:
        where = f"{of} besides the comparisons with the reference" if beside else of
        said = f"no technique is shown to be best{where}: {counts(among, 'pair')}"
        return [said, f"means lie between {_mean(last)} and {_mean(first)}"]
    said = f"the highest mean{of} is {_mean(first)}, shown to be above "
    said += names([one.other for one in above]) if own or not above[1:] else "all others"
    how = (f"not {'shown to differ from' if result == UNDECIDED else 'tested against'} "
           f"{names([one.other for one in found])}" for result, found in own.items())  # fmt: skip
    return [said, *(f"it is {text}" for text in how)]


def _mean(row: Row) -> str:
    text = f"{row['technique_label']} {estimate_in(row, 'accuracy').text(fmt.THREE)}"
    lost = f" with {row['n_diverged']} of {fmt.runs(row['n'])} diverged"
    return text + (lost if row["n_diverged"] else "")


TOPIC = Topic(tables=(ranked, paired), answers=(_best_of,), asks=varies("technique_label"))
