"""What nodes say of themselves: where they differ, which counters grew, what is bad or unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.interconnect.finding import Finding, Weight
from train.interconnect.facts.record import Fact, NodeFacts

#: A node that differs in one of these is a fault of the network's set-up, not a curiosity.
_is_grave = re.compile(r"MTU|speed, Mbit/s|duplex|.* (rate|state|PCIe width|PCIe speed)").fullmatch
#: Counters of errors that a healthy link does not make; others grow in normal operation.
_counts_errors = re.compile(
    r"received errors|received frame|sent errors|carrier changes|Xid errors"
    r"|.* (symbol_error|link_error_recovery|link_downed|port_rcv_errors"
    r"|local_link_integrity_errors|excessive_buffer_overrun_errors|uncorrected errors)"
).fullmatch
#: Of these a healthy link may make some: the permitted bit error rate is not 0.
_SOME, _FEW = (" symbol_error", " port_rcv_errors"), 10
#: What is wrong or odd, whatever the others say: a pattern of the fact's name, one of its value,
#: and what it means. Remarks may be meant so: nothing is plugged into a port, a slot is older.
_BAD: tuple[tuple[Weight, str, str, str], ...] = (
    ("fault", r"\d+ remapping pending", r"(?i)yes",
     "the GPU is to be reset before its memory is sound"),
    ("fault", r"\d+ slowed down by", r".*(hw_|thermal).*", "hardware slows the GPU down"),
    ("remark", r".* state", r"(?i)(?!active|linkup).+", "a port without a link"),
    ("remark", r".* PCIe (width|speed)", r".+ of .+",
     "below what the adapter can, as its slot may be"),
    ("remark", "name is its address's", r"(?!yes).*",
     "host name and address should lead to each other"),
)  # fmt: skip
#: Congestion and shapers make these, by design; the curves show what they cost.
_HARMLESS = (" port_xmit_wait", "TCP segments sent again")
#: A user who may not read counters gets an error with these words.
_is_refused = re.compile(r"(?i).*(permission denied|not permitted|may not be run)").match
#: In the kernel's log, which is root's on most systems.
_OF_ROOT = "Xid errors"


def facts_frame(facts: Sequence[NodeFacts]) -> pd.DataFrame:
    """One row per node, time and fact, as train.interconnect.facts.record describes them."""
    rows = [
        {"node": one.node, "when": one.when, **fact.model_dump()}
        for one in facts
        for fact in one.facts
    ]
    return pd.DataFrame(rows, columns=["node", "when", *Fact.model_fields])


def reported(facts: Sequence[NodeFacts]) -> dict[str, dict[tuple[str, str], str]]:
    """Node -> group and name -> value, before the run; without what is unknown."""
    return {
        one.node: {(f.group, f.name): f.value for f in one.facts if f.value is not None}
        for one in facts
        if one.when == "before"
    }


def environment(facts: Sequence[NodeFacts]) -> dict[str, str]:
    """``group: name`` -> what most nodes say, of facts that equal nodes share."""
    return {f"{group}: {name}": next(iter(nodes)) for (group, name), nodes in _shared(facts)}


def _shared(facts: Sequence[NodeFacts]) -> Iterator[tuple[tuple[str, str], dict[str, list[str]]]]:
    """Group and name, and value -> nodes that report it, the most usual value first. Facts that are
    unknown on a node say nothing about it."""
    nodes_of: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in facts:
        for fact in one.facts if one.when == "before" else ():
            if fact.role == "same" and fact.value is not None:
                own = nodes_of.setdefault((fact.group, fact.name), {})
                own.setdefault(fact.value, []).append(one.node)
    for key, own in nodes_of.items():
        # of equally many the first by name, so that a report does not change by itself
        yield key, dict(sorted(own.items(), key=lambda item: (-len(item[1]), item[0])))


def facts_findings(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    for fault in (fault for one in facts for fault in one.faults):
        yield Finding("fault", fault.what, f"{fault.found}; {fault.fix}", fault.nodes)
    for (_, name), nodes_of in _shared(facts):
        (usual, most), *others = nodes_of.items()
        odd = sorted((node, value) for value, nodes in others for node in nodes)
        grave = _is_grave(name)
        what = name if grave else "differs"
        if len(most) <= len(odd):
            said = "; ".join(f"{value} ({', '.join(nodes)})" for value, nodes in nodes_of.items())
            why = f"{name}: {said}: no majority shows which is right"
            yield Finding("open" if grave else "remark", what, why)
            continue
        for node, value in odd:
            why = f"{name}: {value}; elsewhere {usual}"
            yield Finding("fault" if grave else "remark", what, why, (node,))
    before = [one for one in facts if one.when == "before"]
    yield from _bad(before)
    yield from _grown(before, [one for one in facts if one.when == "after"])
    yield from _unknown(before)


def _bad(before: Sequence[NodeFacts]) -> Iterator[Finding]:
    """By what a node says, whatever the others say; all may have the same fault."""
    nodes_of: dict[tuple[Weight, str], list[str]] = {}
    for one in before:
        for fact in (fact for fact in one.facts if fact.value is not None):
            for weight, name, value, meaning in _BAD:
                if re.fullmatch(name, fact.name) and re.fullmatch(value, fact.value or ""):
                    said = f"{fact.name}: {fact.value}: {meaning}"
                    nodes_of.setdefault((weight, said), []).append(one.node)
    for (weight, said), nodes in nodes_of.items():
        if len(nodes) == len(before):
            yield Finding(weight, "state", f"{said}, on all nodes")
            continue
        for node in nodes:
            yield Finding(weight, "state", said, (node,))


def _grown(before: Sequence[NodeFacts], after: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Counters that are larger after the run than before it; those set back are left out."""
    counts = {(one.node, f.group, f.name): f.value
              for one in before for f in one.facts if f.role == "counter"}  # fmt: skip
    for node, fact in ((one.node, fact) for one in after for fact in one.facts):
        was, now = counts.get((node, fact.group, fact.name)), fact.value
        if not (was and now and was.isdecimal() and now.isdecimal()):
            continue
        by = int(now) - int(was)
        if by <= 0 or fact.name.endswith(_HARMLESS):
            continue
        few = fact.name.endswith(_SOME) and by <= _FEW
        why = f"{fact.name} grew by {by} during the run"
        if _counts_errors(fact.name) and not few:
            yield Finding("fault", "errors", why, (node,))
        else:
            yield Finding("remark", "counter", why, (node,))


def _unknown(before: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Facts that some nodes know and others do not, and what nobody may read: no fault, and no pass
    where it is what faults are known by."""
    known = {(f.group, f.name) for one in before for f in one.facts if f.value is not None}
    refused: dict[Weight, dict[str, str]] = {"open": {}, "remark": {}}
    for one in before:
        missing = []
        for fact in (fact for fact in one.facts if fact.value is None):
            if (fact.group, fact.name) in known:
                missing.append(fact)
            elif _is_refused(fact.why or ""):
                refused[_unread(fact.name)][fact.name] = fact.why or ""
        if missing:
            weight = min(_unread(fact.name) for fact in missing)  # open before remark
            names = ", ".join(fact.name for fact in missing)
            why = f"{names}: {missing[0].why}; other nodes report it"
            yield Finding(weight, "unknown", why, (one.node,))
    for weight, whys in refused.items():
        if whys:
            why = f"{', '.join(whys)}: {next(iter(whys.values()))}, and no other node reports it"
            yield Finding(weight, "unknown", why)


def _unread(name: str) -> Weight:
    """Faults are known by it, and who may not read it gets an error; but the kernel's log is root's
    nearly everywhere."""
    matters = _is_grave(name) or _counts_errors(name)
    return "open" if matters and not name.endswith(_OF_ROOT) else "remark"
