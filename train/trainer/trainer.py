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
from train.record.cell_folder import CHECKPOINT_NAME, EPOCHS_NAME, rank_file
from train.record.run import (
    Classification,
    EpochRecord,
    RankSteps,
    RunError,
    Sharpness,
)
from train.record.target import Decision, decide, outcome
from train.trainer import checkpoint
from train.trainer.batch_statistics import settle_statistics
from train.trainer.budget import Budget, Stop
from train.trainer.classification import classification
from train.trainer.divergence import divergence
from train.trainer.epoch import Measured, alarm_of, epoch_record
from train.trainer.evaluate import Evaluation, Evaluator
from train.trainer.parts import Parts, Trained
from train.trainer.sharpness import sharpness
from train.trainer.step_summaries import (
    Stretch,
    append_steps,
    common,
    keep_steps,
    rank_steps,
)
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
        self.stepper = Stepper(
            self.config, self.runtime, self.data, self.parts, self.beat, self.awake
        )
        self.checked: Evaluation | None = None  # the last evaluation
        self.named_s = 0.0  # suspended seconds that the epochs so far name
        self.steps_file = rank_file(self.out, rank, "steps.jsonl")
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
        goes_on = self._goes_on(epochs)
        while goes_on:
            begin = self.awake.now()
            record, error = self._epoch(self.plans[len(epochs)])
            epochs.append(record)
            self._save(epochs, whole=error is None)
            if error is not None:
                break
            longest_s = max(longest_s, self.awake.now() - begin)
            goes_on = self._goes_on(epochs)
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
        target = self.config.target
        return Trained(
            error, tuple(epochs), resumed_from, self._gathered_steps(),
            self.ranks.common_hash(self.model.variables),
            traffic=tuple(link for links in traffic for link in links),
            classification=None if broken_off else self._classified(len(epochs)),
            target=outcome(epochs, target, len(self.plans), error.what if error else None)
            if target else None,
            sharpness=None if error else self._sharpness(),
            alarms=tuple(self.alarms),
            gradient_bytes=self.step.wire_bytes,
            adapted=adapted_variables(self.step.optimizer),
        )  # fmt: skip

    def _goes_on(self, epochs: list[EpochRecord]) -> bool:
        """Whether there is another epoch to train; collective where the config has a target, which
        rank 0's clock decides for all."""
        target = self.config.target
        if target is None or not epochs or len(epochs) == len(self.plans):
            return len(epochs) < len(self.plans)
        goes_on = decide(epochs, target, len(self.plans)) is Decision.GO_ON
        return self.ranks.broadcast_int(int(goes_on)) > 0

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
        keep_steps(self.steps_file, len(epochs))
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
        self.ranks.barrier()
        ended = self._stretch()
        tally, error = self.stepper.epoch(plan)
        self.ranks.barrier()
        trained = ended()
        sums = self.ranks.summed(tally.sums())
        self._note(alarm_of(self.config, plan, tally), plan.number + 1)
        ended = self._stretch()
        # also where the epoch was broken off: the ranks end with one model in any case
        settling = self._within(f"settling the batch-norm statistics after epoch {plan.number + 1}")
        settle_statistics(
            self.config, self.data, self.parts.used, self.model, self.parts.evaluation,
            self.runtime, settling,
        )  # fmt: skip
        self.checked = self.evaluate() if error is None else None
        if not self.config.deterministic:  # sums in no fixed order must not part the ranks
            self.ranks.common_hash(self.model.variables)
        mine = trained, ended(), Stretch(self.stepper.sampled_s, trained.suspended_s)
        every = self.ranks.allgather((*mine, self.runtime.shares_cores()))
        *of_all, shared = zip(*every, strict=True)
        self.oversubscribed |= any(shared)
        trained, evaluated, sampled = map(common, mine, of_all)
        measured = Measured(
            self.attempt, sums, self.checked, trained, evaluated, sampled.took_s,
            self.stepper.per_call,
        )  # fmt: skip
        labelled = self.data.labelled
        return epoch_record(self.config, plan, tally, measured, labelled=labelled), error

    def _stretch(self) -> Callable[[], Stretch]:
        """From now to the call of what it returns; a suspension since the last one, which may
        have met the checkpoint between them, is named here, too."""
        began = self.awake.now()

        def ended() -> Stretch:
            now, suspended_s = self.awake.read()
            before_s, self.named_s = self.named_s, suspended_s
            return Stretch(now - began, suspended_s - before_s)

        return ended

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
        return classification(checked.confusion, self.data.classes, epochs)

    def _sharpness(self) -> Sharpness | None:
        images = self.config.sharpness_images
        if images is None:
            return None
        return sharpness(self.model, self.data, self.parts.used, images, self.ranks, self.beat)

    def _save(self, epochs: list[EpochRecord], *, whole: bool) -> None:
        """Every rank: its steps. Rank 0: checkpoint first, progress line second, so that a line is
        never ahead of it."""
        append_steps(self.stepper.samples.last_epoch(), self.steps_file)
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
        rows = self.stepper.samples.steady()
        mine = rank_steps(self.runtime.rank, rows)
        found = self.ranks.allgather(mine)
        known = tuple(steps for steps in found if steps is not None)
        return known if len(known) == len(found) else None
