"""Which technique reaches most? All of them at one scale, and which pairs are told apart.

The scale is the largest rank count (then batch) that the plan has for at least two techniques of a
workload. The family is every pair: Welch's t over runs, Holm over all pairs. Undecided pairs are
pairs: that A is not told apart from B, nor B from C, says nothing of A and C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.stats.differences import ALPHA, holm, welch
from analysis.stats.power import further_runs
from analysis.table import Column, Table, estimates_as, frame, number
from analysis.topics.comparisons.arms import PLACE, arms, outcomes
from analysis.topics.comparisons.comparison import (
    ABOUT,
    DIFFERENCE,
    FURTHER,
    P_HOLM,
    VERDICT,
    accuracies,
    compared,
    counts,
    difference_cells,
    further_cells,
    runs_text,
    side,
)

NOT_DECIDED, HIGHER = "not decided", "higher"
#: Arms of one scale whose pairs are listed, from the highest mean on; Holm counts all pairs.
MOST_ARMS = 100
RANKING_COLUMNS = (
    Column("place", "Int64", heading="place"),
    *ABOUT,
    Column("n", "Int64", heading="runs", cell=runs_text,
           description="usable runs, diverged ones included"),
    Column("n_planned", "Int64"),
    Column("n_diverged", "Int64"),
    Column("diverged", estimate=True, description="share of the usable runs, exact interval"),
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


def ranking_table(planned: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """The arms of each workload's largest scale by falling mean; see RANKING_COLUMNS."""
    found = _ranked(planned, runs)
    rows = {
        "place": found["place"], **{column.name: found[column.name] for column in ABOUT},
        **counts(found), **estimates_as("accuracy", accuracies(found)),
    }  # fmt: skip
    return Table(
        "ranking",
        "Ranking: the techniques at the largest scale",
        RANKING_COLUMNS,
        frame(rows, RANKING_COLUMNS),
        intro="By mean. Which neighbours are told apart, the table of pairs says: two rows whose "
        "intervals overlap may well be.",
    )


def pairs_table(planned: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """Every pair of the ranking, the higher first; see PAIR_COLUMNS."""
    found = _ranked(planned, runs)
    sizes = found.groupby("scale", sort=False).size()
    family = int((sizes * (sizes - 1) // 2).sum())
    listed = found.groupby("scale", sort=False).head(MOST_ARMS)
    first, second = _indexes(listed["scale"].to_numpy())
    left, right = (listed.iloc[index].reset_index(drop=True) for index in (first, second))
    return Table(
        "pairs",
        "Pairs of the ranking",
        PAIR_COLUMNS,
        frame(_pairs(left, right, family), PAIR_COLUMNS),
        intro=f"One family of {family} {'pair' if family == 1 else 'pairs'}, a family of its own "
        "beside the comparisons with the reference. Pairs that are not decided are no group: each "
        "says something of its two techniques only."
        + (f" Of more than {MOST_ARMS} techniques only pairs of the highest are listed."
           if len(listed) < len(found) else ""),
        folded=True,
    )  # fmt: skip


def _ranked(planned: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Arms of the largest scales, by scale and falling mean, with ``scale`` and ``place``."""
    found = arms(outcomes(planned, runs))
    scale = ["workload", "framework", *PLACE]
    shared = found[found.groupby(scale, dropna=False)["technique_label"].transform("size") > 1]
    largest = shared.sort_values(list(PLACE), kind="stable").drop_duplicates(scale[:2], keep="last")
    there = shared.merge(largest[scale], on=scale)
    there = there.assign(scale=there.groupby(scale, sort=False, dropna=False).ngroup())
    there = there.sort_values(["scale", "mean"], ascending=[True, False], kind="stable")
    place = there.groupby("scale").cumcount() + 1
    return there.assign(place=place.where(there["n"] > 0)).reset_index(drop=True)


def _indexes(scales: NDArray[Any]) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Every pair of one scale, by its places in the frame."""
    first, second = np.triu_indices(len(scales), 1)
    same = scales[first] == scales[second]
    return first[same], second[same]


def _pairs(left: pd.DataFrame, right: pd.DataFrame, family: int) -> dict[str, Any]:
    """Columns of the pairs' rows."""
    names, others = ([*rows["technique_label"]] for rows in (left, right))
    found = compared(side(left, ""), side(right, ""), names, others)
    p_holm = holm(welch(found.arm, found.other).p, family)
    further = further_runs(found.arm, found.other, alpha=ALPHA / max(family, 1))
    own = zip(found.verdicts, p_holm, found.alone.value, strict=True)
    verdicts = [verdict or _verdict(p, value) for verdict, p, value in own]
    return {
        **{column.name: left[column.name] for column in ABOUT},
        "second": others,
        "n": left["usable"], "n_planned": left["planned"],
        "n_second": right["usable"], "n_planned_second": right["planned"],
        **difference_cells(found, left["n"] + right["n"], found.notes),
        "p_holm": p_holm, "verdict": verdicts, "family": np.full(len(left), family),
        **further_cells(further, np.array(verdicts, object) == NOT_DECIDED),
    }  # fmt: skip


def _verdict(p_holm: float, difference: float) -> str:
    if np.isnan(p_holm) or p_holm >= ALPHA:
        return NOT_DECIDED
    return HIGHER if difference > 0 else "lower"
