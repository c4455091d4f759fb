"""What a technique is made of: one row of jobs/techniques.yaml, typed. Part of the contract."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Frozen(BaseModel):
    """Immutable; an unknown key is an error; NaN and infinity are not numbers here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sgd(Frozen):
    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False


class Adam(Frozen):
    """Kingma and Ba 2015 (1412.6980), Algorithm 1; epsilon as in Keras."""

    name: Literal["adam"] = "adam"
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-7, gt=0)


class Lamb(Frozen):
    """You et al. 2020 (1904.00962), Algorithm 2, from tensorflow-addons.

    ``exclude``: regular expressions on variable names that get neither the layer-wise trust ratio
    nor decay. Zero-initialised biases are frozen by the trust ratio otherwise.
    """

    name: Literal["lamb"] = "lamb"
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    exclude: tuple[str, ...] = ("bias", "gamma", "beta")


class Constant(Frozen):
    name: Literal["constant"] = "constant"


class Step(Frozen):
    """Multiply the rate by ``factor`` at each milestone, given as a fraction of all steps.

    The course's epochs 15, 25, 35 of 40, as fractions, so that they fire in a run of any length.
    """

    name: Literal["step"] = "step"
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (15 / 40, 25 / 40, 35 / 40)
    factor: float = Field(0.1, gt=0, lt=1)

    @field_validator("milestones")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError(f"milestones must rise, found {list(value)}")
        return value


class Cosine(Frozen):
    """Loshchilov and Hutter 2017 (1608.03983), one cycle without restart, counted per step.

    The cycle starts after the warm-up and ends at ``final`` times the peak rate.
    """

    name: Literal["cosine"] = "cosine"
    final: float = Field(0.0, ge=0, le=1)


class Technique(Frozen):
    """One row of jobs/techniques.yaml with its numbers filled in."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    normalisation: Literal["none", "batch_norm"] = "none"
    # Keras' 0.99 leaves 48 % of the initial value in the moving average after 72 updates
    bn_momentum: float = Field(0.9, ge=0, lt=1)
    base_lr: float = Field(gt=0)
    base_batch: int = Field(gt=0)  # the global batch that base_lr was chosen for
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"
    warmup_epochs: float = Field(0.0, ge=0)
    schedule: Annotated[Constant | Step | Cosine, Field(discriminator="name")] = Constant()
    optimizer: Annotated[Sgd | Adam | Lamb, Field(discriminator="name")] = Adam()

    def peak_lr(self, global_batch: int) -> float:
        """The scaled rate, against the batch that the base rate belongs to, not the world size.

        linear: Goyal et al. 2017 (1706.02677), section 2.1; sqrt: Krizhevsky 2014 (1404.5997),
        section 5. k = global_batch / base_batch.
        """
        k = global_batch / self.base_batch
        return self.base_lr * {"none": 1.0, "linear": k, "sqrt": math.sqrt(k)}[self.lr_scaling]
