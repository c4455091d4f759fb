"""How the learning rate, the batch and the images change over a run. Part of the input contract."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from train.config.frozen import Frozen

#: The course's epochs 15, 25, 35 of 40, as fractions, so that they fire in a run of any length.
COURSE_MILESTONES = (15 / 40, 25 / 40, 35 / 40)


class Constant(Frozen):
    name: Literal["constant"] = "constant"

    def share(self, progress: float, passed: int) -> float:
        """Of the peak rate. ``progress``: from 0 to 1 after the warm-up; ``passed``: milestones."""
        return 1.0


class StepDecay(Frozen):
    """Multiply the rate by ``factor`` at each milestone: a fraction of all steps, or, with
    ``unit: epochs``, an epoch (15 fires when 15 epochs are done)."""

    name: Literal["step"] = "step"
    milestones: tuple[Annotated[float, Field(gt=0)], ...] = Field(COURSE_MILESTONES, min_length=1)
    unit: Literal["fraction", "epochs"] = "fraction"
    factor: float = Field(0.1, gt=0, lt=1)

    def share(self, progress: float, passed: int) -> float:
        return self.factor**passed


class Cosine(Frozen):
    """Loshchilov and Hutter 2017 (1608.03983), one cycle without restart, counted per step.

    The cycle starts after the warm-up and ends at ``final`` times the peak rate.
    """

    name: Literal["cosine"] = "cosine"
    final: float = Field(0.0, ge=0, le=1)

    def share(self, progress: float, passed: int) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * progress)) / 2


class Polynomial(Frozen):
    """final + (peak - final) (1 - t)^power over t from 0 to 1 after the warm-up; power 1 is linear,
    power 2 that of LARS (You et al. 2017, 1708.03888, section 6)."""

    name: Literal["polynomial"] = "polynomial"
    power: float = Field(1.0, gt=0)
    final: float = Field(0.0, ge=0, le=1)

    def share(self, progress: float, passed: int) -> float:
        return self.final + (1 - self.final) * (1 - progress) ** self.power


Schedule = Annotated[Constant | StepDecay | Cosine | Polynomial, Field(discriminator="name")]


class Fixed(Frozen):
    name: Literal["fixed"] = "fixed"


class Grow(Frozen):
    """Multiply the batch where a step schedule would divide the rate (Smith et al. 2018,
    1711.00489), by accumulation, at the end of the epoch nearest to each milestone. One that would
    pass ``largest`` (default: a tenth of the training images) divides the rate instead."""

    name: Literal["grow"] = "grow"
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = COURSE_MILESTONES
    factor: int = Field(5, ge=2)
    largest: int | None = Field(None, ge=1)

    def epochs(self, total: int) -> tuple[int, ...]:
        """Epochs, from 0, that begin with a larger batch in a run of ``total``; half counts up."""
        return tuple(math.floor(milestone * total + 0.5) for milestone in self.milestones)


Growth = Annotated[Fixed | Grow, Field(discriminator="name")]


class AsTheyAre(Frozen):
    name: Literal["as_they_are"] = "as_they_are"


class CropFlip(Frozen):
    """Training images change from epoch to epoch, as a function of (seed, epoch, image).

    ``crop``: pixels of reflected border from which a window of the old size is cut at random.
    ``flip``: ``random`` mirrors with probability 1/2; ``alternating`` does so in the first epoch
    and then in turn (Jordan 2024, 2404.00498, section 3.6). ``cutout``: side of a square set to
    the image's mean colour (after 1708.04552).
    """

    name: Literal["crop_flip"] = "crop_flip"
    crop: int = Field(0, ge=0, le=32)
    flip: Literal["none", "random", "alternating"] = "alternating"
    cutout: int = Field(0, ge=0, le=64)


Augmentation = Annotated[AsTheyAre | CropFlip, Field(discriminator="name")]
