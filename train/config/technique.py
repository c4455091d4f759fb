"""What a technique is made of: one row of jobs/techniques.yaml, typed. Part of the contract."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from train.config.frozen import Frozen
from train.config.optimizer import Adam, Optimizer
from train.config.schedule import AsTheyAre, Augmentation, Constant, Fixed, Growth, Schedule
from train.config.technique_checks import TECHNIQUE, first_problem


class Technique(Frozen):
    """One row of jobs/techniques.yaml with its numbers filled in."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")

    # the network
    normalisation: Literal["none", "batch_norm", "ghost_batch_norm", "sync_batch_norm"] = "none"
    ghost_batch: int | None = Field(None, ge=2)  # images whose statistics are taken together
    # Keras' 0.99 leaves 48 % of the initial value in the moving average after 72 updates
    bn_momentum: float = Field(0.9, ge=0, lt=1)
    # ghost: as published, the averages remember few images; batch: as without ghosts, each keeps
    # bn_momentum^(1 / ghosts of the batch)
    bn_momentum_per: Literal["ghost", "batch"] = "ghost"
    # what evaluation normalises with: the moving averages of training, or averages of the present
    # weights over up to 20,000 training images
    bn_statistics: Literal["moving", "reestimated"] = "moving"
    # whitened: He's, and the first filters are principal components of the images' patches
    initialisation: Literal["glorot", "he", "whitened"] = "glorot"
    zero_gamma: bool = False  # each residual branch starts as zero (Goyal et al., section 5.1)
    standardise: bool = False  # per channel, by mean and deviation of the training images

    # the loss and the images
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    augmentation: Augmentation = AsTheyAre()
    # multiply each image's gradient by N(1, M/noise_batch - 1), so that the mean over M images
    # scatters as that of noise_batch (Hoffer et al. 2017, 1705.08741, section 4)
    noise_batch: int | None = Field(None, ge=1)
    # tf32: float32 whose products are rounded to 10 bits, as tensor cores of Ampere and later do
    precision: Literal["float32", "tf32", "mixed_float16", "mixed_bfloat16"] = "float32"

    # the gradient on its way
    reduction: Literal["average", "adasum"] = "average"
    compression: Literal["none", "fp16", "bf16"] = "none"
    clip_norm: float | None = Field(None, gt=0)  # of the whole mean gradient

    # the rate and the batch
    base_lr: float = Field(gt=0)
    base_batch: int = Field(gt=0)  # the global batch that base_lr was chosen for
    lr_scaling: Literal["none", "linear", "sqrt", "adascale"] = "none"
    warmup_epochs: float = Field(0.0, ge=0)
    warmup_from: Literal["base", "zero"] = "base"  # where the climb starts
    schedule: Schedule = Constant()
    batch_growth: Growth = Fixed()
    # train as many steps as base_batch would, so batch/base_batch times the epochs (Hoffer et al.)
    regime_adaptation: bool = False

    optimizer: Optimizer = Adam()

    @model_validator(mode="after")
    def _consistent(self) -> Technique:
        if text := first_problem(TECHNIQUE, t=self):
            raise ValueError(text)
        return self

    @property
    def keras_policy(self) -> str:
        """What Keras' layers compute in; TF32 is a setting of TensorFlow's products instead."""
        return "float32" if self.precision == "tf32" else self.precision

    def peak_lr(self, global_batch: int) -> float:
        """The scaled rate, against the batch that the base rate belongs to, not the world size.

        linear: Goyal et al. 2017 (1706.02677), section 2.1; sqrt: Krizhevsky 2014 (1404.5997),
        section 5. k = global_batch / base_batch. AdaScale's gain comes on top, step by step.
        """
        k = global_batch / self.base_batch
        factor = {"none": 1.0, "linear": k, "sqrt": math.sqrt(k), "adascale": 1.0}
        return self.base_lr * factor[self.lr_scaling]

    def why_no_overlap(self) -> str | None:
        """Why no gradient is sent before all are there; None where large ones are."""
        if self.reduction == "adasum":
            return "Adasum takes dot products of all gradients at once"
        if self.compression != "none":
            return f"{self.compression} compression sends all gradients at once"
        if self.normalisation == "sync_batch_norm":
            return "synchronised batch norm's own all-reduces would wait behind those of gradients"
        return None
