"""What ranks tell each other besides gradients: small values, in one fixed order on all ranks."""

from __future__ import annotations

import hashlib
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

    def summed(self, mine: Sums) -> Sums:
        if self.size == 1:
            return mine
        return np.asarray(hvd.allreduce(tf.constant(mine), op=hvd.Sum).numpy(), np.float64)

    def broadcast_int(self, mine: int) -> int:
        """Rank 0's."""
        if self.size == 1:
            return mine
        return int(hvd.allreduce(tf.constant(mine if self.rank == 0 else 0), op=hvd.Sum).numpy())

    def allgather(self, mine: T) -> list[T]:
        return hvd.allgather_object(mine) if self.size > 1 else [mine]

    def broadcast_state(self, variables: list[tf.Variable], value: T) -> T:
        """Give all ranks rank 0's variables, and its value."""
        if self.size == 1:
            return value
        hvd.broadcast_variables(variables, root_rank=0)
        return hvd.broadcast_object(value, root_rank=0)

    def common_hash(self, variables: list[Any]) -> str:
        """sha256 over all of them.

        Raises:
            UnequalRanks: it is not equal on all ranks.
        """
        digest = hashlib.sha256()
        for variable in variables:
            digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
        mine = digest.hexdigest()
        found = self.allgather(mine)
        if len(set(found)) > 1:
            hashes = ", ".join(f"rank {rank} {one[:12]}" for rank, one in enumerate(found))
            raise UnequalRanks(f"the ranks' weights differ after training: {hashes}")
        return mine
