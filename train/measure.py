"""From raw samples to the summaries of a record: medians with their spread, steady state only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from train.record import EpochRecord, RankSteps, Spread, Throughput, ThroughputSample


def spread(samples: Sequence[float]) -> Spread:
    """Summary of at least one sample."""
    values = np.asarray(samples, np.float64)
    p05, median, p95 = np.percentile(values, [5, 50, 95])
    return Spread(
        n=len(values), mean=float(values.mean()), median=float(median), p05=float(p05),
        p95=float(p95),
    )  # fmt: skip


def steady_epochs(epochs: Sequence[EpochRecord]) -> list[EpochRecord]:
    """All but the first epoch of each start, which pays for tracing and cold caches."""
    return [
        epoch
        for before, epoch in zip([None, *epochs], epochs, strict=False)
        if before is not None and before.attempt == epoch.attempt
    ]


def throughput(epochs: Sequence[EpochRecord]) -> Throughput:
    """Images really processed over the training seconds they took, all ranks together."""
    steady = steady_epochs(epochs)
    samples = tuple(
        ThroughputSample(epoch=epoch.epoch, images_per_s=epoch.images / epoch.train_s)
        for epoch in steady
        if epoch.train_s > 0
    )
    kept = {sample.epoch for sample in samples}
    median = float(np.median([s.images_per_s for s in samples])) if samples else None
    return Throughput(
        images_per_s=median,
        samples=samples,
        left_out=tuple(epoch.epoch for epoch in epochs if epoch.epoch not in kept),
    )


Array = npt.NDArray[np.float64]


class StepClock:
    """Per-step times of this rank: [input, step without input, communication] in seconds."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float, float, float]] = []  # epoch, input, call, communication

    def add(self, epoch: int, input_s: float, call_s: float, communication_s: float) -> None:
        self.rows.append((epoch, input_s, call_s, communication_s))

    def steady(self) -> Array:
        """float64 [steps, 3] without the first epoch of this start; all of it if there is no other.

        The first step of every process traces the graph; it is never part of the steady state.
        """
        table = np.asarray(self.rows, np.float64).reshape(-1, 4)
        later = table[table[:, 0] > table[0, 0]] if len(table) else table
        return later[:, 1:] if len(later) else table[1:, 1:]


def rank_steps(rank: int, table: Array) -> RankSteps:
    """table: float64 [steps >= 1, 3] of input, call and communication seconds."""
    waiting, call, communication = table.T
    return RankSteps(
        rank=rank,
        step_s=spread(waiting + call),
        input_s=spread(waiting),
        compute_s=spread(np.maximum(call - communication, 0)),
        communication_s=spread(communication),
    )
