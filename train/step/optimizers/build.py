"""One Keras optimizer for each config, with its slots made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from train.config.optimizer import (
    NOT_ADAPTED,
    Adam,
    AdamW,
    AnyOptimizer,
    Lamb,
    Larc,
    Lars,
    Muon,
    NovoGrad,
    NovoGradTfa,
    Sgd,
)
from train.errors import ConfigError
from train.step.optimizers.layerwise import L2Sgd, LarcSgd, LarsSgd, NovoGradOptimizer, excluded
from train.step.optimizers.muon import MuonOptimizer

keras = tf.keras.optimizers


def build_optimizer(
    config: AnyOptimizer, variables: list[tf.Variable], kernels: Sequence[tf.Variable] = ()
) -> Any:
    """An optimizer with its slots made, so that a checkpoint can be loaded into it. ``variables``:
    all that it will ever update; float32. The train step assigns the learning rate. Under
    tf.distribute, build it in the strategy's scope. ``kernels``: what Muon orthogonalises."""
    names = [variable.name for variable in variables]
    for pattern in getattr(config, "exclude", ()):
        # the usual ones may be idle: a network without normalisation has no gamma
        if pattern not in NOT_ADAPTED and not any(re.search(pattern, name) for name in names):
            raise ConfigError(
                f"optimizer {config.name}: exclude {pattern!r} is in no variable's name, so it "
                f"excludes nothing; names are {', '.join(names[:4])}, ..., {names[-1]}"
            )
    if isinstance(config, Lamb | NovoGradTfa):
        # imported only where needed: tensorflow-addons costs start-up time and warns about its end
        from train.step.optimizers.lamb import RecordingLamb, novograd_tfa  # noqa: PLC0415

        if isinstance(config, NovoGradTfa):
            return novograd_tfa(config, variables)
        return RecordingLamb(config, variables)
    made: Any
    match config:
        case Sgd(momentum=momentum, nesterov=nesterov, weight_decay=0):
            made = keras.SGD(0.0, momentum, nesterov, jit_compile=False)
        case Sgd():
            made = L2Sgd(config)
        case Lars():
            made = LarsSgd(config, variables)
        case Larc():
            made = LarcSgd(config, variables)
        case Adam(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon):
            made = keras.Adam(0.0, beta_1, beta_2, epsilon, jit_compile=False)
        # w -= rate decay w, then Adam's step of the same rate. The paper's Algorithm 2 decays by
        # the schedule's factor alone; with a rate of alpha times that factor, ``weight_decay`` is
        # the paper's lambda / alpha
        case AdamW(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, weight_decay=decay):
            made = keras.AdamW(0.0, decay, beta_1, beta_2, epsilon, jit_compile=False)
            made.exclude_from_weight_decay([v for v in variables if excluded(v, config.exclude)])
        case NovoGrad():
            made = NovoGradOptimizer(config, variables)
        case Muon():
            made = MuonOptimizer(config, variables, kernels)
    made.build(variables)
    return made
