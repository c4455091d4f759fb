"""Three steps of every optimizer on two mirrored devices and on one.

Prints {case: largest difference of any replica's weight or trust ratio from the single device's}.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from tests.builders import row
from tests.train.optimizers.cases import CASES
from tests.train.optimizers.toy import Toy, gradients
from tests.train.step.test_step_parts import batches, own_network, small, together

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


def own_network_is_one_batch(strategy: Any) -> float:
    """Penalties and an embedding through the step itself: two replicas of 8 images are 16."""
    from train.config.optimizer import Adam
    from train.optimizers.build import build_optimizer
    from train.step.loss_scale import NoLossScale
    from train.step.step import TrainStep
    from train.step.tf_distribute import OverReplicas, ReplicaSeed

    technique = row(optimizer=Adam())
    alone = small(model=own_network(), optimizer=Adam())
    with strategy.scope():
        model = own_network()
        optimizer = build_optimizer(Adam(), model.trainable_variables)
    seed, replicas = ReplicaSeed(strategy, [1, 2]), OverReplicas(strategy, model, own_network())
    step = TrainStep(model, optimizer, technique, seed, replicas, NoLossScale())
    alone.step(together([batches(1, 16)]), [RATE], 0)
    step(together([batches(2, 8)]), [RATE], 0)
    both = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
    return float(np.abs(both - alone.weights()).max())


def factors(toy: Toy) -> list[Any]:
    from train.optimizers.layerwise import trust_log

    log = trust_log(toy.optimizer)
    return [log.factors] if log else []


def main() -> None:
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
            *zip(factors(both), factors(alone), strict=True),
        ]
        found[name] = max(
            float(np.abs(replica.numpy() - one.numpy()).max())
            for many, one in pairs
            for replica in strategy.experimental_local_results(many)
        )
    found["own network"] = own_network_is_one_batch(strategy)
    print(json.dumps(found))


main()
