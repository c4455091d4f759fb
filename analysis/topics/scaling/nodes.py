"""Which machine makes steps longer: effects of hosts, from runs that used different sets of them.

Least squares on the logarithm of the step's time, over groups of runs of one condition, on equally
many nodes with one device (that of the first host), that used at least two sets of hosts:

    log step_s = group + sum of the effects of the run's hosts + error

A step waits for its slowest rank, so a slow host makes each step longer of every run that it is in,
by the same factor whatever the other hosts are. Two slow hosts of one run count as one for it, and
are underestimated. The effect of a host is what its own is above the mean of those that its runs
connect it with; p is that of Student's t, with Holm's adjustment over the hosts. Each group has a
variance of its own (analysis/stats/least_squares.py): a noisy condition makes no sound host look
slow. docs/statistics.md has how often this errs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from analysis import fmt
from analysis.stats.differences import holm
from analysis.stats.intervals import IDENTICAL, t_quantile
from analysis.stats.least_squares import ROUNDING, Effects, Fit, within
from analysis.table import Column, Names, Row, Table, estimate_in, estimates_as, frame
from analysis.topics.names import only
from analysis.topics.topic import Answer, Sweep, Topic
from train.errors import make_line

#: Longer than this, and significant: the host is a suspect.
SLOWER = 0.05
ALPHA = 0.05
#: Fewer degrees of freedom are too few to say anything of a host.
FEWEST_DF = 3
#: Groups with fewer of their own are left out: a noisy one looks quiet by chance too often.
FEWEST_OF_A_GROUP = 1.5
FEW = "too few runs to know how far they scatter"
ALIKE = "its runs do not tell it from other hosts"
#: Suspects that a sentence names, and sound hosts beside them, fewer than which decide nothing.
_NAMED, _BESIDE = 3, 3
COLUMNS: tuple[Column, ...] = (
    Column("host", "object", "host", "several names: hosts that all of these runs used together"),
    Column("n_with", "Int64", "runs with it", "completed, with a step time, of conditions that ran "
           "often enough on several sets of hosts with one device"),
    Column("n_without", "Int64", "runs without it"),
    Column("effect", "Float64", "step time", "how much slower it is than the average of the hosts "
           "it can be compared with: least squares on the logarithm of the step time within each "
           "condition, with the 95 % t interval", format=fmt.signed_percent, estimate=True),
    Column("p_holm", "Float64", "p (Holm)", "adjusted over the hosts", format=fmt.p_value),
)  # fmt: skip


def table(runs: pd.DataFrame) -> Table:
    """One row per host, the slowest first; empty where runs do not tell hosts apart."""
    used = _comparable(runs)
    columns: dict[str, Any] = {}
    while len(used):
        names, present = _hosts(used)
        group = used["group"].factorize()[0]
        fit = Fit(group, present)
        known = fit.df[group] >= FEWEST_OF_A_GROUP
        if known.all():
            found = fit.effects(np.log(used["step_s"].to_numpy(np.float64)))
            if (found.df >= FEWEST_DF).any():
                columns = _columns(names, present, found)
            break
        used = used[known]
    data = frame(columns, COLUMNS).sort_values("effect", ascending=False, kind="stable")
    return Table("node_effects", "Step time by host", COLUMNS, data.reset_index(drop=True))


def _comparable(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs of groups that used several sets of equally many hosts; adds the column group."""
    good = (runs["status"] == "completed") & ~runs["oversubscribed"] & (runs["step_s"] > 0)
    good &= runs["hosts"].astype(bool)
    used = runs[good.fillna(False)].reset_index(drop=True)
    groups = used.groupby(["condition", "nodes", "device"], sort=False)
    return used.assign(group=groups.ngroup())[groups["hosts"].transform("nunique") > 1]


def _hosts(used: pd.DataFrame) -> tuple[list[Names], NDArray[np.bool_]]:
    """Hosts that some run of a group used and another did not, and which runs used them; hosts that
    the same runs used are one."""
    names = used["hosts"].reset_index(drop=True).explode()
    codes, hosts = pd.factorize(names, sort=True)
    present = np.zeros((len(used), len(hosts)), dtype=np.bool_)
    present[names.index.to_numpy(), codes] = True
    moved = within(present.astype(float), used["group"].factorize()[0])
    varies = (np.abs(moved) > ROUNDING).any(axis=0)
    present, hosts = present[:, varies], hosts[varies]
    _, first, which = np.unique(present, axis=1, return_index=True, return_inverse=True)
    together = pd.Series(hosts).groupby(which.ravel()).agg(Names)
    return together.tolist(), present[:, first]


def _columns(names: list[Names], present: NDArray[np.bool_], found: Effects) -> dict[str, Any]:
    few, n = found.df < FEWEST_DF, present.sum(axis=0)
    error = np.where(few, np.nan, found.error)
    half = t_quantile(found.df) * error
    value, low, high = np.expm1([found.value, found.value - half, found.value + half])
    note = np.select([np.isnan(value), few, np.isnan(low)], [ALIKE, FEW, IDENTICAL], np.array(None))
    effect = pd.DataFrame({"value": value, "low": low, "high": high, "n": n, "note": note})
    return {
        "host": names, "n_with": n, "n_without": len(present) - n,
        **estimates_as("effect", effect),
        "p_holm": holm(2 * special.stdtr(found.df, -np.abs(found.value / error))),
    }  # fmt: skip


def ready_command(slow: Sequence[Row], rows: Sequence[Row], site: object) -> str:
    """Measures the pairs of suspects and sound hosts. ``site``: name of its file."""
    sound = [row for row in rows if row not in slow and row["effect"] is not None]
    sound.sort(key=lambda row: abs(row["effect"]))
    suspected, others = (
        [name for row in group for name in row["host"]] for group in (slow[:_NAMED], sound)
    )
    nodes = ",".join(name.split(".")[0] for name in [*suspected, *others[:_BESIDE]])
    return make_line("interconnect", SITE=str(site), NODES=nodes)


def by_host(of: Sweep) -> Table:
    return table(of.runs)


def _to_blame(of: Sweep) -> Iterable[Answer]:
    found = of.rows(by_host)
    slow = [row for row in found if row["p_holm"] is not None and row["p_holm"] < ALPHA
            and row["effect"] > SLOWER]  # fmt: skip
    if slow:
        parts = [
            f"{estimate_in(row, 'effect').text(fmt.percent)} longer on {' and '.join(row['host'])} "
            f"({row['n_with']} runs with it, {row['n_without']} without)"
            for row in slow
        ]
        more = []
        # without its site a command would not run: names may have been left out
        if site := only(of.frames.sites):
            # no full stop follows the command, which a shell would take for its last node
            more = [f"the command {ready_command(slow, found, site)} measures the network there "
                    "and compares the hosts"]  # fmt: skip
        verdict = f"Steps take {fmt.first_of(parts, _NAMED)}."
        yield Answer("nodes", "Is a machine to blame?", verdict, "node_effects", "hosts", more)


TOPIC = Topic(tables=(by_host,), answers=(_to_blame,))
