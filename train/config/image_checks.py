"""Cells that cannot be trained on images of their shape; see :mod:`train.config.checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from train.config.technique_checks import Rows, first_problem

if TYPE_CHECKING:  # which imports this module
    from train.config.run import RunConfig

#: By the shape of an image, which of arrays only the file shows, and its shorter side.
IMAGES: Rows = (
    # a vector minus its own mean is zero, whatever the image was
    (lambda c, t, shape, side: last_map_side(c.model, side) == 1 and
     {"batch_norm": c.batch_per_rank, "sync_batch_norm": c.batch_per_rank * c.gpus}
     .get(t.normalisation) == 1,
     "normalisation {t.normalisation} over one image: model {c.model} normalises its last hidden "
     "vector or map of one pixel, which would be the same for all images: use a batch_per_rank "
     "of 2 or more, normalisation: none, or larger images"),
    (lambda c, t, shape, side: c.model == "resnet50" and (side < 32 or shape[2] != 3),
     "model resnet50 needs RGB images of at least 32 pixels, found {c.dataset} with {side}: use "
     "cnn or resnet_mini, or for a folder a larger image_size"),
    (lambda c, t, shape, side: (how := t.augmentation).name == "crop_flip"
     and max(how.crop, how.cutout) >= side and [side - 1],
     "augmentation: crop {t.augmentation.crop} and cutout {t.augmentation.cutout} must be "
     "smaller than the images of {c.dataset}, which have {side} pixels: use at most {x[0]}, "
     "usually an eighth to crop and a quarter to a half to cut out"),
)  # fmt: skip


def image_problem(config: RunConfig, shape: tuple[int, ...]) -> str | None:
    """``shape``: height, width, channels of an image."""
    return first_problem(IMAGES, c=config, t=config.technique, shape=shape, side=min(shape[:2]))


def last_map_side(model: str, side: int) -> int | None:
    """Side in pixels of the last map that is normalised, of images of ``side``; 1 for a vector;
    None where the network is not built in."""
    if model in ("mlp", "cnn"):
        return 1
    if model == "resnet50":
        return -(-side // 32)
    first = (side - 1) // 2 + 1
    pooled = -(-first // 2) if side < 12 else (first - 3) // 2 + 1
    return -(-pooled // 2) if model == "resnet_mini" else None
