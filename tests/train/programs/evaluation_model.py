"""Two replicas with statistics of their own: pooled, given back, saved, and found to differ.

Prints {"mean", "variance": largest error of the pooled moments, "adopted", "restored": largest
difference between the copies, "unequal": what is said of weights that differ}.
"""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf

from tests.builders import row
from train.config.optimizer import Sgd
from train.distributed.communicator import UnequalRanks
from train.optimizers.build import build_optimizer
from train.step.loss_scale import NoLossScale
from train.step.step import TrainStep
from train.step.tf_distribute import OverReplicas, ReplicaSeed

ROWS, WIDTH = 500, 3


def model() -> tf.keras.Model:
    inputs = tf.keras.Input((WIDTH,))
    x = tf.keras.layers.BatchNormalization(momentum=0.0, name="bn")(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="out")(x))


def main() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, parts)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    shown = model()
    with strategy.scope():
        trained = model()
        optimizer = build_optimizer(Sgd(momentum=0.9), trained.trainable_variables)
    seed, replicas = ReplicaSeed(strategy, [1, 2]), OverReplicas(strategy, trained, shown)
    step = TrainStep(trained, optimizer, row(), seed, replicas, NoLossScale())
    rng = np.random.default_rng(4)
    # far apart, so that the spread between the replicas counts
    rows = rng.normal([[[0.0]], [[5.0]]], [[[1.0]], [[2.0]]], (2, ROWS, WIDTH)).astype(np.float32)
    given = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(rows[context.replica_id_in_sync_group])
    )
    tf.function(lambda: strategy.run(lambda x: trained(x, training=True), args=(given,)))()
    replicas.pull()
    layer = shown.get_layer("bn")
    every = rows.reshape(-1, WIDTH).astype(np.float64)
    mean = float(np.abs(layer.moving_mean.numpy() - every.mean(0)).max())
    variance = float(np.abs(layer.moving_variance.numpy() - every.var(0)).max())
    replicas.push()
    statistics = trained.get_layer("bn").moving_mean
    first, second = strategy.experimental_local_results(statistics)
    adopted = float(np.abs(first.numpy() - second.numpy()).max())

    for variable in step.state:
        variable.assign(np.full(variable.shape, 7))
        assert (variable.numpy() == 7).all()
    replicas.push()
    gamma = strategy.experimental_local_results(trained.variables[0])
    momentum = strategy.experimental_local_results(optimizer.momentums[0])
    restored = max(float(np.abs(copy.numpy() - 7).max()) for copy in (*gamma, *momentum))

    gamma[1].assign(np.full(WIDTH, 8.0, np.float32))
    try:
        replicas.pull()
        said = "nothing"
    except UnequalRanks as error:
        said = str(error)
    print(
        json.dumps(
            {
                "mean": mean,
                "variance": variance,
                "adopted": adopted,
                "restored": restored,
                "unequal": said,
            }
        )
    )


main()
