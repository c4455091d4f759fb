"""What must hold on all nodes before the first step: the same images and network, and enough memory
for all of the run. Sharpness, which needs most, comes after the last step."""

from __future__ import annotations

import math
import socket

import tensorflow as tf

from train.config.networks import model_label
from train.config.run import RunConfig
from train.data.batches import AHEAD
from train.data.dataset import Dataset
from train.distributed.machine.quota import free_memory
from train.distributed.world import Runtime
from train.errors import ConfigError, DataError
from train.models.layers import network_digest, numbers_in, user_network
from train.trainer.checkpoint import weights_file
from train.trainer.epoch import Parts
from train.trainer.sharpness import check_sharpness, sharpness_bytes


def check_nodes(config: RunConfig, data: Dataset, parts: Parts, runtime: Runtime) -> None:
    """Collective; the same on all ranks.

    Raises:
        DataError: a node has other images than rank 0's.
        ConfigError: ranks have built different networks, whose weights may yet look alike, or the
            processes of a node need more memory than it has left.
    """
    needs = needed_bytes(config, data, parts, runtime)
    network = network_digest(parts.model)
    mine = (socket.gethostname(), data.fingerprint, free_memory(), needs, network)
    every = runtime.ranks.allgather(mine)
    first, images, *_ = every[0]
    if others := {host for host, own, *_ in every if own != images}:
        raise DataError(
            f"{data.name}: the images on {', '.join(sorted(others))} are not those on {first}, so "
            "that ranks would train on different data sets: give all nodes one shared folder, or "
            "copy the whole data folder of one node to all others"
        )
    if unequal := [rank for rank, of in enumerate(every) if of[-1] != every[0][-1]]:
        raise ConfigError(
            f"{model_label(config.model)} is another network on rank {unequal[0]} than on rank 0: "
            "nothing in its code may depend on unseeded draws, the time, the host or the process"
        )
    for host in sorted({host for host, *_ in every}):
        own = [(free, needs) for there, _, free, needs, _ in every if there == host]
        free = min((free for free, _ in own if free is not None), default=math.inf)
        needed, what = max((sum(needs[name] for _, needs in own), name) for name in needs)
        if needed > free:
            trains = what == "training"
            todo = "Use a smaller batch_per_rank" if trains else "Leave out sharpness_images"
            raise ConfigError(
                f"{what} needs {needed / 1e9:.1f} GB of memory on {host} for its ranks there "
                f"({len(own)}); {free / 1e9:.1f} GB are available. {todo}, or give each rank more "
                "memory (mem_per_rank_gb in the site's file)"
            )


def check_end(config: RunConfig, model: tf.keras.Model, data: Dataset) -> None:
    """What could only fail once all epochs are done.

    Raises:
        ConfigError: the network allows no file of its weights, or no measurement of sharpness.
    """
    if config.keep_weights:
        weights_file(user_network(model))
    if config.sharpness_images is not None:
        check_sharpness(model, data)


def needed_bytes(
    config: RunConfig, data: Dataset, parts: Parts, runtime: Runtime
) -> dict[str, int]:
    """Of this process, in the memory of its node, by what is certain: not the network's
    activations, nor what is there already, as its weights.

    training: batches gathered ahead, gradients before and after their sum over the ranks, and
    copies of weights and optimizer state for the checkpoint (as arrays and as a file).
    """
    trained, state = map(numbers_in, (parts.model.trainable_variables, parts.step.state))
    images = (AHEAD + 1) * config.batch_per_rank * config.accumulation * runtime.replicas
    copies = 2 if runtime.size == 1 else 4  # before and after; joined in buckets before and after
    gradients = 0 if runtime.gpus else copies * 4 * trained
    checkpoint = 2 * 4 * state if runtime.rank == 0 else 0
    return {
        "training": images * math.prod(data.train_x.shape[1:]) + gradients + checkpoint,
        "sharpness": sharpness_bytes(trained) if config.sharpness_images else 0,
    }
