"""Three steps of every optimizer on two mirrored devices and on one.

Prints {case: largest difference of any replica's weight or trust ratio from the single device's}.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from tests.train.optimizers.cases import CASES
from tests.train.optimizers.toy import Toy, gradients

STEPS, RATE = 3, 0.01


def mirrored(config: Any, strategy: Any) -> Toy:
    with strategy.scope():
        toy = Toy(config)

    @tf.function
    def step(given: list[Any]) -> None:
        def replica(given: list[Any]) -> None:
            # the optimizer sums over the replicas
            halves = [gradient / 2 for gradient in given]
            toy.optimizer.apply_gradients(zip(halves, toy.variables, strict=True))

        strategy.run(replica, args=(given,))

    toy.optimizer.learning_rate.assign(RATE)
    for number in range(STEPS):
        step([tf.constant(g) for g in gradients(number).values()])
    return toy


def main() -> None:
    from train.optimizers import trust_ratios

    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {}
    for name, (_, config, _) in CASES.items():
        alone = Toy(config)
        for number in range(STEPS):
            alone.step(gradients(number), RATE)
        both = mirrored(config, strategy)
        pairs = [
            *zip(both.variables, alone.variables, strict=True),
            *zip(trust_ratios(both.optimizer) or (), trust_ratios(alone.optimizer) or (),
                 strict=True),
        ]  # fmt: skip
        found[name] = max(
            float(np.abs(replica.numpy() - one.numpy()).max())
            for many, one in pairs
            for replica in strategy.experimental_local_results(many)
        )
    print(json.dumps(found))


main()
