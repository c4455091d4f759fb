"""What one rank needs to train one cell, made from its config: its data and all parts, no order of
events. What costs reading is read by rank 0 and sent to the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import tensorflow as tf

from train.config.optimizer import Muon
from train.config.plan import checked_plan
from train.config.run import RunConfig
from train.data.dataset import ChannelStatistics, Dataset, channel_statistics, fingerprint
from train.data.registry import DatasetFiles
from train.data.sampling import for_tuning, used_subset
from train.distributed.launch import Task
from train.distributed.world import Runtime
from train.errors import ConfigError
from train.models.layers import StepSeed, stream_of, user_network
from train.models.networks import build_model
from train.models.normalisation import muon_kernels
from train.models.pixels import whitened_filters
from train.step.adascale import AdaScale
from train.step.back_end import BackEnd, OverRanks
from train.step.loss_scale import LossScale, NoLossScale
from train.step.optimizers.build import build_optimizer
from train.step.step import TrainStep
from train.step.tf_distribute import OverReplicas, ReplicaSeed
from train.trainer.epoch import Parts


def open_data(
    config: RunConfig, task: Task, runtime: Runtime, beat: Callable[[str], None], *,
    supervised: bool,
) -> Dataset:  # fmt: skip
    """Collective. Of a sweep's cell no raw file is looked at, since the sweep noted the prepared
    form; of one that was started by hand rank 0 lists them, so that it never trains on old files. A
    node whose stores lack that form makes its own. If its images are others than rank 0's, so is
    the fingerprint.

    Raises:
        ConfigError: as :class:`train.data.registry.DatasetFiles`; what rank 0 raises, all raise.
    """
    beat("loading the data")
    files = DatasetFiles(config.dataset, task.data, config.image_size, task.store)
    forms = partial(files.forms, task.out.parent if supervised else None)
    data = files.load(runtime.ranks.made_by_first(forms))
    count = partial(config.kept_to_validate, len(data.train_y))
    if not (validated := runtime.ranks.made_by_first(count)):
        return data
    part = for_tuning(data, validated)
    whole, own = runtime.ranks.made_by_first(lambda: (data.fingerprint, fingerprint(part.arrays)))
    return replace(part, fingerprint=own) if data.fingerprint == whole else part


def build_parts(
    config: RunConfig, data: Dataset, runtime: Runtime, folder: Path = Path(),
    model_file: Path | None = None,
) -> Parts:  # fmt: skip
    """Collective. folder: of the data sets; model_file: the copy of the file that ``config.model``
    names.

    Raises:
        ConfigError: the data, the images or the network do not fit the config.
    """
    technique = config.technique
    ranks, strategy = runtime.ranks, runtime.strategy
    plan = checked_plan(config, len(data.train_y))
    used = used_subset(data.train_y, plan.used)
    height, width, channels = data.train_x.shape[1:]
    shape = (height, width, channels)
    if text := config.image_problem(shape):
        raise ConfigError(f"cell {config.cell_id()}: {text}")

    def count_pixels() -> ChannelStatistics:
        counted = data.channels if len(used) == len(data.train_y) else None
        return counted or channel_statistics(data.train_x, used)

    pixels = ranks.made_by_first(count_pixels) if technique.standardise else None
    build = partial(
        build_model, config, shape, len(data.classes), pixels=pixels, folder=folder,
        file=model_file, ranks=ranks,
    )  # fmt: skip

    first = runtime.rank * runtime.replicas
    streams = [stream_of(config.seed, first + own) for own in range(runtime.replicas)]
    seed = StepSeed(streams[0])
    model = trained = build(seed=seed)
    if technique.initialisation == "whitened":
        filters = ranks.made_by_first(partial(whitened_filters, model, data.train_x, used))
        model.get_layer("conv1").kernel.assign(filters)
    scope = nullcontext if strategy is None else strategy.scope
    if strategy is not None:
        seed = ReplicaSeed(strategy, streams)
        with scope():
            trained = build(seed=seed)
    kernels: list[tf.Variable] = []
    if isinstance(technique.optimizer, Muon):
        kernels = muon_kernels(user_network(trained), technique.optimizer)
    with scope():
        optimizer = build_optimizer(technique.optimizer, trained.trainable_variables, kernels)
    loss_scale = LossScale() if technique.precision == "mixed_float16" else NoLossScale()
    back_end: BackEnd
    if strategy is None:
        back_end = OverRanks(technique, runtime.size, loss_scale)
    else:  # with the weights of ``model``
        back_end = OverReplicas(strategy, trained, model)
    gains = None
    if technique.lr_scaling == "adascale":
        gains = AdaScale(config.batch_per_rank, config.global_batch, technique.base_batch)
    step = TrainStep(trained, optimizer, technique, seed, back_end, loss_scale, gains)
    return Parts(plan, used, model, step)
