"""Which images a run uses, and which of them each rank sees in an epoch: a pure function of (seed,
epoch, rank), epochs from 0; what is held out, or a fraction keeps, is the same for all seeds.

The order comes from the raw 64-bit stream of PCG64, which NumPy keeps the same in all versions,
unlike that of ``Generator.permutation`` (NEP 19).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import ChosenImages, Dataset, Labels

Indices = NDArray[np.int64]
_SEED = 2017  # any fixed number; another one gives other held-out images


def used_subset(labels: Labels, count: int) -> Indices:
    """Sorted indices of ``count`` images, those that a run with ``data_fraction`` trains on:
    stratified, by largest remainder, and the same for every seed."""
    used, _ = split_by_class(labels, apportion(np.bincount(labels).astype(np.int64), count))
    return used


def rank_batches(
    option: Literal["partition", "independent", "whole", "same"],
    n: int,
    seed: int,
    epoch: int,
    rank: int,
    size: int,
    batch_per_rank: int,
) -> Indices:
    """Positions in 0..n-1 that ``rank`` of ``size`` trains on, [steps, batch_per_rank], with
    n // (size * batch_per_rank) steps.

    - "partition": step t takes the next size * batch_per_rank entries of the epoch's permutation,
      and rank r the r-th slice of them: ranks are disjoint, and k ranks of b see the global batches
      of one of k*b.
    - "independent": each rank draws from a permutation of its own: no image twice on one rank, yet
      some twice and some never over all ranks.
    - "whole": the same from another seed, as in records from before "independent" was there.
    - "same": all ranks take the first entries of the epoch's permutation, as the course's scripts
      do (one seed, no shard): k ranks of b take 1/k of the steps of one rank of b.
    """
    steps = n // (size * batch_per_rank)
    if option == "partition":
        order = shuffled(n, seed, epoch)[: steps * size * batch_per_rank]
        return np.ascontiguousarray(order.reshape(steps, size, batch_per_rank)[:, rank])
    if option == "same":
        order = shuffled(n, seed, epoch)
    else:
        # SeedSequence pads with zeros, so without the 1 rank 0's words are those of the partition
        order = shuffled(n, seed, epoch, rank, *([1] if option == "independent" else []))
    return order[: steps * batch_per_rank].reshape(steps, batch_per_rank)


def evaluation_shard(n: int, rank: int, size: int) -> Indices:
    """Each image on one rank: rank, rank + size, ...; shards differ by one image at most."""
    return np.arange(n, dtype=np.int64)[rank::size]


def shuffled(n: int, *words: int) -> Indices:
    stream = np.random.PCG64(np.random.SeedSequence(words))
    return np.argsort(stream.random_raw(n), kind="stable").astype(np.int64, copy=False)


def apportion(counts: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Share ``total`` places, at most the sum of ``counts``, in proportion to these: largest
    remainder (Hamilton), equal ones to the lower class number. No class gets more than its
    members."""
    exact = counts * total  # integers: no rounding decides a remainder
    places = exact // counts.sum()
    by_remainder = np.argsort(-(exact % counts.sum()), kind="stable")
    places[by_remainder[: total - int(places.sum())]] += 1
    return places


def split_by_class(labels: Labels, quotas: NDArray[np.int64]) -> tuple[Indices, Indices]:
    """0..N-1 as (chosen, rest), both sorted: ``quotas[c]`` images of class c are chosen."""
    chosen = np.zeros(len(labels), bool)
    for number, quota in enumerate(quotas):
        members = np.flatnonzero(labels == number)
        chosen[members[shuffled(len(members), _SEED, number)[:quota]]] = True
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def for_tuning(data: Dataset, validated: int) -> Dataset:
    """The training images alone, so many of them (stratified, always the same) to validate on. The
    fingerprint is that of ``data``: to hash these images, all of them are read."""
    counts = np.bincount(data.train_y, minlength=len(data.classes)).astype(np.int64)
    held_out, trained = split_by_class(data.train_y, apportion(counts, validated))

    def part(rows: Indices) -> tuple[ChosenImages, Labels]:
        return ChosenImages(data.train_x, rows), data.train_y[rows]

    name = f"{data.name}, a tenth of its training images to validate on"
    return Dataset(name, *part(trained), *part(held_out), data.classes, data.fingerprint)
