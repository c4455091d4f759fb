"""Least squares within groups of runs, each group with its own variance.

    value = group + sum of the effects of what the run used + error

Errors have one variance within a group, and any variance between groups. Ordinary least squares
then still has no bias. Let M be the matrix that makes residuals e of errors, and a block of it that
of one group's runs. The variance of the group is estimated by e'e / tr(M M) over its block: in the
mean this is never too small, and it is exact where a block is a projection, as with one group. An
effect that gives the group's runs the coefficients a has the variance sum(a'a e'e / tr(M M)), with
Satterthwaite's (1946) degrees of freedom, a group's own being tr(M M)^2 / tr(M M M M).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph

from analysis.stats.intervals import Floats

ROUNDING = 1e-9  # of a value, relative to 1


class Effects(NamedTuple):
    """One element per part; nan where there is none."""

    value: Floats
    error: Floats  # standard error
    df: Floats


class Fit:
    """What does not depend on the values.

    Attributes:
        group: number of each run's group, from 0, [runs].
        x: ``present`` without the mean of the run's group, [runs, parts].
        inverse: of x'x (Moore and Penrose), [parts, parts].
        square: tr(M M) of each group's block, [groups].
        df: degrees of freedom of each group's variance, [groups]; 0 where its runs show none.
    """

    def __init__(self, group: NDArray[Any], present: NDArray[Any]) -> None:
        """
        Args:
            present: whether the run used the part, [runs, parts]; each part was used by one run and
                not by another of some group.
        """
        self.group, self.x = group, within(present.astype(float), group)
        values, vectors = np.linalg.eigh(self.x.T @ self.x)
        there = values > ROUNDING * values[-1]
        root = vectors[:, there] / np.sqrt(values[there])
        self.inverse = root @ root.T
        rows = (self.x @ root)[np.argsort(group, kind="stable")]
        traces = [_traces(own) for own in np.split(rows, np.bincount(group).cumsum()[:-1])]
        self.square, fourth = np.array(traces).T
        known = self.square > ROUNDING
        self.df = np.where(known, self.square**2 / np.where(known, fourth, 1), 0)

    def effects(self, values: Floats) -> Effects:
        """Effect of each part, against the mean of the others that the runs connect it with;
        ``values``: of runs of groups that all have degrees of freedom."""
        y, to_parts = within(values[:, None], self.group)[:, 0], self.inverse @ self.x.T
        fitted, contrast = to_parts @ y, _against_others(self.x, self.group)
        told = np.isclose(contrast @ to_parts @ self.x, contrast, atol=1e-6).all(axis=1)
        share = _by_group(np.add, (contrast @ to_parts).T ** 2, self.group).T
        residual = _by_group(np.add, (y - self.x @ fitted) ** 2, self.group)
        part = share * np.maximum(residual / self.square, ROUNDING**2)
        variance = part.sum(axis=1)
        scatters = told & (variance > 2 * ROUNDING**2 * share.sum(axis=1))
        with np.errstate(invalid="ignore"):
            df = variance**2 / np.sum(part**2 / self.df, axis=1)
        return Effects(
            np.where(told, contrast @ fitted, np.nan),
            np.where(scatters, np.sqrt(variance), np.nan),
            np.where(told, df, np.nan),
        )


def _traces(rows: Floats) -> tuple[float, float]:
    """tr(M M) and tr(M M M M) of the block M = 1 - 1 / n - rows rows'."""
    left = 1 - np.linalg.svd(rows, compute_uv=False) ** 2
    ones = len(rows) - 1 - len(left)
    return ones + np.sum(left**2), ones + np.sum(left**4)


def within(values: Floats, group: NDArray[Any]) -> Floats:
    """Rows without the mean of their group."""
    means = _by_group(np.add, values, group) / np.bincount(group)[:, None]
    return np.asarray(values - means[group])


def _by_group(reduce: np.ufunc, values: NDArray[Any], group: NDArray[Any]) -> NDArray[Any]:
    starts = np.concatenate([[0], np.bincount(group).cumsum()[:-1]])
    result: NDArray[Any] = reduce.reduceat(values[np.argsort(group, kind="stable")], starts, axis=0)
    return result


def _against_others(x: Floats, group: NDArray[Any]) -> Floats:
    """Each part minus the mean of the others that the runs connect it with, a row per part."""
    varies = _by_group(np.maximum, np.abs(x) > ROUNDING, group).astype(float)
    _, component = csgraph.connected_components(varies.T @ varies)
    itself = np.eye(x.shape[1], dtype=bool)
    others = (component[:, None] == component[None, :]) & ~itself
    return np.asarray(itself - others / np.maximum(others.sum(axis=1, keepdims=True), 1))
