"""Uplinks that were not tested, not loaded, or all carry less than their nodes would."""

from __future__ import annotations

from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import leaves, measurement, run, tournament
from train.interconnect.record import Tournament


def crossed(found: Tournament, *pairs: str, **decided: object) -> Tournament:
    more = tuple(measurement(a, b, phase="uplinks") for a, b in pairs)
    return found.model_copy(
        update={
            "measurements": (*found.measurements, *more),
            "decision": found.decision.model_copy(update=decided),
        }
    )


def test_uplinks_that_nobody_loaded_are_no_pass() -> None:
    verdict = judge(run(tournament("abcdefgh", switches=leaves("abcdef", "gh"))))
    (found,) = verdict.findings
    assert verdict.status == "UNDECIDED" and found.what == "uplinks not tested"
    assert found.evidence.startswith("leaf1, leaf2: ")
    # one leaf, and single nodes elsewhere, whose pairs load what there is
    alone = leaves("abc", *"defgh")
    assert judge(run(tournament("abcdefgh", switches=alone))).status == "PASS"
    three = leaves("abcd", "gh", "ef")
    some = crossed(tournament("abcdefgh", switches=three), "ae", "ea", "bf", "fb")
    found, loaded = judge(run(some)).findings
    assert found.weight == "remark" and found.evidence.startswith("leaf2: ")
    assert loaded.what == "uplinks not loaded"


def test_what_the_smallest_leaf_did_not_load_is_told() -> None:
    found = crossed(tournament("abcdefgh", switches=leaves("abcde", "fgh")), "af", "fa")
    verdict = judge(run(found))
    (told,) = verdict.findings
    assert (verdict.status, told.what) == ("PASS", "uplinks not loaded")
    assert "3 pairs at a time" in told.evidence
    assert "leaf1 have up to 5: an uplink that lost up to 40% would not be seen" in told.evidence


def test_crossings_that_failed_in_part_are_no_pass() -> None:
    found = crossed(tournament("abcdefgh", switches=leaves("abcd", "efgh")), "ae", "ea")
    dead = measurement("b", "f", phase="uplinks", rates=(), error="no answer")
    found = found.model_copy(update={"measurements": (*found.measurements, dead)})
    verdict = judge(run(found))
    (told,) = verdict.findings
    assert (verdict.status, told.what) == ("UNDECIDED", "uplinks failed")
    assert told.evidence.startswith("1 of 3 measurements") and "b to f: no answer" in told.evidence
    gone = found.model_copy(update={"lost": {"f": "no answer"}})
    assert "uplinks failed" not in {f.what for f in judge(run(gone)).findings}


def test_leaves_that_reach_each_other_with_less_than_they_have() -> None:
    found = crossed(tournament("abcd", switches=leaves("ab", "cd")), "ac", "ca", crossing=0.5)
    verdict = judge(run(found))
    (told,) = verdict.findings
    assert (verdict.status, told.what) == ("UNDECIDED", "two leaf switches")
    assert told.evidence.startswith("whole leaf switches reach 0.50 of each other")
    three = leaves("ab", "cd", "ef")
    pairs = ("ac", "ce", "ea", "ca")
    found = crossed(tournament("abcdef", switches=three), *pairs, crossing=0.5)
    verdict = judge(run(found))
    (told,) = verdict.findings
    assert (verdict.status, told.what) == ("PASS", "oversubscribed")
    held = crossed(tournament("abcdef", switches=three), *pairs, visible_across=0.5)
    (told,) = judge(run(held)).findings
    assert told.what == "links across" and "below 0.50 of what is usual within" in told.evidence
    found = crossed(tournament("abcdef", switches=three), *pairs, crossing=0.95)
    assert judge(run(found)).findings == ()
