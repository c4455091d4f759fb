"""Stratified choices that never change: which images are held out, which a fraction keeps.

The seeds here are fixed and belong to the data set, not to a run: runs with different seeds train
and validate on the same images. The order comes from the raw 64-bit stream of PCG64, which NumPy
keeps the same in all versions, unlike that of ``Generator.permutation`` (NEP 19).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from train.data.arrays import Labels

Indices = NDArray[np.int64]

_SEED = 2017  # any fixed number; another one gives other held-out images


def shuffled(n: int, *words: int) -> Indices:
    """A uniformly random permutation of 0..n-1 that depends on nothing but ``n`` and ``words``."""
    stream = np.random.PCG64(np.random.SeedSequence(words))
    return np.argsort(stream.random_raw(n), kind="stable").astype(np.int64, copy=False)


def apportion(counts: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Share ``total`` places among classes in proportion to ``counts``, exactly and whole.

    Largest remainder (Hamilton); equal remainders go to the lower class number. No class gets more
    places than it has members.
    """
    available = int(counts.sum())
    if not 0 <= total <= available:
        raise ValueError(f"cannot take {total} of {available}")
    if available == 0:
        return np.zeros_like(counts)
    exact = counts * total  # integers: no rounding decides a remainder
    places = exact // available
    by_remainder = np.argsort(-(exact % available), kind="stable")
    places[by_remainder[: total - int(places.sum())]] += 1
    return places


def take(labels: Labels, quotas: NDArray[np.int64]) -> tuple[Indices, Indices]:
    """Split 0..N-1 in (taken, rest), both sorted, with ``quotas[c]`` images of class c taken."""
    taken = np.zeros(len(labels), bool)
    for number, quota in enumerate(quotas):
        members = np.flatnonzero(labels == number)
        taken[members[shuffled(len(members), _SEED, number)[:quota]]] = True
    return np.flatnonzero(taken), np.flatnonzero(~taken)
