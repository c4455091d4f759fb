"""NovoGrad as its paper prints it; tensorflow-addons' differs in its first step and its decay."""

from __future__ import annotations

import tensorflow as tf

from train.config.optimizer import NovoGrad
from train.optimizers.layerwise import OwnOptimizer, excluded


class NovoGradOptimizer(OwnOptimizer):
    """Ginsburg et al. 2019 (1905.11286), Algorithm 1; a layer is a variable, the norm is L2.

    v_1 = |g_1|^2, m_1 = g_1 / |g_1| + d w; then v = b2 v + (1 - b2) |g|^2 and
    m = b1 m + a (g / (sqrt(v) + eps) + d w) with a = 1, or 1 - b1 with ``averaging``; w -= lr m.

    The first step of a variable is the one with its first gradient that is not zero: a branch of
    the network that starts closed (zero_gamma) has none in step 1, and v = (1 - b2) |g|^2 in its
    second would make that step 1 / sqrt(1 - b2) times too long. Excluded variables are normalised
    like all others, but not decayed.

    tensorflow-addons' (``novograd_tfa``) takes the optimizer's first step for the first of every
    variable, decays all variables, keeps lr m in the place of m, and has other defaults.
    """

    _config: NovoGrad

    def __init__(self, config: NovoGrad, variables: list[tf.Variable]) -> None:
        super().__init__(config, variables)
        add = self.add_variable_from_reference
        self._momenta = [add(variable, "m") for variable in variables]
        self._squares = [add(variable, "v", shape=()) for variable in variables]

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        config = self._config
        place = self._index_dict[self._var_key(variable)]
        m, v = self._momenta[place], self._squares[place]
        square = tf.reduce_sum(tf.square(gradient))
        first = tf.equal(v, 0.0)
        mixed = config.beta_2 * v + (1 - config.beta_2) * square
        v.assign(tf.where(first, square, mixed))
        length = tf.sqrt(v) + tf.where(first, 0.0, config.epsilon)
        bracket = tf.math.divide_no_nan(gradient, length)
        if config.weight_decay and not excluded(variable, config.exclude):
            bracket += config.weight_decay * variable
        if config.averaging:
            bracket *= tf.where(first, 1.0, 1 - config.beta_1)
        m.assign(config.beta_1 * m + bracket)
        variable.assign_sub(tf.cast(self.learning_rate, variable.dtype) * m)
