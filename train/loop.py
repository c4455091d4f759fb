"""Train one cell: epochs of distributed steps, validation, checkpoints, and what was measured."""

from __future__ import annotations

import hashlib
import json
import math
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train import checkpoint
from train.batchnorm import reduce_statistics
from train.budget import Budget, Stop
from train.config import RunConfig, steps_per_epoch
from train.data.arrays import Dataset
from train.data.sampler import rank_batches, used_subset
from train.evaluate import Evaluator
from train.files import append_line, write_atomically
from train.layers import StepSeed
from train.measure import StepClock, rank_steps
from train.models import build_model
from train.optimizers import build_optimizer, optimizer_variables
from train.record import EpochRecord, LinkTraffic, RankSteps, RunError
from train.runtime import Runtime
from train.schedule import learning_rate
from train.step import TrainStep
from train.task import Unfinished
from train.traces import CHECKPOINT_NAME, EPOCHS_NAME
from train.traffic import moved, read_counters
from train.verdict import divergence, not_finite

T = TypeVar("T")
Beat = Callable[[str], None]
#: uint8 images [b, H, W, C] and int64 labels [b] of one rank
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Trained:
    """What a run that came to its own end leaves behind (the same on all ranks)."""

    error: RunError | None  # None: completed; else why it counts as diverged
    epochs: tuple[EpochRecord, ...]
    resumed_from: int
    steps: tuple[RankSteps, ...] | None
    weights_sha256: str
    traffic: tuple[LinkTraffic, ...] = ()


class UnequalRanks(RuntimeError):
    """The ranks hold different weights: the run trained several models, not one."""


@dataclass
class Cell:
    """One cell on this rank; :meth:`train` is collective."""

    config: RunConfig
    runtime: Runtime
    data: Dataset
    out: Path
    attempt: int
    beat: Beat
    budget: Budget = field(default_factory=Budget)
    clock: StepClock = field(default_factory=StepClock)

    def __post_init__(self) -> None:
        config, runtime = self.config, self.runtime
        self.used = used_subset(self.data.train_y, config.data_fraction)
        self.steps = steps_per_epoch(config, len(self.data.train_y))
        stream = hashlib.sha256(f"{config.seed}/{runtime.rank}".encode()).digest()
        seed = StepSeed(int.from_bytes(stream[:4], "big") >> 1)
        height, width, channels = self.data.train_x.shape[1:]
        self.model = build_model(config, (height, width, channels), len(self.data.classes), seed)
        optimizer = build_optimizer(config.technique.optimizer, self.model.trainable_variables)
        self.step = TrainStep(
            self.model, optimizer, config.technique.optimizer, seed, size=runtime.size
        )
        self.state = [*self.model.variables, *optimizer_variables(optimizer)]
        self.evaluate = Evaluator(self.model, self.data, runtime.rank, runtime.size, self.beat)

    def train(self, *, resume: bool) -> Trained:
        """Train to the end of the config, or until it diverges.

        Raises:
            Unfinished: the budget ends before the epochs do; on all ranks at the same epoch end.
            UnequalRanks: the ranks' weights differ at the end.
            tf.errors.UnknownError: a peer ended (Horovod's way to say so).
        """
        epochs = self._start(resume=resume)
        resumed_from = len(epochs)
        error: RunError | None = None
        counters = read_counters()
        longest_s = 0.0
        for epoch in range(len(epochs), self.config.epochs):
            begin = time.perf_counter()
            record, error = self._epoch(epoch)
            epochs.append(record)
            self._save(epochs, whole=error is None)
            if error is not None:
                break
            longest_s = max(longest_s, time.perf_counter() - begin)
            if len(epochs) < self.config.epochs:
                self._keep_within(longest_s, len(epochs))
        if error is None:
            error = divergence(epochs[-1], len(self.data.classes), labelled=self.data.labelled)
        traffic = self._gathered(
            moved(socket.gethostname(), counters, read_counters())
            if self.runtime.local_rank == 0 and self.runtime.size > 1
            else ()
        )
        self.beat("comparing the ranks' weights")
        return Trained(
            error, tuple(epochs), resumed_from, self._gathered_steps(), self._common_hash(),
            traffic=tuple(link for links in traffic for link in links),
        )  # fmt: skip

    def _keep_within(self, longest_s: float, done: int) -> None:
        """Collective: rank 0 decides, since clocks and file systems may differ between nodes."""
        rank, size = self.runtime.rank, self.runtime.size
        mine = self.budget.decide(longest_s, time.time()) if rank == 0 else Stop.NO
        told = hvd.allreduce(tf.constant(int(mine)), op=hvd.Sum).numpy() if size > 1 else mine
        if decided := Stop(int(told)):
            raise Unfinished(decided.why, done, self.config.epochs)

    def _gathered(self, mine: T) -> list[T]:
        """Collective: one value of each rank, on all ranks."""
        return hvd.allgather_object(mine) if self.runtime.size > 1 else [mine]

    def _start(self, *, resume: bool) -> list[EpochRecord]:
        """Equal state on all ranks before step 1: rank 0's, from its checkpoint where asked."""
        self.beat("broadcasting the initial state")
        progress = None
        if resume and self.runtime.rank == 0:
            progress = checkpoint.restore(
                self.out / CHECKPOINT_NAME, self.config, self.data.fingerprint, self.state
            )
        if self.runtime.size > 1:
            hvd.broadcast_variables(self.state, root_rank=0)
            progress = hvd.broadcast_object(progress, root_rank=0)
        epochs = list(progress.epochs) if progress else []
        if progress:
            self.step.resume_at(progress.last_rate)
        if self.runtime.rank == 0:
            lines = "".join(epoch.model_dump_json() + "\n" for epoch in epochs)
            write_atomically(self.out / EPOCHS_NAME, lines)
        return epochs

    def _epoch(self, epoch: int) -> tuple[EpochRecord, RunError | None]:
        config, size = self.config, self.runtime.size
        sums = np.zeros(3)  # loss x images, correct, images: of this rank
        rates: list[float] = []
        error = None
        self._barrier()
        begin = asked = time.perf_counter()
        for index, (images, labels) in enumerate(self._batches(epoch)):
            got = time.perf_counter()
            self.beat(f"training step {index + 1} of {self.steps}, epoch {epoch + 1}")
            number = epoch * self.steps + index
            rate = learning_rate(
                config.technique, config.global_batch, number, self.steps, config.epochs
            )
            result = self.step(images, labels, rate, number)
            done = time.perf_counter()
            self.clock.add(epoch, got - asked, done - got, result.communication_s)
            sums += (result.loss * len(labels), result.correct, len(labels))
            rates.append(rate)
            if not math.isfinite(result.gradient_sq):
                error = not_finite(epoch + 1, index + 1)
                break
            asked = time.perf_counter()
        self._barrier()
        train_s = time.perf_counter() - begin
        if size > 1:
            sums = hvd.allreduce(tf.constant(sums), op=hvd.Sum).numpy()
        begin = time.perf_counter()
        self.beat(f"pooling the ranks' statistics after epoch {epoch + 1}")
        # also where the epoch was broken off: the ranks end with one model in any case
        reduce_statistics(self.model, size)
        checked = self.evaluate() if error is None else None
        eval_s = time.perf_counter() - begin if checked else 0.0
        labelled = self.data.labelled
        return EpochRecord(
            epoch=epoch + 1,
            attempt=self.attempt,
            global_batch=config.global_batch,
            steps=len(rates),
            images=int(sums[2]),
            train_s=train_s,
            eval_s=eval_s,
            lr_first=rates[0],
            lr_last=rates[-1],
            train_loss=_finite(sums[0] / sums[2]),
            train_accuracy=float(sums[1] / sums[2]) if labelled else None,
            validation_loss=_finite(checked.loss) if checked else None,
            validation_accuracy=checked.accuracy if checked and labelled else None,
            validation_images=checked.images if checked else 0,
        ), error

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """uint8 images [b, H, W, C] and labels [b] of this rank, gathered one step ahead."""
        config, runtime = self.config, self.runtime
        plan = rank_batches(
            config.partition, len(self.used), config.seed, epoch, runtime.rank, runtime.size,
            config.batch_per_rank,
        )  # fmt: skip
        assert len(plan) == self.steps, (len(plan), self.steps)

        def gather(step: int) -> Batch:
            rows = self.used[plan[step]]
            return self.data.train_x[rows], self.data.train_y[rows]

        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(gather, 0)
            for step in range(len(plan)):
                batch = coming.result()
                if step + 1 < len(plan):
                    coming = ahead.submit(gather, step + 1)
                yield batch

    def _save(self, epochs: list[EpochRecord], *, whole: bool) -> None:
        """Rank 0: checkpoint first, progress line second, so that a line is never ahead of it."""
        if self.runtime.rank != 0:
            return
        self.beat(f"writing the checkpoint of epoch {len(epochs)}")
        if whole:
            progress = checkpoint.Progress(tuple(epochs), epochs[-1].lr_last)
            file = self.out / CHECKPOINT_NAME
            checkpoint.save(file, self.config, self.data.fingerprint, self.state, progress)
        append_line(self.out / EPOCHS_NAME, epochs[-1].model_dump_json())

    def _barrier(self) -> None:
        if self.runtime.size > 1:
            hvd.allreduce(tf.zeros(1), op=hvd.Sum)

    def _common_hash(self) -> str:
        """sha256 over all weights and batch-norm statistics, equal on all ranks."""
        digest = hashlib.sha256()
        for variable in self.model.variables:
            digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
        mine = digest.hexdigest()
        found = self._gathered(mine)
        if len(set(found)) > 1:
            raise UnequalRanks(
                "the ranks' weights differ after training: "
                + ", ".join(f"rank {r} {h[:12]}" for r, h in enumerate(found))
            )
        return mine

    def _gathered_steps(self) -> tuple[RankSteps, ...] | None:
        table = self.clock.steady()
        mine = rank_steps(self.runtime.rank, table) if len(table) else None
        found = self._gathered(mine)
        known = tuple(steps for steps in found if steps is not None)
        return known if len(known) == len(found) else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def write_step_times(clock: StepClock, file: Path) -> None:
    """Raw samples of this rank, one JSON object per step, seconds."""
    names = ("epoch", "input_s", "call_s", "communication_s")
    lines = [
        json.dumps({n: v if n == "epoch" else round(v, 7) for n, v in zip(names, row, strict=True)})
        for row in clock.rows
    ]
    write_atomically(file, "\n".join(lines) + "\n")
