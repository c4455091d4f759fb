"""Train one cell: epochs of distributed steps, validation, checkpoints, and what was measured."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.data.batches import Batches, process_batches
from train.data.dataset import Dataset
from train.distributed.awake import Awake
from train.distributed.communicator import Ranks, equal_hash, weights_hash
from train.distributed.interfaces import moved, read_counters
from train.distributed.launch import Task
from train.distributed.world import Runtime
from train.errors import Unfinished
from train.models.layers import network_digest
from train.record.atomic import append_line, write_atomically
from train.record.builder import Trained
from train.record.cell_folder import CHECKPOINT_NAME, EPOCHS_NAME, STOP_NAME, file_mark
from train.record.measurements import EpochRecord
from train.record.run import RunError
from train.record.target import Pursuit
from train.trainer import checkpoint
from train.trainer.batch_statistics import settle_statistics
from train.trainer.checks import check_nodes
from train.trainer.classification import classification
from train.trainer.divergence import divergence
from train.trainer.epoch import alarm_of, epoch_record, epoch_sums
from train.trainer.evaluate import Evaluation, Evaluator
from train.trainer.sharpness import sharpness
from train.trainer.stepper import PREPARING_S, Parts, Stepper

#: The next epoch may take this much longer than the longest so far,
MARGIN = 1.15
#: and then ranks leave and the supervisor writes down what became of them: seconds.
LEAVE_S = 5.0


@dataclass
class Trainer:
    """Trains one cell on this rank; :meth:`train` is collective."""

    config: RunConfig
    runtime: Runtime
    data: Dataset
    parts: Parts
    task: Task
    beat: Callable[..., None]  # of Watchdog.beat
    origin: checkpoint.Origin
    awake: Awake = field(default_factory=Awake)
    oversubscribed: bool = False  # so far, in earlier starts, too

    def __post_init__(self) -> None:
        self.out, self.attempt = self.task.out, self.task.attempt
        self.ranks = Ranks(self.runtime.rank, self.runtime.size)
        self.model, self.step = self.parts.model, self.parts.step
        self.fingerprint = self.data.fingerprint + network_digest(self.model)
        self.plans = self.parts.plan.epochs
        self.evaluate = Evaluator(self.config, self.model, self.data, self.ranks, self.beat)
        self.settle = partial(settle_statistics, self.config, self.data, self.parts, self.runtime)
        self.stepper = Stepper(self.parts, self._batches, self.beat, self.awake.now)
        self.pursuit: Pursuit | None = None
        self.epochs: list[EpochRecord] = []  # of all starts
        self.checked: Evaluation | None = None  # the last evaluation
        self.suspended_s = 0.0  # in this process, as far as epochs have named it
        self.alarms: list[str] = []
        self.origin_from = 0  # epochs before the first one of this origin

    def train(self) -> Trained:
        """Train to the end of the config, until its target is decided, or until it diverges.

        Raises:
            ConfigError: ranks have other images, or too little memory for the run.
            Unfinished: a stop is asked for, or due; on all ranks at the same epoch end.
            UnequalRanks: the ranks' weights differ after an epoch.
            tf.errors.UnknownError: a peer ended (Horovod's way to say so).
        """
        self._start()
        resumed_from, counters = len(self.epochs), read_counters()
        broken_off = self._train_epochs()
        # a run that its target ended early was not given the time to learn
        judged = self.config.labelled and len(self.epochs) == len(self.plans)
        error = broken_off or divergence(self.epochs[-1], len(self.data.classes), labelled=judged)
        traffic = self.ranks.allgather(
            moved(socket.gethostname(), counters, read_counters())
            if self.runtime.local_rank == 0 and self.runtime.size > 1
            else ()
        )
        self.beat("comparing the ranks' weights")
        weights = equal_hash(self.ranks.allgather(weights_hash(self.model.variables)))
        self.beat("summing up the steps")
        steps = self.ranks.allgather(self.stepper.samples.summary(self.runtime.rank))
        known = tuple(own for own in steps if own is not None)
        classes = None
        if self.config.labelled and broken_off is None:
            # made now if the run was resumed after its last epoch
            counts = (self.checked or self.evaluate()).counts
            classes = classification(np.asarray(counts), self.data.classes, len(self.epochs))
        images = self.config.sharpness_images
        return Trained(
            error, tuple(self.epochs), resumed_from,
            steps=known if len(known) == len(steps) else None,
            weights_sha256=weights,
            traffic=tuple(link for links in traffic for link in links),
            classification=classes,
            target=self.pursuit.outcome(error.what if error else None) if self.pursuit else None,
            sharpness=None if error or images is None else sharpness(
                self.model, self.data, self.parts.used, images, self.ranks, self.evaluate.batch,
                self.beat,
            ),
            alarms=tuple(self.alarms),
            gradient_bytes=self.step.wire_bytes,
            adapted=self.step.trust.names if self.step.trust else (),
            origin_from=self.origin_from,
        )  # fmt: skip

    def _start(self) -> None:
        """Equal state on all ranks before step 1: rank 0's, from its checkpoint if asked."""
        self.beat("comparing the ranks' images and networks")
        check_nodes(self.config, self.data, self.parts, self.runtime, self.ranks)
        self.beat("broadcasting the initial state")
        restored, file = None, self.out / CHECKPOINT_NAME
        if self.task.resume and self.runtime.rank == 0:
            restored = checkpoint.restore(file, self.config, self.fingerprint, self.step.state)
            if restored is None and file.exists():
                self.alarms.append(
                    f"training began again at epoch 1: {file.name} is damaged, without the epochs "
                    "before it, or of another config, data set, network or version of the code"
                )
        # also the number of the start, or ranks with other views of the folder would judge the pace
        # of epochs, and so their target, each in its own way
        restored, self.alarms, self.attempt = self.ranks.of_first(
            (restored, self.alarms, self.attempt), self.step.state
        )
        self.step.push()
        if restored:
            self._continue(*restored)
        if target := self.config.target:
            self.pursuit = Pursuit(target, len(self.plans), self.epochs, self.origin_from)
        if self.runtime.rank == 0:
            lines = "".join(epoch.model_dump_json() + "\n" for epoch in self.epochs)
            write_atomically(self.out / EPOCHS_NAME, lines)

    def _continue(self, progress: checkpoint.Progress, epochs: list[EpochRecord]) -> None:
        self.epochs = epochs
        self.step.last_rate, self.step.adascale = progress.last_rate, progress.adascale
        self.stepper.position = progress.position
        self.stepper.skipped_in_a_row = progress.skipped_in_a_row
        self.oversubscribed |= progress.oversubscribed
        self.alarms += progress.alarms
        self.origin_from = progress.origin_from
        if changes := self.origin.changes(progress.origin):
            self.origin_from = len(epochs)
            self.alarms.append(
                f"resumed after epoch {len(epochs)} with {changes}; the throughput is that of "
                "later epochs, seconds to a target are those of all"
            )

    def _train_epochs(self) -> RunError | None:
        """All that are left; what broke the last one off, if anything did. Collective."""
        self.suspended_s = before_s = self.awake.suspended_s()
        longest_s = 0.0
        while self._goes_on():
            begin = self.awake.now()
            record, error = self._epoch(self.plans[len(self.epochs)])
            self.epochs.append(record)
            if self.pursuit:
                self.pursuit.add(record)
            self._save(whole=error is None)
            if error is not None:
                return error
            longest_s = max(longest_s, self.awake.now() - begin)
            if self._goes_on():
                self._keep_within(longest_s, self.awake.suspended_s() - before_s)
        return None

    def _goes_on(self) -> bool:
        """Whether to train another epoch; the same on all ranks, as their epochs are."""
        decided = self.pursuit and self.epochs and self.pursuit.outcome()
        return not decided and len(self.epochs) < len(self.plans)

    def _epoch(self, plan: EpochPlan) -> tuple[EpochRecord, RunError | None]:
        """Train and evaluate; collective."""
        # by rank 0's clock, and before that of the epoch runs
        self.stepper.per_call = self.ranks.of_first(self.stepper.wanted_per_call(plan))
        self.stepper.warm_up(plan, self._warm_up_evaluation)
        self.ranks.barrier()
        began = self.awake.now()
        results, error = self.stepper.epoch(plan)
        self.ranks.barrier()
        trained_s = self.awake.now() - began - self.stepper.extra_s
        sampled_s = self.stepper.sampled_s - self.stepper.extra_s
        sums = self.ranks.summed(epoch_sums(results))
        alarm = alarm_of(self.config, plan, results)
        # the first one: later epochs say the same, with other numbers of steps
        if alarm and not any(earlier.startswith("epoch ") for earlier in self.alarms):
            self.alarms.append(f"epoch {plan.number + 1}: {alarm}")
        began = self.awake.now()
        # also if the epoch was broken off: the ranks end with one model in any case
        settling = f"settling the batch-norm statistics after epoch {plan.number + 1}"
        self.step.pull()
        self.settle(lambda part: self.beat(settling + part))
        self.step.push()
        self.checked = self.evaluate() if error is None else None
        ended, suspended_s = self.awake.read()
        mine = (trained_s, ended - began, sampled_s, suspended_s - self.suspended_s)
        self.suspended_s = suspended_s  # since the last epoch: it may have met the checkpoint
        every = self.ranks.allgather(
            (*mine, self.runtime.shares(), weights_hash(self.model.variables))
        )
        *times, suspensions, shared, hashes = zip(*every, strict=True)
        equal_hash(hashes)
        self.oversubscribed |= any(shared)
        suspended_s = max(suspensions)
        if not suspended_s:
            self.stepper.keep_times()
        # those of rank 0; all others wait for a rank that is suspended, and their clocks go on
        trained_s, evaluated_s, sampled_s = (min(t) if suspended_s else t[0] for t in times)
        record = epoch_record(
            self.config, plan, results, sums, self.checked, attempt=self.attempt,
            train_s=trained_s, eval_s=evaluated_s if self.checked else 0.0,
            suspended_s=suspended_s, sampled_s=sampled_s, sampled_steps=int(sampled_s > 0),
            steps_per_call=self.stepper.per_call,
        )  # fmt: skip
        return record, error

    def _warm_up_evaluation(self) -> None:
        phase = "preparing the evaluation"
        self.settle(lambda part: self.beat(phase + part, PREPARING_S), most=1)
        self.evaluate.answers(np.zeros(1, np.int64))

    def _batches(self, plan: EpochPlan, calls: Sequence[int]) -> Iterator[Batches]:
        rank, size, replicas = self.runtime.rank, self.runtime.size, self.runtime.replicas
        return process_batches(
            self.config, self.data, self.parts.used, plan, rank, size, replicas, calls
        )

    def _save(self, *, whole: bool) -> None:
        """Rank 0: checkpoint first, progress line second, so that a line is never ahead of it."""
        if self.runtime.rank != 0:
            return
        self.beat(f"writing the checkpoint of epoch {len(self.epochs)}")
        if whole:
            progress = checkpoint.Progress(
                last=self.epochs[-1], last_rate=self.step.last_rate,
                position=self.stepper.position, adascale=self.step.adascale,
                skipped_in_a_row=self.stepper.skipped_in_a_row, alarms=tuple(self.alarms),
                oversubscribed=self.oversubscribed, origin=self.origin,
                origin_from=self.origin_from,
            )  # fmt: skip
            file = self.out / CHECKPOINT_NAME
            checkpoint.save(file, self.config, self.fingerprint, self.step.state, progress)
        append_line(self.out / EPOCHS_NAME, self.epochs[-1].model_dump_json())

    def _keep_within(self, longest_s: float, suspended_s: float) -> None:
        """Collective: rank 0 decides, since clocks and file systems may differ between nodes.

        ``suspended_s``: seconds since training began; a library that takes long to load keeps all
        threads waiting, and looks the same.
        """
        # Slurm moves the end of a job that it suspends by as long
        now, why = time.time() - suspended_s, ""
        # a file server that is away asks for nothing
        if self.runtime.rank == 0 and file_mark(self.out / "logs" / STOP_NAME) is not None:
            why = "a stop at the next epoch end was asked for"
        elif (stop_at := self.task.stop_at) and now + MARGIN * longest_s + LEAVE_S > stop_at:
            why = "the time budget has no room for another epoch"
        if why := self.ranks.of_first(why):
            done = f"stopped after epoch {len(self.epochs)} of {len(self.plans)}"
            raise Unfinished(f"{done}, which is in the checkpoint: {why}")
