"""One cell from its first epoch to its last: what it starts from, its checkpoints, when it stops,
and what was measured."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.data.dataset import Dataset
from train.distributed.communicator import equal_hash, weights_hash
from train.distributed.interfaces import moved, read_counters
from train.distributed.launch import Task
from train.distributed.watchdog import WAITING, Watchdog
from train.distributed.world import Runtime
from train.errors import Unfinished
from train.models.layers import network_digest, numbers_in, user_network
from train.record.atomic import append_line, write_atomically
from train.record.builder import AttemptResult
from train.record.cell_folder import (
    CHECKPOINT_NAME,
    EPOCHS_NAME,
    STOP_NAME,
    WEIGHTS_NAME,
    file_mark,
)
from train.record.measurements import EpochRecord
from train.record.target import Pursuit
from train.trainer import checkpoint
from train.trainer.checks import check_nodes
from train.trainer.classification import classification
from train.trainer.divergence import divergence
from train.trainer.epoch import EpochLoop, Parts
from train.trainer.evaluate import images_at_once
from train.trainer.sharpness import sharpness

#: The next epoch may take this much longer than the longest so far,
MARGIN = 1.15
#: and then ranks leave and the supervisor writes down what became of them: seconds.
LEAVE_S = 5.0
#: Bytes per second that a slow file server writes.
SLOW_DISK = 5e7
#: Why a run stops at the end of an epoch, by number; 0: it goes on.
STOPS = (
    "",
    "a stop at the next epoch end was asked for",
    "the time budget has no room for another epoch",
)


@dataclass
class Trainer:
    """The run of one cell on this rank; all methods are collective."""

    config: RunConfig
    runtime: Runtime
    data: Dataset
    parts: Parts
    task: Task
    watchdog: Watchdog
    origin: checkpoint.Origin
    oversubscribed: bool = False  # of this start, before its first epoch
    checkpoint_s: float = 30.0  # between two checkpoints, at least

    def __post_init__(self) -> None:
        self.out, self.model, self.step = self.task.out, self.parts.model, self.parts.step
        self.beat, self.awake = self.watchdog.beat, self.watchdog.awake
        self.ranks = self.runtime.ranks
        self.fingerprint = self.data.fingerprint + network_digest(self.model)
        self.loop = EpochLoop(
            self.config, self.runtime, self.data, self.parts, self.watchdog,
            what_next=self._what_next, oversubscribed=self.oversubscribed,
        )  # fmt: skip
        self.plans = self.parts.plan.epochs
        self.done: list[EpochRecord] = []  # of all starts
        self.pursuit: Pursuit | None = None
        self.resumed_from = 0
        self.origin_from = 0  # epochs before the first one of this origin
        self._saved_at = -math.inf
        self._longest_s = 0.0  # an epoch, without its checkpoint
        # until one has been timed
        self._longest_save_s = 4 * numbers_in(self.step.state) / SLOW_DISK

    def start(self) -> None:
        """Equal state on all ranks before step 1: rank 0's, from its checkpoint if asked.

        Raises:
            ConfigError: ranks have other images, or too little memory for the run.
        """
        self.beat("comparing the ranks' images and networks")
        check_nodes(self.config, self.data, self.parts, self.runtime)
        self.beat("broadcasting the initial state")
        restored, alarms, file = None, list[str](), self.out / CHECKPOINT_NAME
        if self.task.resume and self.runtime.rank == 0:
            restored = checkpoint.restore(file, self.config, self.fingerprint, self.step.state)
            if restored is None and file.exists():
                alarms.append(
                    f"training began again at epoch 1: {file.name} is damaged, without the epochs "
                    "before it, or of another config, data set, network or version of the code"
                )
        # also the number of the start, or ranks with other views of the folder would judge the pace
        # of epochs, and so their target, each in its own way
        restored, self.loop.alarms, self.loop.attempt = self.ranks.of_first(
            (restored, alarms, self.task.attempt), self.step.state
        )
        self.step.back_end.push()
        if restored:
            self._continue(*restored)
        if target := self.config.target:
            self.pursuit = Pursuit(target, len(self.plans), self.done, self.origin_from)
        if self.runtime.rank == 0:
            # cut to the checkpoint, which may be some epochs older
            lines = "".join(epoch.model_dump_json() + "\n" for epoch in self.done)
            write_atomically(self.out / EPOCHS_NAME, lines)
        self._counters = read_counters()
        self._began, self._slept_before_s = self.awake.now(), self.awake.suspended_s()

    def _continue(self, progress: checkpoint.Progress, epochs: list[EpochRecord]) -> None:
        self.done, self.resumed_from = epochs, len(epochs)
        self.step.last_rate, self.step.adascale = progress.last_rate, progress.adascale
        self.loop.position = progress.position
        self.loop.skipped_in_a_row = progress.skipped_in_a_row
        self.loop.oversubscribed |= progress.oversubscribed
        self.loop.alarms += progress.alarms
        self.origin_from = progress.origin_from
        if changes := self.origin.changes(progress.origin):
            self.origin_from = len(epochs)
            self.loop.alarms.append(
                f"resumed after epoch {len(epochs)} with {changes}; the throughput is that of "
                "later epochs, seconds to a target are those of all"
            )

    def left(self) -> Iterator[EpochPlan]:
        """Epochs to train: to the end of the config, until its target is decided, or until the run
        diverges. The same on all ranks, as their records are.

        Raises:
            Unfinished: a stop is asked for, or due.
        """
        while self._goes_on():
            if why := STOPS[self.loop.stop]:
                done = f"stopped after epoch {len(self.done)} of {len(self.plans)}"
                raise Unfinished(f"{done}, which is in the checkpoint: {why}")
            yield self.plans[len(self.done)]

    def _goes_on(self) -> bool:
        decided = self.pursuit and self.done and self.pursuit.outcome()
        return not decided and self.loop.error is None and len(self.done) < len(self.plans)

    def add(self, record: EpochRecord) -> None:
        """Keep the record of an epoch, and now and then the state after it."""
        self.done.append(record)
        if self.pursuit:
            self.pursuit.add(record)
        began = self.awake.now()
        saves = self.loop.error is None and (self.loop.saves or not self._goes_on())
        if self.runtime.rank == 0:
            if saves:
                self.beat(f"writing the checkpoint of epoch {len(self.done)}")
                self._save(record)
            append_line(self.out / EPOCHS_NAME, record.model_dump_json())
        if saves:
            self._saved_at = self.awake.now()
            self._longest_save_s = max(self._longest_save_s, self._saved_at - began)
            # or the next epoch would seem to last longer on those that wait in it
            self.beat(f"waiting for the checkpoint of epoch {len(self.done)}{WAITING}")
            self.ranks.barrier()
        self._began = self.awake.now()

    def _save(self, record: EpochRecord) -> None:
        progress = checkpoint.Progress(
            last=record, last_rate=self.step.last_rate, position=self.loop.position,
            adascale=self.step.adascale, skipped_in_a_row=self.loop.skipped_in_a_row,
            alarms=tuple(self.loop.alarms), oversubscribed=self.loop.oversubscribed,
            origin=self.origin, origin_from=self.origin_from,
        )  # fmt: skip
        file = self.out / CHECKPOINT_NAME
        checkpoint.save(file, self.config, self.fingerprint, self.step.state, progress)

    def _what_next(self) -> tuple[int, bool]:
        """At the end of an epoch, on rank 0, whose clock and file system decide: a number of
        ``STOPS``, and whether a checkpoint is due."""
        now = self.awake.now()
        self._longest_s = max(self._longest_s, now - self._began)
        stop = self._why_stop()
        return stop, bool(stop) or now - self._saved_at >= self.checkpoint_s

    def _why_stop(self) -> int:
        # a file server that is away asks for nothing
        if file_mark(self.out / "logs" / STOP_NAME) is not None:
            return 1
        # the checkpoint of this epoch, the next one, and its checkpoint
        needs_s = MARGIN * (self._longest_s + 2 * self._longest_save_s) + LEAVE_S
        # Slurm moves the end of a job that it suspends by as long; a library that takes long to
        # load keeps all threads waiting, and looks the same
        clock = time.time() - (self.awake.suspended_s() - self._slept_before_s)
        stop_at = self.task.stop_at
        return 2 if stop_at and clock + needs_s > stop_at else 0

    def finish(self) -> AttemptResult:
        """What the run leaves; its weights, too, if the config keeps them.

        Raises:
            UnequalRanks: the ranks' weights differ.
        """
        broken_off = self.loop.error
        # a run that its target ended early was not given the time to learn
        judged = self.config.labelled and len(self.done) == len(self.plans)
        error = broken_off or divergence(self.done[-1], len(self.data.classes), labelled=judged)
        traffic = self.ranks.allgather(
            moved(socket.gethostname(), self._counters, read_counters())
            if self.ranks.local_rank == 0 and self.runtime.size > 1
            else ()
        )
        self.beat("comparing the ranks' weights")
        hashes = self.ranks.allgather(weights_hash(self.model.variables))
        weights = hashes[0] if broken_off else equal_hash(hashes)  # two NaN may differ in bits
        self.beat("summing up the steps")
        steps = self.ranks.allgather(self.loop.samples.summary(self.runtime.rank))
        known = tuple(own for own in steps if own is not None)
        classes, evaluator = None, self.loop.evaluator
        if self.config.labelled and broken_off is None:
            # made now if the run was resumed after its last epoch
            checked = self.loop.checked
            checked = checked or evaluator.evaluation(self.ranks.summed(evaluator.counts()))
            counts = np.asarray(checked.counts)
            classes = classification(counts, self.data.classes, len(self.done))
        images = self.config.sharpness_images
        trained = numbers_in(self.model.trainable_variables)
        result = AttemptResult(
            error, tuple(self.done), self.resumed_from,
            steps=known if len(known) == len(steps) else None,
            weights_sha256=weights,
            traffic=tuple(link for links in traffic for link in links),
            classification=classes,
            target=self.pursuit.outcome(error.what if error else None) if self.pursuit else None,
            sharpness=None if error or images is None else sharpness(
                self.model, self.data, self.parts.used, images, self.ranks,
                images_at_once(self.config, *self.data.train_x.shape[1:3]), self.beat,
            ),
            alarms=tuple(self.loop.alarms),
            gradient_bytes=trained * self.config.technique.wire.bytes,
            adapted=self.step.trust.names if self.step.trust else (),
            origin_from=self.origin_from,
        )  # fmt: skip
        if self.config.keep_weights and self.runtime.rank == 0:
            self.beat("writing the weights")
            content = checkpoint.weights_file(user_network(self.model))
            write_atomically(self.out / WEIGHTS_NAME, content)
        return result
