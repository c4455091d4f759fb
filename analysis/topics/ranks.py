"""Every rank of a run, and whether one of them holds up the others: found from one run alone.

In synchronous training all ranks' steps last equally long, since each waits for the slowest. The
slowest is the rank that waits least. ``behind_s`` is how much later than the median rank a rank is
ready: the median of ``waiting_s`` over the ranks minus its own. In older records, which have no
``waiting_s``, it is what the rank's input and computing last longer than the median rank's.

A rank stands out where behind_s is above 5 % of a step and t = behind_s / (1.4826 MAD) is beyond
Student's t with 0.37 (n - 1) degrees of freedom at 0.05 after Bonferroni over all ranks of all runs
that are tested: why, and how often this errs, is in docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from analysis import fmt
from analysis.stats.intervals import Floats
from analysis.stats.levels import ALPHA
from analysis.table import Column, Table, frame
from analysis.topics.names import NAMES, only
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups
from train.errors import make_line

FEWEST, LATER = 4, 0.05
#: Of a normal sample: the scale that makes the MAD a standard deviation, and its efficiency.
_SCALE, _EFFICIENCY = 1.4826, 0.37
#: Hosts with late ranks, and as many others, that the command measures.
_MEASURED = 3
COLUMNS: tuple[Column, ...] = (
    Column("cell_id", "string", "cell", wide=True),
    *NAMES,
    Column("gpus", "Int64", "ranks"),
    Column("seed", "Int64"),
    Column("rank", "Int64", "rank", "from 0", format=str),
    Column("host", "string", "host"),
    Column("local_rank", "Int64", "local rank", "from 0, among the ranks of its host", format=str),
    Column("step_s", "Float64", "step s", "median of the steady steps, as all parts: about equal "
           "on all ranks, since each waits for the slowest"),
    Column("input_s", "Float64", "input s"),
    Column("compute_s", "Float64", "compute s"),
    Column("communication_s", "Float64", "all-reduce s", "with the waiting in it"),
    Column("waiting_s", "Float64", "waiting s", "until the slowest rank was there: the slowest "
           "waits least"),
    Column("outside_epochs_s", "Float64", "outside epochs s", "start, first compilation and end of "
           "the run's last attempt; its first step waited no longer"),
    Column("behind_s", "Float64", "behind s", "how much later than the median rank it is ready: "
           "by its waiting or, in older records, by its input and computing"),
    Column("behind", "Float64", "of a step", "the same as a share of the step", format=fmt.percent),
    Column("p", "Float64", "p", "of a rank as late as this among equal ones with normally "
           "distributed delays, Bonferroni over all ranks that are tested", format=fmt.p_value,
           note="why"),
    Column("why", "string"),
    Column("late", "boolean", "stands out", f"more than {fmt.percent(LATER)} of a step late, p "
           f"below {ALPHA}"),
)  # fmt: skip


def table(of: Sweep) -> Table:
    """One row per rank of the runs with several; those that stand out first."""
    ranks = of.frames.ranks
    rows = judged(ranks[ranks["gpus"] > 1])
    late = rows["late"].fillna(False).to_numpy(bool)
    ordered = rows.iloc[np.lexsort((-rows["behind"].fillna(0).where(late, 0), ~late))]
    data = frame(ordered, COLUMNS).reset_index(drop=True)
    return Table("every_rank", "Ranks of each run", COLUMNS, data, folded=True)


def judged(ranks: pd.DataFrame) -> pd.DataFrame:
    """``ranks`` with behind_s, behind, p and late, null where a run is not tested."""
    run = ranks["cell_id"]
    step, took, computed, waited = (
        ranks[name].astype(float) for name in ("step_s", "input_s", "compute_s", "waiting_s")
    )
    unknown = waited.isna().groupby(run).transform("any")
    # ready later: larger, of either kind
    ready = (-waited).mask(unknown, took + computed)
    behind = ready - ready.groupby(run).transform("median")
    spread = _SCALE * behind.abs().groupby(run).transform("median")
    count = run.groupby(run).transform("size")
    step = step.groupby(run).transform("median")
    good = (ranks["status"] == "completed") & ~ranks["oversubscribed"].fillna(True)
    why = np.select(
        [~good, count < FEWEST, behind.isna() | ~(step > 0)],
        ["the run diverged, or its ranks share cores", f"fewer than {FEWEST} ranks",
         "the record does not have it"],
        np.array(None),
    )  # fmt: skip
    tested = pd.Series(pd.isna(why), ranks.index)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(behind > 0, behind / spread, -np.inf)
    p = np.minimum(1, tested.sum() * p_alone(t, count))
    late = ((behind > LATER * step) & (p < ALPHA)).astype("boolean")
    return ranks.assign(
        behind_s=behind,
        behind=behind / step.where(step > 0),
        p=pd.Series(p, ranks.index).where(tested),
        late=late.where(tested),
        why=why,
    )


def p_alone(t: ArrayLike, count: ArrayLike) -> Floats:
    """One-sided p of a rank that is t = behind / (1.4826 MAD) later than the median of ``count``
    equal ranks, without correction."""
    return np.asarray(special.stdtr(_EFFICIENCY * (np.asarray(count) - 1), -np.asarray(t)), float)


def answer(of: Sweep) -> Iterable[Answer]:
    """Who holds up the others, with the command that measures the pairs of hosts."""
    by_run = {own[0]["cell_id"]: own for own in groups(of.rows(table), ("cell_id",))}
    late = {cell: slow for cell, own in by_run.items() if (slow := [r for r in own if r["late"]])}
    if not late:
        return
    cell, slow = next(iter(late.items()))
    first, upto = slow[0], "up to " if len(slow) > 1 else ""
    others = f"; ranks stand out in {fmt.runs(len(late))}" if len(late) > 1 else ""
    text = (
        f"{_who(slow, by_run[cell])} {'are' if upto else 'is'} ready {upto}"
        f"{fmt.significant(1000 * first['behind_s'])} ms after the median rank, {upto}"
        f"{fmt.percent(first['behind'])} of a step, and the others wait (p "
        f"{fmt.p_value(first['p'])}; {first['technique_label']}, {first['gpus']} ranks, "
        f"seed {first['seed']}){others}"
    )
    test = "measure again before you act"
    if command := _pair_test(by_run[cell], only(of.frames.sites)):
        test += f": {command} compares these hosts"
    yield Answer("nodes", "Does one rank slow the others down?", fmt.sentence(text), "every_rank",
                 "ranks", [test])  # fmt: skip


def _who(slow: Rows, own: Rows) -> str:
    """Single ranks, and hosts with several."""
    named = []
    for late in groups(slow, ("host",)):
        first, there = late[0], [row for row in own if row["host"] == late[0]["host"]]
        alone = f"rank {first['rank']} ({first['host']}, local rank {first['local_rank']})"
        several = f"{len(late)} of {len(there)} ranks of {first['host']}"
        named.append(several if len(late) > 1 else alone)
    return fmt.some(named)


def _pair_test(rows: Rows, site: object) -> str:
    """Command that measures the hosts with late ranks against the most usual others of the run;
    empty where it has one host, or names and site of the cluster are unknown."""
    by_host = groups(rows, ("host",))
    slow = [own for own in by_host if any(row["late"] for row in own)]
    others = [own for own in by_host if own not in slow and own[0]["behind"] is not None]
    if not site or not others:
        return ""
    others.sort(key=lambda own: abs(float(np.median([row["behind"] for row in own]))))
    names = [own[0]["host"] for own in (*slow[:_MEASURED], *others[:_MEASURED])]
    return make_line("interconnect", SITE=str(site),
                     NODES=",".join(name.split(".")[0] for name in names))  # fmt: skip


TOPIC = Topic(tables=(table,), answers=(answer,))
