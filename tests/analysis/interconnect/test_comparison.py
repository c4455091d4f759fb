"""A run against a baseline."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analysis.interconnect.baseline import baseline_of, keep, read_baseline
from analysis.interconnect.finding import Finding, Verdict
from analysis.interconnect.run import Run, RunError
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    HEALTHY,
    collectives,
    facts_of,
    leaves,
    measurement,
    retest,
    run,
    series,
    tournament,
)
from train.interconnect.collectives.record import Carried
from train.interconnect.record import Noise

NOW = datetime(2026, 1, 20, tzinfo=UTC)
FACTS = facts_of("abcd", MTU="1500", driver="mlx5_core")
GOOD = run(tournament(), facts=FACTS)
ALL_SLOW = {("*", n): 0.5 for n in "abcd"}
EIGHT = "abcdefgh"


def judged(found: Run, before: Run = GOOD, now: datetime = NOW, *, force: bool = False) -> Verdict:
    return judge(found, baseline_of(before), now=now, force=force)


def told(verdict: Verdict, what: str = "") -> list[Finding]:
    """What is no remark, or of this name."""
    return [f for f in verdict.findings if (f.what == what if what else f.weight != "remark")]


def eight(**fields: Any) -> Run:
    return run(tournament(EIGHT, **fields), facts=facts_of(EIGHT, MTU="1500", driver="mlx5_core"))


def test_a_fabric_that_is_slow_as_a_whole_only_fails_against_its_baseline() -> None:
    slow = run(tournament(slow=ALL_SLOW), facts=FACTS)
    assert judge(slow).status == "PASS"
    (fault,) = told(judged(slow))
    assert (fault.weight, fault.what) == ("fault", "fabric")
    assert fault.ratio == pytest.approx(0.5)
    assert judged(GOOD).status == "PASS"


def test_two_nodes_alone_can_be_judged_by_a_baseline() -> None:
    two = run(tournament("ab"), facts=FACTS[:2])
    assert judge(two).status == "UNDECIDED"
    assert judged(two).status == "PASS"
    slow = run(tournament("ab", slow={("a", "b"): 0.5, ("b", "a"): 0.5}), facts=FACTS[:2])
    assert judged(slow).status == "FAIL"
    # an interval that leaves it open does not free them
    mixed = run(tournament("ab", slow={("a", "b"): 0.5}), facts=FACTS[:2])
    assert judged(mixed, two).status == "UNDECIDED"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("confirmed", "FAIL"), ("recovered", "PASS"), ("cpu", "UNDECIDED"), (None, "UNDECIDED")],
)
def test_what_a_node_does_alone_decides_with_a_baseline_too(outcome: str, status: str) -> None:
    again = (retest("send", ("c",), 0.5, outcome),) if outcome else ()
    slow = run(tournament(slow={("c", "*"): 0.5}, retests=again), facts=FACTS)
    assert judge(slow).status == judged(slow).status == status
    assert {(f.what, f.nodes) for f in told(judged(slow))} <= {("send", ("c",)), ("cpu", ("c",))}
    other = (retest("receive", ("c",), 0.5, "recovered"),)
    slow = run(tournament(slow={("c", "*"): 0.5}, retests=other), facts=FACTS)
    said = [f for f in judged(slow).findings if "not retested" in f.evidence]
    assert any("what it sends" in f.evidence for f in said), "the other direction was tried"


def test_a_baseline_of_another_environment_is_refused_with_the_difference() -> None:
    def why_not(found: Run, before: Run = GOOD, now: datetime = NOW) -> str:
        verdict = judged(found, before, now)
        (finding,) = told(verdict)
        assert (verdict.status, finding.what) == ("UNDECIDED", "baseline")
        return finding.evidence.removeprefix("not comparable with r1: ")

    other = run(tournament(), facts=facts_of("abcd", MTU="9000", driver="mlx5_core"))
    assert why_not(other) == "network: MTU: 1500 then, 9000 now"
    assert why_not(run(tournament())).startswith("this run has no preflight")
    assert why_not(GOOD, run(tournament())).startswith("it has no preflight")
    many = run(tournament(streams=16), facts=FACTS)
    assert why_not(many) == "its pairs used 1 connections, this run's 16"
    nodes = tuple(node.model_copy(update={"interface": "ib0"}) for node in GOOD.tournament.nodes)
    assert why_not(run(tournament(nodes=nodes), facts=FACTS)).endswith("eth0, this run over ib0")
    old = why_not(GOOD, now=NOW + timedelta(days=200))
    assert old == "it is 218 days old, expected at most 90: keep a new one"


def test_other_hardware_is_compared_by_force_and_the_difference_is_told() -> None:
    facts = facts_of("abcd", MTU="9000", driver="mlx5_core")
    verdict = judged(run(tournament(slow=ALL_SLOW), facts=facts), force=True)
    assert verdict.status == "FAIL"
    (forced,) = told(verdict, "forced")
    assert "MTU: 1500 then, 9000 now" in forced.evidence
    strangers = run(tournament("wxyz"), facts=facts_of("wxyz", MTU="1500", driver="mlx5_core"))
    for force in (False, True):
        (found,) = told(judged(strangers, force=force))
        assert found.weight == "open" and "no pair of nodes" in found.evidence


def test_fewer_pairs_at_once_than_there_were_is_no_pass() -> None:
    good, crowded = (eight(company=company) for company in (4, 1))
    verdict = judged(crowded, good)
    (found,) = told(verdict, "concurrency")
    assert (verdict.status, found.weight) == ("UNDECIDED", "open")
    assert "up to 4 pairs ran at the same time without loss" in found.evidence
    assert judged(crowded, good, force=True).status == "PASS"
    assert judged(good, crowded).status == "PASS"
    assert judged(GOOD, good).status == "PASS", "fewer nodes"


def test_a_baseline_survives_the_disk_and_a_broken_one_is_told(tmp_path: Path) -> None:
    file = tmp_path / "new" / "baseline.json"
    keep(baseline_of(GOOD), file)
    assert read_baseline(file) == baseline_of(GOOD)
    file.write_text("{}")
    with pytest.raises(RunError, match=r"run: Field required\. Replace it: .* FORCE=1"):
        read_baseline(file)
    with pytest.raises(RunError, match="no such file"):
        read_baseline(tmp_path / "none.json")
    with pytest.raises(RunError, match="cannot be read"):
        read_baseline(tmp_path)
    with pytest.raises(RunError, match="measured no pairs"):
        baseline_of(run(None))


LEAVES = leaves("abcd", "efgh")
ACROSS = {(a, b): 0.5 for a in EIGHT for b in EIGHT if LEAVES[a] != LEAVES[b]}


def with_uplinks(
    *shares: float, wide: int = 4, crossing: float | None = None, node: str = "", **fields: Any
) -> Run:
    """shares: of the rate, in each round of whole leaves to each other. node: at half of it."""
    found = tournament(EIGHT, switches=LEAVES, **fields)
    crossed = tuple(
        measurement(a, b, share * HEALTHY / (2 if node and node in a + b else 1), phase="uplinks")
        for share in shares or (1.0,)
        for one, other in (("abcd", "efgh"), ("efgh", "abcd"))
        for a, b in zip(one[:wide], other[:wide], strict=True)
    )
    decision = found.decision.model_copy(update={"crossing": crossing})
    more = {"measurements": (*found.measurements, *crossed), "decision": decision}
    return replace(eight(), tournament=found.model_copy(update=more))


def test_all_that_is_between_two_leaves_got_slower() -> None:
    (fault,) = told(judged(with_uplinks(slow=ACROSS), with_uplinks()))
    assert (fault.weight, fault.what) == ("fault", "fabric")
    assert fault.ratio == pytest.approx(0.5)
    assert fault.evidence.startswith("pairs across leaf switches reach 0.50")
    # where no switch is known, half of the pairs are slower
    (found,) = told(judged(eight(slow=ACROSS), eight()))
    assert (found.weight, found.what) == ("open", "fabric")
    assert found.ratio == pytest.approx(0.5)


def test_uplinks_are_held_against_the_baseline_too() -> None:
    good = with_uplinks(1.0, 0.95, 0.98)
    assert judged(with_uplinks(0.97, 1.0, 0.96), good).status == "PASS"
    (fault,) = told(judged(with_uplinks(0.6, 0.58, 0.6), good))
    assert fault.weight == "fault"
    assert fault.evidence.startswith("whole leaf switches to each other reach 0.61")
    assert "2 of 2 ways less in every round" in fault.evidence
    slow_node = with_uplinks(1.0, 1.0, 1.0, node="c")
    assert judged(slow_node, good).status == "PASS", "a slow node of a leaf is no slow uplink"
    # routes may have met in some rounds; another number of pairs over the same uplink
    assert judged(with_uplinks(0.6, 0.96, 0.6), good).status == "UNDECIDED"
    assert judged(with_uplinks(0.6, 0.58, 0.6, wide=2), good).status == "PASS"


def test_two_leaves_that_are_alone_are_judged_by_a_baseline_of_their_uplinks() -> None:
    found = with_uplinks(0.5, 0.5, 0.5, crossing=0.5)
    assert judge(found).status == "UNDECIDED"
    assert judged(found, with_uplinks(0.5, 0.5, 0.5)).status == "PASS"
    assert judged(found).status == "UNDECIDED", "the rates of pairs say nothing of uplinks"


def test_a_node_of_a_small_leaf_is_judged_by_all_its_pairs() -> None:
    """Within its leaf it has one pair, whose samples do not know what differs from run to run."""
    uneven = leaves("abcdef", "gh")
    before = eight(switches=uneven)
    odd = judged(eight(slow={("g", "h"): 0.88}, switches=uneven), before)
    assert not [f for f in told(odd) if "baseline" in f.evidence]
    slow = judged(eight(slow={("g", "*"): 0.6}, switches=uneven), before)
    assert {(f.weight, f.what, f.nodes) for f in told(slow) if "baseline" in f.evidence} == {
        ("open", "send", ("g",))
    }


def with_collectives(
    slower: float = 1.0, port: int | None = None, sent: int = 10**9, **changes: object
) -> Run:
    """A slow series takes too long for its largest size."""
    carried = (Carried(host="a", interface="eth0", received_bytes=10**9, sent_bytes=sent,
                       port_sent_bytes=port),)  # fmt: skip
    sizes = slice(None) if slower == 1 else slice(None, -1)
    theirs = [
        one.model_copy(update={"points": one.points[sizes]})
        for one in (
            series("horovod", slower=slower, carried=carried, payload_bytes=10**8),
            series("horovod", "all_gather", slower=slower),
        )
    ]
    found = collectives(series("raw"), *theirs, **changes)
    return run(tournament(), facts=FACTS, collectives=found)


def test_collectives_that_got_slower_fail_though_all_pairs_are_as_they_were() -> None:
    good, slow = with_collectives(), with_collectives(20.0)
    assert judged(good, good).status == "PASS"
    (fault,) = told(judged(slow, good))
    assert fault.weight == "fault"
    assert "collectives by horovod reach 0.05 (0.05 to 0.05) of" in fault.evidence
    # ranks that share cores wait for each other
    assert judged(with_collectives(20.0, oversubscribed=True), good).status == "PASS"
    assert judged(GOOD, good).status == "PASS", "another phase was not asked for"
    other = judged(with_collectives(20.0, controller="mpi"), good)
    assert other.status == "PASS" and "not compared: 4 ranks on 4 nodes, gloo" in str(other)
    assert judged(with_collectives(20.0, sent=10**6), good).status == "UNDECIDED", "another way"
    noise = Noise(pair=("a", "b"), cv=0.2, together=1.0)
    assert judged(replace(slow, tournament=tournament(noise=noise)), good).status == "UNDECIDED"


def test_one_common_collective_has_no_interval_and_is_no_fault() -> None:
    def alone(slower: float) -> Run:
        found = collectives(series("raw"), series("horovod", slower=slower))
        return run(tournament(), facts=FACTS, collectives=found)

    assert judged(alone(1.0), alone(1.0)).status == "PASS"
    (found,) = told(judged(alone(20.0), alone(1.0)))
    assert (found.weight, found.what) == ("open", "collectives")
    assert "reach 0.05 of the speed of baseline r1; a single value, so" in found.evidence


def test_a_data_plane_that_fell_back_to_sockets_is_a_fault() -> None:
    good = with_collectives(port=10**8)
    assert judged(good, good).status == "PASS"
    verdict = judged(with_collectives(port=0), good)
    assert verdict.status == "FAIL"
    assert [(f.weight, f.what) for f in told(verdict)] == [("fault", "RDMA")]
    assert judged(with_collectives(port=None), good).status == "UNDECIDED", "ports not counted"
    assert judged(with_collectives(port=0, controller="mpi"), good).status == "FAIL"
