"""What a node says of itself: facts-NODE-before.json and -after.json of an interconnect run."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from train.config.frozen import Frozen

FACTS_GLOB = "facts-*.json"

Group = Literal["identity", "network", "infiniband", "processor", "gpu", "software"]
#: same: nodes of one kind should agree. own: each has another. counter: only its growth matters.
Role = Literal["same", "own", "counter"]
When = Literal["before", "after"]


class Fact(Frozen):
    """value: null where it is not known, and then ``why``."""

    group: Group
    name: str
    value: str | None
    role: Role = "same"
    why: str | None = None


class NetworkFault(Frozen):
    """What keeps nodes from talking (train.distributed.preflight.neighbours). what: MTU, path,
    shared address, ..."""

    what: str
    nodes: tuple[str, ...]
    found: str
    fix: str


class NodeFacts(Frozen):
    """faults: of the network, reported by the first node for all."""

    schema_version: int = Field(1, ge=1, le=1)
    node: str
    when: When
    taken_at: AwareDatetime
    interface: str | None  # that is measured
    facts: tuple[Fact, ...]
    faults: tuple[NetworkFault, ...] = ()


def file_name(node: str, when: When) -> str:
    return f"facts-{node}-{when}.json"
