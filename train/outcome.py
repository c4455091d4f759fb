"""Assemble the record of a run that came to its own end: completed or diverged."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from train.classification import REASONS as CLASS_REASONS
from train.config import RunConfig, used_train_images
from train.data.arrays import Dataset
from train.measure import throughput
from train.noise_scale import why_not_measured
from train.provenance import REASONS
from train.record import Attempt, DataRecord, LinkTraffic, Provenance, RunRecord, Status, World
from train.targets import REASONS as TARGET_REASONS
from train.traces import with_reasons
from train.traffic import busiest

if TYPE_CHECKING:  # it loads TensorFlow
    from train.loop import Trained

ORDERS = {
    "partition": "option 1: one permutation of the whole set per epoch, drawn from (seed, epoch), "
    "cut into disjoint shards",
    "whole": "option 2: each rank draws its share of an epoch from the whole set by itself "
    "(images may repeat across ranks)",
}


def describe_data(config: RunConfig, data: Dataset) -> DataRecord:
    used = used_train_images(len(data.train_y), config.data_fraction)
    return DataRecord(
        name=data.name,
        fingerprint=data.fingerprint,
        train_images=used,
        train_images_available=len(data.train_y),
        validation_images=len(data.validation_y),
        classes=len(data.classes),
        dropped_per_epoch=used % config.global_batch,
        order=ORDERS[config.partition],
    )


def finished_record(
    config: RunConfig,
    trained: Trained,
    *,
    world: World,
    data: DataRecord,
    labelled: bool,
    provenance: Provenance,
    earlier: tuple[Attempt, ...],
    attempt: int,
    started_at: datetime,
    ended_at: datetime,
) -> RunRecord:
    """The record of a run that completed or diverged."""
    status: Status = "completed" if trained.error is None else "diverged"
    this = Attempt(
        number=attempt,
        resumed_from_epoch=trained.resumed_from,
        started_at=started_at,
        ended_at=ended_at,
        status=status,
    )
    attempts = (*earlier, this)
    world = with_measured_interface(world, trained.traffic)
    return with_reasons(
        RunRecord.model_construct(
            schema_version=1,
            cell_id=config.cell_id(),
            status=status,
            error=trained.error,
            config=config,
            world=world,
            data=data,
            epochs=trained.epochs,
            steps=trained.steps,
            throughput=throughput(trained.epochs),
            traffic=trained.traffic,
            classification=trained.classification,
            target=trained.target,
            alarms=trained.alarms,
            weights_sha256=trained.weights_sha256,
            provenance=provenance,
            attempts=attempts,
            started_at=attempts[0].started_at,
            ended_at=ended_at,
            missing={},
        ),
        _reasons(config, world, labelled=labelled, diverged=trained.error is not None),
    )


def with_measured_interface(world: World, traffic: tuple[LinkTraffic, ...]) -> World:
    """Neither MPI nor NCCL tells which interface it takes: between nodes, the counters do."""
    if world.nodes == 1 or (world.controller == "gloo" and world.data_plane == "gloo"):
        return world
    used = busiest(traffic, world.hostnames[0])
    return world if used is None else world.model_copy(update={"interface": used})


def known_reasons(world: World, *, labelled: bool) -> dict[str, str]:
    """Reasons of nulls that hold from the moment the ranks have met, however the run ends."""
    if world.size == 1:
        interface = "a world of one talks to nobody"
    elif world.data_plane == "tf.distribute":  # of several processes, it always tells
        interface = "one process: its gradients take no network"
    elif world.controller == "mpi":
        interface = "MPI does not tell which interface it uses"
        if world.nodes > 1:
            interface += ", and no counter of one was read at the end of the training"
    else:
        interface = "HOROVOD_GLOO_IFACE was not set, so that Gloo chose one by itself"
    reasons = {**REASONS, "world.interface": interface}
    if not labelled:
        text = "random labels: accuracy has no meaning"
        reasons |= {"epochs.train_accuracy": text, "epochs.validation_accuracy": text}
    return reasons


def _reasons(config: RunConfig, world: World, *, labelled: bool, diverged: bool) -> dict[str, str]:
    text = "not a finite number in that epoch"
    reasons = {
        **known_reasons(world, labelled=labelled),
        **technique_reasons(config, labelled=labelled),
        **CLASS_REASONS,
        "steps": "no step after the first one of a start, which is no steady state",
        "throughput.images_per_s": "no epoch after the first one of a start",
        "epochs.train_loss": text,
        "epochs.validation_loss": text,
        "epochs.gradient_norm": text,
    }
    if diverged:
        text = "diverged"
        reasons |= {"classification": text}
        reasons |= {"epochs.train_loss": text, "epochs.validation_loss": text}
        if labelled:
            reasons |= {"epochs.train_accuracy": text, "epochs.validation_accuracy": text}
    return reasons


def technique_reasons(config: RunConfig, *, labelled: bool) -> dict[str, str]:
    """Why numbers that only some techniques have are null."""
    return {
        "epochs.noise": noise_reason(config),
        **dict.fromkeys(
            ("epochs.noise.b_simple", "epochs.noise.low", "epochs.noise.high"),
            "see epochs.noise.interval: censored, as the interval of the squared gradient covers "
            "zero, or fewer than 3 steps",
        ),
        "epochs.trust": f"optimizer {config.technique.optimizer.name} has no layer-wise factors",
        "epochs.gain": "not AdaScale",
        "epochs.lr_mean": "an epoch of an older version of this suite",
        "epochs.suspended_s": "an epoch of an older version of this suite",
        "classification": "random labels: classes have no meaning" if not labelled else "not known",
        "target": "the config sets none",
        **TARGET_REASONS,
    }


def noise_reason(config: RunConfig) -> str:
    return why_not_measured(config.technique) or (
        "one batch per step: there is nothing to compare it with, or no step was finite"
    )
