"""Nodes side by side: differences against what most say, counters against what they were."""

from __future__ import annotations

import pytest

from analysis.interconnect.facts import facts_findings, facts_frame
from analysis.table import plain_rows
from tests.analysis.interconnect.runs import node_facts
from train.interconnect.facts.record import NodeFacts

WIDTH, STATE, ADDRESS = "mlx5_0 PCIe width", "mlx5_1:1 state", "name is its address's"


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("MTU", "1500|1500|1400|1500", "fault MTU c"),
        ("MTU", "1500|1500|1400|1400|1500", "fault MTU c, fault MTU d"),  # which are no link
        (WIDTH, "16|8 of 16|16", "fault mlx5_0 PCIe width b, remark state b"),
        ("kernel", "6.1|6.2|6.2", "remark differs a"),
        # without a majority nobody is the odd one
        ("MTU", "9000|9000|1500|1500", "open MTU "),
        # what a node does not know is never equal; no pass, where faults are known by it
        ("duplex", "full|?|full", "open unknown b"),
        ("kernel", "6.1|?|6.1", "remark unknown b"),
        ("duplex", "?|?|?", ""),  # the table says that it is unknown
        # what all nodes have wrong is wrong
        (WIDTH, "8 of 16|8 of 16", "remark state "),
        ("0 slowed down by", "hw_thermal_slowdown|hw_thermal_slowdown", "fault state "),
        ("0 slowed down by", "sw_power_cap|sw_power_cap", ""),
        ("1 remapping pending", "Yes|Yes", "fault state "),
        (STATE, "DOWN|DOWN", "remark state "),
        (STATE, "ACTIVE|ACTIVE", ""),
        ("mlx5_1:1 physical state", "LinkUp|LinkUp", ""),
        (ADDRESS, "does not resolve|does not resolve", "remark state "),
        (ADDRESS, "yes, but nothing leads back|yes, but nothing leads back", ""),
        (ADDRESS, "yes|yes|loopback: peers talk to themselves",
         "remark differs c, remark state c"),
        (ADDRESS, "?|?", ""),
    ],
)  # fmt: skip
def test_nodes_are_compared_with_what_most_say(name: str, values: str, found: str) -> None:
    told = [node_facts(node, when, **{name: None if value == "?" else value})
            for when in ("before", "after")
            for node, value in zip("abcdef", values.split("|"), strict=False)]  # fmt: skip
    findings = list(facts_findings(told))
    assert ", ".join(f"{f.weight} {f.what} {''.join(f.nodes)}" for f in findings) == found


def test_a_fault_is_of_all_nodes_where_all_say_it() -> None:
    silent = node_facts("b").model_copy(update={"facts": ()})
    (found,) = facts_findings([node_facts("a", **{"0 remapping pending": "Yes"}), silent])
    assert found.nodes == ("a",) and "all nodes" not in found.evidence


def test_evidence_says_who_reports_what() -> None:
    told = [node_facts(n, MTU=mtu) for n, mtu in zip("abcd", ("9000", "1500") * 2, strict=True)]
    assert [one.evidence for found in (told, told[:3]) for one in facts_findings(found)] == [
        "MTU: 1500 (b, d); 9000 (a, c): no majority shows which is right",
        "MTU: 1500; elsewhere 9000",
    ]


@pytest.mark.parametrize(
    ("name", "why", "weights"),
    [
        ("mlx5_0:1 symbol_error", "counters/symbol_error: Permission denied", ["open"]),
        ("mlx5_0:1 symbol_error", "symbol_error: No such file", []),
        # the kernel's log is root's nearly everywhere
        ("Xid errors", "dmesg: read kernel buffer failed: Operation not permitted", ["remark"]),
    ],
)
def test_counters_that_nobody_may_read_are_no_pass(name: str, why: str, weights: list[str]) -> None:
    def refused(node: str) -> NodeFacts:
        made = node_facts(node, **{name: None})
        return made.model_copy(update={"facts": (made.facts[0].model_copy(update={"why": why}),)})

    found = list(facts_findings([refused(node) for node in "abc"]))
    assert [(f.weight, f.what, f.nodes) for f in found] == [(w, "unknown", ()) for w in weights]
    assert all(why in f.evidence for f in found)


@pytest.mark.parametrize(
    ("name", "before", "after", "found"),
    [
        ("received errors", "0", "3", "fault errors a: received errors grew by 3 during the run"),
        ("received errors", "1000", "1000", ""),
        ("received errors", "7", "1", ""),  # set back
        ("received errors", "7", None, ""),  # no second look
        ("sent drops", "5", "9", "remark counter a: sent drops grew by 4 during the run"),
        # ports may make a few errors
        ("symbol_error", "100", "103", "remark counter"),
        ("symbol_error", "100", "400", "fault errors"),
        ("link_downed", "100", "101", "fault errors"),
        ("port_rcv_remote_physical_errors", "100", "150", "remark counter"),
        ("port_xmit_wait", "100", "150", ""),  # congestion
    ],
)
def test_errors_that_grow_during_the_run(
    name: str, before: str, after: str | None, found: str
) -> None:
    full = name if " " in name else f"mlx5_0:1 {name}"
    told = [node_facts("a", **{full: before}), node_facts("a", "after", **{full: after})]
    said = [f"{f.weight} {f.what} {''.join(f.nodes)}: {f.evidence}" for f in facts_findings(told)]
    assert len(said) == bool(found) and all(one.startswith(found) for one in said)


def test_the_table_keeps_what_is_unknown_and_why() -> None:
    frame = facts_frame([node_facts("a", MTU="1500", duplex=None)])
    assert list(frame["name"]) == ["MTU", "duplex"]
    assert [row["why"] for row in plain_rows(frame)] == [None, "not told"]
    assert facts_frame([]).empty
