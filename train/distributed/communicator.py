"""What ranks tell each other besides gradients: small values, in one fixed order on all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

T = TypeVar("T")
Sums = npt.NDArray[np.float64]


class UnequalRanks(RuntimeError):
    """The ranks hold different weights: the run trained several models, not one."""


@dataclass(frozen=True)
class Ranks:
    """This rank among ``size``; every method is collective, and free in a world of one."""

    rank: int
    size: int

    def barrier(self) -> None:
        if self.size > 1:
            hvd.allreduce(tf.zeros(1), op=hvd.Sum)

    def leave(self) -> None:
        """Wait for all, then end Horovod."""
        self.barrier()
        hvd.shutdown()

    def summed(self, mine: Sums) -> Sums:
        """Element-wise, float64."""
        if self.size == 1:
            return mine
        return np.asarray(hvd.allreduce(tf.constant(mine), op=hvd.Sum).numpy(), np.float64)

    def allgather(self, mine: T) -> list[T]:
        """One value of each rank."""
        return hvd.allgather_object(mine) if self.size > 1 else [mine]

    def of_first(self, value: T, variables: Sequence[tf.Variable] = ()) -> T:
        """Rank 0's value, after all ranks have got its variables."""
        if self.size == 1:
            return value
        if variables:
            hvd.broadcast_variables(variables, root_rank=0)
        return hvd.broadcast_object(value, root_rank=0)


def weights_hash(variables: Sequence[Any]) -> str:
    """sha256 over all of them."""
    digest = hashlib.sha256()
    for variable in variables:
        digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return digest.hexdigest()


def equal_hash(of_ranks: Sequence[str]) -> str:
    """The one hash of all ranks; raises UnequalRanks if there are several."""
    if len(set(of_ranks)) > 1:
        raise UnequalRanks(
            "the ranks' weights differ after training: "
            + ", ".join(f"rank {r} {h[:12]}" for r, h in enumerate(of_ranks))
        )
    return of_ranks[0]
