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
_REFUSED = r"(?i).*(permission denied|not permitted|may not be run)"
#: In the kernel's log, which is root's on most systems.
_OF_ROOT = "Xid errors"


def facts_frame(facts: Sequence[NodeFacts]) -> pd.DataFrame:
    """One row per node, time and fact, as train.interconnect.facts.record describes them."""
    rows = [
        {"node": one.node, "when": one.when, **dict(fact)} for one in facts for fact in one.facts
    ]
    return pd.DataFrame(rows, columns=["node", "when", *Fact.model_fields])


def reported(facts: Sequence[NodeFacts]) -> dict[str, dict[tuple[str, str], str]]:
    """Node -> group and name -> value, before the run; without what is unknown."""
    return {
        one.node: {(f.group, f.name): f.value for f in one.facts if f.value is not None}
        for one in facts
        if one.when == "before"
    }


def mtus(facts: Sequence[NodeFacts]) -> dict[str, int]:
    told = {node: own.get(("network", "MTU"), "") for node, own in reported(facts).items()}
    return {node: int(mtu) for node, mtu in told.items() if mtu.isdecimal()}


def environment(facts: Sequence[NodeFacts]) -> dict[str, str]:
    """``group: name`` -> what most nodes say, of facts that equal nodes share."""
    return {f"{group}: {name}": next(iter(nodes)) for (group, name), nodes in _shared(facts)}


def _shared(facts: Sequence[NodeFacts]) -> Iterator[tuple[tuple[str, str], dict[str, list[str]]]]:
    """Group and name, and value -> nodes that report it, the most usual value first. Facts that are
    unknown on a node say nothing about it."""
    known = facts_frame(facts).query("when == 'before' and role == 'same'").dropna(subset="value")
    for (group, name), own in known.groupby(["group", "name"], sort=False):
        nodes_of = {str(value): [*nodes] for value, nodes in own.groupby("value")["node"]}
        # of equally many the first by name, so that a report does not change by itself
        most_first = sorted(nodes_of.items(), key=lambda item: -len(item[1]))
        yield (str(group), str(name)), dict(most_first)


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
    frame = facts_frame(facts)
    before, after = frame.query("when == 'before'"), frame.query("when == 'after'")
    yield from _bad(before, sum(one.when == "before" for one in facts))
    yield from _grown(before, after)
    yield from _unknown(before)


def _bad(before: pd.DataFrame, nodes: int) -> Iterator[Finding]:
    """By what a node says, whatever the others say; all ``nodes`` may have the same fault."""
    for weight, name, value, meaning in _BAD:
        matches = [before[column].str.fullmatch(pattern).eq(other=True)
                   for column, pattern in (("name", name), ("value", value))]  # fmt: skip
        for (fact, found), own in before[matches[0] & matches[1]].groupby(["name", "value"]):
            said = f"{fact}: {found}: {meaning}"
            if len(own) == nodes:
                yield Finding(weight, "state", f"{said}, on all nodes")
                continue
            for node in own["node"]:
                yield Finding(weight, "state", said, (node,))


def _grown(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[Finding]:
    """Counters that are larger after the run than before it; those set back are left out."""
    counters = before.query("role == 'counter'")
    both = counters.merge(after, on=["node", "group", "name"], suffixes=("_then", "_now"))
    now, then = (pd.to_numeric(both[f"value_{at}"], errors="coerce") for at in ("now", "then"))
    for node, name, by in zip(both["node"], both["name"], now - then, strict=True):
        if not by > 0 or name.endswith(_HARMLESS):  # not so, too, where either is unknown
            continue
        few = name.endswith(_SOME) and by <= _FEW
        fault = _counts_errors(name) and not few
        why = f"{name} grew by {by:.0f} during the run"
        yield Finding(*(("fault", "errors") if fault else ("remark", "counter")), why, (node,))


def _unknown(before: pd.DataFrame) -> Iterator[Finding]:
    """Facts that some nodes know and others do not, and what nobody may read: no fault, and no pass
    where it is what faults are known by."""
    known = before.groupby(["group", "name"])["value"].transform("count") > 0
    missing = before[before["value"].isna()]
    refused = missing[~known.loc[missing.index] & missing["why"].str.match(_REFUSED).eq(other=True)]
    for node, own in missing[known.loc[missing.index]].groupby("node"):
        yield _unread(own, "other nodes report it", (str(node),))
    if len(refused):
        yield _unread(refused, "and no other node reports it")


def _unread(facts: pd.DataFrame, others: str, nodes: tuple[str, ...] = ()) -> Finding:
    """Faults are known by some of them, and who may not read these gets an error; but the kernel's
    log is root's nearly everywhere."""
    names = [*facts["name"].unique()]
    matters = any((_is_grave(n) or _counts_errors(n)) and not n.endswith(_OF_ROOT) for n in names)
    why = f"{', '.join(names)}: {facts['why'].iloc[0]}; {others}"
    return Finding("open" if matters else "remark", "unknown", why, nodes)
