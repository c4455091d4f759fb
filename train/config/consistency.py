"""Configs that contradict themselves: no cell and no record may have one.

A refusal is a row: a condition, and a text of what was found, what was expected and what to do.
What a condition returns is ``{x}`` in its text. ``t`` is a technique, ``c`` a cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from train.config.datasets import DATASETS, FOLDER_PREFIX
from train.config.networks import APPLICATIONS, NETWORKS, smallest_side
from train.config.schedule import StepDecay
from train.config.technique import Rows, grows, those

#: Of a step and of an epoch: sums of more would not fit into 64 bits.
MOST_IMAGES = 10**13

CELL: Rows = (
    (lambda c, t: (n := c.global_batch * (c.steps_per_epoch or 1)) > MOST_IMAGES and n,
     "{x:,} images are more than any machine trains: use a smaller batch_per_rank, gpus, "
     "accumulation or steps_per_epoch"),
    (lambda c, t: c.image_size is not None and not c.dataset.startswith(FOLDER_PREFIX),
     f"image_size is for {FOLDER_PREFIX}PATH; {{c.dataset}} has its own"),
    (lambda c, t: c.pretrained is not None and c.model in NETWORKS and c.model != "resnet50",
     "pretrained weights are for resnet50 and for networks of your own, found model {c.model}"),
    (lambda c, t: c.model != "resnet_mini" and not (c.width == 1 and c.shortcuts),
     "width and shortcuts are for resnet_mini, found model {c.model}: leave them out"),
    (lambda c, t: c.model not in NETWORKS and t.bn_momentum != 0.9,
     "bn_momentum {t.bn_momentum:g}: {c.model:.20} runs as built, with its own: leave it out"),
    (lambda c, t: c.model == "linear" and t.normalisation != "none",
     "normalisation {t.normalisation}: model linear has no hidden layer that it could normalise: "
     "set normalisation: none"),
    (lambda c, t: c.sharpness_images is not None and t.precision != "float32",
     "sharpness_images: second derivatives need precision float32, found {t.precision}: leave it "
     "out"),
    (lambda c, t: t.warmup_epochs > c.epochs
     or (t.warmup_epochs == c.epochs and t.schedule.name != "constant"),
     "warmup_epochs {t.warmup_epochs:g} are more than the run of {c.epochs} epochs has before "
     "schedule {t.schedule.name} begins: use a fifth of them or less"),
    (lambda c, t: isinstance(s := t.schedule, StepDecay)
     and (not rise_within(s.milestones, 0, end := c.epochs if s.unit == "epochs" else 1)
          or s.milestones[-1] == end) and ([*s.milestones], end),
     "schedule: milestones {x[0]} with unit: {t.schedule.unit} must rise and be less than {x[1]}; "
     "for epochs say unit: epochs, for parts of the run unit: fraction"),
    (lambda c, t: c.steps_per_epoch is not None and those(
        batch_growth=grows(t), regime_adaptation=t.regime_adaptation,
        lr_scaling=t.lr_scaling == "adascale"),
     "steps_per_epoch: {x} as given counts in passes over the images: leave one out"),
    (lambda c, t: c.target is not None
     and c.target.train_accuracy is None and c.target.validation_accuracy is None,
     "target: it needs train_accuracy, validation_accuracy or both"),
    (lambda c, t: c.target is not None and not c.labelled,
     "target: the labels of synthetic are random, so no accuracy can be met: leave it out"),
    (lambda c, t: t.ghost_batch and c.batch_per_rank % t.ghost_batch,
     "ghost_batch {t.ghost_batch} does not divide batch_per_rank {c.batch_per_rank}: change one"),
    (lambda c, t: t.reduction == "adasum" and c.gpus & (c.gpus - 1)
     and (below := 1 << (c.gpus.bit_length() - 1), 2 * below),
     "reduction adasum pairs ranks in a binary tree, so gpus must be a power of two, found "
     "{c.gpus}: use {x[0]} or {x[1]}"),
    (lambda c, t: t.lr_scaling == "adascale" and c.global_batch < t.base_batch,
     "lr_scaling adascale is for batches above the base_batch of {t.base_batch}, found a global "
     "batch of {c.global_batch}: use a base_batch of at most {c.global_batch}, with its learning "
     "rate, or lr_scaling: sqrt or linear"),
    (lambda c, t: t.lr_scaling == "adascale" and c.global_batch > t.base_batch
     and c.gpus * c.accumulation == 1,
     "lr_scaling adascale compares the gradients of ranks or of accumulated batches, but there "
     "is one batch of {c.batch_per_rank} per step, for a base_batch of {t.base_batch}: use "
     "accumulation or gpus of 2 or more, with a smaller batch_per_rank"),
    (lambda c, t: t.noise_batch is not None and t.noise_batch > c.global_batch,
     "noise_batch {t.noise_batch}: noise can be added to the gradient of {c.global_batch} "
     "images, the global batch, not taken away: use a noise_batch of at most {c.global_batch}"),
    (lambda c, t: c.model == "resnet50" and (t.normalisation != "batch_norm"
     or t.zero_gamma or t.initialisation != "glorot" or t.standardise),
     "model resnet50 is Keras' own network with its own batch norm and preparation of images: use "
     "normalisation: batch_norm, and leave out zero_gamma, initialisation and standardise"),
    (lambda c, t: (c.accumulation > 1 or grows(t)) and those(
        normalisation=t.normalisation == "sync_batch_norm", reduction=t.reduction == "adasum"),
     "accumulation or batch_growth: {x} as given would act on one batch of each rank at a time, "
     "not on all of a step: use gpus in place of accumulation, or ghost_batch_norm"),
    (lambda c, t: (c.accumulation > 1 or grows(t)) and t.optimizer.name == "novograd_tfa",
     "optimizer novograd_tfa with accumulation is the form that starts with a step up to 32 "
     "times too long in Horovod's own wrapper: use novograd, the published rule"),
    (lambda c, t: [round(m, 3) for m in t.milestones(c.epochs) if m < t.warmup_epochs - 1e-9],
     "schedule or batch_growth: the milestones after {x} epochs fall into the warm-up of "
     "{t.warmup_epochs:g}, when the learning rate still climbs: use later ones, or fewer "
     "warmup_epochs"),
    (lambda c, t: grows(t) and not rise_within(t.milestones(c.epochs), 1, c.epochs - 1)
     and ([round(m, 3) for m in t.batch_growth.milestones], [*t.milestones(c.epochs)],
          c.epochs - 1),
     "batch_growth: in a run of {c.epochs} epochs the milestones {x[0]} fall on the ends of "
     "epochs {x[1]}, which must rise and lie between 1 and {x[2]}: use fewer milestones or "
     "more epochs"),
    (lambda c, t: t.augmentation.name == "crop_flip" and t.augmentation.flip != "none" 
     and c.dataset in DATASETS and DATASETS[c.dataset].characters,
     "augmentation: flip {t.augmentation.flip} turns digits of {c.dataset} into other "
     "characters: say flip: none"),
    (lambda c, t: c.framework != "horovod" and those(
        normalisation=t.normalisation not in ("none", "batch_norm"),
        reduction=t.reduction != "average", compression=t.compression != "none",
        lr_scaling=t.lr_scaling == "adascale", batch_growth=grows(t),
        precision=t.precision == "mixed_float16", accumulation=c.accumulation > 1,
        sharpness_images=c.sharpness_images),
     "framework {c.framework} averages gradients by itself, once for each batch of a rank, so it "
     "cannot do {x} as given: use framework: horovod"),
)  # fmt: skip

#: Without a number.
RGB = ("resnet", *(APPLICATIONS + name for name in ("DenseNet", "ResNet", "VGG")))
#: By the shape of an image, which of arrays only the file shows, and its shorter side.
IMAGES: Rows = (
    # a vector minus its own mean is zero, whatever the image was
    (lambda c, t, shape, side: last_map_side(c.model, max(shape[:2])) == 1
     and t.normalisation != "none" and c.images_together == 1,
     "normalisation {t.normalisation} over one image: model {c.model} normalises its last hidden "
     "vector or map of one pixel, which would be the same for all images: use a batch_per_rank "
     "of 2 or more, normalisation: none, or larger images"),
    (lambda c, t, shape, side: side < (least := smallest_side(c.model)) and least,
     "model {c.model} needs images of at least {x} pixels a side, found {shape[0]} x {shape[1]}: "
     "use another model, e.g. resnet_mini, or for a folder a larger image_size"),
    (lambda c, t, shape, side: c.model.rstrip("0123456789") in RGB and shape[2] != 3,
     "Keras prepares images for {c.model} by means of three channels, found {shape[2]}: use RGB "
     "images or another model"),
    (lambda c, t, shape, side: (how := t.augmentation).name == "crop_flip"
     and max(how.crop, how.cutout) >= side and [side - 1],
     "augmentation: crop {t.augmentation.crop} and cutout {t.augmentation.cutout} must be "
     "smaller than the images of {c.dataset}, which have {side} pixels: use at most {x[0]}, "
     "usually an eighth to crop and a quarter to a half to cut out"),
)  # fmt: skip


def last_map_side(model: str, side: int) -> int | None:
    """Side in pixels of the last map that is normalised, of images of ``side``; 1 for a vector;
    None if the network is not built in."""
    if model in ("mlp", "cnn"):
        return 1
    if model == "resnet50":
        return -(-side // 32)
    first = (side - 1) // 2 + 1
    pooled = -(-first // 2) if side < 12 else (first - 3) // 2 + 1
    return -(-pooled // 2) if model == "resnet_mini" else None


def rise_within(values: Sequence[float], least: float, most: float) -> bool:
    rising = list(values) == sorted(set(values))
    return bool(values) and rising and least <= values[0] and values[-1] <= most
