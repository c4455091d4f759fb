"""A run against a baseline."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analysis.interconnect.baseline import baseline_of, keep, read_baseline
from analysis.interconnect.comparison import against_baseline
from analysis.interconnect.finding import Finding, Verdict
from analysis.interconnect.run import Run, RunError
from analysis.interconnect.verdict import Yardstick, judge
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
FACTS8 = facts_of(EIGHT, MTU="1500", driver="mlx5_core")


def fault_of(verdict: Verdict) -> Finding:
    (fault,) = [f for f in verdict.findings if f.weight == "fault"]
    return fault


def yard(**more: object) -> Yardstick:
    return Yardstick(**({"baseline": baseline_of(GOOD), "now": NOW} | more))


def test_a_fabric_that_is_slow_as_a_whole_only_fails_against_its_baseline() -> None:
    slow = run(tournament(slow=ALL_SLOW), facts=FACTS)
    assert judge(slow).status == "PASS"
    verdict = judge(slow, yard())
    fault = fault_of(verdict)
    assert fault.what == "fabric" and fault.ratio == pytest.approx(0.5)
    assert judge(GOOD, yard()).status == "PASS"


def test_two_nodes_alone_can_be_judged_by_a_baseline() -> None:
    two = run(tournament("ab"), facts=FACTS[:2])
    assert judge(two).status == "UNDECIDED"
    assert judge(two, yard()).status == "PASS"
    slow = run(tournament("ab", slow={("a", "b"): 0.5, ("b", "a"): 0.5}), facts=FACTS[:2])
    assert judge(slow, yard()).status == "FAIL"


def test_a_node_that_got_slower_than_the_fabric_is_named() -> None:
    slow = run(tournament(slow={("c", "*"): 0.5}), facts=FACTS)
    found = {(f.weight, f.what, f.nodes) for f in against_baseline(slow, baseline_of(GOOD), NOW)
             if f.weight != "remark"}  # fmt: skip
    assert found == {("open", "send", ("c",))}, "alone it was not tried"


@pytest.mark.parametrize(
    ("outcome", "status"), [("confirmed", "FAIL"), ("recovered", "PASS"), ("cpu", "UNDECIDED")]
)
def test_what_a_node_does_alone_decides_with_a_baseline_too(outcome: str, status: str) -> None:
    again = (retest("send", ("c",), 0.5, outcome),)
    slow = run(tournament(slow={("c", "*"): 0.5}, retests=again), facts=FACTS)
    assert judge(slow).status == judge(slow, yard()).status == status
    other = (retest("receive", ("c",), 0.5, "recovered"),)
    slow = run(tournament(slow={("c", "*"): 0.5}, retests=other), facts=FACTS)
    said = [f for f in judge(slow, yard()).findings if "not retested" in f.evidence]
    assert any("what it sends" in f.evidence for f in said), "the other direction was tried"


def test_an_expired_baseline_decides_nothing() -> None:
    verdict = judge(GOOD, yard(now=NOW + timedelta(days=200)))
    assert verdict.status == "UNDECIDED"
    assert "218 days old, expected at most 90" in verdict.findings[-1].evidence


def why_not(found: Run, before: Run = GOOD) -> str:
    (finding,) = against_baseline(found, baseline_of(before), NOW)
    assert (finding.weight, finding.what) == ("open", "baseline")
    return finding.evidence.removeprefix("not comparable with r1: ")


def test_other_hardware_is_refused_with_the_difference() -> None:
    other = run(tournament(), facts=facts_of("abcd", MTU="9000", driver="mlx5_core"))
    assert why_not(other) == "network: MTU: 1500 then, 9000 now"
    assert why_not(run(tournament())).startswith("this run has no preflight")
    assert why_not(GOOD, run(tournament())).startswith("it has no preflight")
    many = run(tournament(streams=16), facts=FACTS)
    assert why_not(many) == "its pairs used 1 connections, this run's 16"


def test_other_hardware_is_compared_by_force_and_the_difference_is_told() -> None:
    facts = facts_of("abcd", MTU="9000", driver="mlx5_core")
    other = run(tournament(slow=ALL_SLOW), facts=facts)
    verdict = judge(other, yard(force=True))
    assert verdict.status == "FAIL"
    (forced,) = [f for f in verdict.findings if f.what == "forced"]
    assert "MTU: 1500 then, 9000 now" in forced.evidence


def test_fewer_pairs_at_once_than_there_were_is_no_pass() -> None:
    good, crowded = (run(tournament(EIGHT, company=c), facts=FACTS8) for c in (4, 1))
    verdict = judge(crowded, yard(baseline=baseline_of(good)))
    assert verdict.status == "UNDECIDED"
    (found,) = [f for f in verdict.findings if f.what == "concurrency"]
    assert "up to 4 pairs ran at the same time without loss" in found.evidence
    assert judge(crowded, yard(baseline=baseline_of(good), force=True)).status == "PASS"
    assert judge(good, yard(baseline=baseline_of(crowded))).status == "PASS"
    assert judge(GOOD, yard(baseline=baseline_of(good))).status == "PASS", "fewer nodes"


def test_other_nodes_are_refused() -> None:
    strangers = run(tournament("wxyz"), facts=facts_of("wxyz", MTU="1500", driver="mlx5_core"))
    for force in (False, True):
        verdict = judge(strangers, yard(force=force))
        assert verdict.status == "UNDECIDED"
        assert "no pair of nodes" in verdict.findings[-1].evidence


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


def with_uplinks(shares: tuple[float, ...] = (1.0,), wide: int = 4, **fields: Any) -> Run:
    """shares: of the rate, in each round of whole leaves to each other."""
    found = tournament(EIGHT, switches=LEAVES, **fields)
    crossing = tuple(
        measurement(a, b, share * HEALTHY, phase="uplinks")
        for share in shares
        for one, other in (("abcd", "efgh"), ("efgh", "abcd"))
        for a, b in zip(one[:wide], other[:wide], strict=True)
    )
    more = {"measurements": (*found.measurements, *crossing)}
    return run(found.model_copy(update=more), facts=FACTS8)


def test_all_that_is_between_two_leaves_got_slower() -> None:
    verdict = judge(with_uplinks(slow=ACROSS), yard(baseline=baseline_of(with_uplinks())))
    fault = fault_of(verdict)
    assert fault.what == "fabric" and fault.ratio == pytest.approx(0.5)
    assert fault.evidence.startswith("pairs across leaf switches reach 0.50")


def test_uplinks_are_held_against_the_baseline_too() -> None:
    good = yard(baseline=baseline_of(with_uplinks((1.0, 0.95, 0.98))))
    assert judge(with_uplinks((0.97, 1.0, 0.96)), good).status == "PASS"
    verdict = judge(with_uplinks((0.6, 0.58, 0.6)), good)
    fault = fault_of(verdict)
    assert fault.evidence.startswith("whole leaf switches to each other reach 0.61")
    # a slow node of a leaf is no slow uplink
    one = with_uplinks((1.0, 1.0, 1.0))
    slower = tuple(
        m.model_copy(update={"rates": tuple(r / 2 for r in m.rates)})
        if m.phase == "uplinks" and "c" in (m.sender, m.receiver) else m
        for m in one.tournament.measurements
    )  # fmt: skip
    one = replace(one, tournament=one.tournament.model_copy(update={"measurements": slower}))
    assert judge(one, good).status == "PASS"
    assert "2 of 2 ways less in every round" in fault.evidence
    # routes may have met in some rounds; another number of pairs over the same uplink
    assert judge(with_uplinks((0.6, 0.96, 0.6)), good).status == "UNDECIDED"
    assert judge(with_uplinks((0.6, 0.58, 0.6), wide=2), good).status == "PASS"


def test_two_leaves_that_are_alone_are_judged_by_a_baseline_of_their_uplinks() -> None:
    shares = (0.5, 0.5, 0.5)
    found = with_uplinks(shares)
    decision = found.tournament.decision.model_copy(update={"crossing": 0.5})
    found = replace(found, tournament=found.tournament.model_copy(update={"decision": decision}))
    assert judge(found).status == "UNDECIDED"
    assert judge(found, yard(baseline=baseline_of(with_uplinks(shares)))).status == "PASS"
    assert judge(found, yard()).status == "UNDECIDED", "the rates of pairs say nothing of uplinks"


def test_a_node_of_a_small_leaf_is_judged_by_all_its_pairs() -> None:
    """Within its leaf it has one pair, whose samples do not know what differs from run to run."""
    uneven = leaves("abcdef", "gh")
    before = baseline_of(run(tournament(EIGHT, switches=uneven), facts=FACTS8))
    odd = run(tournament(EIGHT, slow={("g", "h"): 0.88}, switches=uneven), facts=FACTS8)
    found = {f.nodes for f in against_baseline(odd, before, NOW) if f.weight != "remark"}
    assert found == set()
    slow = run(tournament(EIGHT, slow={("g", "*"): 0.6}, switches=uneven), facts=FACTS8)
    found = {(f.what, f.nodes) for f in against_baseline(slow, before, NOW)
             if f.weight == "open"}  # fmt: skip
    assert found == {("send", ("g",))}


def test_half_of_the_pairs_slower_is_no_pass_where_no_switch_is_known() -> None:
    before = baseline_of(run(tournament(EIGHT), facts=FACTS8))
    verdict = judge(run(tournament(EIGHT, slow=ACROSS), facts=FACTS8), yard(baseline=before))
    assert verdict.status == "UNDECIDED"
    (found,) = [f for f in verdict.findings if f.what == "fabric"]
    assert found.weight == "open" and found.ratio == pytest.approx(0.5)


def test_an_interval_that_leaves_it_open_does_not_free_two_nodes() -> None:
    before = baseline_of(run(tournament("ab"), facts=FACTS[:2]))
    mixed = run(tournament("ab", slow={("a", "b"): 0.5}), facts=FACTS[:2])
    assert judge(mixed, yard(baseline=before)).status == "UNDECIDED"


def with_collectives(slower: float = 1.0, port: int | None = None, **changes: object) -> Run:
    """A slow series takes too long for its largest size."""
    carried = (Carried(host="a", interface="eth0", received_bytes=10**9, sent_bytes=10**9,
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
    good = yard(baseline=baseline_of(with_collectives()))
    assert judge(with_collectives(), good).status == "PASS"
    verdict = judge(with_collectives(20.0), good)
    fault = fault_of(verdict)
    assert "collectives by horovod reach 0.05 (0.05 to 0.05) of" in fault.evidence
    # ranks that share cores wait for each other
    assert judge(with_collectives(20.0, oversubscribed=True), good).status == "PASS"
    assert judge(GOOD, good).status == "PASS", "another phase was not asked for"
    other = judge(with_collectives(20.0, controller="mpi"), good)
    assert other.status == "PASS" and "not compared: 4 ranks on 4 nodes, gloo" in str(other)


def test_one_common_collective_has_no_interval_and_is_no_fault() -> None:
    def alone(slower: float) -> Run:
        found = collectives(series("raw"), series("horovod", slower=slower))
        return run(tournament(), facts=FACTS, collectives=found)

    good = yard(baseline=baseline_of(alone(1.0)))
    assert judge(alone(1.0), good).status == "PASS"
    verdict = judge(alone(20.0), good)
    assert verdict.status == "UNDECIDED"
    (found,) = [f for f in verdict.findings if f.weight == "open"]
    assert found.what == "collectives"
    assert "reach 0.05 of the speed of baseline r1; a single value, so" in found.evidence


def test_slow_collectives_of_a_noisy_run_are_no_fault() -> None:
    good = yard(baseline=baseline_of(with_collectives()))
    noise = Noise(pair=("a", "b"), cv=0.2, together=1.0)
    noisy = replace(with_collectives(20.0), tournament=tournament(noise=noise))
    assert judge(noisy, good).status == "UNDECIDED"


def test_a_data_plane_that_fell_back_to_sockets_is_a_fault() -> None:
    good = yard(baseline=baseline_of(with_collectives(port=10**8)))
    assert judge(with_collectives(port=10**8), good).status == "PASS"
    verdict = judge(with_collectives(port=0), good)
    assert verdict.status == "FAIL"
    assert [f.what for f in verdict.findings if f.weight == "fault"] == ["RDMA"]
    assert judge(with_collectives(port=None), good).status == "UNDECIDED", "ports not counted"
    assert judge(with_collectives(port=0, controller="mpi"), good).status == "FAIL"
