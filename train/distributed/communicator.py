"""All that ranks send each other: tensors within a graph, small values between graphs. The one way
to Horovod of all that trains.

In a graph every message has a name, by which Horovod matches what ranks send in any order. Between
graphs all ranks send the same messages in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import horovod
import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.errors import ConfigError

T = TypeVar("T")
Sums = npt.NDArray[np.float64]
Waiting = Callable[[], AbstractContextManager[object]]


def built_for() -> tuple[bool, bool]:
    """Whether Horovod was built with MPI, and with NCCL."""
    return bool(hvd.mpi_built()), hvd.nccl_built() > 0


def patches() -> tuple[str, ...]:
    """Those of containers/recipes in this Horovod; none of a build that is not ours."""
    return tuple(getattr(horovod, "__patches__", ()))


def allreduce_mean(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """Differentiable: the gradient of a mean over ranks is the mean of their gradients."""
    return hvd.allreduce(tensor, op=hvd.Average, name=name, ignore_name_scope=True)


def allreduce_sum(tensor: tf.Tensor, name: str) -> tf.Tensor:
    return hvd.allreduce(tensor, op=hvd.Sum, name=name, ignore_name_scope=True)


def allgather(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """The ranks' tensors, one after the other along their first axis."""
    return hvd.allgather(tensor, name=name, ignore_name_scope=True)


def alltoall(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """Part r of the first axis goes to rank r; what came, in the order of the ranks."""
    return hvd.alltoall(tensor, name=name, ignore_name_scope=True)


class FirstFailed(RuntimeError):
    """Rank 0 failed in what it does for all ranks."""


class UnequalRanks(RuntimeError):
    """The ranks hold different weights: the run trained several models, not one."""


@dataclass(frozen=True)
class Ranks:
    """This rank among ``size``; every method is collective, and free in a world of one."""

    rank: int
    size: int
    local_rank: int = 0  # of this node
    local_size: int = 1
    #: Entered while this rank waits for others that may take long.
    waiting: Waiting = nullcontext

    def barrier(self) -> None:
        if self.size > 1:
            hvd.allreduce(tf.zeros(1), op=hvd.Sum)

    def shutdown(self) -> None:
        """Wait for all, then end Horovod."""
        self.barrier()
        hvd.shutdown()

    def summed(self, mine: Sums) -> Sums:
        """Element-wise, float64."""
        if self.size == 1:
            return mine
        return np.asarray(hvd.allreduce(tf.constant(mine), op=hvd.Sum).numpy(), np.float64)

    def exchanged(self, sums: Sums, row: Sums) -> tuple[Sums, Sums]:
        """In one message, float64: element-wise sums, [n], and the row of each rank, [size, m]."""
        rows = np.zeros((self.size, len(row)))
        rows[self.rank] = row
        total, every = np.split(self.summed(np.concatenate([sums, rows.ravel()])), [len(sums)])
        return total, every.reshape(rows.shape)

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

    def made_by_first(self, make: Callable[[], T]) -> T:
        """What ``make`` returns on rank 0, which alone calls it. What it raises there ends all
        ranks, which would otherwise wait for ever: a ConfigError as such, others as FirstFailed.
        """
        if self.size == 1:
            return make()
        made: list[T] = []
        failure: Exception = RuntimeError()
        if self.rank == 0:
            try:
                made = [make()]
            except Exception as error:  # noqa: BLE001  (whatever it is, the others must learn it)
                failure = error
        refused = isinstance(failure, ConfigError)
        text = str(failure) if refused else f"rank 0 failed: {type(failure).__name__}: {failure}"
        with self.waiting():
            made, refused, text = self.of_first((made, refused, text))
        if made:
            return made[0]
        if self.rank == 0:
            raise failure
        raise ConfigError(text) if refused else FirstFailed(text)

    def arrays_of_first(self, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Rank 0's arrays, without the copies that :meth:`of_first` makes of a value."""
        if self.size == 1:
            return list(arrays)
        return [hvd.broadcast(tf.constant(array), root_rank=0).numpy() for array in arrays]


#: A world of one, which needs no Horovod.
ALONE = Ranks(0, 1)


def join(waiting: Waiting = nullcontext) -> Ranks:
    """Meet the other ranks; once in a process. waiting: of :class:`Ranks`."""
    hvd.init()
    return Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), waiting)


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
