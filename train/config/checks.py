"""Cells that would train something else than they say, without any error: refused with the cure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from train.config.datasets import DATASETS
from train.config.optimizer import NovoGradTfa
from train.config.schedule import Constant, CropFlip, Fixed, Grow, Step

if TYPE_CHECKING:  # which imports this module
    from train.config.plan import RunPlan
    from train.config.run import RunConfig

_RESNET50_SIDE = 32  # pixels, at least


def combination_problem(config: RunConfig) -> str | None:
    """What is wrong with the cell as a whole, with what to do; None where nothing is."""
    checks = (
        _target, _ghosts, _one_image, _adasum, _adascale, _noise, _network, _accumulation, _warmup,
        _milestones, _growth, _images, _distribute,
    )  # fmt: skip
    return next((text for check in checks if (text := check(config))), None)


def _target(config: RunConfig) -> str | None:
    if config.target is not None and config.dataset == "synthetic":
        return "target: the labels of synthetic are random, so no accuracy can be met: leave it out"
    return None


def _ghosts(config: RunConfig) -> str | None:
    ghost, batch = config.technique.ghost_batch, config.batch_per_rank
    if ghost is None or batch % ghost == 0:
        return None
    fits = [n for n in range(2, batch + 1) if batch % n == 0]
    near = min(fits, key=lambda n: abs(n - ghost)) if fits else None
    hint = f": use {near}" if near else ""
    return f"ghost_batch {ghost} does not divide batch_per_rank {batch}{hint}"


def _one_image(config: RunConfig) -> str | None:
    """A vector less its own mean is zero, whatever the image was."""
    batch, side = config.batch_per_rank, last_map_side(config.model, config.image_side)
    over = {"batch_norm": batch, "sync_batch_norm": batch * config.gpus}
    if side > 1 or over.get(config.technique.normalisation) != 1:
        return None
    what = "hidden vector" if config.model in ("mlp", "cnn") else "map of one pixel"
    instead = "larger images" if config.model == "resnet50" else "normalisation: none"
    return (
        f"normalisation {config.technique.normalisation} over one image: model {config.model} "
        f"normalises its last {what}, which would be the same for all images: use a "
        f"batch_per_rank of 2 or more, or {instead}"
    )


def last_map_side(model: str, side: int) -> int:
    """Side in pixels of the last map that is normalised, of images of ``side``; 1 for a vector."""
    if model in ("mlp", "cnn"):
        return 1
    if model == "resnet50":
        return -(-side // 32)
    first = (side - 1) // 2 + 1
    pooled = -(-first // 2) if side < 12 else (first - 3) // 2 + 1
    return -(-pooled // 2)


def _adasum(config: RunConfig) -> str | None:
    k = config.gpus
    if config.technique.reduction != "adasum" or k & (k - 1) == 0:
        return None
    below = 1 << (k.bit_length() - 1)
    return (
        f"reduction adasum pairs ranks in a binary tree, so gpus must be a power of two, found "
        f"{k}: use {below} or {2 * below}"
    )


def _adascale(config: RunConfig) -> str | None:
    row, batch = config.technique, config.global_batch
    if row.lr_scaling != "adascale" or batch == row.base_batch:
        return None
    if batch < row.base_batch:
        return (
            f"lr_scaling adascale is for batches above the base_batch of {row.base_batch}, found a "
            f"global batch of {batch}: use a base_batch of at most {batch}, with its rate, or "
            "lr_scaling: sqrt or linear"
        )
    if config.gpus * config.accumulation > 1:
        return None
    return (
        f"lr_scaling adascale compares the gradients of ranks or of accumulated batches, but there "
        f"is one batch of {config.batch_per_rank} per step, for a base_batch of {row.base_batch}: "
        "use accumulation or gpus of 2 or more, with a smaller batch_per_rank"
    )


def _noise(config: RunConfig) -> str | None:
    noise, batch = config.technique.noise_batch, config.global_batch
    if noise is None or noise <= batch:
        return None
    return (
        f"noise_batch {noise}: noise can be added to the gradient of {batch} images, the global "
        f"batch, not taken away: use a noise_batch of at most {batch}"
    )


def _network(config: RunConfig) -> str | None:
    row = config.technique
    if config.model != "resnet50":
        return None
    if row.normalisation != "batch_norm":
        return (
            f"model resnet50 comes with batch norm built in, so normalisation {row.normalisation} "
            "would have no effect: use batch_norm"
        )
    facts, side = DATASETS.get(config.dataset), config.image_side
    if (facts and facts.shape[2] == 1) or side < _RESNET50_SIDE:
        return (
            f"model resnet50 needs RGB images of at least {_RESNET50_SIDE} pixels, found "
            f"{config.dataset} with {side}: use cnn or resnet_mini, "
            "or for a folder a larger image_size"
        )
    if row.zero_gamma or row.initialisation != "glorot" or row.standardise:
        return (
            "model resnet50 is Keras' own network with its own preparation of images: leave out "
            "zero_gamma, initialisation and standardise"
        )
    return None


def _accumulation(config: RunConfig) -> str | None:
    row = config.technique
    if config.accumulation == 1 and isinstance(row.batch_growth, Fixed):
        return None
    batch = config.gpus * config.batch_per_rank
    if row.normalisation == "sync_batch_norm":
        return (
            f"normalisation sync_batch_norm with accumulation or batch_growth: each rank computes "
            f"one batch at a time, so it would normalise over {batch} images, not over all of a "
            "step: use ghost_batch_norm, or gpus in place of accumulation"
        )
    if row.reduction == "adasum":
        return (
            "reduction adasum with accumulation or batch_growth: its tree is over ranks, and what "
            "one rank accumulates is averaged: use gpus in place of accumulation"
        )
    if isinstance(row.optimizer, NovoGradTfa):
        return (
            "optimizer novograd_tfa with accumulation is the form that starts with a step up to "
            "32 times too long in Horovod's own wrapper: use novograd, the published rule"
        )
    return None


def _warmup(config: RunConfig) -> str | None:
    row, epochs = config.technique, config.epochs
    warmup, schedule, growth = row.warmup_epochs, row.schedule, row.batch_growth
    if warmup >= epochs and not isinstance(schedule, Constant):
        return (
            f"warmup_epochs {warmup:g} are the whole run of {epochs} epochs, so that schedule "
            f"{schedule.name} would never begin: use a fifth of them or less"
        )
    if isinstance(schedule, Step):
        unit = epochs if schedule.unit == "fraction" else 1
        starts = [milestone * unit for milestone in schedule.milestones]
    else:
        starts = list(growth.epochs(epochs)) if isinstance(growth, Grow) else []
    early = [round(start, 3) for start in starts if start < warmup - 1e-9]
    if early:
        what = "schedule" if isinstance(schedule, Step) else "batch_growth"
        return (
            f"{what}: the milestones after {early} epochs fall into the warm-up of {warmup:g}, "
            "where the rate still climbs: use later ones, or fewer warmup_epochs"
        )
    return None


def _milestones(config: RunConfig) -> str | None:
    schedule = config.technique.schedule
    if not isinstance(schedule, Step) or schedule.unit == "fraction":
        return None
    late = [m for m in schedule.milestones if m >= config.epochs]
    if late:
        return (
            f"schedule: milestones {late} (epochs) never fire in a run of "
            f"{config.epochs} epochs: use earlier ones, or unit: fraction"
        )
    return None


def _growth(config: RunConfig) -> str | None:
    growth = config.technique.batch_growth
    if not isinstance(growth, Grow):
        return None
    starts = growth.epochs(config.epochs)
    if starts and sorted({0, config.epochs, *starts}) == [0, *starts, config.epochs]:
        return None
    return (
        f"batch_growth: in a run of {config.epochs} epochs the milestones "
        f"{[round(m, 3) for m in growth.milestones]} fall on the ends of epochs {list(starts)}, "
        f"which must differ and lie between 1 and {config.epochs - 1}: use fewer milestones or "
        "more epochs"
    )


def _images(config: RunConfig) -> str | None:
    images, side = config.technique.augmentation, config.image_side
    if not isinstance(images, CropFlip):
        return None
    facts = DATASETS.get(config.dataset)
    if facts and facts.characters and images.flip != "none":
        return (
            f"augmentation: flip {images.flip} turns digits of {config.dataset} into other "
            "characters: say flip: none"
        )
    if images.crop >= side:
        return (
            f"augmentation: crop {images.crop} mirrors as many pixels of the border, but images "
            f"of {config.dataset} have {side}: use at most {side - 1}, usually an eighth"
        )
    if images.cutout >= side:
        return (
            f"augmentation: cutout {images.cutout} covers whole images of {config.dataset} "
            f"({side} pixels): use at most {side - 1}, usually a quarter to a half"
        )
    return None


def _distribute(config: RunConfig) -> str | None:
    """tf.distribute reduces by itself: what changes the reduction has no place in it."""
    row = config.technique
    if config.framework == "horovod":
        return None
    wrong = {
        "normalisation": row.normalisation not in ("none", "batch_norm"),
        "reduction": row.reduction != "average",
        "compression": row.compression != "none",
        "lr_scaling": row.lr_scaling == "adascale",
        "batch_growth": not isinstance(row.batch_growth, Fixed),
        "precision": row.precision == "mixed_float16",
        "accumulation": config.accumulation > 1,
        "sharpness_images": config.sharpness_images is not None,
    }
    found = [name for name, bad in wrong.items() if bad]
    if found:
        return (
            f"framework {config.framework} averages gradients by itself, once for each batch of "
            f"a rank, so it cannot do {', '.join(found)} as given: use framework: horovod"
        )
    return None


def plan_problem(plan: RunPlan) -> str | None:
    """What becomes of a request when it is rounded to the steps of a run, with what to do; None
    where nothing is wrong."""
    return _rounded_warmup(plan) or _rounded_milestones(plan) or _rounded_target(plan)


def _rounded_warmup(plan: RunPlan) -> str | None:
    epochs = plan.config.technique.warmup_epochs
    if not epochs or plan.warmup_steps:
        return None
    each = plan.step_at(1)
    return (
        f"warmup_epochs {epochs:g} of {each:,.0f} steps each come to 0 steps, so there would be no "
        f"warm-up: set warmup_epochs to 0, or to {math.ceil(1000 / each) / 1000:g} (one step) or "
        "more"
    )


def _rounded_milestones(plan: RunPlan) -> str | None:
    schedule, last = plan.config.technique.schedule, plan.horizon - 1
    if not isinstance(schedule, Step):
        return None
    steps = [plan.milestone(schedule, m) for m in schedule.milestones]
    if steps == sorted({step for step in steps if 0 < step <= last}):
        return None
    whole = plan.config.epochs if schedule.unit == "epochs" else 1
    least = whole / plan.horizon
    return (
        f"schedule: the milestones {list(schedule.milestones)} come to the steps {steps} of "
        f"{plan.horizon:,}; they must rise, and lie within 1 to {last:,}: use values from "
        f"{least:.2g} to {least * last:.4g}, at least {least:.2g} apart"
    )


def _rounded_target(plan: RunPlan) -> str | None:
    target, epochs = plan.config.target, len(plan.epochs)
    if target is None or target.held_for <= epochs:
        return None
    return (
        f"target: held_for {target.held_for} asks for more evaluations than a run of {epochs} "
        f"epochs has: set held_for to {epochs} or less, or more epochs"
    )
