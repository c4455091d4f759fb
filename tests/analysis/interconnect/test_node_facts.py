"""Nodes side by side: differences against what most say, counters against what they were."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from analysis.interconnect.facts import facts_findings, facts_frame
from analysis.interconnect.verdict import judge
from analysis.table import plain_rows
from tests.analysis.interconnect.runs import facts_of, node_facts, run, tournament
from train.interconnect.facts.record import Fact, NetworkFault, NodeFacts


def test_the_odd_node_is_marked_against_the_mode() -> None:
    told = [node_facts(n, MTU="1400" if n == "c" else "1500", driver="mlx5") for n in "abcd"]
    verdict = judge(run(tournament(), facts=tuple(told)))
    (found,) = verdict.findings
    assert verdict.status == "FAIL"
    assert (found.nodes, found.evidence) == (("c",), "MTU: 1400; elsewhere 1500")


def test_what_keeps_nodes_from_talking_is_a_fault_of_both() -> None:
    fault = NetworkFault(
        what="MTU", nodes=("a", "b"), fix="set it",
        found="a -> b: packets of 9,000 bytes do not arrive, packets of 1,500 do",
    )  # fmt: skip
    first, *others = facts_of("abc", MTU="9000")
    told = (first.model_copy(update={"faults": (fault,)}), *others)
    verdict = judge(run(None, facts=told))
    assert verdict.status == "FAIL", "also where no pair could be measured"
    (found,) = [f for f in verdict.findings if f.weight == "fault"]
    assert (found.what, found.nodes) == ("MTU", ("a", "b")) and "1,500 do; set it" in found.evidence


def test_other_software_is_a_remark() -> None:
    told = [node_facts(n, kernel="6.1" if n == "a" else "6.2") for n in "abc"]
    (found,) = facts_findings(told)
    assert (found.weight, found.what, found.nodes) == ("remark", "differs", ("a",))


def test_what_a_node_does_not_know_is_never_equal() -> None:
    told = [node_facts(n, duplex=None if n == "b" else "full") for n in "abc"]
    (found,) = facts_findings(told)
    # it is one of those that faults are known by: no pass
    assert (found.weight, found.what, found.nodes) == ("open", "unknown", ("b",))
    (found,) = facts_findings([node_facts(n, kernel=None if n == "b" else "6.1") for n in "abc"])
    assert (found.weight, found.nodes) == ("remark", ("b",))
    # the table says that it is unknown
    assert list(facts_findings(facts_of("abc", duplex=None))) == []


def refused(node: str, name: str, why: str) -> NodeFacts:
    fact = Fact(group="infiniband", name=name, value=None, role="counter", why=why)
    return node_facts(node).model_copy(update={"facts": (fact,)})


def test_counters_that_nobody_may_read_are_no_pass() -> None:
    why = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error: Permission denied"
    (found,) = facts_findings([refused(n, "mlx5_0:1 symbol_error", why) for n in "abc"])
    assert (found.weight, found.nodes) == ("open", ()) and "Permission denied" in found.evidence
    # the kernel's log is root's nearly everywhere
    why = "dmesg ended with code 1: dmesg: read kernel buffer failed: Operation not permitted"
    (found,) = facts_findings([refused(n, "Xid errors", why) for n in "abc"])
    assert (found.weight, found.what) == ("remark", "unknown")
    missing = [refused(n, "mlx5_0:1 symbol_error", "symbol_error: No such file") for n in "abc"]
    assert list(facts_findings(missing)) == []


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_without_a_majority_nobody_is_the_odd_one(names: str) -> None:
    half = names[: len(names) // 2]
    told = tuple(node_facts(n, MTU="9000" if n in half else "1500") for n in names)
    (found,) = facts_findings(told)
    assert (found.weight, found.what, found.nodes) == ("open", "MTU", ())
    for group in (half, names[len(half) :]):
        assert f"({', '.join(group)})" in found.evidence


def test_errors_that_grow_during_the_run_are_a_fault_and_old_ones_are_not() -> None:
    told = [
        node_facts("a", received_errors="1000", sent_drops="5"),
        node_facts("a", "after", received_errors="1000", sent_drops="9"),
        node_facts("b", received_errors="0"),
        node_facts("b", "after", received_errors="3"),
        node_facts("c", received_errors="7"),
        node_facts("c", "after", received_errors="1"),  # set back
        node_facts("d", received_errors="7"),  # no second look
    ]
    found = {(f.weight, f.nodes, f.evidence) for f in facts_findings(told)}
    assert found == {
        ("remark", ("a",), "sent drops grew by 4 during the run"),
        ("fault", ("b",), "received errors grew by 3 during the run"),
    }


def test_two_odd_nodes_are_no_link() -> None:
    told = [node_facts(n, MTU="1400" if n in "cd" else "1500") for n in "abcde"]
    assert [f.nodes for f in facts_findings(told)] == [("c",), ("d",)]


@pytest.mark.parametrize(
    ("name", "value", "weight"),
    [
        ("mlx5_0 PCIe width", "8 of 16", "remark"),
        ("mlx5_0 PCIe width", "16", None),
        ("0 slowed down by", "hw_thermal_slowdown", "fault"),
        ("0 slowed down by", "sw_power_cap", None),
        ("0 slowed down by", "nothing", None),
        ("1 remapping pending", "Yes", "fault"),
        ("mlx5_1:1 state", "DOWN", "remark"),
        ("mlx5_1:1 physical state", "LinkUp", None),
        ("mlx5_1:1 state", "ACTIVE", None),
    ],
)
def test_what_all_nodes_have_wrong_is_wrong(name: str, value: str, weight: str | None) -> None:
    found = list(facts_findings(facts_of("ab", **{name.replace(" ", "_"): value})))
    assert [(f.weight, f.nodes) for f in found] == ([(weight, ())] if weight else [])


def test_a_host_name_that_does_not_lead_to_its_node_and_back_is_told() -> None:
    said = {"a": "yes", "b": "does not resolve", "c": "leads back to another name", "d": None,
            "e": "loopback: peers that are told this address talk to themselves",
            "f": "yes, but nothing leads back from the address"}  # fmt: skip
    told = [node_facts(node, when, **{"name_is_its_address's": value})
            for node, value in said.items() for when in ("before", "after")]  # fmt: skip
    found = [(f.weight, f.nodes) for f in facts_findings(told) if f.what == "state"]
    assert found == [("remark", ("b",)), ("remark", ("c",)), ("remark", ("e",))]


def test_an_adapter_in_a_narrower_slot_than_the_others_is_a_fault() -> None:
    told = [node_facts(n, mlx5_0_PCIe_width="8 of 16" if n == "b" else "16") for n in "abc"]
    assert [f.nodes for f in facts_findings(told) if f.weight == "fault"] == [("b",)]


@pytest.mark.parametrize(
    ("name", "by", "weight"),
    [("symbol error", 3, "remark"), ("symbol error", 300, "fault"), ("link downed", 1, "fault"),
     ("port rcv remote physical errors", 50, "remark")],
)  # fmt: skip
def test_ports_may_make_a_few_errors(name: str, by: int, weight: str) -> None:
    full = f"mlx5_0:1 {name.replace(' ', '_')}"
    told = [
        NodeFacts(node="a", when=when, taken_at=datetime(2026, 1, 2, tzinfo=UTC), interface="ib0",
                  facts=(Fact(group="infiniband", name=full, value=str(value), role="counter"),))
        for when, value in (("before", 100), ("after", 100 + by))
    ]  # fmt: skip
    assert [f.weight for f in facts_findings(told)] == [weight]


def test_the_table_keeps_what_is_unknown_and_why() -> None:
    frame = facts_frame([node_facts("a", MTU="1500", duplex=None)])
    assert list(frame["name"]) == ["MTU", "duplex"]
    assert [row["why"] for row in plain_rows(frame)] == [None, "not told"]
    assert facts_frame([]).empty
