"""What the optimizers share, and what the step, the checkpoint and the records read of them; and
NovoGrad as its paper prints it.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from train.config.optimizer import NOT_ADAPTED, AnyOptimizer, Larc, NovoGrad, NovoGradTfa, Sgd
from train.tensorflow_internals import variable_key


def excluded(variable: tf.Variable, patterns: tuple[str, ...]) -> bool:
    """By regular expressions on names such as 'block2_bn0/gamma:0', of which the usual ones look at
    the end alone: a layer may have any name. Copies under tf.distribute end in /replica_1:0."""
    name = variable.name.partition("/replica_")[0]
    own = name.rpartition("/")[2]
    return any(re.search(p, own if p in NOT_ADAPTED else name) for p in patterns)


def where_both(weight_norm: tf.Tensor, update_norm: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """``ratio``, or 1 if a norm is zero: a weight that starts at zero has to leave it."""
    return tf.where(tf.logical_and(weight_norm > 0, update_norm > 0), ratio, 1.0)


class TrustLog:
    """``factors`` of the last step, float32 [2, adapted variables]: by what the rate was multiplied
    (lambda of Lars and of Larc, clipped and over the rate; |w| / |update| of Lamb), and 1 if LARC
    kept the plain rate, else 0.

    Not part of an optimizer's state: every step writes all of it before anything reads it.
    """

    def __init__(self, variables: list[tf.Variable], exclude: tuple[str, ...]) -> None:
        adapted = [variable for variable in variables if not excluded(variable, exclude)]
        self.names = tuple(variable.name for variable in adapted)
        self._columns = {variable_key(variable): n for n, variable in enumerate(adapted)}
        self.factors = tf.Variable(tf.zeros([2, len(adapted)]), trainable=False, name="factors")

    def adapts(self, variable: tf.Variable) -> bool:
        return variable_key(variable) in self._columns

    def record(self, variable: tf.Variable, ratio: tf.Tensor, kept: Any = 0.0) -> None:
        self.factors[:, self._columns[variable_key(variable)]].assign(tf.stack([ratio, kept]))


def velocities(optimizer: Any, config: AnyOptimizer) -> list[tf.Variable]:
    """Slots that hold ``rate x gradient`` sums and must follow a change of the rate.

    Keras' SGD keeps v = m v - lr g; on a change of lr the exact continuation scales v by
    lr_new / lr_old (Goyal et al. 2017, 1706.02677, remark on momentum correction). This holds
    wherever the published rule has the rate outside the sum and only its implementation inside:

    - Sgd: Goyal et al., equations 9 and 10.
    - Larc: NVIDIA's apex wraps PyTorch's SGD, u = m u + g', w -= lr u.
    - NovoGradTfa: its own text says w -= lr m; its kernel is that of Keras' momentum.

    Lars is left as printed: Algorithm 1 of its paper (1708.03888) has lr inside the velocity, so
    past steps keep the rate that they were made with. The other optimizers' slots hold no rate.
    """
    match config:
        case Sgd() | Larc() if config.momentum > 0:
            return list(optimizer.momentums)
        case NovoGradTfa():
            return list(optimizer.rate_sums)
        case _:
            return []


def trust_log(optimizer: Any) -> TrustLog | None:
    """None if nothing is adapted."""
    log = getattr(optimizer, "trust", None)
    return log if log is not None and log.names else None


class OwnOptimizer(tf.keras.optimizers.Optimizer):
    """A subclass makes its slots when it is made, and steps in ``update_step``."""

    def __init__(self, config: Any, variables: list[tf.Variable]) -> None:
        super().__init__(config.name, weight_decay=None, jit_compile=False)
        self._learning_rate = self._build_learning_rate(0.0)
        self._config = config
        self.build(variables)
        self._built = True  # Keras builds before each step what is not


class NovoGradOptimizer(OwnOptimizer):
    """Ginsburg et al. 2019 (1905.11286), Algorithm 1; a layer is a variable, the norm is L2.

    v_1 = |g_1|^2, m_1 = g_1 / |g_1| + d w; then v = b2 v + (1 - b2) |g|^2 and
    m = b1 m + a (g / (sqrt(v) + eps) + d w) with a = 1, or 1 - b1 with ``averaging``; w -= lr m.

    The first step of a variable is the one with its first gradient that is not zero: a branch of
    the network that starts closed (zero_gamma) has none in step 1, and v = (1 - b2) |g|^2 in its
    second would make that step 1 / sqrt(1 - b2) times too long. Excluded variables are normalised
    like all others, but not decayed.

    tensorflow-addons' (:func:`novograd_tfa`) takes the optimizer's first step for the first of
    every variable, decays all variables, keeps lr m in the place of m, and has other defaults.
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
