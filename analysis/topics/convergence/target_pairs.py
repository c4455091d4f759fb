"""Which condition reaches the target sooner? Every pair of conditions with one target.

Time and steps to the target: ratios of geometric means, Welch's t on logarithms, Holm over all
tests. A condition with a run that did not reach it, or is lost, has no mean: it is not compared.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.records.columns import KNOWN_OF_LOST
from analysis.stats.differences import ALPHA
from analysis.stats.intervals import grouped_moments
from analysis.table import Column, Table, frame, plain_rows
from analysis.topics.comparisons.arms import numbers
from analysis.topics.comparisons.contrast import HIGHER, Contrast, contrasts, pairs_of
from analysis.topics.names import place_namer, ratio_text
from analysis.topics.topic import Sweep

LATER = "second is later"
#: Conditions of one target whose pairs are listed, from the shortest time on; Holm counts all.
MOST = 50
_LEFT_OUT = "a run did not reach the target, or is lost"
_RATIOS = [
    Contrast(name, f"{name}, ratio", ratio_text, "second over first: ratio of geometric means",
             ratio=True, tests=f"{name}_")
    for name in ("seconds", "steps")
]  # fmt: skip
COLUMNS: tuple[Column, ...] = (
    Column("target", "string", heading="target", only_if_varied=True),
    Column("first", "string", heading="sooner"),
    Column("second", "string", heading="later"),
    Column("n", "Int64", heading="runs", cell=lambda row: f"{row['n']} / {row['n_second']}"),
    Column("n_second", "Int64"),
    *(column for one in _RATIOS for column in one.columns),
    Column("verdict", "string", heading="seconds", description=f"by p (Holm) at {ALPHA:g}"),
    Column("family", "Int64", description="tests that Holm's adjustment counts: two for each pair"),
)


def with_lost(of: Sweep) -> pd.DataFrame:
    """The frame of goals with the ``workload``, and with planned cells that are ``lost``, having no
    usable run: censored at the last time known, which is 0 where nothing is."""
    planned, goals = of.frames.planned, of.frames.goals
    asked = planned[planned["target"].notna()]
    lost = asked[asked["state"] != "usable"].fillna(dict.fromkeys(KNOWN_OF_LOST, 0))
    lost = lost.assign(epoch=lost["epochs_run"], seconds=lost["train_s"] + lost["eval_s"])
    lost = lost.reindex(columns=list(goals)).astype(goals.dtypes.to_dict())
    every = pd.concat([goals.assign(lost=False), lost.assign(lost=True)], ignore_index=True)
    every["met"] = every["met"].fillna(False).astype(bool)
    return every.join(asked.set_index("cell_id")["workload"], on="cell_id")


def target_pairs(of: Sweep) -> Table:
    """Pairs of conditions by rising time to their target; see COLUMNS."""
    cells = of.made(with_lost)
    arm, met = cells.groupby("condition", sort=False).ngroup().to_numpy(), cells["met"].to_numpy()
    arms = cells.drop_duplicates("condition").reset_index(drop=True)
    lacking = np.bincount(arm, ~met, len(arms)) > 0
    logs = {
        one: grouped_moments(np.log(numbers(cells[one.name].where(met))), arm, len(arms))
        for one in _RATIOS
    }
    seconds = logs[_RATIOS[0]]
    order = np.argsort(np.where(lacking, np.inf, seconds.mean), kind="stable")
    listed, family = [np.empty((2, 0), int)], 0
    for _, rows in arms.iloc[order].groupby(["workload", "target"], sort=False):
        family += len(rows) * (len(rows) - 1)
        listed.append(rows.index.to_numpy()[np.stack(np.triu_indices(min(len(rows), MOST), 1))])
    first, second = np.concatenate(listed, axis=1)
    why = [_LEFT_OUT if lost else None for lost in lacking[first] | lacking[second]]
    pairs = {one: pairs_of(own.at(second), own.at(first), why) for one, own in logs.items()}
    name_of = place_namer(arms)
    names = pd.array([name_of(row) for row in plain_rows(arms)], "string")
    answers = contrasts(pairs, family)
    found = {
        "target": arms["target"].to_numpy()[first],
        "first": names[first], "second": names[second],
        "n": seconds.n[first], "n_second": seconds.n[second],
        "family": np.full(len(first), family),
        "verdict": [LATER if one == HIGHER else one for one in answers["seconds_verdict"]],
        **answers,
    }  # fmt: skip
    return Table(
        "target_pairs",
        "Pairs of conditions: time to the target",
        COLUMNS,
        frame(found, COLUMNS),
        folded=True,
    )
