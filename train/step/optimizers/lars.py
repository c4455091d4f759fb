"""SGD of Keras on gradients that a rule has changed: L2, LARS, LARC."""

from __future__ import annotations

import tensorflow as tf

from train.config.optimizer import Larc, Lars, Sgd
from train.step.optimizers.layerwise import TrustLog, excluded, where_both


class L2Sgd(tf.keras.optimizers.SGD):
    """The L2 penalty decay |w|^2 / 2 as its gradient, g + decay w."""

    def __init__(self, config: Sgd) -> None:
        super().__init__(0.0, config.momentum, config.nesterov, jit_compile=False)
        self._config = config

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        if not excluded(variable, self._config.exclude):
            gradient = gradient + self._config.weight_decay * variable
        super().update_step(gradient, variable)


class _LayerwiseSgd(tf.keras.optimizers.SGD):
    def __init__(self, config: Lars | Larc, variables: list[tf.Variable]) -> None:
        nesterov = isinstance(config, Larc) and config.nesterov
        super().__init__(0.0, config.momentum, nesterov, jit_compile=False)
        self._config = config
        self.trust = TrustLog(variables, config.exclude)

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        super().update_step(self._ruled(gradient, variable), variable)


class LarsSgd(_LayerwiseSgd):
    """You et al. 2017 (1708.03888), Algorithm 1: lam (g + decay w), lam = eta |w| / (|g| + decay
    |w|), which SGD with momentum then takes for its gradient: v = m v + lr lam (g + decay w).

    lam is 1 if |w| or |g| is zero. Excluded variables take SGD's step, without decay, at
    ``rest_rate`` times the rate.
    """

    _config: Lars

    def _ruled(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        if not self.trust.adapts(variable):
            return self._config.rest_rate * gradient
        eta, decay = self._config.eta, self._config.weight_decay
        w, g = tf.norm(variable), tf.norm(gradient)
        factor = where_both(w, g, eta * w / (g + decay * w))
        self.trust.record(variable, factor)
        return factor * (gradient + decay * variable)


class LarcSgd(_LayerwiseSgd):
    """NVIDIA's apex, LARC.py: g' = f (g + decay w), lam = trust |w| / (|g| + decay |w| + eps).

    f = min(lam / lr, 1), so that the learning rate in effect is min(lam, lr). As there, a variable
    whose norm or whose gradient's is zero takes SGD's step without decay, and so do the excluded
    ones.
    """

    _config: Larc

    def _ruled(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        if not self.trust.adapts(variable):
            return gradient
        config = self._config
        w, g = tf.norm(variable), tf.norm(gradient)
        moving = tf.logical_and(w > 0, g > 0)
        # one sum: a chain of additions is put into another order in each replica's graph
        below = tf.reduce_sum(tf.stack([g, config.weight_decay * w, config.epsilon]))
        local, rate = config.trust * w / below, tf.cast(self.learning_rate, variable.dtype)
        # a rate of zero, as where a warm-up starts, makes this 1
        factor = tf.minimum(local / rate, 1.0)
        kept = tf.logical_and(moving, local >= rate)
        self.trust.record(variable, tf.where(moving, factor, 1.0), tf.cast(kept, tf.float32))
        scaled = factor * (gradient + config.weight_decay * variable)
        return tf.where(moving, scaled, gradient)
