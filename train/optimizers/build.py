"""One Keras optimizer for each config, with its slots made."""

from __future__ import annotations

import re
from collections.abc import Callable
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
from train.optimizers.lars import L2Penalty, LarcRule, LarsRule, RuledSgd
from train.optimizers.muon import MuonOptimizer
from train.optimizers.novograd import NovoGradOptimizer

Variables = list[tf.Variable]


def build_optimizer(config: AnyOptimizer, variables: Variables) -> Any:
    """An optimizer with its slots made, so that a checkpoint can be loaded into it.

    ``variables``: all that it will ever update; float32. The learning rate starts at 0 and is
    assigned before every step by the train step. Under tf.distribute, build it in the strategy's
    scope.

    Raises:
        ConfigError: a pattern of ``exclude`` is in no variable's name, so that it excludes nothing.
    """
    _check_exclusions(config, [variable.name for variable in variables])
    return _BUILDERS[type(config)](config, variables)


def _check_exclusions(config: AnyOptimizer, names: list[str]) -> None:
    """Those that are usual may be idle: a network without normalisation has no gamma."""
    for pattern in getattr(config, "exclude", ()):
        if pattern not in NOT_ADAPTED and not any(re.search(pattern, name) for name in names):
            raise ConfigError(
                f"optimizer {config.name}: exclude {pattern!r} is in no variable's name, so it "
                f"excludes nothing; names are {', '.join(names[:4])}, ..., {names[-1]}"
            )


def _sgd(config: Sgd, variables: Variables) -> Any:
    numbers = {"momentum": config.momentum, "nesterov": config.nesterov}
    if config.weight_decay:
        return _built(
            RuledSgd(L2Penalty(config.weight_decay, config.exclude), **numbers), variables
        )
    return _built(tf.keras.optimizers.SGD(0.0, jit_compile=False, **numbers), variables)


def _adam(config: Adam, variables: Variables) -> Any:
    optimizer = tf.keras.optimizers.Adam(
        0.0, config.beta_1, config.beta_2, config.epsilon, jit_compile=False
    )
    return _built(optimizer, variables)


def _adamw(config: AdamW, variables: Variables) -> Any:
    """Keras' own: w -= rate decay w, then Adam's step of the same rate.

    The paper's Algorithm 2 decays by the schedule's factor alone, not by the rate; with a rate of
    alpha times that factor, ``weight_decay`` is the paper's lambda / alpha.
    """
    optimizer = tf.keras.optimizers.AdamW(
        0.0, config.weight_decay, config.beta_1, config.beta_2, config.epsilon, jit_compile=False
    )
    optimizer.exclude_from_weight_decay(var_names=list(config.exclude))
    return _built(optimizer, variables)


def _larc(config: Larc, variables: Variables) -> Any:
    numbers = {"momentum": config.momentum, "nesterov": config.nesterov}
    return _built(RuledSgd(LarcRule(config, variables), **numbers), variables)


def _lamb(config: Lamb, variables: Variables) -> Any:
    # imported only where needed: tensorflow-addons costs start-up time and warns about its end
    from train.optimizers.lamb import RecordingLamb  # noqa: PLC0415

    return RecordingLamb.of(config, variables)


def _novograd_tfa(config: NovoGradTfa, variables: Variables) -> Any:
    from train.optimizers.lamb import novograd_tfa  # noqa: PLC0415

    return novograd_tfa(config, variables)


def _built(optimizer: Any, variables: Variables) -> Any:
    optimizer.build(variables)
    return optimizer


_BUILDERS: dict[type, Callable[[Any, Variables], Any]] = {
    Sgd: _sgd,
    Adam: _adam,
    AdamW: _adamw,
    Lars: lambda config, variables: _built(
        RuledSgd(LarsRule(config, variables), momentum=config.momentum), variables
    ),
    Larc: _larc,
    NovoGrad: lambda config, variables: _built(NovoGradOptimizer(config), variables),
    Muon: lambda config, variables: _built(MuonOptimizer(config), variables),
    Lamb: _lamb,
    NovoGradTfa: _novograd_tfa,
}
