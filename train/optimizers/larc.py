"""LARC: LARS' layer-wise rate as a bound on the plain one, before any optimizer."""

from __future__ import annotations

import tensorflow as tf

from train.optimizer_config import Larc
from train.optimizers.trust import TrustLog


class LarcRule:
    """NVIDIA's apex, LARC.py: g' = f (g + decay w), lam = trust |w| / (|g| + decay |w| + eps).

    f = min(lam / lr, 1) with ``clip``, so that the rate in effect is min(lam, lr); else lam, which
    multiplies the rate. As there, a variable whose norm or whose gradient's is zero takes the
    plain optimizer's step without decay, and so do the excluded ones.
    """

    def __init__(self, config: Larc, variables: list[tf.Variable]) -> None:
        self._config = config
        self.trust = TrustLog(variables, config.exclude)

    def __call__(self, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> tf.Tensor:
        if not self.trust.adapts(variable):
            return gradient
        config = self._config
        w, g = tf.norm(variable), tf.norm(gradient)
        moving = tf.logical_and(w > 0, g > 0)
        # one sum: a chain of additions is put into another order in each replica's graph
        below = tf.reduce_sum(tf.stack([g, config.weight_decay * w, config.epsilon]))
        local = config.trust * w / below
        # a rate of zero, as where a warm-up starts, makes this 1
        factor = tf.minimum(local / rate, 1.0) if config.clip else local
        kept = tf.logical_and(moving, tf.logical_and(config.clip, local >= rate))
        self.trust.record(variable, tf.where(moving, factor, 1.0), tf.cast(kept, tf.float32))
        scaled = factor * (gradient + config.weight_decay * variable)
        return tf.where(moving, scaled, gradient)
