"""Optimizers of Keras that see each gradient through a rule first: L2, LARS, LARC."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from train.optimizers.trust import TrustLog, excluded


class GradientRule(Protocol):
    @property
    def trust(self) -> TrustLog | None: ...

    def __call__(self, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> tf.Tensor:
        """What the plain optimizer takes for the gradient; the variable's shape.

        ``gradient``: mean over all ranks. ``rate``: of this step, scalar.
        """


class _Ruled:
    """Goes before a Keras optimizer among the bases. The base decays nothing by itself."""

    def __init__(self, rule: GradientRule, **numbers: Any) -> None:
        super().__init__(0.0, jit_compile=False, **numbers)  # type: ignore[call-arg]
        self.rule = rule
        self.trust = rule.trust

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        rate = tf.cast(self.learning_rate, variable.dtype)  # type: ignore[attr-defined]
        ruled = self.rule(gradient, variable, rate)
        super().update_step(ruled, variable)  # type: ignore[misc]


class RuledSgd(_Ruled, tf.keras.optimizers.SGD):
    pass


class RuledAdam(_Ruled, tf.keras.optimizers.Adam):
    pass


class Coupled:
    """The L2 penalty decay |w|^2 / 2 as its gradient, g + decay w."""

    trust: TrustLog | None = None

    def __init__(self, decay: float, exclude: tuple[str, ...]) -> None:
        self._decay = decay
        self._exclude = exclude

    def __call__(self, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> tf.Tensor:
        if excluded(variable, self._exclude):
            return gradient
        return gradient + self._decay * variable
