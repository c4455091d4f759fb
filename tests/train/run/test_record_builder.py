"""The record of a run that came to its own end: every null with its true reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import BEGAN, config, epoch, record
from train.config.schedule import Grow
from train.record.run import LinkTraffic, RunError, RunRecord, World, null_paths
from train.run.record_builder import describe_data, finished_record, known_reasons

pytestmark = pytest.mark.tf

OF = config(epochs=3)
ERROR = RunError(what="not finite", where="epoch 3", what_to_do="a lower rate")


def trained(epochs=None, error: RunError | None = None, resumed_from: int = 0, traffic=()):
    from train.trainer.trainer import Trained

    epochs = epochs or tuple(epoch(n + 1, OF) for n in range(3))
    return Trained(error, epochs, resumed_from, None, "a" * 64, traffic, gradient_bytes=56)


def world(**changes: object) -> World:
    return record(OF).world.model_copy(update=changes)


def finish(result, *, labelled: bool = True, where: World | None = None, **more) -> RunRecord:
    whole = record(OF)
    values = {
        "earlier": (), "attempt": 1, "started_at": BEGAN, "ended_at": BEGAN + timedelta(seconds=9),
        "provenance": whole.provenance,
    }  # fmt: skip
    return finished_record(
        OF, result, world=where or whole.world, data=whole.data, labelled=labelled,
        **(values | more),
    )  # fmt: skip


def test_a_run_that_learned_is_completed() -> None:
    found = finish(trained())
    assert found.status == "completed" and found.error is None
    assert [s.epoch for s in found.throughput.samples] == [2, 3]
    assert set(found.missing) == set(null_paths(found))
    assert found.missing["provenance.slurm_job_id"] == "not run under Slurm"


def test_a_diverged_run_is_a_record_with_its_nulls_explained() -> None:
    broken = epoch(
        3, OF, train_loss=None, validation_loss=None, validation_accuracy=None,
        validation_images=0, eval_s=0.0,
    )  # fmt: skip
    found = finish(trained((epoch(1, OF), epoch(2, OF), broken), ERROR))
    assert found.status == "diverged" and found.error == ERROR
    assert found.missing["epochs.validation_loss"] == "diverged"


def test_a_loss_that_overflowed_on_the_way_does_not_cost_the_record() -> None:
    """The run came back from it: it is complete, and that epoch's loss is null with a reason."""
    epochs = (epoch(1, OF, validation_loss=None), epoch(2, OF, train_loss=None), epoch(3, OF))
    found = finish(trained(epochs))
    assert found.status == "completed"
    for name in ("epochs.validation_loss", "epochs.train_loss"):
        assert found.missing[name] == "not a finite number in that epoch"


def test_random_labels_have_no_accuracy() -> None:
    epochs = tuple(
        epoch(n + 1, OF, train_accuracy=None, validation_accuracy=None) for n in range(3)
    )
    found = finish(trained(epochs), labelled=False)
    assert "random labels" in found.missing["epochs.validation_accuracy"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 1, "controller": "gloo"}, "a world of one talks to nobody"),
        ({"size": 2, "controller": "mpi"}, "MPI does not tell"),
        ({"size": 2, "nodes": 2, "data_plane": "nccl"}, "NCCL does not tell"),
        ({"size": 2, "controller": "gloo"}, "HOROVOD_GLOO_IFACE was not set"),
    ],
)
def test_the_reason_for_no_interface_is_the_true_one(changes, words) -> None:
    where = world(interface=None, **changes)
    assert words in finish(trained(), where=where).missing["world.interface"]
    assert words in known_reasons(where, labelled=True)["world.interface"]


ETH0, LO, IB0, NFS, BOND = (
    LinkTraffic(host="n1", interface=name, received_bytes=received, sent_bytes=sent)
    for name, received, sent in (
        ("eth0", 10, 10), ("lo", 10_000, 10_000), ("ib0", 1000, 1000), ("eth1", 90_000, 400),
        ("bond0", 1000, 1000),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "traffic", "interface"),
    [
        ({"controller": "mpi", "data_plane": "mpi"}, (ETH0, LO, IB0), "ib0"),
        ({"controller": "gloo", "data_plane": "nccl"}, (ETH0, IB0), "ib0"),
        ({"controller": "gloo", "data_plane": "gloo"}, (ETH0, IB0), "eth9"),
        # a file server's bytes are more, and go one way
        ({"controller": "mpi", "data_plane": "mpi"}, (NFS, IB0), "ib0"),
        ({"controller": "mpi", "data_plane": "mpi"}, (ETH0, BOND, IB0), "bond0"),
        ({"controller": "mpi", "data_plane": "tf.distribute", "interface": "eth9"}, (IB0,), "eth9"),
        ({"controller": "mpi", "data_plane": "mpi", "nodes": 1}, (IB0,), None),
        ({"controller": "mpi", "data_plane": "mpi"}, (LO,), None),
        ({"controller": "mpi", "data_plane": "mpi"}, (), None),
    ],
)
def test_between_nodes_it_is_the_interface_that_moved_most_both_ways(
    changes, traffic, interface
) -> None:
    told = "eth9" if changes["controller"] == "gloo" else None
    values = {"size": 2, "nodes": 2, "hostnames": ("n1", "n2"), "interface": told} | changes
    found = finish(trained(traffic=traffic), where=world(**values))
    assert found.world.interface == interface and found.traffic == traffic
    assert ("world.interface" in found.missing) is (interface is None)


def test_what_is_known_beforehand_says_nothing_of_what_is_still_to_be_measured() -> None:
    known = known_reasons(world(), labelled=True)
    assert not {"steps", "throughput", "weights_sha256", "epochs.validation_loss"} & set(known)


def test_what_is_doubtful_about_the_data_is_an_alarm_of_the_record() -> None:
    assert finish(trained(), remark="of other files").alarms == ("of other files",)
    assert finish(trained()).alarms == ()


def test_ranks_on_different_gpus_are_an_alarm_of_the_record() -> None:
    own = record(OF).provenance.model_copy(update={"unequal": {"gpu": {"A": (0, 2), "B": (1,)}}})
    (alarm,) = finish(trained(), provenance=own).alarms
    assert alarm == "not equal on all ranks (value: number of ranks): gpu (A: 2, B: 1)"


def test_attempts_accumulate() -> None:
    first = finish(trained(error=ERROR)).attempts
    found = finish(
        trained(resumed_from=2), earlier=first, attempt=2, started_at=BEGAN + timedelta(hours=1),
        ended_at=BEGAN + timedelta(hours=2),
    )  # fmt: skip
    assert [a.number for a in found.attempts] == [1, 2]
    assert found.attempts[1].resumed_from_epoch == 2
    assert found.started_at == BEGAN and found.ended_at == BEGAN + timedelta(hours=2)


def test_the_remainder_that_fills_no_global_batch_is_told() -> None:
    import numpy as np

    from train.data.dataset import make_dataset

    images = np.zeros((103, 2, 2, 1), np.uint8)
    labels = np.zeros(103, np.int64)
    data = make_dataset("t", ["a", "b"], (images, labels), (images[:7], labels[:7]))
    of = config(gpus=2, batch_per_rank=10, data_fraction=0.9)
    found = describe_data(of, data)
    assert (found.train_images, found.train_images_available) == (92, 103)
    assert found.dropped_per_epoch == 12 and found.validation_images == 7 and found.classes == 2
    # a batch that grows to 60 leaves more over: 92 - 60
    growth = Grow(milestones=(0.5,), factor=3, largest=60)
    grows = of.technique.model_copy(update={"batch_growth": growth})
    assert describe_data(of.model_copy(update={"technique": grows}), data).dropped_per_epoch == 32
