"""What one rank needs to train one cell, built from its config: all parts, no order of events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from train.config.optimizer import Muon
from train.config.plan import checked_plan
from train.config.run import RunConfig
from train.data.dataset import Dataset
from train.data.sampling import used_subset
from train.distributed.world import Runtime
from train.errors import ConfigError
from train.models.layers import StepSeed, stream_of, user_network
from train.models.networks import build_model
from train.models.normalisation import muon_kernels
from train.models.pixels import channel_statistics, whiten_first_layer
from train.optimizers.build import build_optimizer
from train.step.adascale import AdaScale
from train.step.loss_scale import LossScale, NoLossScale
from train.step.reduction import OverRanks
from train.step.step import BackEnd, TrainStep
from train.step.tf_distribute import OverReplicas, ReplicaSeed
from train.trainer.epoch import Parts


def build_parts(
    config: RunConfig,
    data: Dataset,
    runtime: Runtime,
    folder: Path = Path(),
    model_file: Path | None = None,
) -> Parts:
    """folder: of the data sets; model_file: the copy of the file that ``config.model`` names.

    Raises:
        ConfigError: the data, the images or the network do not fit the config.
    """
    technique = config.technique
    plan = checked_plan(config, len(data.train_y))
    used = used_subset(data.train_y, config.data_fraction)
    height, width, channels = data.train_x.shape[1:]
    shape = (height, width, channels)
    if text := config.image_problem(shape):
        raise ConfigError(f"cell {config.cell_id()}: {text}")
    pixels = channel_statistics(data.train_x, used) if technique.standardise else None

    def build(seed: StepSeed) -> tf.keras.Model:
        model = build_model(
            config, shape, len(data.classes), seed, pixels, folder, model_file, runtime.rank
        )
        if technique.initialisation == "whitened":
            whiten_first_layer(model, data.train_x, used)
        return model

    first = runtime.rank * runtime.replicas
    streams = [stream_of(config.seed, first + own) for own in range(runtime.replicas)]
    seed, strategy = StepSeed(streams[0]), runtime.strategy
    half = technique.precision == "mixed_float16"
    loss_scale = LossScale() if half else NoLossScale()
    model = trained = build(seed)
    if strategy is None:
        optimizer = _optimizer(config, model)
        back_end: BackEnd = OverRanks(technique, runtime.size, loss_scale)
    else:  # from the same first weights
        seed = ReplicaSeed(strategy, streams)
        with strategy.scope():
            trained = build(seed)
            optimizer = _optimizer(config, trained)
        back_end = OverReplicas(strategy, trained, model)
    gains = None
    if technique.lr_scaling == "adascale":
        gains = AdaScale(config.batch_per_rank, config.global_batch, technique.base_batch)
    step = TrainStep(trained, optimizer, technique, seed, back_end, loss_scale, gains)
    return Parts(plan, used, model, step)


def _optimizer(config: RunConfig, model: tf.keras.Model) -> Any:
    optimizer = config.technique.optimizer
    convolutions: list[tf.Variable] = []
    if isinstance(optimizer, Muon):
        convolutions = muon_kernels(user_network(model), optimizer)
    return build_optimizer(optimizer, model.trainable_variables, convolutions)
