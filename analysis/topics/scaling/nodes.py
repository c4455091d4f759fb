"""Which machine makes steps longer: effects of hosts, from runs that used different sets of them.

Least squares on the logarithm of the step's time, over conditions of which runs on equally many
nodes used at least two sets of hosts:

    log step_s = condition + sum of the effects of the run's hosts + error

A step waits for its slowest rank, so a slow host makes each step longer of every run that it is in,
by the same factor whatever the other hosts are. Two slow hosts of one run count as one for it, and
are underestimated. The effect of a host is what its own is above the mean of those that its runs
connect it with; p is that of Student's t, with Holm's adjustment over the hosts. Errors are taken
to have one variance in all conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special
from scipy.sparse import csgraph

from analysis.stats.differences import holm
from analysis.stats.intervals import IDENTICAL, Floats, estimate, t_quantile
from analysis.table import (
    Column,
    Row,
    Table,
    estimate_in,
    frame,
    p_value,
    percent,
    signed_percent,
)

#: Longer than this, and significant: the host is a suspect.
SLOWER = 0.05
ALPHA = 0.05
#: Fewer degrees of freedom are too few to say anything.
FEWEST_DF = 3
ALIKE = "its runs do not tell it from other hosts"
_ROUNDING = 1e-9  # of a logarithm
#: Suspects that a sentence names, and sound hosts beside them, fewer than which decide nothing.
_NAMED, _BESIDE = 3, 3
COLUMNS: tuple[Column, ...] = (
    Column("host", "string", "host", "several names: hosts that all of these runs used together"),
    Column("n_with", "Int64", "runs with it", "of conditions that were run on several sets of "
           "hosts; completed, with a step time"),
    Column("n_without", "Int64", "runs without it"),
    Column("effect", "Float64", "step time", "of runs on the host, against the mean of the hosts "
           "that it is compared with: least squares on the logarithm within each condition, with "
           "the 95 % t interval", format=signed_percent, estimate=True),
    Column("p_holm", "Float64", "p (Holm)", "adjusted over the hosts", format=p_value),
)  # fmt: skip


class Effects(NamedTuple):
    """Logarithms, one element per host; nan where there is none."""

    value: Floats
    error: Floats  # standard error
    df: int


def table(runs: pd.DataFrame) -> Table:
    """One row per host, the slowest first; empty where runs do not tell hosts apart."""
    used = _comparable(runs)
    names, present = _hosts(used)
    rows: list[Row] = []
    if len(names):
        group = used.groupby(["condition", "nodes"], sort=False).ngroup().to_numpy()
        times = np.log(used["step_s"].to_numpy(np.float64))
        found = effects(times, group, present)
        if found.df >= FEWEST_DF:
            rows = _rows(names, present, found)
    data = frame(rows, COLUMNS).sort_values("effect", ascending=False, kind="stable")
    return Table("node_effects", "Step time by host", COLUMNS, data.reset_index(drop=True))


def suspects(rows: Sequence[Row]) -> list[Row]:
    """Rows of the table whose host is slower by more than SLOWER, with p_holm below ALPHA."""
    return [
        row
        for row in rows
        if row["p_holm"] is not None and row["p_holm"] < ALPHA and row["effect"] > SLOWER
    ]


def effects(times: Floats, group: NDArray[Any], present: NDArray[Any]) -> Effects:
    """Effects of hosts on logarithms of times.

    Args:
        times: of runs, [n].
        group: number of each run's condition, from 0; its runs use equally many hosts.
        present: whether the run used the host, [n, hosts]; within some group each host is in one
            run and not in another.
    """
    y, x = _within(times[:, None], group)[:, 0], _within(present.astype(float), group)
    gram = x.T @ x
    inverse = np.linalg.pinv(gram, hermitian=True)
    fitted = inverse @ (x.T @ y)
    df = len(y) - len(np.unique(group)) - round(float(np.trace(inverse @ gram)))
    contrast = _against_others(x, group)
    told = np.isclose(contrast @ inverse @ gram, contrast, atol=1e-6).all(axis=1)
    spread = np.sqrt(np.sum((y - x @ fitted) ** 2) / df) if df > 0 else np.nan
    scale = np.sqrt(np.einsum("ij,jk,ik->i", contrast, inverse, contrast))
    error = scale * (spread if spread > _ROUNDING else np.nan)
    return Effects(
        np.where(told, contrast @ fitted, np.nan), np.where(told, error, np.nan), max(df, 0)
    )


def _within(values: Floats, group: NDArray[Any]) -> Floats:
    """Rows without the mean of their group."""
    means = _by_group(np.add, values, group) / np.bincount(group)[:, None]
    return np.asarray(values - means[group])


def _by_group(reduce: np.ufunc, values: NDArray[Any], group: NDArray[Any]) -> NDArray[Any]:
    starts = np.concatenate([[0], np.bincount(group).cumsum()[:-1]])
    result: NDArray[Any] = reduce.reduceat(values[np.argsort(group, kind="stable")], starts, axis=0)
    return result


def _against_others(x: Floats, group: NDArray[Any]) -> Floats:
    """Each host minus the mean of the others that the runs connect it with, a row per host."""
    varies = _by_group(np.maximum, np.abs(x) > _ROUNDING, group).astype(float)
    _, part = csgraph.connected_components(varies.T @ varies)
    itself = np.eye(x.shape[1], dtype=bool)
    others = (part[:, None] == part[None, :]) & ~itself
    return np.asarray(itself - others / np.maximum(others.sum(axis=1, keepdims=True), 1))


def _comparable(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs of conditions that used several sets of equally many hosts."""
    good = (runs["status"] == "completed") & ~runs["oversubscribed"] & (runs["step_s"] > 0)
    used = runs.loc[good.fillna(False), ["condition", "nodes", "hosts", "step_s"]]
    if not len(used):
        return used
    sets = used.groupby(["condition", "nodes"])["hosts"].transform("nunique")
    return used[sets > 1]


def _hosts(used: pd.DataFrame) -> tuple[list[str], NDArray[np.bool_]]:
    """Hosts that some run of a group used and another did not, and which runs used them; hosts that
    the same runs used are one, with blanks between their names."""
    if not len(used):
        return [], np.zeros((0, 0), dtype=np.bool_)
    names = used["hosts"].str.split(" ").reset_index(drop=True).explode()
    codes, hosts = pd.factorize(names, sort=True)
    present = np.zeros((len(used), len(hosts)), dtype=np.bool_)
    present[names.index.to_numpy(), codes] = True
    group = used.groupby(["condition", "nodes"], sort=False).ngroup().to_numpy()
    varies = (np.abs(_within(present.astype(float), group)) > _ROUNDING).any(axis=0)
    present, hosts = present[:, varies], hosts[varies]
    _, first, which = np.unique(
        np.packbits(present, axis=0).T, axis=0, return_index=True, return_inverse=True
    )
    together = pd.Series(hosts).groupby(which.ravel()).agg(" ".join)
    return together.tolist(), present[:, first]


def _rows(names: list[str], present: NDArray[np.bool_], found: Effects) -> list[Row]:
    with np.errstate(invalid="ignore"):
        half = t_quantile(found.df) * found.error
        p = 2 * special.stdtr(found.df, -np.abs(found.value / found.error))
    ends = np.expm1(np.stack([found.value, found.value - half, found.value + half]))
    adjusted = holm(p)
    rows = []
    for place, host in enumerate(names):
        n = int(present[:, place].sum())
        note = ALIKE if np.isnan(ends[0, place]) else IDENTICAL if np.isnan(p[place]) else None
        value, low, high = ends[:, place]
        rows.append({
            "host": host, "n_with": n, "n_without": len(present) - n,
            **estimate(value, low, high, n, note).columns("effect"),
            "p_holm": None if np.isnan(adjusted[place]) else float(adjusted[place]),
        })  # fmt: skip
    return rows


def blamed(slow: Sequence[Row]) -> str:
    """What the suspects cost, as a sentence without its full stop."""
    parts = [
        f"{estimate_in(row, 'effect').text(percent)} longer on "
        f"{' and '.join(str(row['host']).split())} ({row['n_with']} runs with it, "
        f"{row['n_without']} without)"
        for row in slow[:_NAMED]
    ]
    more = f", and longer on {len(slow) - _NAMED} more" if len(slow) > _NAMED else ""
    return f"Steps take {', '.join(parts)}{more}"


def ready_command(slow: Sequence[Row], rows: Sequence[Row], site: object | None) -> str:
    """Measures the pairs of suspects and sound hosts. ``site``: name of its file; None: unknown."""
    sound = [row for row in rows if row not in slow and row["effect"] is not None]
    sound.sort(key=lambda row: abs(row["effect"]))
    suspected, others = (
        [name for row in group for name in str(row["host"]).split()]
        for group in (slow[:_NAMED], sound)
    )
    nodes = ",".join(name.split(".")[0] for name in [*suspected, *others[:_BESIDE]])
    return f"make interconnect {f'SITE={site} ' if site else ''}NODES={nodes}"
