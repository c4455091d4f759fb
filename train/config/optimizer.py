"""The optimizers by name, and their numbers. Part of the input contract.

``exclude`` holds regular expressions on variable names: what they match gets neither layer-wise
adaptation nor weight decay (NovoGrad only does not decay it). By default these are biases and
normalisation: a bias that starts at 0 has no norm, and decay of a scale changes the network.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from train.config.frozen import Frozen

NOT_ADAPTED = ("bias", "gamma", "beta")


class Sgd(Frozen):
    """Keras' SGD; ``weight_decay`` is the L2 penalty added to the mean gradient, g + decay w."""

    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)
    exclude: tuple[str, ...] = NOT_ADAPTED


class Adam(Frozen):
    """Kingma and Ba 2015 (1412.6980), Algorithm 1; epsilon as in Keras."""

    name: Literal["adam"] = "adam"
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-7, gt=0)


class AdamW(Frozen):
    """Loshchilov and Hutter 2019 (1711.05101), Algorithm 2: decay apart from the gradient."""

    name: Literal["adamw"] = "adamw"
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-7, gt=0)
    weight_decay: float = Field(0.004, ge=0)
    exclude: tuple[str, ...] = NOT_ADAPTED


class Lamb(Frozen):
    """You et al. 2020 (1904.00962), Algorithm 2, from tensorflow-addons."""

    name: Literal["lamb"] = "lamb"
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    exclude: tuple[str, ...] = NOT_ADAPTED


class NovoGrad(Frozen):
    """Ginsburg et al. 2019 (1905.11286), Algorithm 1, as printed.

    ``averaging`` weighs the bracket with (1 - beta_1) from the second step on; without it a steady
    step is 1 / (1 - beta_1) times as long, so rates of the two forms are not comparable.
    """

    name: Literal["novograd"] = "novograd"
    beta_1: float = Field(0.95, ge=0, lt=1)
    beta_2: float = Field(0.98, ge=0, lt=1)
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    averaging: bool = False
    exclude: tuple[str, ...] = NOT_ADAPTED


class NovoGradTfa(Frozen):
    """tensorflow-addons' NovoGrad: its own defaults, and decay of biases and scales, too."""

    name: Literal["novograd_tfa"] = "novograd_tfa"
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-7, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    averaging: bool = False


class Lars(Frozen):
    """You et al. 2017 (1708.03888), Algorithm 1: v = m v + lr lam (g + decay w), w -= v, where
    lam = eta |w| / (|g| + decay |w|). The LAMB paper calls another rule LARS.

    ``rest_rate``: the rate of the excluded, as a multiple of the rate, which is 1 to 10 for the
    adapted: hundreds of times what suits a plain step."""

    name: Literal["lars"] = "lars"
    momentum: float = Field(0.9, ge=0, lt=1)
    eta: float = Field(0.001, gt=0)
    weight_decay: float = Field(5e-4, ge=0)
    rest_rate: float = Field(1.0, gt=0)
    exclude: tuple[str, ...] = NOT_ADAPTED


class Larc(Frozen):
    """Layer-wise adaptive rate control, as NVIDIA's apex has it: the gradient of each variable is
    scaled before SGD sees it, never to more than the plain learning rate would make of it.

    apex excludes nothing: that is ``exclude: []``. What is excluded runs at the plain learning
    rate, which is only a ceiling for the others. ``base: adam`` and ``clip: false`` are read from
    records and no longer trained."""

    name: Literal["larc"] = "larc"
    base: Literal["sgd", "adam"] = "sgd"
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = False
    trust: float = Field(0.02, gt=0)
    epsilon: float = Field(1e-8, gt=0)
    clip: bool = True
    weight_decay: float = Field(5e-4, ge=0)
    exclude: tuple[str, ...] = NOT_ADAPTED


class Muon(Frozen):
    """Jordan 2024: the momentum of a matrix or a convolution is replaced by its nearest
    semi-orthogonal matrix (Newton-Schulz iterations); everything else takes Adam's or LAMB's step.

    ``rest_rate``: of the rest, as a multiple of the learning rate. ``dense``: whether matrices of
    dense layers are orthogonalised. ``fix_norm``: rescale a convolution, before its step, to norm
    sqrt(output channels), which normalisation behind it does not see.
    """

    name: Literal["muon"] = "muon"
    momentum: float = Field(0.6, ge=0, lt=1)
    nesterov: bool = True
    newton_schulz_steps: int = Field(5, ge=1, le=20)
    fix_norm: bool = True
    dense: bool = False
    rest: Literal["adam", "lamb"] = "adam"
    rest_rate: float = Field(0.1, gt=0)
    beta_1: float = Field(0.9, ge=0, lt=1)  # of the rest
    beta_2: float = Field(0.99, ge=0, lt=1)
    epsilon: float = Field(1e-6, gt=0)


AnyOptimizer = Sgd | Adam | AdamW | Lamb | NovoGrad | NovoGradTfa | Lars | Larc | Muon
Optimizer = Annotated[AnyOptimizer, Field(discriminator="name")]
