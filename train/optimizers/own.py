"""What the optimizers that Keras has not got share: a rate, a config, slots made once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class OwnOptimizer(tf.keras.optimizers.Optimizer):
    """A subclass makes its slots in ``_make_slots`` and steps in ``update_step``."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.name, weight_decay=None, jit_compile=False)
        self._learning_rate = self._build_learning_rate(0.0)
        self._config = config

    def build(self, var_list: list[tf.Variable]) -> None:
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self._make_slots(var_list)

    def _make_slots(self, var_list: list[tf.Variable]) -> None:
        raise NotImplementedError
