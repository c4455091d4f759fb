"""Which technique reaches most? All of them at one scale, and which pairs are told apart.

The scale is the largest rank count (then batch) that the plan has for at least two techniques of a
workload. The family is every pair: Welch's t over runs, Holm over all pairs. Undecided pairs are
pairs: that A is not told apart from B, nor B from C, says nothing of A and C.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.table import (
    Column,
    Row,
    Table,
    count,
    estimate_in,
    estimates_as,
    frame,
    joined,
    number,
    p_value,
    runs_in_words,
)
from analysis.topics.comparisons.arms import (
    ABOUT,
    PLACE,
    about,
    accuracies,
    accuracy_pairs,
    arms,
    counts,
    of_workload,
    outcomes,
    picked,
    run_columns,
    runs_text,
)
from analysis.topics.comparisons.contrast import (
    DIFFERENCE,
    FURTHER,
    P_HOLM,
    VERDICT,
    Contrast,
    contrasts,
    further_in_words,
)
from analysis.topics.comparisons.techniques import INCONCLUSIVE, claims
from analysis.topics.topic import (
    THREE,
    Answer,
    Rows,
    Sweep,
    Topic,
    counted,
    groups,
    sentence,
    some,
    varies,
)

UNDECIDED, HIGHER = "undecided", "higher"
#: Arms of one scale whose pairs are listed, from the highest mean on; Holm counts all pairs.
MOST_ARMS = 100
#: Workloads that the first screen tells of; the tables have all.
_MOST = 2
RANKING_COLUMNS = (
    Column("place", "Int64", heading="place"),
    *ABOUT,
    *run_columns(heading="runs", cell=runs_text, description="usable runs, diverged ones included"),
    Column("accuracy", estimate=True, heading="accuracy (95 % interval)", format=number(3),
           description="mean among runs that did not diverge, with Student's t interval of this "
           "row alone"),
)  # fmt: skip
PAIR_COLUMNS = (
    *ABOUT,
    Column("second", "string", heading="minus"),
    Column("n", "Int64", heading="runs",
           cell=lambda row: f"{runs_text(row)} / {runs_text(row, '_second')}"),
    Column("n_planned", "Int64"),
    Column("n_second", "Int64"),
    Column("n_planned_second", "Int64"),
    DIFFERENCE,
    P_HOLM,
    VERDICT,
    *FURTHER,
    Column("family", "Int64", description="pairs that Holm's adjustment counts"),
)  # fmt: skip


def ranked(of: Sweep) -> Table:
    """The arms of each workload's largest scale by falling mean; see RANKING_COLUMNS."""
    found = of.made(_ranked)
    rows = {
        "place": found["place"],
        **about(found),
        **counts(found),
        **estimates_as("accuracy", accuracies(found)),
    }
    return Table(
        "ranking",
        "Ranking: the techniques at the largest scale",
        RANKING_COLUMNS,
        frame(rows, RANKING_COLUMNS),
        intro="By mean. Which neighbours are told apart, the table of pairs says: two rows whose "
        "intervals overlap may well be.",
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
    higher, lower = picked(listed, both["first"]), picked(listed, both["second"])
    names, others = ([*rows["technique_label"]] for rows in (higher, lower))
    asked = accuracy_pairs(higher, lower, names, others)
    rows = {
        **about(higher), "second": others,
        "n": higher["usable"], "n_planned": higher["planned"],
        "n_second": lower["usable"], "n_planned_second": lower["planned"],
        **contrasts([Contrast("difference", asked, then=UNDECIDED)], family),
        "family": np.full(len(both), family),
    }  # fmt: skip
    return Table(
        "pairs",
        "Pairs of the ranking",
        PAIR_COLUMNS,
        frame(rows, PAIR_COLUMNS),
        intro=f"One family of {family} {'pair' if family == 1 else 'pairs'}, a family of its own "
        "beside the comparisons with the reference. Undecided pairs are no group: each "
        "says something of its two techniques only."
        + (f" Of more than {MOST_ARMS} techniques only pairs of the highest are listed."
           if len(listed) < len(found) else ""),
        folded=True,
    )  # fmt: skip


def _ranked(of: Sweep) -> pd.DataFrame:
    """Arms of the largest scales, by scale and falling mean, with ``scale`` and ``place``."""
    found = arms(outcomes(of.frames.planned, of.runs))
    scale = ["workload", "framework", *PLACE]
    shared = found[found.groupby(scale, dropna=False)["technique_label"].transform("size") > 1]
    largest = shared.sort_values(list(PLACE), kind="stable").drop_duplicates(scale[:2], keep="last")
    there = shared.merge(largest[scale], on=scale)
    there = there.assign(scale=there.groupby(scale, sort=False, dropna=False).ngroup())
    there = there.sort_values(["scale", "mean"], ascending=[True, False], kind="stable")
    place = there.groupby("scale").cumcount() + 1
    return there.assign(place=place.where(there["n"] > 0)).reset_index(drop=True)


def _best_of(of: Sweep) -> Iterable[Answer]:
    """Of each workload: whether the highest mean is shown to be above the others."""
    same = ("context", "framework", "gpus", "global_batch")
    pairs, scales = of.rows(paired), varies("global_batch")
    known = [row for row in of.rows(ranked) if row["accuracy"] is not None]
    workloads = [rows for rows in groups(known, same) if len(rows) > 1]
    for rows in workloads[:_MOST]:
        ordered = sorted(rows, key=lambda row: -row["accuracy"])
        there = [p for p in pairs if all(p[name] == rows[0][name] for name in same)]
        if _is_said(of.rows(claims), rows, there):
            continue
        batch = f" at batch {count(rows[0]['global_batch'])}" if scales(of) else ""
        verdict, more = _best(ordered, there, of_workload(rows[0], workloads) + batch)
        yield Answer("ranking", "Which technique is best?", sentence(verdict), "ranking", "pairs",
                     {"first": ordered[0]["technique_label"], "accuracy": ordered[0]["accuracy"],
                      "low": ordered[0]["accuracy_low"], "high": ordered[0]["accuracy_high"],
                      "second": ordered[1]["technique_label"]},
                     more)  # fmt: skip


def _is_said(against: Rows, rows: Rows, pairs: Rows) -> bool:
    """Whether the answer on the reference already says it: of the only pair, or that none of all
    rows is told apart."""
    scales = [{(row["gpus"], row["global_batch"]) for row in own} for own in (against, rows)]
    labels = {row[name] for row in against for name in ("technique_label", "reference")}
    if scales[0] != scales[1] or not {row["technique_label"] for row in rows} <= labels:
        return False
    none = all(row["verdict"] == INCONCLUSIVE for row in against)
    none = none and all(pair["verdict"] == UNDECIDED for pair in pairs)
    known = any(pair["p_holm"] is not None for pair in pairs)
    return known and (none or len(against) == len(pairs) == 1)


def _best(ordered: Rows, pairs: Rows, of: str) -> tuple[str, list[str]]:
    """The verdict and what more there is. ``ordered``: rows of one workload by falling mean;
    ``of``: which, where there are several."""
    first, others = ordered[0], ordered[1:]
    apart = {frozenset((p["technique_label"], p["second"])): p for p in pairs}
    its = [apart.get(frozenset((first["technique_label"], row["technique_label"])))
           for row in others]  # fmt: skip
    tested = [pair for pair in apart.values() if pair["p_holm"] is not None]
    open_ = [pair for pair in tested if pair["verdict"] == UNDECIDED]
    low, high = _mean(ordered[-1]), _mean(first)
    if not tested:
        means = joined([_mean(row) for row in ordered[:_MOST]], ", ")
        return f"no difference between techniques is tested{of}; the first means: {means}", []
    if not any(pair and pair["verdict"] == HIGHER for pair in its):
        told = len(tested) - len(open_)
        which = f"{told} of {counted(len(tested), 'pair')}" if told else "no pair"
        none = f"{which} {'are' if told > 1 else 'is'} told apart"
        means = f"the means of {len(ordered)} techniques lie between {low} and {high}"
        more = [means, further_in_words(open_)]
        return f"no technique is shown to be best{of}: {none}", more
    above = [row["technique_label"] for row, pair in zip(others, its, strict=True)
             if pair and pair["verdict"] == HIGHER]  # fmt: skip
    near = [row["technique_label"] for row, pair in zip(others, its, strict=True)
            if pair in open_]  # fmt: skip
    shown = [pair for pair in its if pair and pair["verdict"] == HIGHER]
    p, family = max(pair["p_holm"] for pair in shown), shown[0]["family"]
    over = f" after correction for {family} pairs" if family > 1 else ""
    most = "" if p < 0.001 or len(shown) == 1 else "at most "
    by = f"shown to be above {some(above)} (p {most}{p_value(p)}{over})"
    if near:
        nearest = [pair for pair in its if pair in open_][:1]
        needed = further_in_words(nearest)
        needed += f" from {near[0]}" if needed and len(near) > 1 else ""
        verdict = f"the highest mean{of} is {high}, not told apart from {some(near)}"
        return verdict, [f"it is {by}", needed]
    return f"the highest mean{of} is {high}, {by}", []


def _mean(row: Row) -> str:
    text = f"{row['technique_label']} {estimate_in(row, 'accuracy').text(THREE)}"
    lost = row["n_diverged"]
    return f"{text}, but {lost} of its {runs_in_words(row['n'])} diverged" if lost else text


TOPIC = Topic(tables=(ranked, paired), answers=(_best_of,), asks=varies("technique_label"))
