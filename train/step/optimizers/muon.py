"""Muon: steps of convolutions are made nearly semi-orthogonal, by matrix products only
(Newton-Schulz); the rest takes Adam's or LAMB's."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from train.config.optimizer import NOT_ADAPTED, Muon
from train.errors import ConfigError
from train.step.optimizers.layerwise import OwnOptimizer, excluded, where_both

# steepest at zero, so that small singular values grow fastest; they settle around 1, not at 1
# (Jordan et al. 2024, Muon; cifar10-airbench, airbench94_muon.py)
QUINTIC = (3.4445, -4.7750, 2.0315)


class MuonOptimizer(OwnOptimizer):
    """Jordan et al. 2024, as in cifar10-airbench's airbench94_muon.py.

    Kernels of convolutions (of dense layers, too, with ``dense``): m = mu m + g; u = g + mu m with
    ``nesterov``, else m; w = w sqrt(outputs) / |w| with ``fix_norm``, for convolutions alone, whose
    length the normalisation behind them takes away; w -= lr newton_schulz(u).
    The rest, with the rate rest_rate lr: Adam's step, or LAMB's without decay, whose ratio is for
    matrices that are neither bias nor normalisation. LAMB's own rounds otherwise.
    """

    _config: Muon

    def __init__(
        self, config: Muon, variables: list[tf.Variable], kernels: Sequence[tf.Variable]
    ) -> None:
        """kernels: of convolutions."""
        super().__init__(config, variables)
        add, key = self.add_variable_from_reference, self._var_key
        self._kernels = {key(kernel) for kernel in kernels}
        self._momenta = {key(variable): add(variable, "m") for variable in variables}
        rest = [variable for variable in variables if not self._orthogonalises(variable)]
        if len(rest) == len(variables):
            raise ConfigError(
                "optimizer muon would orthogonalise nothing: the network has no Conv2D"
                + " without activation and with nothing but BatchNormalization behind it (any is "
                "taken with fix_norm: false)"
                * config.fix_norm
                + (" and no matrix" if config.dense else "; matrices are taken with dense: true")
            )
        self._squares = {key(variable): add(variable, "v") for variable in rest}

    def _orthogonalises(self, variable: tf.Variable) -> bool:
        matrix = len(variable.shape) == 2 and self._config.dense
        return matrix or self._var_key(variable) in self._kernels

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        step = self._matrix_step if self._orthogonalises(variable) else self._rest_step
        step(gradient, variable)

    def _matrix_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        config = self._config
        m = self._momenta[self._var_key(variable)]
        m.assign(config.momentum * m + gradient)
        direction = gradient + config.momentum * m if config.nesterov else m
        # [..., inputs, outputs] as [outputs, all inputs of one]: a row is what one channel sees
        matrix = tf.transpose(tf.reshape(direction, [-1, variable.shape[-1]]))
        matrix = newton_schulz(matrix, config.newton_schulz_steps)
        weight = tf.convert_to_tensor(variable)
        if config.fix_norm and self._var_key(variable) in self._kernels:
            norm = tf.norm(weight)
            wanted = float(variable.shape[-1]) ** 0.5
            weight *= where_both(norm, norm, wanted / norm)
        step = tf.reshape(tf.transpose(matrix), variable.shape)
        variable.assign(weight - self.learning_rate * step)

    def _rest_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        config = self._config
        m = self._momenta[self._var_key(variable)]
        v = self._squares[self._var_key(variable)]
        m.assign(config.beta_1 * m + (1 - config.beta_1) * gradient)
        v.assign(config.beta_2 * v + (1 - config.beta_2) * tf.square(gradient))
        step = tf.cast(self.iterations + 1, tf.float32)
        m_hat = m / (1 - tf.pow(config.beta_1, step))
        v_hat = v / (1 - tf.pow(config.beta_2, step))
        update = m_hat / (tf.sqrt(v_hat) + config.epsilon)
        adapts = len(variable.shape) >= 2 and not excluded(variable, NOT_ADAPTED)
        if config.rest == "lamb" and adapts:
            w, u = tf.norm(variable), tf.norm(update)
            update *= where_both(w, u, w / u)
        variable.assign_sub(config.rest_rate * self.learning_rate * update)


def newton_schulz(matrix: tf.Tensor, steps: int) -> tf.Tensor:
    """U p(S) V' for ``matrix`` = |matrix| U S V', p being ``steps`` times the quintic; float32.
    Singular values above a few per cent of the norm end between 0.65 and 1.25 after 5 steps."""
    rows, columns = matrix.shape
    wide = tf.transpose(matrix) if rows > columns else matrix  # the smaller of the two products
    x = tf.math.divide_no_nan(wide, tf.norm(wide))
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
    return tf.transpose(x) if rows > columns else x
