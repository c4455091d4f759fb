"""LAMB and NovoGrad from tensorflow-addons, on Keras' legacy optimizers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow_addons.optimizers import LAMB, NovoGrad

from train.config.optimizer import Lamb, NovoGradTfa
from train.step.optimizers.layerwise import TrustLog, where_both


class RecordingLamb(LAMB):
    """tensorflow-addons' LAMB, which also writes down its trust ratios."""

    def __init__(self, config: Lamb, variables: list[tf.Variable]) -> None:
        super().__init__(0.0, **config.model_dump(exclude={"name", "exclude"}))
        self.trust = TrustLog(variables, config.exclude)
        self._create_all_weights(variables)  # legacy Keras has no public build()

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        """The parent's operations one by one, since it keeps its ratio to itself."""
        place = (var.device, var.dtype.base_dtype)
        known = (apply_state or {}).get(place) or self._fallback_apply_state(*place)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m_t = m * known["beta_1_t"] + grad * known["one_minus_beta_1_t"]
        m_t = m.assign(m_t, use_locking=self._use_locking)
        v_t = v * known["beta_2_t"] + (grad * grad) * known["one_minus_beta_2_t"]
        v_t = v.assign(v_t, use_locking=self._use_locking)
        m_t_hat = m_t / (1.0 - known["beta_1_power"])
        v_t_hat = v_t / (1.0 - known["beta_2_power"])
        update = m_t_hat / (tf.sqrt(v_t_hat) + known["epsilon"])
        ratio = 1.0
        if self.trust.adapts(var):
            update += known["weight_decay"] * var
            w_norm, g_norm = tf.norm(var, ord=2), tf.norm(update, ord=2)
            ratio = where_both(w_norm, g_norm, w_norm / g_norm)
            self.trust.record(var, ratio)
        return var.assign(var - ratio * known["lr_t"] * update, use_locking=self._use_locking)


def novograd_tfa(config: NovoGradTfa, variables: list[tf.Variable]) -> Any:
    """tensorflow-addons' NovoGrad; ``rate_sums`` are its slots lr m."""
    numbers = config.model_dump(exclude={"name", "averaging"})
    optimizer = NovoGrad(0.0, **numbers, grad_averaging=config.averaging)
    optimizer._create_all_weights(variables)
    optimizer.rate_sums = [optimizer.get_slot(variable, "m") for variable in variables]
    return optimizer
