"""The batches of one rank, gathered and changed ahead of the step that uses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.config.schedule import CropFlip
from train.data.augment import augment
from train.data.dataset import Dataset
from train.data.sampling import Indices, rank_batches

#: Calls whose batches are gathered ahead: one step is over before the many of the next call.
AHEAD = 2


@dataclass(frozen=True)
class Batches:
    """Of one call: for each step one batch, several accumulated ones, or one of each replica."""

    images: npt.NDArray[np.uint8]  # [steps, batches, b, H, W, C]
    labels: npt.NDArray[np.int64]  # [steps, batches, b]

    def __len__(self) -> int:
        return len(self.labels)

    def after(self, steps: int) -> Batches:
        return Batches(self.images[steps:], self.labels[steps:])


@dataclass
class Feed:
    """The batches of one process, for each of the ``replicas`` ranks that it stands for.

    Of a partition, k ranks that accumulate p batches see the images of k x p ranks: rank r's
    batches are those of ranks r p .. r p + p - 1. With ``independent`` a rank's p batches are
    disjoint, as those of p ranks are not; with ``same`` they differ, and ranks repeat all of them.
    """

    config: RunConfig
    data: Dataset
    used: Indices
    process: int = 0
    processes: int = 1
    replicas: int = 1
    _ahead: dict[EpochPlan, Future[Indices]] = field(default_factory=dict)

    def epoch(
        self, plan: EpochPlan, calls: Sequence[int], following: EpochPlan | None = None
    ) -> Iterator[Batches]:
        """Batches of each call, which has so many steps: ``config.batch_per_rank`` images each,
        ``plan.accumulation`` a step for each rank. The order of the images of ``following``, the
        next epoch, is made meanwhile."""
        coming = self._ahead.pop(plan, None)
        rows = coming.result() if coming else self._rows(plan)
        with ThreadPoolExecutor(1) as gathering, ThreadPoolExecutor(1) as ordering:
            if following:
                self._ahead[following] = ordering.submit(self._rows, following)
            ahead: deque[Future[Batches]] = deque()
            for own in np.split(rows, np.cumsum(calls)[:-1]):
                ahead.append(gathering.submit(self._gathered, own, plan))
                if len(ahead) > AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _rows(self, plan: EpochPlan) -> Indices:
        """Training images of all steps, [steps, batches, b]."""
        ranks = range(self.process * self.replicas, (self.process + 1) * self.replicas)
        size = self.processes * self.replicas
        parts = [_rows(self.config, self.used, plan, rank, size) for rank in ranks]
        return np.concatenate(parts, axis=1)

    def _gathered(self, rows: Indices, plan: EpochPlan) -> Batches:
        flat = rows.reshape(-1)
        images = self.data.train_x[flat]
        how = self.config.technique.augmentation
        if isinstance(how, CropFlip):
            images = augment(images, flat, plan.pass_number, self.config.seed, how)
        return Batches(images.reshape(*rows.shape, *images.shape[1:]), self.data.train_y[rows])


def _rows(config: RunConfig, used: Indices, plan: EpochPlan, rank: int, size: int) -> Indices:
    """Training images of one rank's batches, [steps, accumulated batches, b]."""
    own = rank_batches(
        config.partition, len(used), config.seed, plan.pass_number, rank, size,
        config.batch_per_rank * plan.accumulation,
    )  # fmt: skip
    # an adapted run may end within its last epoch
    own = own[plan.first_of_pass : plan.first_of_pass + plan.steps]
    return used[own].reshape(plan.steps, plan.accumulation, config.batch_per_rank)
