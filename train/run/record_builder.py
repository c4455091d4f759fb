"""Assemble the record of a run that came to its own end: completed or diverged."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from train.config.optimizer import Lamb, Larc, Lars
from train.config.plan import checked_plan
from train.config.run import RunConfig
from train.data.dataset import Dataset
from train.record.cell_folder import with_reasons
from train.record.run import Attempt, DataRecord, Provenance, RunRecord, Status, World
from train.record.target import REASONS as TARGET_REASONS
from train.run.provenance import REASONS
from train.step.noise_scale import why_not_measured
from train.trainer.classification import REASONS as CLASS_REASONS
from train.trainer.step_summaries import throughput

if TYPE_CHECKING:  # it loads TensorFlow
    from train.trainer.parts import Trained

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


def describe_data(config: RunConfig, data: Dataset) -> DataRecord:
    plan = checked_plan(config, len(data.train_y))
    return DataRecord(
        name=data.name,
        fingerprint=data.fingerprint,
        train_images=plan.used,
        train_images_available=len(data.train_y),
        validation_images=len(data.validation_y),
        classes=len(data.classes),
        dropped_per_epoch=plan.left_over,
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
    remark: str = "",
) -> RunRecord:
    """The record of a run that completed or diverged.

    ``remark``: of its data.
    """
    status: Status = "completed" if trained.error is None else "diverged"
    this = Attempt(
        number=attempt,
        resumed_from_epoch=trained.resumed_from,
        started_at=started_at,
        ended_at=ended_at,
        status=status,
    )
    attempts = (*earlier, this)
    world = with_measured_interface(world, trained)
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
            why_no_overlap=config.technique.why_no_overlap(),
            gradient_bytes=trained.gradient_bytes,
            adapted=trained.adapted,
            traffic=trained.traffic,
            classification=trained.classification,
            target=trained.target,
            sharpness=trained.sharpness,
            alarms=(*filter(None, [remark, provenance.alarm()]), *trained.alarms),
            weights_sha256=trained.weights_sha256,
            provenance=provenance,
            attempts=attempts,
            started_at=attempts[0].started_at,
            ended_at=ended_at,
            missing={},
        ),
        _reasons(config, world, labelled=labelled, diverged=trained.error is not None),
    )


def with_measured_interface(world: World, trained: Trained) -> World:
    """Neither MPI nor NCCL shows which interface it takes: between nodes it is the one of rank 0's
    node that moved most both ways, as gradients do."""
    if not _untold(world):
        return world
    links = [t for t in trained.traffic if t.host == world.hostnames[0] and t.interface != "lo"]
    most = max(links, key=lambda link: min(link.sent_bytes, link.received_bytes), default=None)
    return world.model_copy(update={"interface": most and most.interface})


def _untold(world: World) -> bool:
    """Whether gradients pass between nodes on a way that only the counters show."""
    by_gloo = world.controller == "gloo" and world.data_plane == "gloo"
    return world.nodes > 1 and not by_gloo and world.data_plane != "tf.distribute"


def _plane(world: World) -> str:
    return "NCCL" if world.data_plane == "nccl" else "MPI"


def known_reasons(world: World, *, labelled: bool) -> dict[str, str]:
    """Reasons of nulls that hold from the moment the ranks have met, however the run ends."""
    if world.size == 1:
        interface = "a world of one talks to nobody"
    elif world.data_plane == "tf.distribute":  # of several processes, it always tells
        interface = "one process: its gradients take no network"
    elif _untold(world) or world.controller == "mpi":
        interface = f"{_plane(world)} does not tell which interface it uses"
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
        "steps": "no step that was taken in parts, or no other, after the first of its kind",
        **dict.fromkeys(
            ("steps.waiting_s", "steps.negotiation_s"), "one rank alone, or ranks of tf.distribute"
        ),
        "steps.exposed_s": "other steps were no longer than what a sampled one computes",
        "throughput.images_per_s": "no epoch with other than sampled steps after the first one of "
        "a start",
        "epochs.train_loss": text,
        "epochs.validation_loss": text,
        "epochs.gradient_norm": text,
    }
    if diverged:
        text = "diverged"
        reasons |= {"classification": text, "sharpness": text}
        reasons |= {"epochs.train_loss": text, "epochs.validation_loss": text}
        if labelled:
            reasons |= {"epochs.train_accuracy": text, "epochs.validation_accuracy": text}
    return reasons


def technique_reasons(config: RunConfig, *, labelled: bool) -> dict[str, str]:
    """Why numbers that only some techniques have are null."""
    return {
        "epochs.noise": why_not_measured(config)
        or "one batch per step: there is nothing to compare it with, or no step was finite",
        **dict.fromkeys(
            ("epochs.noise.b_simple", "epochs.noise.low", "epochs.noise.high"),
            "see epochs.noise.interval: censored, as the interval of the squared gradient covers "
            "zero, or fewer than 3 steps",
        ),
        "epochs.trust": "no step's layer-wise factors were numbers"
        if isinstance(config.technique.optimizer, Lamb | Larc | Lars)
        else f"optimizer {config.technique.optimizer.name} has no layer-wise factors",
        "epochs.gain": "not AdaScale",
        "epochs.lr_mean": "an epoch of an older version of this suite",
        "epochs.suspended_s": "an epoch of an older version of this suite",
        "classification": "random labels: classes have no meaning" if not labelled else "not known",
        "target": "the config sets none",
        "sharpness": "second derivatives were no finite numbers"
        if config.sharpness_images
        else "the config sets no sharpness_images",
        **TARGET_REASONS,
    }
