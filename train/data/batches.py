"""The batches of one rank, gathered and changed ahead of the step that uses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

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
#: Calls whose batches are gathered ahead: one step is over before the many of the next call.
AHEAD = 2
#: Training images from which batch-norm statistics are estimated again.
ESTIMATED_FROM = 20_000


@dataclass(frozen=True)
class Batches:
    """Of one call: for each step one batch, several accumulated ones, or one of each replica."""

    images: npt.NDArray[np.uint8]  # [steps, batches, b, H, W, C]
    labels: npt.NDArray[np.int64]  # [steps, batches, b]

    def __len__(self) -> int:
        return len(self.labels)

    def of_step(self, step: int) -> list[Batch]:
        return list(zip(self.images[step], self.labels[step], strict=True))

    def after(self, steps: int) -> Batches:
        return Batches(self.images[steps:], self.labels[steps:])


def process_batches(
    config: RunConfig, data: Dataset, used: Indices, plan: EpochPlan, process: int, processes: int,
    replicas: int = 1, calls: Sequence[int] | None = None,
) -> Iterator[Batches]:  # fmt: skip
    """The batches of an epoch, each ``config.batch_per_rank`` images: ``plan.accumulation`` a step,
    for each rank that the process stands for.

    Of a partition, k ranks that accumulate p batches see the images of k x p ranks: rank r's
    batches are those of ranks r p .. r p + p - 1. With ``independent`` a rank's p batches are
    disjoint, as those of p ranks are not; with ``same`` they differ, and ranks repeat all of them.

    calls: the steps of each call, all of the epoch's together; by default one each.
    """
    ranks = range(process * replicas, (process + 1) * replicas)
    parts = [_rows(config, used, plan, rank, processes * replicas) for rank in ranks]
    rows = np.concatenate(parts, axis=1)  # [steps, batches, b]

    def gather(own: Indices) -> Batches:
        flat = own.reshape(-1)
        images = data.train_x[flat]
        how = config.technique.augmentation
        if isinstance(how, CropFlip):
            images = augment(images, flat, plan.pass_number, config.seed, how)
        return Batches(images.reshape(*own.shape, *images.shape[1:]), data.train_y[own])

    with ThreadPoolExecutor(1) as pool:
        coming: deque[Future[Batches]] = deque()
        for own in np.split(rows, np.cumsum(calls or [1] * plan.steps)[:-1]):
            coming.append(pool.submit(gather, own))
            if len(coming) > AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _rows(config: RunConfig, used: Indices, plan: EpochPlan, rank: int, size: int) -> Indices:
    """Training images of one rank's batches, [steps, accumulated batches, b]."""
    own = rank_batches(
        config.partition, len(used), config.seed, plan.pass_number, rank, size,
        config.batch_per_rank * plan.accumulation,
    )  # fmt: skip
    # an adapted run may end within its last epoch
    own = own[plan.first_of_pass : plan.first_of_pass + plan.steps]
    return used[own].reshape(plan.steps, plan.accumulation, config.batch_per_rank)


def estimation_batches(
    config: RunConfig, data: Dataset, used: Indices, rank: int, size: int
) -> Iterator[Pixels]:
    """This rank's training images as they are, uint8 [b, H, W, C], the same in every epoch and for
    every seed: whole batches, so that layers normalise over as many images as in training, as many
    on every rank as fit in 20,000 images, at least one."""
    step = size * config.batch_per_rank
    batches = max(1, min(ESTIMATED_FROM, len(used)) // step)
    own = used[shuffled(len(used), 0)][rank : batches * step : size]
    for batch in own.reshape(batches, config.batch_per_rank):
        yield data.train_x[np.sort(batch)]
