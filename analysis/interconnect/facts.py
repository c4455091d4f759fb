"""What nodes say of themselves: where they differ, which counters grew, what is bad or unknown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from analysis.interconnect.finding import Finding, Weight
from train.interconnect.facts.record import Fact, NodeFacts

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
#: What is wrong or odd, whatever the others say: a pattern of the fact's name, one of its value,
#: and what it means. Remarks may be meant so: nothing is plugged into a port, a slot is older.
_BAD: tuple[tuple[Weight, str, str, str], ...] = (
    ("fault", r"\d+ remapping pending", r"(?i)yes",
     "the GPU is to be reset before its memory is sound"),
    ("fault", r"\d+ slowed down by", r".*(hw_|thermal).*", "hardware slows the GPU down"),
    ("remark", r" (physical )?state", r"(?i)(?!active|linkup).+", "a port without a link"),
    ("remark", r" PCIe (width|speed)", r".+ of .+",
     "below what the adapter can, as its slot may be"),
    ("remark", "name is its address's", r"(?!yes).*",
     "host name and address should lead to each other"),
)  # fmt: skip
#: Congestion and shapers make these, by design; the curves show what they cost.
_HARMLESS = (" port_xmit_wait", "TCP segments sent again")
#: A user who may not read counters gets an error with these words.
_REFUSED = re.compile(r"(?i)permission denied|not permitted|may not be run").search
#: In the kernel's log, which is root's on most systems.
_OF_ROOT = "Xid errors"


class Difference(NamedTuple):
    """A fact in which nodes of one kind should agree. usual: what most of them say."""

    group: str
    name: str
    usual: str
    others: dict[str, str]  # node -> what it says instead
    agree: tuple[str, ...]  # nodes that say what is usual

    @property
    def is_clear(self) -> bool:
        """Whether more than half agree: else nobody can say who is right."""
        return len(self.agree) > len(self.others)


def is_grave(name: str) -> bool:
    return name in _GRAVE or name.endswith(_GRAVE_ENDINGS)


def counts_errors(name: str) -> bool:
    return name in _ERRORS or name.endswith(_ERROR_ENDINGS)


def facts_frame(facts: Sequence[NodeFacts]) -> pd.DataFrame:
    """One row per node, time and fact, as train.interconnect.facts.record describes them."""
    rows = [
        {"node": one.node, "when": one.when, **fact.model_dump()}
        for one in facts
        for fact in one.facts
    ]
    return pd.DataFrame(rows, columns=["node", "when", *Fact.model_fields])


def environment(facts: Sequence[NodeFacts]) -> dict[str, str]:
    """``group: name`` -> what most nodes say, of facts that equal nodes share."""
    return {f"{fact.group}: {fact.name}": fact.usual for fact in _shared(facts)}


def _shared(facts: Sequence[NodeFacts]) -> Iterator[Difference]:
    """Facts that are unknown on a node say nothing about it."""
    values_of: dict[tuple[str, str], dict[str, str]] = {}
    for one in facts:
        for fact in one.facts if one.when == "before" else ():
            if fact.role == "same" and fact.value is not None:
                values_of.setdefault((fact.group, fact.name), {})[one.node] = fact.value
    for (group, name), values in values_of.items():
        # of equally many the first by name, so that a report does not change by itself
        usual = min(Counter(values.values()).items(), key=lambda item: (-item[1], item[0]))[0]
        others = {node: value for node, value in values.items() if value != usual}
        yield Difference(group, name, usual, others, tuple(set(values) - set(others)))


def facts_findings(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    for fault in (fault for one in facts for fault in one.faults):
        yield Finding("fault", fault.what, f"{fault.found}; {fault.fix}", fault.nodes)
    for difference in (fact for fact in _shared(facts) if fact.others):
        name, grave = difference.name, is_grave(difference.name)
        what = name if grave else "differs"
        if not difference.is_clear:
            why = f"{name}: {_divided(difference)}: no majority shows which is right"
            yield Finding("open" if grave else "remark", what, why)
            continue
        for node, value in sorted(difference.others.items()):
            why = f"{name}: {value}; elsewhere {difference.usual}"
            yield Finding("fault" if grave else "remark", what, why, (node,))
    yield from _bad(facts)
    yield from _grown(facts)
    yield from _unknown(facts)


def _divided(difference: Difference) -> str:
    """Who says what."""
    saying: dict[str, list[str]] = {difference.usual: sorted(difference.agree)}
    for node, value in sorted(difference.others.items()):
        saying.setdefault(value, []).append(node)
    return "; ".join(f"{value} ({', '.join(nodes)})" for value, nodes in saying.items())


def _bad(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """By what a node says, whatever the others say; all may have the same fault."""
    before = [one for one in facts if one.when == "before"]
    saying: dict[tuple[Weight, str], list[str]] = {}
    for one in before:
        for fact in one.facts:
            for weight, name, value, meaning in _BAD:
                named = fact.value is not None and re.search(f"{name}$", fact.name)
                if named and re.fullmatch(value, fact.value or ""):
                    said = f"{fact.name}: {fact.value}: {meaning}"
                    saying.setdefault((weight, said), []).append(one.node)
    for (weight, said), nodes in saying.items():
        if len(nodes) == len(before):
            yield Finding(weight, "state", f"{said}, on all nodes")
            continue
        for node in nodes:
            yield Finding(weight, "state", said, (node,))


def _grown(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Counters that are larger after the run than before it; those set back are left out."""
    before = {one.node: {(f.group, f.name): f.value for f in one.facts if f.role == "counter"}
              for one in facts if one.when == "before"}  # fmt: skip
    after = ((one.node, fact) for one in facts if one.when == "after" for fact in one.facts)
    for node, fact in after:
        was, now = before.get(node, {}).get((fact.group, fact.name)), fact.value
        if not (was and now and was.isdecimal() and now.isdecimal()):
            continue
        by = int(now) - int(was)
        if by <= 0 or fact.name.endswith(_HARMLESS):
            continue
        few = fact.name.endswith(_SOME) and by <= _FEW
        is_error = counts_errors(fact.name) and not few
        why = f"{fact.name} grew by {by} during the run"
        yield Finding("fault" if is_error else "remark", "errors" if is_error else "counter", why,
                      (node,))  # fmt: skip


def _unknown(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Facts that some nodes know and others do not, and what nobody may read: no fault, and no pass
    where it is what faults are known by."""
    before = [one for one in facts if one.when == "before"]
    known = {(f.group, f.name) for one in before for f in one.facts if f.value is not None}
    refused: dict[str, str] = {}
    for one in before:
        unknown = [fact for fact in one.facts if fact.value is None]
        missing = [fact for fact in unknown if (fact.group, fact.name) in known]
        if missing:
            names = ", ".join(fact.name for fact in missing)
            matters = any(_unread(fact.name) == "open" for fact in missing)
            why = f"{names}: {missing[0].why}; other nodes report it"
            yield Finding("open" if matters else "remark", "unknown", why, (one.node,))
        refused |= {
            fact.name: fact.why or ""
            for fact in unknown
            if fact not in missing and _REFUSED(fact.why or "")
        }
    weights: tuple[Weight, ...] = ("open", "remark")
    for weight in weights:
        these = [name for name in refused if _unread(name) == weight]
        if these:
            why = f"{', '.join(these)}: {refused[these[0]]}, and no other node reports it"
            yield Finding(weight, "unknown", why)


def _unread(name: str) -> Weight:
    """Faults are known by it, and who may not read it gets an error; but the kernel's log is root's
    nearly everywhere."""
    matters = is_grave(name) or counts_errors(name)
    return "open" if matters and not name.endswith(_OF_ROOT) else "remark"
