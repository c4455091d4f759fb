"""SGD of Keras that sees each gradient through a rule first: L2, LARS, LARC."""

from __future__ import annotations

import tensorflow as tf

from train.config.optimizer import Larc, Lars
from train.optimizers.layerwise import TrustLog, excluded, where_both


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


class LarcRule:
    """NVIDIA's apex, LARC.py: g' = f (g + decay w), lam = trust |w| / (|g| + decay |w| + eps).

    f = min(lam / lr, 1), so that the learning rate in effect is min(lam, lr). As there, a variable
    whose norm or whose gradient's is zero takes SGD's step without decay, and so do the excluded
    ones.
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
        factor = tf.minimum(local / rate, 1.0)
        kept = tf.logical_and(moving, local >= rate)
        self.trust.record(variable, tf.where(moving, factor, 1.0), tf.cast(kept, tf.float32))
        scaled = factor * (gradient + config.weight_decay * variable)
        return tf.where(moving, scaled, gradient)


class RuledSgd(tf.keras.optimizers.SGD):
    """Keras' SGD, which decays nothing by itself, on gradients that a rule has changed."""

    def __init__(
        self, rule: LarsRule | LarcRule | L2Penalty, momentum: float, nesterov: bool = False
    ) -> None:
        super().__init__(0.0, momentum, nesterov, jit_compile=False)
        self.rule = rule
        self.trust = rule.trust

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        rate = tf.cast(self.learning_rate, variable.dtype)
        super().update_step(self.rule(gradient, variable, rate), variable)


class L2Penalty:
    """The L2 penalty decay |w|^2 / 2 as its gradient, g + decay w."""

    trust: TrustLog | None = None

    def __init__(self, decay: float, exclude: tuple[str, ...]) -> None:
        self._decay = decay
        self._exclude = exclude

    def __call__(self, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> tf.Tensor:
        if excluded(variable, self._exclude):
            return gradient
        return gradient + self._decay * variable
