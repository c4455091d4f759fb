"""Findings by what nodes say of themselves: differences, bad states, errors, what is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from analysis.interconnect.judge.finding import Finding, Weight
from analysis.interconnect.load.facts import (
    Difference,
    counts_errors,
    differences,
    growths,
    is_grave,
)
from train.interconnect.facts.record import NodeFacts

#: What no healthy node says, whatever the others say: a pattern of the fact's name, one of its
#: value, and what it means.
_BAD = (
    (r"\d+ remapping pending", r"(?i)yes", "the GPU is to be reset before its memory is sound"),
    (r"\d+ slowed down by", r".*(hw_|thermal).*", "hardware slows the GPU down"),
)
#: What may be meant so: a port that nothing is plugged into, an adapter in an older slot.
_ODD = (
    (r" (physical )?state", r"(?i)(?!active|linkup).+", "a port without a link"),
    (r" PCIe (width|speed)", r".+ of .+", "below what the adapter can, as its slot may be"),
)
_HARMLESS = " port_xmit_wait"  # congestion, counted by design
#: A user who may not read counters gets an error with these words.
_REFUSED = re.compile(r"(?i)permission denied|not permitted|may not be run").search
#: In the kernel's log, which is root's on most systems.
_OF_ROOT = "Xid errors"
_GOOD_NAMES = ("yes", "yes, but nothing leads back from the address")


def facts_findings(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    for fault in (fault for one in facts for fault in one.faults):
        evidence = f"{fault.found}; {fault.fix}"
        yield Finding(weight="fault", what=fault.what, nodes=fault.nodes, evidence=evidence)
    for difference in differences(facts):
        if not difference.is_clear:
            yield _divided(difference)
            continue
        for node, value in sorted(difference.others.items()):
            yield Finding(
                weight="fault" if difference.is_grave else "remark",
                what=difference.name if difference.is_grave else "differs",
                nodes=(node,),
                evidence=f"{difference.name}: {value}; elsewhere {difference.usual}",
            )
    yield from _bad(facts)
    for grown in growths(facts):
        if grown.name.endswith(_HARMLESS) or grown.name == "TCP segments sent again":
            continue  # shapers and congestion make these; the curves show what they cost
        yield Finding(
            weight="fault" if grown.is_error else "remark",
            what="errors" if grown.is_error else "counter",
            nodes=(grown.node,),
            evidence=f"{grown.name} grew by {grown.by} during the run",
        )
    yield from _unknown(facts)
    yield from _names(facts)


def _divided(difference: Difference) -> Finding:
    saying: dict[str, list[str]] = {difference.usual: sorted(difference.agree)}
    for node, value in sorted(difference.others.items()):
        saying.setdefault(value, []).append(node)
    groups = "; ".join(f"{value} ({', '.join(nodes)})" for value, nodes in saying.items())
    return Finding(
        weight="open" if difference.is_grave else "remark",
        what=difference.name if difference.is_grave else "differs",
        evidence=f"{difference.name}: {groups}: no majority shows which is right",
    )


def _bad(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """By what a node says, whatever the others say; all may have the same fault."""
    weights: tuple[tuple[Weight, tuple[tuple[str, str, str], ...]], ...] = (
        ("fault", _BAD), ("remark", _ODD),
    )  # fmt: skip
    before = [one for one in facts if one.when == "before"]
    saying: dict[tuple[Weight, str], list[str]] = {}
    for one in before:
        for fact in one.facts:
            for weight, patterns in weights:
                for name, value, meaning in patterns:
                    named = fact.value is not None and re.search(f"{name}$", fact.name)
                    if named and re.fullmatch(value, fact.value or ""):
                        said = f"{fact.name}: {fact.value}: {meaning}"
                        saying.setdefault((weight, said), []).append(one.node)
    for (weight, said), nodes in saying.items():
        if len(nodes) == len(before):
            yield Finding(weight=weight, what="state", evidence=f"{said}, on all nodes")
            continue
        for node in nodes:
            yield Finding(weight=weight, what="state", nodes=(node,), evidence=said)


def _names(facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    for one in facts:
        for fact in one.facts:
            asked = one.when == "before" and fact.name == "name is its address's"
            if asked and fact.value not in (None, *_GOOD_NAMES):
                yield Finding(weight="remark", what="name", nodes=(one.node,),
                              evidence=f"its host name: {fact.value}")  # fmt: skip


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
            yield Finding(weight="open" if matters else "remark", what="unknown", nodes=(one.node,),
                          evidence=f"{names}: {missing[0].why}; other nodes report it")  # fmt: skip
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
            yield Finding(weight=weight, what="unknown", evidence=why)


def _unread(name: str) -> Weight:
    """Faults are known by it, and who may not read it gets an error; but the kernel's log is root's
    nearly everywhere."""
    matters = is_grave(name) or counts_errors(name)
    return "open" if matters and not name.endswith(_OF_ROOT) else "remark"
