"""The named optimizers as plain Keras objects; the distributed step reduces before they see it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from train.technique import Adam, Lamb, Sgd


def build_optimizer(config: Sgd | Adam | Lamb, variables: list[tf.Variable]) -> Any:
    """An optimizer with its slots made, so that a checkpoint can be loaded into it.

    The learning rate is assigned before every step by the train step.
    """
    if isinstance(config, Lamb):
        return _lamb(config, variables)
    if isinstance(config, Sgd):
        optimizer = tf.keras.optimizers.SGD(
            0.0, momentum=config.momentum, nesterov=config.nesterov, jit_compile=False
        )
    else:
        optimizer = tf.keras.optimizers.Adam(
            0.0, config.beta_1, config.beta_2, config.epsilon, jit_compile=False
        )
    optimizer.build(variables)
    return optimizer


def _lamb(config: Lamb, variables: list[tf.Variable]) -> Any:
    # imported only where needed: tensorflow-addons costs start-up time and warns about its end
    from tensorflow_addons.optimizers import LAMB  # noqa: PLC0415

    # None or [] would silently mean "the weight-decay list": a pattern that never matches is "none"
    patterns = list(config.exclude) or [r"(?!)"]
    optimizer = LAMB(
        0.0,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        weight_decay=config.weight_decay,
        exclude_from_weight_decay=patterns,
        exclude_from_layer_adaptation=patterns,
    )
    optimizer._create_all_weights(variables)  # legacy Keras has no public build()
    return optimizer


def optimizer_variables(optimizer: Any) -> list[tf.Variable]:
    """All state: iterations, rate and slots, in a fixed order (new and legacy Keras alike)."""
    return list(optimizer.variables())


def velocities(optimizer: Any, config: Sgd | Adam | Lamb) -> list[tf.Variable]:
    """Slots that hold ``rate x gradient`` sums and must follow a change of the rate.

    Keras' SGD keeps v = m v - lr g; on a change of lr the exact continuation scales v by
    lr_new / lr_old (Goyal et al. 2017, 1706.02677, remark on momentum correction).
    """
    if isinstance(config, Sgd) and config.momentum > 0:
        return list(optimizer.momentums)
    return []
