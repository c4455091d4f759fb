"""Which technique reaches most? All of them at one scale, and which pairs differ.

The scale is the largest rank count (then batch) that the plan has for at least two techniques of a
workload. The family is every pair: Welch's t over runs, Holm over all pairs. Undecided pairs are
pairs: that A is not shown to differ from B, nor B from C, says nothing of A and C.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from analysis.topics.comparisons.contrast import (
    HIGHER,
    UNDECIDED,
    Contrast,
    contrasts,
    further_in_words,
)
from analysis.topics.comparisons.techniques import claims
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups, varies

#: Arms of one scale whose pairs are listed, from the highest mean on; Holm counts all pairs.
MOST_ARMS = 100
#: Workloads that the first screen tells of; the tables have all.
_MOST = 2
RANKING_COLUMNS = (
    Column("place", "Int64", heading="place"),
    *ABOUT,
    *run_columns(heading="runs", cell=runs_text, description="usable runs, diverged ones included"),
    Column("accuracy", estimate=True, heading="accuracy (95 % interval)", format=fmt.THREE,
           description="mean among runs that did not diverge, with Student's t interval of this "
           "row alone"),
)  # fmt: skip
_DIFFERENCE = Contrast(further=True)
PAIR_COLUMNS = (
    *ArmPairs.columns(Column("second", "string", heading="minus")),
    *_DIFFERENCE.columns,
    Column("family", "Int64", description="pairs that Holm's adjustment counts"),
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
    """Every pair of the ranking, the higher first; see PAIR_COLUMNS."""
    found = of.made(_ranked)
    sizes = found.groupby("scale", sort=False).size()
    family = int((sizes * (sizes - 1) // 2).sum())
    listed = found.groupby("scale", sort=False).head(MOST_ARMS)
    places = listed.assign(first=listed.index, second=listed.index)
    both = places[["scale", "first"]].merge(places[["scale", "second"]], on="scale")
    both = both[both["first"] < both["second"]]
    pairs = ArmPairs(listed.loc[both["first"]], listed.loc[both["second"]])
    rows = {
        **pairs.rows("second"),
        **contrasts({_DIFFERENCE: pairs.accuracy}, family),
        "family": np.full(len(both), family),
    }
    return Table(
        "pairs",
        "Pairs of the ranking",
        PAIR_COLUMNS,
        frame(rows, PAIR_COLUMNS),
        intro=f"One family of {fmt.counted(family, 'pair')}, a family of its own "
        "beside the comparisons with the reference. Undecided pairs are no group: each "
        "says something of its two techniques only."
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
    """Of each workload with a pair that is tested: whether the highest mean is shown to be above
    the others."""
    same = ("context", "framework", "gpus", "global_batch")
    workloads = groups(of.rows(paired), same)
    at_batch = varies("global_batch")(of)
    known = [row for row in of.rows(ranked) if row["accuracy"] is not None]
    against = of.rows(claims)
    for pairs in workloads[:_MOST]:
        rows = [row for row in known if all(row[name] == pairs[0][name] for name in same)]
        tested = [pair for pair in pairs if pair["p_holm"] is not None]
        if not tested or _is_said(against, pairs):
            continue
        where = of_workload(rows, workloads)
        where += f" at batch {fmt.count(rows[0]['global_batch'])}" if at_batch else ""
        verdict, more = _best(rows, tested, where)
        yield Answer("ranking", "Which technique is best?", fmt.sentence(verdict), "ranking",
                     "pairs", more)  # fmt: skip


def _is_said(against: Rows, pairs: Rows) -> bool:
    """Whether the answer on the reference already says it: of the only pair, or that none is
    shown to differ."""
    scales = [{(row["gpus"], row["global_batch"]) for row in own} for own in (against, pairs)]
    said, names = ({row[name] for row in own for name in (CALLED, other)}
                   for own, other in ((against, "reference"), (pairs, "second")))  # fmt: skip
    none = all(row["verdict"] == UNDECIDED for row in (*against, *pairs))
    is_said = none or len(against) == len(pairs) == 1
    return scales[0] == scales[1] and names <= said and is_said


def _best(ordered: Rows, tested: Rows, of: str) -> tuple[str, list[str]]:
    """The verdict and what more there is. ``ordered``: rows of one workload by falling mean;
    ``of``: which, where there are several."""
    first, last = ordered[0], ordered[-1]
    near = [pair for pair in tested if pair["verdict"] == UNDECIDED]
    above = [one for one in tested if one[CALLED] == first[CALLED] and one["verdict"] == HIGHER]
    if not above:
        apart = f"{len(tested) - len(near)} of {fmt.counted(len(tested), 'pair')} shown to differ"
        means = f"means lie between {_mean(last)} and {_mean(first)}"
        return f"no technique is shown to be best{of}: {apart}", [means, further_in_words(near)]
    p, family = max(pair["p_holm"] for pair in above), fmt.counted(above[0]["family"], "pair")
    shown = f"shown to be above {fmt.some([pair['second'] for pair in above])} "
    shown += f"(largest adjusted p {fmt.p_value(p)}, family of {family})"
    highest = f"the highest mean{of} is {_mean(first)}"
    beside = [one for one in near if one[CALLED] == first[CALLED]]
    if not beside:
        return f"{highest}, {shown}", []
    others = [pair["second"] for pair in beside]
    needed = further_in_words(beside[:1], f"{first['technique_label']} and {others[0]}")
    verdict = f"{highest}, not shown to differ from {fmt.some(others)}"
    return verdict, [f"the highest is {shown}", needed]


def _mean(row: Row) -> str:
    text = f"{row['technique_label']} {estimate_in(row, 'accuracy').text(fmt.THREE)}"
    lost = f" with {row['n_diverged']} of {fmt.runs(row['n'])} diverged"
    return text + (lost if row["n_diverged"] else "")


TOPIC = Topic(tables=(ranked, paired), answers=(_best_of,), asks=varies("technique_label"))
