"""LARS: a rate for each variable from the ratio of its norm to that of its gradient."""

from __future__ import annotations

import tensorflow as tf

from train.optimizer_config import Lars
from train.optimizers.trust import TrustLog, where_both


class LarsRule:
    """You et al. 2017 (1708.03888), Algorithm 1: lam (g + decay w), lam = eta |w| / (|g| + decay
    |w|), which SGD with momentum then takes for its gradient: v = m v + lr lam (g + decay w).

    lam is 1 where |w| or |g| is zero. Excluded variables take SGD's step, without decay, at
    ``rest_rate`` times the rate.
    """

    def __init__(self, config: Lars, variables: list[tf.Variable]) -> None:
        self._config = config
        self.trust = TrustLog(variables, config.exclude)

    def __call__(self, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> tf.Tensor:
        if not self.trust.adapts(variable):
            return self._config.rest_rate * gradient
        eta, decay = self._config.eta, self._config.weight_decay
        w, g = tf.norm(variable), tf.norm(gradient)
        factor = where_both(w, g, eta * w / (g + decay * w))
        self.trust.record(variable, factor)
        return factor * (gradient + decay * variable)
