"""Synchronised batch norm on two ranks; prints what this rank saw and made of it as JSON.

Usage: synchronised.py
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from tests.builders import config
from train.distributed.launch import read_launch
from train.distributed.world import start

CASES = {"images": ((6, 4, 3, 5), 0), "vectors": ((6, 5), 0), "far": ((6, 4, 3, 5), 1000)}


def main() -> None:
    runtime = start(config(gpus=2), read_launch(os.environ))
    print(json.dumps({name: case(name, runtime.rank, runtime.size) for name in CASES}))


def case(name: str, rank: int, size: int) -> dict[str, Any]:
    import tensorflow as tf

    from train.models.normalisation import SyncBatchNormalization

    shape, offset = CASES[name]
    rng = np.random.default_rng([7, rank])
    # means that differ between the ranks, so that their spread is part of the variance
    x = rng.normal(offset + rank, 1, shape).astype(np.float32)
    dy = rng.normal(size=shape).astype(np.float32)
    layer = SyncBatchNormalization(name=name, momentum=0.7)
    layer.size = size
    layer.build(shape)
    gamma, beta = np.linspace(0.5, 2, 5), np.linspace(-1, 1, 5)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)

    @tf.function
    def step(inputs: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(inputs, training=True)
            loss = tf.reduce_sum(output * dy)
        return output, tape.gradient(loss, [inputs, layer.gamma, layer.beta])

    output, gradients = step(tf.constant(x))
    operations = step.get_concrete_function(tf.constant(x)).graph.get_operations()
    told = dict(zip(("inputs", "gamma", "beta"), gradients, strict=True))
    return {
        "messages": sum(operation.type == "HorovodAllreduce" for operation in operations),
        "x": x.tolist(),
        "dy": dy.tolist(),
        "gamma_is": gamma.tolist(),
        "beta_is": beta.tolist(),
        "output": output.numpy().tolist(),
        **{key: value.numpy().tolist() for key, value in told.items()},
        "moving": [v.numpy().tolist() for v in (layer.moving_mean, layer.moving_variance)],
    }


main()
