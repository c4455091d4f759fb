"""One start of one cell on one rank: world, data, training, and rank 0's record."""

from __future__ import annotations

import signal
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from train.config.run import RunConfig
from train.data.waiting import report_to
from train.distributed.launch import Launch, Task
from train.distributed.watchdog import WAITING, Watchdog
from train.distributed.world import start
from train.errors import Unfinished
from train.record.atomic import write_atomically
from train.record.builder import Announcement, AttemptResult, build_record
from train.record.cell_folder import CHECKPOINT_NAME, START_NAME, UNFINISHED_NAME, rank_file
from train.record.measurements import DataRecord
from train.record.run import RECORD_NAME, Status, write_record
from train.run.provenance import describe_world, provenance_here

if TYPE_CHECKING:
    from train.trainer.trainer import Trainer

#: So long may ranks wait for one that reads or makes data, seconds. Its own watchdog, which gets
#: signs of progress, ends it if it hangs, and the others lose their connection.
READING_S = 3600.0
_OPTION_2 = (
    "option 2: each rank draws its share of an epoch from the whole set by itself "
    "(images may repeat across ranks)"
)
ORDERS = {
    "partition": "option 1: one permutation of the whole set per epoch, drawn from (seed, epoch), "
    "cut into disjoint shards",
    "independent": _OPTION_2,
    "whole": f"{_OPTION_2}; rank 0 in the orders of option 1",
    "same": "as the config asks, all ranks draw the same images: the first ones of one permutation "
    "of the whole set per epoch, drawn from (seed, epoch)",
}


def run_session(config: RunConfig, launch: Launch, task: Task, watchdog: Watchdog) -> None:
    """Collective. Rank 0 writes the record before the last barrier: a launcher may end stragglers
    as soon as the first rank is gone. Raises Unfinished."""
    logs = task.out / "logs"
    beat, patience_s = watchdog.beat, 2 * watchdog.stall_s  # for late ranks
    # rank 0 first: the rendezvous explains its absence better than the watchdog does
    beat("waiting for the other ranks", patience_s + watchdog.stall_s)
    runtime = start(config, launch, patience_s, partial(watchdog.waiting, READING_S))
    watchdog.file = rank_file(task.out, launch.rank, "beat")  # rank 0 has the cell's lock
    # only now: it loads TensorFlow, which reads its environment once
    from train.run.build import build_parts, open_data  # noqa: PLC0415
    from train.trainer.checkpoint import Origin  # noqa: PLC0415
    from train.trainer.checks import check_end  # noqa: PLC0415
    from train.trainer.trainer import Trainer  # noqa: PLC0415

    with report_to(beat):
        data = open_data(config, task, runtime, beat, supervised=launch.supervised)
        beat("building the model", patience_s)
        parts = build_parts(config, data, runtime, task.data, task.model_file)
    beat("checking what the end of the run needs", patience_s)
    check_end(config, parts.model, data)
    beat(f"describing the ranks{WAITING}", READING_S)  # one may still prepare its node's data
    own = provenance_here(config, runtime.gpus, asks_git=runtime.ranks.local_rank == 0)
    world, provenance = describe_world(runtime, own)
    origin = Origin.of(world, provenance)
    trainer = Trainer(config, runtime, data, parts, task, watchdog, origin, world.oversubscribed)
    data_record = DataRecord(
        name=data.name,
        fingerprint=data.fingerprint,
        train_images=parts.plan.used,
        train_images_available=len(data.train_y),
        validation_images=len(data.validation_y),
        classes=len(data.classes),
        dropped_per_epoch=parts.plan.left_over,
        order=ORDERS[config.partition],
    )

    def announced() -> Announcement:
        so_far = world.model_copy(update={"oversubscribed": trainer.loop.oversubscribed})
        return Announcement(world=so_far, data=data_record, provenance=provenance)

    if runtime.rank == 0:
        write_atomically(logs / START_NAME, announced().model_dump_json())
    try:
        trained = train(trainer)
    except Unfinished as stopped:
        if runtime.rank == 0:
            write_atomically(logs / START_NAME, announced().model_dump_json())
            write_atomically(logs / UNFINISHED_NAME, str(stopped))
        # a launcher ends the other tasks as soon as the first one is gone with this exit code,
        # which would turn theirs into that of a signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        runtime.ranks.shutdown()
        raise
    beat(f"ending the run{WAITING}", patience_s)  # rank 0 writes weights and record
    if runtime.rank == 0:
        beat("writing the record")
        status: Status = "diverged" if trained.error else "completed"
        record = build_record(
            config, trained, announced(), status, task.attempt, task.earlier, task.started_at,
            datetime.now(timezone.utc),
        )  # fmt: skip
        if not write_record(task.out / RECORD_NAME, record, replace_good=task.force):
            raise RuntimeError(f"the record in {task.out} is good already and was kept")
        (task.out / CHECKPOINT_NAME).unlink(missing_ok=True)  # can be 300 MB
    runtime.ranks.shutdown()


def train(trainer: Trainer) -> AttemptResult:
    """Collective, and the same on all ranks.

    Raises:
        ConfigError: ranks have other images, or too little memory for the run.
        Unfinished: a stop is asked for, or due; on all ranks at the same epoch end.
        UnequalRanks: the ranks' weights differ.
        tf.errors.UnknownError: a peer ended (Horovod's way to say so).
    """
    trainer.start()
    for plan in trainer.left():
        trainer.add(trainer.loop.run_epoch(plan))
    return trainer.finish()
