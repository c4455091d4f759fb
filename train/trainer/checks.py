"""What must hold on all nodes before the first step: the same images, and enough memory for all of
the run. Sharpness, which needs most, comes after the last step."""

from __future__ import annotations

import math
import socket

from train.config.run import RunConfig
from train.data.batches import AHEAD
from train.data.dataset import Dataset
from train.distributed.communicator import Ranks
from train.distributed.quota import free_memory
from train.distributed.world import Runtime
from train.errors import ConfigError, DataError
from train.trainer.parts import Parts
from train.trainer.sharpness import sharpness_bytes

#: What to do about a phase that needs too much memory.
REMEDIES = {
    "training": "Use a smaller batch_per_rank",
    "sharpness": "Leave out sharpness_images",
}


def check_images(data: Dataset, ranks: Ranks) -> None:
    """Collective.

    Raises:
        DataError: a node has other images than rank 0's.
    """
    every = ranks.allgather((socket.gethostname(), data.fingerprint))
    first, images = every[0]
    if others := {host for host, own in every if own != images}:
        raise DataError(
            f"{data.name}: the images on {', '.join(sorted(others))} are not those on {first}, so "
            "that ranks would train on different data sets: give all nodes one shared folder, or "
            "copy the whole data folder of one node to all others"
        )


def check_memory(
    config: RunConfig, data: Dataset, parts: Parts, runtime: Runtime, ranks: Ranks
) -> None:
    """Collective, when all ranks have built their parts.

    Raises:
        ConfigError: the processes of a node need more than it has left; on all ranks.
    """
    mine = (socket.gethostname(), free_memory(), needed_bytes(config, data, parts, runtime))
    every = ranks.allgather(mine)
    for host in dict.fromkeys(host for host, *_ in every):
        own = [needs for there, _, needs in every if there == host]
        free = min((f for there, f, _ in every if there == host and f is not None), default=None)
        what, needed = max(
            ((name, sum(needs[name] for needs in own)) for name in own[0]), key=lambda pair: pair[1]
        )
        if free is not None and needed > free:
            raise ConfigError(
                f"{what} needs {needed / 1e9:.1f} GB of memory on {host} for {len(own)} "
                f"process{'es' * (len(own) > 1)}, {free / 1e9:.1f} GB are available there. "
                f"{REMEDIES[what]}, or give each rank more memory (mem_per_rank_gb in the site's "
                "file)"
            )


def needed_bytes(
    config: RunConfig, data: Dataset, parts: Parts, runtime: Runtime
) -> dict[str, int]:
    """Of this process, in the memory of its node, by what is certain: not the activations of the
    network, nor what is there already, as its weights.

    training: batches gathered ahead, gradients before and after their sum over the ranks, and
    copies of weights and optimizer state for the checkpoint (as arrays and as a file).
    """
    counts = [math.prod(variable.shape) for variable in parts.model.trainable_variables]
    images = config.batch_per_rank * config.accumulation * runtime.replicas
    training = (AHEAD + 1) * images * math.prod(data.train_x.shape[1:])
    if runtime.gpu is None:
        training += 2 * 4 * sum(counts)
    if runtime.rank == 0:
        training += 2 * sum(4 * math.prod(variable.shape) for variable in parts.state)
    sharpness = sharpness_bytes(sum(counts)) if config.sharpness_images else 0
    return {"training": training, "sharpness": sharpness}
