"""One set of batch-norm statistics for all ranks, before weights are evaluated or compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from train.batches import estimation_batches
from train.batchnorm import reduce_statistics, reestimate_statistics
from train.cell import Parts
from train.config import RunConfig
from train.data.arrays import Dataset, Pixels
from train.runtime import Runtime


def settle_statistics(
    config: RunConfig, data: Dataset, parts: Parts, runtime: Runtime, beat: Callable[[str], None]
) -> None:
    """Collective: those of the moving averages pooled over the ranks, or taken anew.

    beat: told where this stands, before each batch that statistics are taken from, since all of
    them can take long on a CPU.
    """
    beat("")
    rank, size = runtime.rank, runtime.size
    if parts.twin:
        parts.twin.show()
    if config.technique.bn_statistics == "reestimated":
        images = estimation_batches(config, data, parts.used, rank, size)
        reestimate_statistics(parts.model, _told(images, beat), size)
    else:
        reduce_statistics(parts.model, size)
    if parts.twin:
        parts.twin.adopt()


def _told(batches: Iterable[Pixels], beat: Callable[[str], None]) -> Iterator[Pixels]:
    for number, images in enumerate(batches, 1):
        beat(f", batch {number}")
        yield images
    beat(", adding up over the ranks")
