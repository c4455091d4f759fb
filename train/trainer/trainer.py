"""Train one cell: epochs of distributed steps, validation, checkpoints, and what was measured."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.data.dataset import Dataset
from train.distributed.awake import Awake
from train.distributed.communicator import Ranks
from train.distributed.interfaces import moved, read_counters
from train.distributed.world import Runtime
from train.errors import DataError, Unfinished
from train.optimizers import adapted_variables
from train.record.atomic import append_line, write_atomically
from train.record.builder import Trained
from train.record.cell_folder import CHECKPOINT_NAME, EPOCHS_NAME
from train.record.run import (
    Classification,
    EpochRecord,
    RankSteps,
    RunError,
    Sharpness,
)
from train.record.target import Pursuit
from train.trainer import checkpoint
from train.trainer.batch_statistics import settle_statistics
from train.trainer.budget import Budget, Stop
from train.trainer.classification import classification
from train.trainer.divergence import divergence
from train.trainer.epoch import Measured, alarm_of, epoch_record
from train.trainer.evaluate import Evaluation, Evaluator
from train.trainer.parts import Parts
from train.trainer.sharpness import sharpness
from train.trainer.stepper import Stepper

Beat = Callable[[str], None]


@dataclass
class Trainer:
    """Trains one cell on this rank; :meth:`train` is collective."""

    config: RunConfig
    runtime: Runtime
    data: Dataset
    parts: Parts
    out: Path
    attempt: int
    beat: Beat
    budget: Budget = field(default_factory=Budget)
    awake: Awake = field(default_factory=Awake)
    image: str | None = None  # sha256 of the container image, if any
    oversubscribed: bool = False  # so far, in earlier starts, too

    def __post_init__(self) -> None:
        rank, size = self.runtime.rank, self.runtime.size
        self.ranks = Ranks(rank, size)
        self.model, self.step = self.parts.model, self.parts.step
        self.plans = self.parts.plan.epochs
        self.evaluate = Evaluator(self.model, self.data, rank, size, self.beat)
        self.stepper = Stepper(self.config, self.runtime, self.data, self.parts, self.beat)
        target = self.config.target
        self.pursuit = Pursuit(target, len(self.plans)) if target else None
        self.checked: Evaluation | None = None  # the last evaluation
        self.named_s = 0.0  # suspended seconds that the epochs so far name
        self.alarms: list[str] = []

    def train(self, *, resume: bool) -> Trained:
        """Train to the end of the config, until its target is decided, or until it diverges.

        Raises:
            Unfinished: the budget ends before the epochs do; on all ranks at the same epoch end.
            UnequalRanks: the ranks' weights differ at the end.
            tf.errors.UnknownError: a peer ended (Horovod's way to say so).
        """
        epochs = self._start(resume=resume)
        resumed_from = len(epochs)
        error: RunError | None = None
        counters = read_counters()
        before_s = self.named_s = self.awake.suspended_s()
        longest_s = 0.0
        goes_on = self._goes_on(epochs, epochs)
        while goes_on:
            begin = self.awake.now()
            record, error = self._epoch(self.plans[len(epochs)])
            epochs.append(record)
            goes_on = self._goes_on(epochs, [record])
            self._save(epochs, whole=error is None)
            if error is not None:
                break
            longest_s = max(longest_s, self.awake.now() - begin)
            if goes_on:
                self._keep_within(longest_s, self.awake.suspended_s() - before_s, len(epochs))
        broken_off = error is not None
        if error is None:
            # a run that its target ended early was not given the time to learn
            judged = self.data.labelled and len(epochs) == len(self.plans)
            error = divergence(epochs[-1], len(self.data.classes), labelled=judged)
        traffic = self.ranks.allgather(
            moved(socket.gethostname(), counters, read_counters())
            if self.runtime.local_rank == 0 and self.runtime.size > 1
            else ()
        )
        self.beat("comparing the ranks' weights")
        weights = self.ranks.common_hash(self.model.variables)
        self.beat("summing up the steps")
        return Trained(
            error, tuple(epochs), resumed_from, self._gathered_steps(), weights,
            traffic=tuple(link for links in traffic for link in links),
            classification=None if broken_off else self._classified(len(epochs)),
            target=self.pursuit.outcome(error.what if error else None) if self.pursuit else None,
            sharpness=None if error else self._sharpness(),
            alarms=tuple(self.alarms),
            gradient_bytes=self.step.wire_bytes,
            adapted=adapted_variables(self.step.optimizer),
        )  # fmt: skip

    def _goes_on(self, epochs: list[EpochRecord], new: list[EpochRecord]) -> bool:
        """Whether to train another epoch; the same on all ranks, as their epochs are.

        new: those that have not been given before.
        """
        if self.pursuit and new:
            for epoch in new:
                self.pursuit.add(epoch)
            if self.pursuit.outcome() is not None:
                return False
        return len(epochs) < len(self.plans)

    def _keep_within(self, longest_s: float, suspended_s: float, done: int) -> None:
        """Collective: rank 0 decides, since clocks and file systems may differ between nodes.

        ``suspended_s``: seconds since training began; a library that takes long to load keeps all
        threads waiting, and looks the same.
        """
        # Slurm moves the end of a job that it suspends by as long
        now = time.time() - suspended_s
        mine = self.budget.decide(longest_s, now) if self.runtime.rank == 0 else Stop.NO
        if decided := Stop(self.ranks.broadcast_int(int(mine))):
            raise Unfinished(decided.why, done, len(self.plans))

    def _start(self, *, resume: bool) -> list[EpochRecord]:
        """Equal state on all ranks before step 1: rank 0's, from its checkpoint where asked."""
        self.beat("comparing the ranks' images")
        self._check_images()
        self.beat("broadcasting the initial state")
        progress = None
        if resume and self.runtime.rank == 0:
            file = self.out / CHECKPOINT_NAME
            progress = checkpoint.restore(
                file, self.config, self.data.fingerprint, self.parts.state
            )
            if progress is None and file.exists():
                told = "damaged, or of another config, data set or version of the code"
                print(f"train: {file} is {told}: the cell starts anew", file=sys.stderr)
        progress = self.ranks.broadcast_state(self.parts.state, progress)
        if self.parts.evaluation:
            self.parts.evaluation.pull()
        epochs = list(progress.epochs) if progress else []
        if progress:
            self.step.last_rate = progress.last_rate
            self.stepper.position = progress.position
            self.stepper.skipped_in_a_row = progress.skipped_in_a_row
            self.alarms = list(progress.alarms)
            self.oversubscribed |= progress.oversubscribed
            if progress.image != self.image:
                self.alarms.append(
                    f"resumed after epoch {len(epochs)} from {self.image or 'no image'}, earlier "
                    f"epochs ran from {progress.image or 'no image'}"
                )
            if self.step.adascale and progress.adascale:
                self.step.adascale.restore(progress.adascale)
        if self.runtime.rank == 0:
            lines = "".join(epoch.model_dump_json() + "\n" for epoch in epochs)
            write_atomically(self.out / EPOCHS_NAME, lines)
        return epochs

    def _check_images(self) -> None:
        """Collective.

        Raises:
            DataError: a node has other images than rank 0's.
        """
        told = self.ranks.allgather((socket.gethostname(), self.data.fingerprint))
        first, images = told[0]
        if others := {host for host, own in told if own != images}:
            raise DataError(
                f"{self.data.name}: the images on {', '.join(sorted(others))} are not those on "
                f"{first}, so that ranks would train on different data sets: give all nodes one "
                "shared folder, or copy the whole data folder of one node to all others"
            )

    def _epoch(self, plan: EpochPlan) -> tuple[EpochRecord, RunError | None]:
        """Collective."""
        # by rank 0's clock, and before that of the epoch runs
        self.stepper.per_call = self.ranks.broadcast_int(self.stepper.wanted_per_call(plan))
        self.stepper.warm_up(plan)
        self.ranks.barrier()
        began = self.awake.now()
        tally, error = self.stepper.epoch(plan)
        self.ranks.barrier()
        trained_s = self.awake.now() - began - self.stepper.extra_s
        sampled_s = self.stepper.sampled_s - self.stepper.extra_s
        sums = self.ranks.summed(tally.sums())
        self._note(alarm_of(self.config, plan, tally), plan.number + 1)
        began = self.awake.now()
        # also where the epoch was broken off: the ranks end with one model in any case
        settling = self._within(f"settling the batch-norm statistics after epoch {plan.number + 1}")
        settle_statistics(
            self.config, self.data, self.parts.used, self.model, self.parts.evaluation,
            self.runtime, settling,
        )  # fmt: skip
        self.checked = self.evaluate() if error is None else None
        ended, suspended_s = self.awake.read()
        if not self.config.deterministic:  # sums in no fixed order must not part the ranks
            self.ranks.common_hash(self.model.variables)
        mine = (trained_s, ended - began, sampled_s, suspended_s - self.named_s)
        self.named_s = suspended_s  # since the last epoch: it may have met the checkpoint
        every = self.ranks.allgather((*mine, self.runtime.shares_cores()))
        *times, suspensions, shared = zip(*every, strict=True)
        self.oversubscribed |= any(shared)
        suspended_s = max(suspensions)
        if not suspended_s:
            self.stepper.keep_times()
        # those of rank 0; all others wait for a rank that is suspended, and their clocks go on
        trained_s, evaluated_s, sampled_s = (min(t) if suspended_s else t[0] for t in times)
        measured = Measured(
            self.attempt, sums, self.checked, trained_s, evaluated_s, suspended_s, sampled_s,
            self.stepper.per_call,
        )  # fmt: skip
        labelled = self.data.labelled
        return epoch_record(self.config, plan, tally, measured, labelled=labelled), error

    def _within(self, phase: str) -> Beat:
        """For what takes so long that it beats between its parts."""
        return lambda part: self.beat(phase + part)

    def _note(self, alarm: str | None, epoch: int) -> None:
        """The first one: later epochs say the same, with other numbers of steps."""
        if alarm and not any(earlier.startswith("epoch ") for earlier in self.alarms):
            self.alarms.append(f"epoch {epoch}: {alarm}")

    def _classified(self, epochs: int) -> Classification | None:
        """Of the last evaluation, made anew where the run was resumed after its last epoch."""
        if not self.data.labelled:
            return None
        checked = self.checked or self.evaluate()
        return classification(checked.counts, self.data.classes, epochs)

    def _sharpness(self) -> Sharpness | None:
        images = self.config.sharpness_images
        if images is None:
            return None
        return sharpness(self.model, self.data, self.parts.used, images, self.ranks, self.beat)

    def _save(self, epochs: list[EpochRecord], *, whole: bool) -> None:
        """Rank 0: checkpoint first, progress line second, so that a line is never ahead of it."""
        if self.runtime.rank != 0:
            return
        self.beat(f"writing the checkpoint of epoch {len(epochs)}")
        if whole:
            adascale = self.step.adascale
            progress = checkpoint.Progress(
                epochs=tuple(epochs), last_rate=self.step.last_rate,
                position=self.stepper.position, adascale=adascale.state() if adascale else None,
                skipped_in_a_row=self.stepper.skipped_in_a_row, alarms=tuple(self.alarms),
                image=self.image, oversubscribed=self.oversubscribed,
            )  # fmt: skip
            file = self.out / CHECKPOINT_NAME
            checkpoint.save(file, self.config, self.data.fingerprint, self.parts.state, progress)
        append_line(self.out / EPOCHS_NAME, epochs[-1].model_dump_json())

    def _gathered_steps(self) -> tuple[RankSteps, ...] | None:
        found = self.ranks.allgather(self.stepper.samples.summary(self.runtime.rank))
        known = tuple(steps for steps in found if steps is not None)
        return known if len(known) == len(found) else None
