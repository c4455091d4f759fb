"""What the nodes say of themselves, side by side: where they differ, and which counters grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from analysis.table import Column, frame
from train.interconnect.facts.record import NodeFacts

#: A node that differs in one of these is a fault of the network's set-up, not a curiosity.
_GRAVE = ("MTU", "speed, Mbit/s", "duplex")
_GRAVE_ENDINGS = (" rate", " state", " physical state", " PCIe width", " PCIe speed")
#: Counters of errors that a healthy link does not make; others grow in normal operation.
_ERRORS = ("received errors", "received frame", "sent errors", "carrier changes")
_ERROR_ENDINGS = (
    " symbol_error", " link_error_recovery", " link_downed", " port_rcv_errors",
    " local_link_integrity_errors", " excessive_buffer_overrun_errors",
    "Xid errors", " uncorrected errors",
)  # fmt: skip
#: Of these a healthy link may make some: the permitted bit error rate is not 0.
_SOME, _FEW = (" symbol_error", " port_rcv_errors"), 10


class Difference(NamedTuple):
    """A fact in which nodes of one kind should agree. usual: what most of them say."""

    group: str
    name: str
    usual: str
    others: dict[str, str]  # node -> what it says instead
    agree: tuple[str, ...]  # nodes that say what is usual

    @property
    def is_grave(self) -> bool:
        return is_grave(self.name)

    @property
    def is_clear(self) -> bool:
        """Whether more than half agree: else nobody can say who is right."""
        return len(self.agree) > len(self.others)


class Growth(NamedTuple):
    node: str
    name: str
    by: int

    @property
    def is_error(self) -> bool:
        if self.name.endswith(_SOME) and self.by <= _FEW:
            return False
        return counts_errors(self.name)


def is_grave(name: str) -> bool:
    return name in _GRAVE or name.endswith(_GRAVE_ENDINGS)


def counts_errors(name: str) -> bool:
    return name in _ERRORS or name.endswith(_ERROR_ENDINGS)


FACTS = (
    Column("node", "string", description="the node that reports"),
    Column("when", "string", description="before or after the measurements"),
    Column(
        "group", "string", description="identity, network, infiniband, processor, gpu, software"
    ),
    Column("name", "string", description="of the fact"),
    Column(
        "role", "string", description="same: nodes should agree; own: each has another; counter"
    ),
    Column("value", "string", description="null where it is not known"),
    Column("why", "string", description="why it is not known"),
)


def facts_frame(facts: Sequence[NodeFacts]) -> pd.DataFrame:
    """One row per node, fact and time, columns FACTS."""
    rows = [
        {"node": one.node, "when": one.when, **fact.model_dump()}
        for one in facts
        for fact in one.facts
    ]
    return frame(rows, FACTS)


def differences(facts: Sequence[NodeFacts]) -> tuple[Difference, ...]:
    """Facts that are unknown on a node say nothing about it."""
    values_of: dict[tuple[str, str], dict[str, str]] = {}
    for one in facts:
        if one.when != "before":
            continue
        for fact in one.facts:
            if fact.role == "same" and fact.value is not None:
                values_of.setdefault((fact.group, fact.name), {})[one.node] = fact.value
    result = []
    for (group, name), values in values_of.items():
        # of equally many the first by name, so that a report does not change by itself
        usual = min(Counter(values.values()).items(), key=lambda item: (-item[1], item[0]))[0]
        others = {node: value for node, value in values.items() if value != usual}
        if others:
            result.append(Difference(group, name, usual, others, tuple(set(values) - set(others))))
    return tuple(result)


def growths(facts: Sequence[NodeFacts]) -> tuple[Growth, ...]:
    """Counters that are larger after the run than before it; those set back are left out."""
    before = {one.node: one for one in facts if one.when == "before"}
    result = []
    for one in facts:
        then = before.get(one.node)
        if one.when != "after" or then is None:
            continue
        earlier = {(f.group, f.name): f.value for f in then.facts if f.role == "counter"}
        for fact in one.facts:
            was, now = earlier.get((fact.group, fact.name)), fact.value
            if was and now and was.isdecimal() and now.isdecimal() and int(now) > int(was):
                result.append(Growth(one.node, fact.name, int(now) - int(was)))
    return tuple(result)
