"""The record of a run that ended by itself, and of a start that left only traces: all that is known
is in it, and every null has its true reason."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BEGAN, config, epoch, record, row
from tests.unreadable import is_untouched, unreadable
from train.config.optimizer import Lars, Sgd
from train.config.run import RunConfig, Target
from train.errors import Unreadable
from train.record.atomic import append_line
from train.record.builder import Announcement, AttemptResult, build_record, ended_record, throughput
from train.record.cell_folder import EPOCHS_NAME, START_NAME
from train.record.measurements import (
    Classification,
    ClassScore,
    EpochRecord,
    LinkTraffic,
    RankSteps,
    Spread,
)
from train.record.nulls import null_paths
from train.record.run import (
    RECORD_NAME,
    RunError,
    RunRecord,
    World,
    read_record,
    write_record,
)
from train.record.target import Pursuit

OF = config(epochs=3)
ERROR = RunError(what="not finite", where="epoch 3", what_to_do="a lower learning rate")
LATER = BEGAN + timedelta(hours=1)


def epochs(of: RunConfig = OF, **changes: Any) -> tuple[EpochRecord, ...]:
    return tuple(epoch(n + 1, of, **changes) for n in range(of.epochs))


def announcement(of: RunConfig = OF, where: World | None = None, **more: Any) -> Announcement:
    whole = record(of)
    own = {"world": where or whole.world, "data": whole.data, "provenance": whole.provenance}
    return Announcement(**(own | more))


def finish(
    of: RunConfig = OF, *, error: RunError | None = None, where: World | None = None,
    earlier: Any = (), attempt: int = 1, resumed_from: int = 0, known: Any = None, **more: Any,
) -> RunRecord:  # fmt: skip
    values = {"epochs": epochs(of), "steps": None, "weights_sha256": "a" * 64,
              "gradient_bytes": 56} | more  # fmt: skip
    return build_record(
        of, AttemptResult(error=error, resumed_from=resumed_from, **values),
        announcement(of, where, **(known or {})), "diverged" if error else "completed",
        attempt, earlier,
        started_at=BEGAN if attempt == 1 else LATER, ended_at=LATER,
    )  # fmt: skip


def end(cell: Path, status: Any = "failed", began: Any = BEGAN) -> RunRecord:
    return ended_record(cell, OF, status, ERROR, started_at=began, ended_at=LATER)


def technique(**changes: Any) -> RunConfig:
    return config(technique=row(**{"base_batch": 64, "optimizer": Sgd()} | changes))


def where(**changes: Any) -> dict[str, Any]:
    return {"where": record().world.model_copy(update={"interface": None, **changes})}


SPREAD = Spread(n=1, mean=1.0, median=1.0, p05=1.0, p95=1.0)
STEPS = (RankSteps(rank=0, step_s=SPREAD, input_s=SPREAD, compute_s=SPREAD,
                   communication_s=SPREAD, update_s=SPREAD, sampled=1),)  # fmt: skip
NOBODY = Classification(
    epoch=2, classes=(ClassScore(name="a", precision=None, recall=None, f1=None, support=0),),
    confusion=None,
)  # fmt: skip
UNLABELLED = config(dataset="synthetic")
AIMING = config(target=Target(validation_accuracy=0.9))
UNMET = Pursuit(AIMING.target, 2, epochs(AIMING)).outcome()


@pytest.mark.parametrize(
    ("of", "result", "path", "why"),
    [
        (OF, {}, "provenance.slurm_job_id", "not run under Slurm"),
        (OF, {}, "steps", "no step that was taken in parts"),
        (OF, {}, "target", "the config sets none"),
        (OF, {}, "sharpness", "the config sets no sharpness_images"),
        (config(sharpness_images=9), {}, "sharpness", "no finite numbers"),
        (OF, {"steps": STEPS}, "steps.waiting_s", "one rank alone"),
        (OF, {"steps": STEPS}, "steps.exposed_s", "no longer than what a sampled one computes, or"),
        (OF, {"epochs": epochs()[:1]}, "throughput.images_per_s", "no epoch with other"),
        (OF, {"epochs": epochs(train_loss=None)}, "epochs.train_loss", "not a finite number in"),
        (OF, {}, "epochs.noise", "one batch per step"),
        (technique(noise_batch=32), {}, "epochs.noise", "adds noise to the gradient"),
        (technique(reduction="adasum"), {}, "epochs.noise", "Adasum has no mean gradient"),
        (technique(normalisation="sync_batch_norm"), {}, "epochs.noise", "couples the ranks'"),
        (config(gpus=2, partition="same"), {}, "epochs.noise", "draw the same images"),
        (OF, {}, "epochs.trust", "optimizer adam has no layer-wise factors"),
        (technique(optimizer=Lars()), {}, "epochs.trust", "no step's layer-wise factors"),
        (OF, {}, "epochs.gain", "not AdaScale"),
        (OF, {"epochs": epochs(lr_mean=None)}, "epochs.lr_mean", "an older version"),
        (UNLABELLED, {"epochs": epochs(train_accuracy=None)}, "epochs.train_accuracy", "random"),
        (UNLABELLED, {}, "classification", "random labels"),
        (OF, {}, "classification", "the last epoch was not evaluated"),
        (OF, {"error": ERROR}, "classification", "diverged"),
        (OF, {"error": ERROR, "epochs": epochs(validation_loss=None)}, "epochs.validation_loss",
         "diverged"),
        (OF, {"classification": NOBODY}, "classification.confusion", "more than 100 classes"),
        (OF, {"classification": NOBODY}, "classification.classes.precision", "was predicted"),
        (OF, {"classification": NOBODY}, "classification.classes.recall", "image is of this"),
        (AIMING, {"target": UNMET}, "target.seconds", "the target was not met"),
        (AIMING, {"target": UNMET}, "target.held.epoch", "this accuracy was never held"),
        (OF, where(), "world.interface", "one process talks to nobody"),
        (OF, where(size=2, controller="mpi"), "world.interface", "MPI does not show"),
        (OF, where(size=2, nodes=2, data_plane="nccl"), "world.interface", "NCCL does not show"),
    ],
)  # fmt: skip
def test_the_reason_of_a_null_is_the_true_one(of: Any, result: Any, path: str, why: str) -> None:
    found = finish(of, **result)
    assert found.status == ("diverged" if found.error else "completed")
    assert why in found.missing[path]
    assert set(found.missing) == set(null_paths(found)), "of nulls alone"


@given(
    accuracy=st.one_of(st.none(), st.floats(0, 1)), loss=st.one_of(st.none(), st.floats(0, 9)),
    status=st.sampled_from(["failed", "timeout", "preempted", "cancelled", "lost"]),
    announced=st.booleans(), count=st.integers(0, 3),
)  # fmt: skip
def test_every_null_of_a_start_that_broke_off_is_explained(
    tmp_path_factory, accuracy, loss, status, announced, count
) -> None:
    cell = tmp_path_factory.mktemp("cell")
    (cell / "logs").mkdir()
    if announced:
        (cell / "logs" / START_NAME).write_text(announcement().model_dump_json())
    for number in range(1, count + 1):
        line = epoch(number, OF, validation_accuracy=accuracy, train_loss=loss)
        append_line(cell / EPOCHS_NAME, line.model_dump_json())
    found = end(cell, status)
    assert (found.status, len(found.epochs), found.error) == (status, count, ERROR)
    assert (found.world is not None) is announced
    assert set(null_paths(found)) == set(found.missing) and all(found.missing.values())
    assert f"ended as {status} before" in found.missing["weights_sha256"]
    assert found.missing["target"] == "the config sets none", "no matter of when the run ended"
    assert write_record(cell / RECORD_NAME, found) and read_record(cell / RECORD_NAME) == found


@pytest.mark.parametrize("text", ["", "[]", '{"world": null}'])
def test_an_unreadable_announcement_is_none(cell: Path, text: str) -> None:
    (cell / "logs" / START_NAME).write_text(text)
    assert end(cell).world is None


def test_traces_that_cannot_be_read_now_are_no_reason_to_give_them_up(cell: Path) -> None:
    file = unreadable(cell / EPOCHS_NAME)
    with pytest.raises(Unreadable):
        end(cell)
    assert is_untouched(cell, file)


def test_attempts_accumulate_and_the_record_begins_with_the_first(cell: Path) -> None:
    write_record(cell / RECORD_NAME, end(cell, "timeout"))
    for number, attempt in ((1, 1), (2, 1), (3, 2)):
        append_line(cell / EPOCHS_NAME, epoch(number, OF, attempt=attempt).model_dump_json())
    second = end(cell, "preempted", LATER)
    assert [(a.number, a.status) for a in second.attempts] == [(1, "timeout"), (2, "preempted")]
    assert [a.resumed_from_epoch for a in second.attempts] == [0, 2]
    assert (second.started_at, second.ended_at) == (BEGAN, LATER)
    third = finish(earlier=second.attempts, attempt=3, resumed_from=3)
    assert [a.status for a in third.attempts] == ["timeout", "preempted", "completed"]
    assert third.attempts[-1].resumed_from_epoch == 3 and third.started_at == BEGAN
    (cell / RECORD_NAME).write_text('{"schema_version": 1, "atte')
    assert [a.number for a in end(cell).attempts] == [2], "by what its epochs say"


def links(**moved: tuple[int, int]) -> tuple[LinkTraffic, ...]:
    return tuple(
        LinkTraffic(host=host, interface=name, received_bytes=received, sent_bytes=sent)
        for name, (received, sent) in moved.items()
        for host in ("n0", "n1")
    )


#: A file server's bytes go one way.
MOVED = links(eth0=(10, 10), lo=(10**6, 10**6), ib0=(1000, 1000), eth1=(90_000, 400))


@pytest.mark.parametrize(
    ("changes", "traffic", "interface"),
    [
        ({"controller": "mpi", "data_plane": "mpi"}, MOVED, "ib0"),
        ({"controller": "gloo", "data_plane": "nccl"}, MOVED, "ib0"),
        ({"controller": "mpi", "data_plane": "tf.distribute", "interface": "eth9"}, MOVED, "eth9"),
        ({"controller": "mpi", "data_plane": "mpi", "nodes": 1}, MOVED, None),
        ({"controller": "mpi", "data_plane": "mpi"}, links(lo=(1, 1)), None),
    ],
)
def test_between_nodes_the_interface_is_the_one_that_moved_most(
    changes: Any, traffic: Any, interface: str | None
) -> None:
    two = {"size": 2, "nodes": 2, "hostnames": ("n0", "n1")}
    found = finish(**where(**(two | changes)), traffic=traffic)
    assert found.world is not None and found.world.interface == interface
    assert found.traffic == traffic


def test_ranks_on_different_gpus_are_an_alarm_of_the_record() -> None:
    own = record(OF).provenance.model_copy(update={"unequal": {"gpu": {"A": (0, 2), "B": (1,)}}})
    (alarm,) = finish(known={"provenance": own}).alarms
    assert alarm == "not equal on all ranks (value: number of ranks): gpu (A: 2, B: 1)"


def test_throughput_is_images_over_seconds_of_steady_epochs() -> None:
    """Not of the first epoch of a start, nor of one in which a rank was suspended, or that took no
    time; and without the sampled steps."""
    seconds = (90.0, 2.0, 4.0, 80.0, 1.0, 3.0, 0.0, 2.5)
    attempts = (1, 1, 1, 2, 2, 2, 2, 2)
    run = [
        epoch(n, OF, attempt=of, train_s=took, images=1000 * n, suspended_s=60.0 * (n == 6))
        for n, (took, of) in enumerate(zip(seconds, attempts, strict=True), 1)
    ]
    run[-1] = run[-1].model_copy(update={"sampled_steps": 1, "sampled_s": 0.5})
    found = throughput(run)
    sampled = (8000 - OF.global_batch) / 2
    expected = {2: 1000, 3: 750, 5: 5000, 8: sampled}
    assert {s.epoch: s.images_per_s for s in found.samples} == expected
    assert found.images_per_s == (1000 + sampled) / 2 and found.left_out == (1, 4, 6, 7)
    nothing = throughput(run[:1])
    assert (nothing.images_per_s, nothing.samples, nothing.left_out) == (None, (), (1,))
