"""What a technique is made of: one row of jobs/techniques.yaml, typed. Part of the contract."""

from __future__ import annotations

import math
import re
from typing import Literal

from pydantic import Field, model_validator

from train.config.frozen import Frozen
from train.config.optimizer import Adam, Larc, Muon, NovoGradTfa, Optimizer, Sgd
from train.config.schedule import AsTheyAre, Augmentation, Constant, Fixed, Grow, Growth, Schedule


class Technique(Frozen):
    """One row of jobs/techniques.yaml with its numbers filled in."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")

    # the network
    normalisation: Literal["none", "batch_norm", "ghost_batch_norm", "sync_batch_norm"] = "none"
    ghost_batch: int | None = Field(None, ge=2)  # images whose statistics are taken together
    # Keras' 0.99 leaves 48 % of the initial value in the moving average after 72 updates
    bn_momentum: float = Field(0.9, ge=0, lt=1)
    # per ghost: the published form, whose averages remember few images; per batch of a rank: as
    # without ghosts, each ghost keeps bn_momentum^(1 / ghosts of the batch)
    bn_momentum_per: Literal["ghost", "batch"] = "ghost"
    # what evaluation normalises with: the moving averages of training, or averages taken anew with
    # the present weights over up to 20,000 training images
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
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"

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
    def _known_to_work(self) -> Technique:
        """Combinations that train something else than they say, without an error."""
        ghost = self.normalisation == "ghost_batch_norm"
        if ghost and self.ghost_batch is None:
            raise ValueError("normalisation ghost_batch_norm needs ghost_batch, e.g. 128")
        if not ghost and self.ghost_batch is not None:
            raise ValueError(
                f"ghost_batch {self.ghost_batch} has no effect with normalisation "
                f"{self.normalisation}: say normalisation: ghost_batch_norm, or leave it out"
            )
        if not ghost and self.bn_momentum_per != "ghost":
            raise ValueError(
                f"bn_momentum_per {self.bn_momentum_per} is about ghosts, and normalisation is "
                f"{self.normalisation}: say normalisation: ghost_batch_norm, or leave it out"
            )
        if self.normalisation == "none" and (self.bn_statistics != "moving" or self.zero_gamma):
            raise ValueError(
                "bn_statistics and zero_gamma are about normalisation, which is none: choose one, "
                "e.g. batch_norm, or leave them out"
            )
        if self.normalisation == "none" and self.initialisation == "whitened":
            raise ValueError(
                "initialisation whitened gives the first filters their directions and leaves their "
                "lengths to normalisation, which is none: choose one, e.g. batch_norm, or "
                "initialisation: he"
            )
        if self.reduction == "adasum":
            self._refuse_with_adasum()
        if self.zero_gamma and isinstance(self.optimizer, NovoGradTfa):
            raise ValueError(
                "optimizer novograd_tfa with zero_gamma: it divides by the norm of a variable's "
                "first gradient, which is 0 in a branch that starts closed, so the second step "
                "there is 32 times too long; use novograd"
            )
        if self.lr_scaling == "adascale":
            self._refuse_with_adascale()
        if isinstance(self.batch_growth, Grow):
            self._refuse_with_growth()
        if self.warmup_epochs and self.warmup_from == "base" and self.lr_scaling == "none":
            raise ValueError(
                f"warmup_epochs {self.warmup_epochs:g} climb from the base rate to the scaled one, "
                "which lr_scaling none leaves the same: say warmup_from: zero, or warmup_epochs: 0"
            )
        self._check_momentum()
        self._check_patterns()
        if (
            self.normalisation == "none"
            and isinstance(self.optimizer, Muon)
            and self.optimizer.fix_norm
        ):
            raise ValueError(
                "optimizer muon: fix_norm, which is on by default, gives convolutions a fixed "
                "length; only normalisation behind them makes that harmless, and normalisation is "
                "none: say fix_norm: false, or normalisation: batch_norm"
            )
        return self

    def _refuse_with_adascale(self) -> None:
        if self.warmup_epochs:
            raise ValueError(
                "lr_scaling adascale needs no warmup_epochs: its gain starts near 1 by itself "
                "(Johnson et al. 2020, 2007.05105); set warmup_epochs: 0"
            )
        if self.noise_batch is not None:
            raise ValueError(
                "lr_scaling adascale reads the gradient's noise, which noise_batch adds to: "
                "use one of them"
            )
        if self.regime_adaptation:
            raise ValueError(
                "lr_scaling adascale lets one step count for several of base_batch's, "
                "regime_adaptation takes all of them: use one of them"
            )
        if self.normalisation == "sync_batch_norm":
            raise ValueError(
                "lr_scaling adascale compares gradients of the ranks' own batches, which "
                "normalisation sync_batch_norm makes depend on each other: use batch_norm or "
                "ghost_batch_norm"
            )
        if not isinstance(self.optimizer, Sgd):
            raise ValueError(
                f"lr_scaling adascale is a rule for SGD (2007.05105), found optimizer "
                f"{self.optimizer.name}: use sgd, with or without momentum, or lr_scaling: sqrt"
            )

    def _refuse_with_growth(self) -> None:
        if not isinstance(self.schedule, Constant):
            raise ValueError(
                f"batch_growth takes the place of a decaying rate, but schedule is "
                f"{self.schedule.name}: say schedule: constant"
            )
        if self.lr_scaling == "adascale":
            raise ValueError(
                "batch_growth lowers the noise instead of the rate, lr_scaling adascale would "
                "raise the rate again: say lr_scaling: none, sqrt or linear (of the first batch)"
            )
        if self.noise_batch is not None:
            raise ValueError(
                "batch_growth lowers the gradient's noise, noise_batch adds what is lacking to a "
                "fixed level: use one of them"
            )
        if self.regime_adaptation:
            raise ValueError(
                "batch_growth takes fewer steps than base_batch, regime_adaptation as many: "
                "use one of them"
            )

    def _check_momentum(self) -> None:
        optimizer = self.optimizer
        if not isinstance(optimizer, Sgd | Larc | Muon):
            return
        if isinstance(optimizer, Larc) and optimizer.base == "adam":
            if optimizer.nesterov or optimizer.momentum != Larc().momentum:
                raise ValueError(
                    "optimizer larc: momentum and nesterov are of base sgd and have no effect on "
                    "base adam: leave them out, or say base: sgd"
                )
        elif optimizer.nesterov and optimizer.momentum == 0:
            raise ValueError(
                f"optimizer {optimizer.name}: nesterov looks ahead along the momentum, which is 0: "
                "say nesterov: false, or a momentum such as 0.9"
            )

    def _check_patterns(self) -> None:
        for pattern in getattr(self.optimizer, "exclude", ()):
            if not pattern:
                raise ValueError("optimizer: exclude '' would match every variable: leave it out")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"optimizer: exclude {pattern!r} is no regular expression ({error}): write "
                    "parts of variable names, e.g. bias"
                ) from error

    def _refuse_with_adasum(self) -> None:
        if self.compression != "none":
            raise ValueError(
                f"reduction adasum takes dot products of whole gradients, which compression "
                f"{self.compression} rounds: say compression: none"
            )
        if self.lr_scaling != "none":
            raise ValueError(
                f"reduction adasum sums what is orthogonal by itself, so lr_scaling "
                f"{self.lr_scaling} would scale twice (Maleki et al. 2020, 2006.02924): "
                "say lr_scaling: none"
            )
        if self.noise_batch is not None:
            raise ValueError(
                "reduction adasum adds up what the ranks' gradients have not in common, which "
                "noise_batch enlarges, and with it the step: use one of them"
            )
        if self.normalisation == "sync_batch_norm":
            raise ValueError(
                "reduction adasum needs the gradient of each rank's own batch, which "
                "normalisation sync_batch_norm mixes: use batch_norm or ghost_batch_norm"
            )

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
