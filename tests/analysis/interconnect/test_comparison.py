"""A run against a baseline."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analysis.interconnect.baseline import baseline_of, keep, read_baseline
from analysis.interconnect.finding import Verdict
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
    said,
    series,
    tournament,
)
from train.interconnect.collectives.record import Carried

NOW = datetime(2026, 1, 20, tzinfo=UTC)
FACTS = facts_of("abcd", MTU="1500", driver="mlx5_core")
GOOD = run(tournament(), facts=FACTS)
ALL_SLOW = {("*", n): 0.5 for n in "abcd"}
EIGHT = "abcdefgh"


def judged(found: Run, before: Run, now: datetime = NOW, *, force: bool = False) -> Verdict:
    return judge(found, baseline_of(before), now=now, force=force)


def four(names: str = "abcd", facts: Any = FACTS, **fields: Any) -> Run:
    return run(tournament(names, **fields), facts=facts)


def sends(*retested: str) -> Run:
    """Node c at half of the rate; kind and outcome of its retest."""
    again = (retest(retested[0], ("c",), 0.5, retested[1]),) if retested else ()
    return four(slow={("c", "*"): 0.5}, retests=again)


def eight(**fields: Any) -> Run:
    return four(EIGHT, facts_of(EIGHT, MTU="1500", driver="mlx5_core"), **fields)


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


def alone(slower: float) -> Run:
    """With one collective."""
    found = collectives(series("raw"), series("horovod", slower=slower))
    return run(tournament(), facts=FACTS, collectives=found)


TWO = four("ab", FACTS[:2])
IB0 = tuple(node.model_copy(update={"interface": "ib0"}) for node in GOOD.tournament.nodes)
UNEVEN = leaves("abcdef", "gh")
UP, FAST, PORTS = with_uplinks(1.0, 0.95, 0.98), with_collectives(), with_collectives(port=10**8)
LATE = NOW + timedelta(days=200)
#: Run, its baseline, findings that are no remarks, words of any finding.
ROWS: list[tuple[Run, Run, str, str]] = [
    (GOOD, GOOD, "", ""),
    (TWO, GOOD, "", ""),
    (four("ab", FACTS[:2], slow={("a", "b"): 0.5, ("b", "a"): 0.5}), GOOD,
     "open two nodes; fault fabric", ""),
    # an interval that leaves it open does not free them
    (four("ab", FACTS[:2], slow={("a", "b"): 0.5}), TWO,
     "open links; open two nodes; open fabric", ""),
    # what a node does alone decides
    (sends("send", "confirmed"), GOOD, "fault send c; fault send c", ""),
    (sends("send", "recovered"), GOOD, "", ""),
    (sends("send", "cpu"), GOOD, "open cpu c; open send c", ""),
    (sends(), GOOD, "open send c; open send c", "beside the others; 3 compared; not retested"),
    (sends("receive", "recovered"), GOOD, "open send c", "not retested"),
    # another environment is refused with all differences
    (four(facts=facts_of("abcd", MTU="9000", driver="mlx5_core"), streams=16, nodes=IB0), GOOD,
     "open baseline", "not comparable with r1: connections of a pair: 1 then, 16 now; "
     "interfaces: eth0 then, ib0 now; network: MTU: 1500 then, 9000 now"),
    (run(tournament()), GOOD, "open baseline", "not comparable with r1: this run has no preflight"),
    (GOOD, run(tournament()), "open baseline", "not comparable with r1: it has no preflight"),
    (four(facts=facts_of("abcd", MTU="1500", driver="mlx5_core", **{"frequency governor": "now"})),
     four(facts=facts_of("abcd", MTU="1500", driver="mlx5_core", **{"frequency governor": "then"})),
     "", ""),
    (four("wxyz", facts_of("wxyz", MTU="1500")), GOOD, "open baseline", "no pair of nodes in"),
    # fewer pairs at once
    (eight(company=1), eight(company=4), "open concurrency",
     "up to 4 pairs ran at the same time without loss"),
    (four(company=1), eight(company=4), "", ""),  # of fewer nodes
    # between leaf switches; where no switch is known, half of the pairs are slower
    (with_uplinks(slow=ACROSS), with_uplinks(), "fault fabric",
     "pairs across leaf switches reach 0.50"),
    (eight(slow=ACROSS), eight(), "open fabric", "all pairs reach 0.50"),
    (with_uplinks(0.6, 0.58, 0.6), UP, "fault fabric",
     "leaf switches to each other reach 0.61 of baseline r1, 2 of 2 ways less in every round"),
    # a slow node of a leaf is no slow uplink
    (with_uplinks(1.0, 1.0, 1.0, node="c"), UP, "", ""),
    # routes may have met in some rounds; another number of pairs over the same uplink
    (with_uplinks(0.6, 0.96, 0.6), UP, "open fabric", ""),
    (with_uplinks(0.6, 0.58, 0.6, wide=2), UP, "", ""),
    (with_uplinks(0.5, 0.5, 0.5, crossing=0.5), with_uplinks(0.5, 0.5, 0.5), "", ""),
    # the rates of pairs show nothing of uplinks
    (with_uplinks(0.5, 0.5, 0.5, crossing=0.5), GOOD, "open two leaf switches", ""),
    # a node of a small leaf is judged by all its pairs: within its leaf it has one
    (eight(slow={("g", "h"): 0.88}, switches=UNEVEN), eight(switches=UNEVEN),
     "open links; open uplinks not tested", ""),
    (eight(slow={("g", "*"): 0.6}, switches=UNEVEN), eight(switches=UNEVEN),
     "open send g; open uplinks not tested; open send g", ""),
    # collectives, with pairs as they were
    (with_collectives(20.0), FAST, "fault collectives",
     "collectives by horovod reach 0.05 (0.05 to 0.05) of"),
    # ranks that share cores wait for each other, and do not stand in for the peers of two nodes
    (with_collectives(20.0, oversubscribed=True), FAST, "", ""),
    (replace(four("ab", FACTS[:2], slow={("a", "b"): 0.8, ("b", "a"): 0.8}),
             collectives=with_collectives(oversubscribed=True).collectives), FAST,
     "open two nodes; fault fabric", ""),
    (GOOD, FAST, "", ""),  # another phase was not asked for
    (FAST, GOOD, "", "collectives are not compared: none were measured in r1, 4 ranks on 4 nodes"),
    (run(None), GOOD, "open nothing", ""),
    (with_collectives(20.0, controller="mpi"), FAST, "", "not compared: 4 ranks on 4 nodes, gloo"),
    (with_collectives(20.0, sent=10**6), FAST, "open interface; open collectives", ""),
    (alone(20.0), alone(1.0), "open collectives",
     "reach 0.05 of the speed of baseline r1; a single value, so"),
    # a data plane that fell back to sockets
    (PORTS, PORTS, "", ""),
    (with_collectives(port=None), PORTS, "open RDMA", ""),  # not counted
    (with_collectives(port=0, controller="mpi"), PORTS, "fault RDMA", ""),
]  # fmt: skip


@pytest.mark.parametrize(("found", "before", "findings", "words"), ROWS)
def test_a_run_against_its_baseline(found: Run, before: Run, findings: str, words: str) -> None:
    verdict = judged(found, before)
    assert said(verdict, "fault", "open") == findings
    assert words in "; ".join(finding.evidence for finding in verdict.findings)


def test_force_compares_and_the_difference_is_told() -> None:
    found = four(slow=ALL_SLOW, facts=facts_of("abcd", MTU="9000", driver="mlx5_core"))
    verdict = judged(found, GOOD, force=True)
    assert said(verdict) == "remark forced; fault fabric"
    assert verdict.findings[1].ratio == pytest.approx(0.5)
    assert "MTU: 1500 then, 9000 now" in verdict.findings[0].evidence
    (old,) = judged(GOOD, GOOD, LATE).findings
    assert old.evidence.endswith(": it is 218 days old, expected at most 90: keep a new one")
    strangers = four("wxyz", facts_of("wxyz", MTU="1500", driver="mlx5_core"))
    assert said(judged(strangers, GOOD, force=True)) == "open baseline"
    assert judged(eight(company=1), eight(company=4), force=True).status == "PASS"


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


def test_a_round_of_uplinks_ends_where_a_sender_comes_again() -> None:
    """In the second one a pair is missing; the last, in which one failed, is left out."""
    pairs = [("a", "e", 1.0), ("b", "f", 1.0), ("a", "e", 0.5), ("a", "e", 1.0), ("b", "f", 0.9),
             ("a", "e", 0.4)]  # fmt: skip
    crossed = [measurement(a, b, share * HEALTHY, phase="uplinks") for a, b, share in pairs]
    crossed.append(measurement("b", "f", phase="uplinks", rates=(), error="no answer"))
    found = eight().tournament.model_copy(update={"measurements": (*crossed,), "switches": LEAVES})
    (uplink,) = baseline_of(replace(eight(), tournament=found)).uplinks
    assert [rate / HEALTHY for rate in uplink.rates] == pytest.approx([1.0, 0.5, 1.0])
