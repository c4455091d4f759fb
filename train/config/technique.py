"""What a technique is made of: one row of jobs/techniques.yaml, typed. Part of the contract."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from train.config.frozen import Frozen
from train.config.optimizer import Adam, Optimizer
from train.config.schedule import (
    AsTheyAre,
    Augmentation,
    Constant,
    Fixed,
    Grow,
    Growth,
    Schedule,
    StepDecay,
)

#: A condition that returns ``{x}`` of its text, and the text: see :mod:`train.config.consistency`.
Rows = tuple[tuple[Callable[..., Any], str], ...]


class Wire(NamedTuple):
    """How a gradient travels between ranks."""

    bytes: int  # of a number
    rounding: float  # share of a step's squared norm below which its noise is rounding
    overflows: bool  # float16's range, which a sum of ranks may leave


#: By ``compression``.
WIRES = {
    "none": Wire(4, 2.0**-16, False),
    "fp16": Wire(2, 2.0**-11, True),
    "bf16": Wire(2, 2.0**-9, False),
}


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
        if text := _problem(self):
            raise ValueError(text)
        return self

    @property
    def wire(self) -> Wire:
        return WIRES[self.compression]

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

    def milestones(self, epochs: int) -> tuple[float, ...]:
        """After how many of so many epochs the rate falls by a step, or the batch grows."""
        if isinstance(self.schedule, StepDecay):
            unit = epochs if self.schedule.unit == "fraction" else 1
            return tuple(milestone * unit for milestone in self.schedule.milestones)
        return self.batch_growth.epochs(epochs) if isinstance(self.batch_growth, Grow) else ()

    @property
    def overlaps(self) -> bool:
        """Whether gradients are sent while the backward pass goes on."""
        return self.reduction != "adasum" and self.normalisation != "sync_batch_norm"

    @property
    def why_no_overlap(self) -> str | None:
        """As the record has it; None if they overlap."""
        if self.overlaps:
            return None
        if self.reduction == "adasum":
            return "Adasum takes dot products of all gradients at once"
        return "synchronised batch norm's own all-reduces would wait behind those of gradients"


#: Techniques that would train something other than they say.
TECHNIQUE: Rows = (
    (lambda t: t.normalisation == "ghost_batch_norm" and t.ghost_batch is None,
     "normalisation ghost_batch_norm needs ghost_batch, e.g. 128"),
    (lambda t: t.normalisation != "ghost_batch_norm" and those(
        ghost_batch=t.ghost_batch, bn_momentum_per=t.bn_momentum_per != "ghost"),
     "{x} has no effect with normalisation {t.normalisation}: say normalisation: "
     "ghost_batch_norm, or leave it out"),
    (lambda t: t.normalisation == "none" and those(
        bn_statistics=t.bn_statistics != "moving", zero_gamma=t.zero_gamma,
        initialisation=t.initialisation == "whitened"),
     "{x} as given needs normalisation, which is none: choose one, e.g. batch_norm, or leave it "
     "out"),
    (lambda t: t.reduction == "adasum" and those(
        compression=t.compression != "none", lr_scaling=t.lr_scaling != "none",
        noise_batch=t.noise_batch, normalisation=t.normalisation == "sync_batch_norm"),
     "reduction adasum adds up what the gradients of ranks do not have in common (Maleki et al. "
     "2020, 2006.02924): it needs whole gradients of their own batches, without noise, and no "
     "scaled learning rate: leave out or change {x}"),
    (lambda t: t.zero_gamma and t.optimizer.name == "novograd_tfa",
     "optimizer novograd_tfa with zero_gamma: it divides by the norm of a variable's first "
     "gradient, which is 0 in a branch that starts closed, so the second step there is 32 times "
     "too long: use novograd"),
    (lambda t: t.lr_scaling == "adascale" and those(
        warmup_epochs=t.warmup_epochs, noise_batch=t.noise_batch,
        regime_adaptation=t.regime_adaptation, batch_growth=grows(t),
        normalisation=t.normalisation == "sync_batch_norm", optimizer=t.optimizer.name != "sgd"),
     "lr_scaling adascale is a rule for SGD (Johnson et al. 2020, 2007.05105): the noise between "
     "gradients of separate batches sets the learning rate, which climbs by itself, and for how "
     "many steps a step counts: leave out or change {x}"),
    (lambda t: grows(t) and those(
        schedule=t.schedule.name != "constant", noise_batch=t.noise_batch,
        regime_adaptation=t.regime_adaptation),
     "batch_growth lowers the gradient's noise in place of the learning rate, and takes fewer "
     "steps: leave out {x}"),
    (lambda t: t.warmup_epochs and t.warmup_from == "base" and t.lr_scaling == "none",
     "warmup_epochs {t.warmup_epochs:g} climb from the base learning rate to the scaled one, "
     "which lr_scaling none leaves the same: say warmup_from: zero, or warmup_epochs: 0"),
    (lambda t: getattr(t.optimizer, "nesterov", False) and t.optimizer.momentum == 0,
     "optimizer {t.optimizer.name}: nesterov looks ahead along the momentum, which is 0: say "
     "nesterov: false, or a momentum such as 0.9"),
    (lambda t: "" in getattr(t.optimizer, "exclude", ()),
     "optimizer: exclude '' would match every variable: leave it out"),
    (lambda t: _no_pattern(getattr(t.optimizer, "exclude", ())),
     "optimizer: exclude {x} is no regular expression: write parts of variable names, e.g. bias"),
    (lambda t: t.optimizer.name == "muon" and t.optimizer.fix_norm and t.normalisation == "none",
     "optimizer muon: fix_norm, which is on by default, gives convolutions a fixed length; only "
     "normalisation behind them makes that harmless, and normalisation is none: say fix_norm: "
     "false, or normalisation: batch_norm"),
)  # fmt: skip


def first_problem(rows: Rows, **subject: Any) -> str | None:
    """The first text that applies; None if nothing is wrong."""
    for condition, text in rows:
        if value := condition(**subject):
            return text.format(**subject, x=value)
    return None


@lru_cache(1024)  # many cells and records have equal techniques
def _problem(technique: Technique) -> str | None:
    return first_problem(TECHNIQUE, t=technique)


def those(**wrong: object) -> str:
    """The keys of what is wrong."""
    return ", ".join(key for key, value in wrong.items() if value)


def grows(t: Technique) -> bool:
    return t.batch_growth.name == "grow"


def _no_pattern(patterns: tuple[str, ...]) -> str | None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} ({error})"
    return None
