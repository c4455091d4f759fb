"""Which images each rank sees, and when: pure functions of (seed, epoch, rank), no state.

Every rank computes its own part alone; nothing is exchanged, and a run resumed at epoch e draws
what it would have drawn. Epochs count from 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from train.config import used_train_images
from train.data.arrays import Labels
from train.data.split import Indices, apportion, shuffled, take

#: Ends the words of "independent": SeedSequence pads with zeros, so without it rank 0's words are
#: those of the partition, as they are for "whole".
_INDEPENDENT = 1


def used_subset(labels: Labels, fraction: float) -> Indices:
    """Sorted indices of the images that a run with ``data_fraction`` trains on.

    Stratified, and the same for every seed: exactly ``used_train_images(len(labels), fraction)``
    images, shared among the classes by largest remainder.
    """
    used = used_train_images(len(labels), fraction)
    if used == len(labels):
        return np.arange(used, dtype=np.int64)
    chosen, _ = take(labels, apportion(np.bincount(labels).astype(np.int64), used))
    return chosen


def epoch_order(n: int, seed: int, epoch: int) -> Indices:
    """One permutation of 0..n-1 from SeedSequence([seed, epoch]), equal on all ranks."""
    return shuffled(n, seed, epoch)


def rank_batches(
    option: Literal["partition", "independent", "whole"],
    n: int,
    seed: int,
    epoch: int,
    rank: int,
    size: int,
    batch_per_rank: int,
) -> Indices:
    """Positions in 0..n-1 that ``rank`` of ``size`` trains on, [steps, batch_per_rank].

    All ranks get the same number of steps, n // (size * batch_per_rank); the remainder is left out.

    - "partition": step t takes the next size * batch_per_rank entries of the epoch's permutation,
      and rank r the r-th contiguous slice of them. So ranks are disjoint, together they cover the
      permutation's whole global batches, and k ranks of b see the global batches of one of k*b.
    - "independent": each rank draws from a permutation of its own, from SeedSequence([seed, epoch,
      rank, 1]): no image twice on one rank, yet some twice and some never over all ranks.
    - "whole": the same without the 1, as in records from before "independent" was there.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is not in a world of {size}")
    steps = n // (size * batch_per_rank)
    if option in ("independent", "whole"):
        words = (_INDEPENDENT,) if option == "independent" else ()
        order = shuffled(n, seed, epoch, rank, *words)[: steps * batch_per_rank]
        return order.reshape(steps, batch_per_rank)
    if option != "partition":
        raise ValueError(f"unknown option {option!r}; known: partition, independent, whole")
    order = epoch_order(n, seed, epoch)[: steps * size * batch_per_rank]
    return np.ascontiguousarray(order.reshape(steps, size, batch_per_rank)[:, rank])


def evaluation_shard(n: int, rank: int, size: int) -> Indices:
    """Each image on one rank: rank, rank + size, ...; shards differ by one image at most."""
    return np.arange(n, dtype=np.int64)[rank::size]
