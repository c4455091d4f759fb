"""What the train step, the checkpoint and the records read of an optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from train.optimizer_config import AnyOptimizer, Larc, NovoGradTfa, Sgd


def optimizer_variables(optimizer: Any) -> list[tf.Variable]:
    """All state: iterations, rate and slots, in a fixed order (new and legacy Keras alike)."""
    return list(optimizer.variables())


def velocities(optimizer: Any, config: AnyOptimizer) -> list[tf.Variable]:
    """Slots that hold ``rate x gradient`` sums and must follow a change of the rate.

    Keras' SGD keeps v = m v - lr g; on a change of lr the exact continuation scales v by
    lr_new / lr_old (Goyal et al. 2017, 1706.02677, remark on momentum correction). This holds
    wherever the published rule has the rate outside the sum and only its implementation inside:

    - Sgd: Goyal et al., equations 9 and 10.
    - Larc with sgd: NVIDIA's apex wraps PyTorch's SGD, u = m u + g', w -= lr u.
    - NovoGradTfa: its own text says w -= lr m; its kernel is that of Keras' momentum.

    Lars is left as printed: Algorithm 1 of its paper (1708.03888) has lr inside the velocity, so
    past steps keep the rate that they were made with. The other optimizers' slots hold no rate.
    """
    match config:
        case Sgd() if config.momentum > 0:
            return list(optimizer.momentums)
        case Larc(base="sgd") if config.momentum > 0:
            return list(optimizer.momentums)
        case NovoGradTfa():
            return list(optimizer.rate_sums)
        case _:
            return []


def trust_ratios(optimizer: Any) -> tuple[tf.Variable, tf.Variable] | None:
    """Of the last step, float32 [adapted variables] each, in the order of the variables: by what
    the rate was multiplied; 1 where LARC kept the plain rate, else 0. None where nothing is
    adapted layer by layer, or all is excluded from it.

    For Lars and Larc that is their lambda (Larc's after its clip, over the rate), for Lamb
    |w| / |update|; 1 where a norm is zero.
    """
    log = getattr(optimizer, "trust", None)
    return (log.ratios, log.kept) if log is not None and log.ratios.shape[0] else None
