"""From raw samples to the summaries of a record: medians with their spread, steady state only."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.config.plan import EpochPlan
from train.record.atomic import append_line, write_atomically
from train.record.run import EpochRecord, RankSteps, Spread, Throughput, ThroughputSample
from train.record.target import steady_epochs
from train.step.result import StepResult

Array = npt.NDArray[np.float64]


def spread(samples: Sequence[float] | Array) -> Spread:
    """Summary of at least one sample."""
    values = np.asarray(samples, np.float64)
    p05, median, p95 = np.percentile(values, [5, 50, 95])
    return Spread(
        n=len(values), mean=float(values.mean()), median=float(median), p05=float(p05),
        p95=float(p95),
    )  # fmt: skip


class Stretch(NamedTuple):
    """What a rank measured between two barriers, seconds."""

    took_s: float  # without what it was suspended for
    suspended_s: float


def common(mine: Stretch, all_ranks: Sequence[Stretch]) -> Stretch:
    """What it took where any of them may have been suspended.

    The others wait for that one, so the time of the rank that waited least is that of all.
    """
    suspended_s = max(stretch.suspended_s for stretch in all_ranks)
    if suspended_s == 0:
        return mine
    return Stretch(min(stretch.took_s for stretch in all_ranks), suspended_s)


def throughput(epochs: Sequence[EpochRecord]) -> Throughput:
    """Images really processed over the training seconds they took, all ranks together."""
    steady = steady_epochs(epochs)
    samples = tuple(
        ThroughputSample(epoch=epoch.epoch, images_per_s=epoch.usual_images / epoch.usual_s)
        for epoch in steady
        if epoch.usual_images > 0 and epoch.usual_s > 0
    )
    kept = {sample.epoch for sample in samples}
    median = float(np.median([s.images_per_s for s in samples])) if samples else None
    return Throughput(
        images_per_s=median,
        samples=samples,
        left_out=tuple(epoch.epoch for epoch in epochs if epoch.epoch not in kept),
    )


class StepRow(NamedTuple):
    """One step on this rank, as applied; seconds."""

    epoch: int  # from 0
    input_s: float  # waiting for the batches; steps of one call have an equal share of it
    call_s: float  # the whole step after that; likewise
    communication_s: float | None  # of call_s; None where the step was not taken in parts
    update_s: float | None  # of call_s
    rate: float
    global_batch: int
    loss: float
    gradient_sq: float
    small_sq: float
    gain: float
    skipped: bool
    suspended: bool = False  # its times count for nothing
    waiting_s: float | None = None  # of communication_s; None alone, and with tf.distribute
    negotiation_s: float | None = None  # likewise

    @property
    def sampled(self) -> bool:
        """Whether it was taken in parts."""
        return self.communication_s is not None


def step_row(
    plan: EpochPlan, input_s: float, call_s: float, result: StepResult, *, suspended: bool
) -> StepRow:
    """``call_s`` includes the rounds that measure the step's parts; that of the row does not."""
    row = StepRow(
        epoch=plan.number,
        input_s=input_s,
        call_s=call_s,
        communication_s=None,
        update_s=None,
        rate=result.rate,
        global_batch=plan.global_batch,
        loss=result.loss,
        gradient_sq=result.gradient_sq,
        small_sq=result.small_sq,
        gain=result.gain,
        skipped=result.skipped,
        suspended=suspended,
    )
    if result.parts is None:
        return row
    rounds_s = 2 * (result.parts.negotiation_s or 0.0)
    return row._replace(call_s=call_s - rounds_s, **result.parts._asdict())


class StepSamples:
    """Per-step samples of this rank."""

    def __init__(self) -> None:
        self.rows: list[StepRow] = []

    def add(self, row: StepRow) -> None:
        self.rows.append(row)

    def last_epoch(self) -> list[StepRow]:
        """The steps of the epoch that was trained last, without going through all before."""
        if not self.rows:
            return []
        own = list(takewhile(lambda row: row.epoch == self.rows[-1].epoch, reversed(self.rows)))
        return own[::-1]

    def steady(self) -> list[StepRow]:
        """Without the first epoch of this start; all of it if there is no other.

        The first step of either form traces its graph; it is never part of the steady state. Nor is
        a step in which this rank was suspended.
        """
        first = {row.sampled: n for n, row in reversed(list(enumerate(self.rows)))}
        rows = [row for n, row in enumerate(self.rows) if n != first[row.sampled]]
        later = [row for row in rows if row.epoch > self.rows[0].epoch]
        return [row for row in later or rows if not row.suspended]


def rank_steps(rank: int, rows: Sequence[StepRow]) -> RankSteps | None:
    """None where no row is of a step that was taken in parts, or none of another."""
    sampled = [row for row in rows if row.sampled]
    usual = [row for row in rows if not row.sampled]
    if not sampled or not usual:
        return None
    parts = [(row.call_s, row.communication_s, row.update_s) for row in sampled]
    call, communication, update = np.asarray(parts, np.float64).T
    waited, called = np.asarray([(row.input_s, row.call_s) for row in usual], np.float64).T
    # clocks of its parts are read at different moments
    compute = np.maximum(call - communication, 0)
    return RankSteps(
        rank=rank,
        step_s=spread(waited + called),
        input_s=spread(waited),
        compute_s=spread(compute),
        communication_s=spread(communication),
        update_s=spread(update),
        waiting_s=_spread_of([row.waiting_s for row in sampled]),
        negotiation_s=_spread_of([row.negotiation_s for row in sampled]),
        sampled=len(sampled),
        exposed_s=_exposed_s(sampled, usual),
    )


def _spread_of(seconds: Sequence[float | None]) -> Spread | None:
    known = [value for value in seconds if value is not None]
    return spread(known) if known else None


def _exposed_s(sampled: Sequence[StepRow], usual: Sequence[StepRow]) -> float | None:
    """Median over epochs, since steps of a batch that grows are compared with their like."""
    longer_by = []
    for row in sampled:
        called = [other.call_s for other in usual if other.epoch == row.epoch]
        if called:
            longer_by.append(np.median(called) - max(row.call_s - (row.communication_s or 0), 0))
    communication_s = float(np.median([row.communication_s for row in sampled]))
    if communication_s == 0:  # a world of one
        return 0.0
    if not longer_by or np.median(longer_by) < 0:
        return None
    return min(float(np.median(longer_by)), communication_s)


def append_steps(rows: Sequence[StepRow], file: Path) -> None:
    """Raw samples of this rank, one JSON object per step; what is no number is null."""
    lines = [json.dumps({k: _plain(v) for k, v in row._asdict().items()}) for row in rows]
    append_line(file, "\n".join(lines))


def keep_steps(file: Path, epochs: int) -> None:
    """Drop what an earlier start wrote of epochs that are trained again, and torn lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    told = file.read_text(encoding="utf-8", errors="replace") if epochs and file.exists() else ""
    kept = [line for line in told.splitlines() if _epoch_of(line) < epochs]
    write_atomically(file, "".join(f"{line}\n" for line in kept))


def _epoch_of(line: str) -> float:
    """Of a step's line, from 0; beyond all others where it is not whole."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(line)["epoch"])
    return math.inf


def _plain(value: float) -> float | None:
    if not isinstance(value, float):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else None
