"""The record of the collectives phase: collectives.json of a run."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from train.config.frozen import Frozen

COLLECTIVES_NAME = "collectives.json"

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
OPERATIONS: tuple[Operation, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all",
)  # fmt: skip
#: horovod: as training calls it. raw: plain sockets between the same ranks.
Way = Literal["raw", "horovod"]
WAYS: tuple[Way, ...] = ("raw", "horovod")
#: in: the result lies where the input was. out: in memory of its own.
Place = Literal["in", "out"]
#: blocked: all ranks meet before each call. pipelined: calls back to back.
Mode = Literal["blocked", "pipelined"]
MODES: tuple[Mode, ...] = ("blocked", "pipelined")


def factor(operation: Operation, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, S / t (nccl-tests, PERFORMANCE.md): what a rank must
    at least send or receive, over S, so that the bus bandwidth can be held against a link's."""
    if operation == "broadcast":
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if operation == "all_reduce" else share


#: Calls of each size beside the timed ones: two are compared, one tells how long it takes.
UNTIMED = 3


def must_send(operation: Operation, ranks: int, size: int) -> float:
    """Bytes that ``ranks`` ranks send together at least, for one call of ``size`` bytes; in-network
    reduction and multicast left aside."""
    senders = ranks - 1 if operation == "broadcast" else ranks
    return senders * factor(operation, ranks) * size


class Point(Frozen):
    """One size of a series.

    bytes: S of nccl-tests: of the array of one rank, before or after, whichever is larger.
    seconds: of one call each, the largest over the ranks; pipelined: of a batch, through its calls.
    wrong: elements that are not what they must be, over all ranks, before and after these.
    """

    bytes: int
    calls: int  # timed, of each rank
    seconds: tuple[float, ...]
    wrong: int


class Carried(Frozen):
    """What the interface of one rank's node counted during a series; bytes, headers included.
    port_sent_bytes: of its InfiniBand ports; null: it has none that can be read."""

    host: str
    interface: str
    received_bytes: int | None  # null: the counters could not be read
    sent_bytes: int | None
    port_sent_bytes: int | None = None


class Series(Frozen):
    """ranks: the first so many of the world. payload_bytes: what they must send at least, together,
    calls that are not timed included. cut: why larger sizes are not there."""

    way: Way
    operation: Operation
    place: Place
    mode: Mode
    ranks: int
    points: tuple[Point, ...]
    carried: tuple[Carried, ...] = ()
    payload_bytes: int = 0
    cut: str | None = None
    error: str | None = None  # why there is none


class Rank(Frozen):
    host: str
    interface: str
    address: str
    cores: tuple[int, ...]


class Collectives(Frozen):
    """dtype: of all arrays. stack: versions, what Horovod was built with, settings. planned: series
    that there were to be; fewer, where one failed or the time was over."""

    schema_version: int = Field(1, ge=1, le=1)
    started_at: AwareDatetime
    seconds: float
    ranks: tuple[Rank, ...]
    nodes: int
    controller: Literal["mpi", "gloo"]
    oversubscribed: bool  # ranks share cores
    dtype: Literal["float32"] = "float32"
    stack: dict[str, str]
    planned: int
    series: tuple[Series, ...]
