"""The batches of one rank, gathered and changed ahead of the step that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.config.schedule import CropFlip
from train.data.augment import augment
from train.data.dataset import Dataset, Pixels
from train.data.sampling import Indices, rank_batches, shuffled

#: uint8 images [b, H, W, C] and int64 labels [b] of one rank
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
#: Training images that batch-norm statistics are estimated from anew.
ESTIMATED_FROM = 20_000


def epoch_batches(
    config: RunConfig, data: Dataset, used: Indices, plan: EpochPlan, rank: int, size: int
) -> Iterator[list[Batch]]:
    """For each step of the epoch its ``plan.accumulation`` batches, each
    ``config.batch_per_rank`` images.

    Of a partition, k ranks that accumulate p batches see the images of k x p ranks: rank r's
    batches are those of ranks r p .. r p + p - 1. With ``independent`` they do not: each rank has
    one permutation of its own, of which p batches are disjoint, as those of p ranks are not.
    """
    own = rank_batches(
        config.partition, len(used), config.seed, plan.number, rank, size,
        config.batch_per_rank * plan.accumulation,
    )  # fmt: skip
    own = own[: plan.steps]  # an adapted run may end within its last epoch
    assert len(own) == plan.steps, (len(own), plan.steps)
    parts = own.reshape(plan.steps * plan.accumulation, config.batch_per_rank)

    def gather(part: int) -> Batch:
        rows = used[parts[part]]
        images = data.train_x[rows]
        how = config.technique.augmentation
        if isinstance(how, CropFlip):
            images = augment(images, rows, plan.number, config.seed, how)
        return images, data.train_y[rows]

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(gather, 0)
        for step in range(plan.steps):
            batches = []
            for part in range(step * plan.accumulation, (step + 1) * plan.accumulation):
                batches.append(coming.result())
                if part + 1 < len(parts):
                    coming = ahead.submit(gather, part + 1)
            yield batches


def process_batches(
    config: RunConfig,
    data: Dataset,
    used: Indices,
    plan: EpochPlan,
    rank: int,
    size: int,
    replicas: int,
) -> Iterator[list[Batch]]:
    """For each step the batches of all ranks that one of ``size`` processes stands for, in turn."""
    ranks = range(rank * replicas, (rank + 1) * replicas)
    parts = (epoch_batches(config, data, used, plan, r, size * replicas) for r in ranks)
    for own in zip(*parts, strict=True):
        yield [batch for batches in own for batch in batches]


def estimation_batches(
    config: RunConfig, data: Dataset, used: Indices, rank: int, size: int
) -> Iterator[Pixels]:
    """This rank's share of about 20,000 training images as they are, uint8 [b, H, W, C]; the same
    images in every epoch and for every seed, and as many batches on every rank."""
    ghost = config.technique.ghost_batch or 1
    chosen = used[shuffled(len(used), 0)][: max(ESTIMATED_FROM, size * ghost)]
    share = len(chosen) // size
    batch = min(config.batch_per_rank, share)
    batch -= batch % ghost
    own = chosen[rank::size]
    for start in range(0, share // batch * batch, batch):
        yield data.train_x[np.sort(own[start : start + batch])]
