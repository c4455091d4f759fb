"""Verdicts from runs whose truth is known: never a pass without evidence, never blame without a
second look."""

from __future__ import annotations

import subprocess

import pytest

from analysis.interconnect.finding import Finding, Verdict, bits, headline, lines, seconds, size
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    CONFIRMED,
    SLOW,
    end,
    facts_of,
    leaves,
    measurement,
    note,
    retest,
    run,
    step,
    tournament,
)
from train.interconnect.record import Noise, Suspect, Trouble


def told(verdict: Verdict) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(finding.weight, finding.what, finding.nodes) for finding in verdict.findings]


def test_a_healthy_run_passes_and_says_what_it_would_have_seen() -> None:
    verdict = judge(run(tournament()))
    assert verdict.status == "PASS" and verdict.findings == ()
    assert headline(verdict) == (
        "no node or direction below 0.93 of the median, no link below 0.93 of what its ends reach "
        "with others"
    )
    assert lines(verdict, "r1") == []


@pytest.mark.parametrize(
    ("again", "status", "found", "words"),
    [
        ("node confirmed", "FAIL", "fault node", "; alone with a, b 0.50"),
        ("send confirmed", "FAIL", "fault send", "; alone with a, b 0.50"),  # narrowed
        ("node recovered", "PASS", "remark contention", "slow only while others run"),
        ("node cpu", "UNDECIDED", "open cpu", "the processor, not the link"),
        ("node unreachable", "UNDECIDED", "open node", "; then slow again"),
        ("node unsure", "UNDECIDED", "open node", "0.50: slow again"),
        ("", "UNDECIDED", "open node", "; not retested"),
    ],
)
def test_a_slow_node_is_what_the_second_look_makes_of_it(again, status, found, words) -> None:
    kind, _, outcome = again.partition(" ")
    ratio = None if outcome == "unreachable" else 0.5
    retests = (retest(kind, ("c",), ratio, outcome),) if again else ()
    verdict = judge(run(tournament(slow=SLOW, retests=retests)))
    assert verdict.status == status and told(verdict) == [(*found.split(), ("c",))]
    (finding,) = verdict.findings
    assert finding.evidence.startswith("0.50 of its peers, with 3 of 3 partners")
    assert words in finding.evidence


@pytest.mark.parametrize("pairs", [["ad", "bd", "cd", "da", "db", "dc"], ["ad", "bd"]])
def test_a_lost_node_is_one_finding(pairs: list[str]) -> None:
    """Some of its pairs may be measured before it goes: those that failed are no links."""
    changes = {(a, b): {"rates": (), "error": "no answer"} for a, b in pairs}
    found = tournament(changes=changes, lost={"d": "no answer"})
    others = tuple(m for m in found.measurements if "d" not in (m.sender, m.receiver))
    for some in (found.measurements, others):
        verdict = judge(run(found.model_copy(update={"measurements": some})))
        assert told(verdict) == [("fault", "lost", ("d",))] and verdict.status == "FAIL"


@pytest.mark.parametrize("doubt", ["noise", "interface", "cpu-limited"])
def test_rates_that_are_doubtful_blame_nobody(doubt: str) -> None:
    pairs = [(x, y) for x in "abcd" for y in "abcd"]
    fields = {
        "noise": {"noise": Noise(pair=("a", "b"), cv=0.08, together=None)},
        "interface": {"changes": {("c", "b"): {"at_sender": end(carried=0.1)}}},
        "cpu-limited": {"changes": {pair: {"at_sender": end(busy=0.95)} for pair in pairs}},
    }[doubt]
    verdict = judge(run(tournament(slow=SLOW, retests=CONFIRMED, **fields)))
    assert verdict.status == "UNDECIDED" and ("open", "node", ("c",)) in told(verdict)
    other = retest("node", ("d",), 0.5, "confirmed")
    slow = {("d", "*"): 0.5, ("*", "d"): 0.5}
    verdict = judge(run(tournament(slow=slow, retests=(other,), **fields)))
    assert verdict.status == ("FAIL" if doubt == "interface" else "UNDECIDED"), "another node's"
    corrupt = tournament(changes={("a", "b"): {"wrong_bytes": 1}}, **{"noise": None})
    assert judge(run(corrupt)).status == "FAIL", "wrong bytes are no matter of speed"


def test_a_leaf_whose_node_counts_no_bytes_has_no_slow_uplink() -> None:
    suspect = Suspect(kind="uplink-send", nodes=("leaf1", "leaf2"), ratio=0.5, deviations=-9,
                      slow=1, partners=1, why="slow")  # fmt: skip
    again = (retest("uplink-send", ("leaf1", "leaf2"), 0.5, "confirmed"),)

    def status(**changes: object) -> str:
        found = tournament("abcdefgh", switches=leaves("abcd", "efgh"), retests=again, **changes)
        decision = found.decision.model_copy(update={"suspects": (suspect,)})
        return judge(run(found.model_copy(update={"decision": decision}))).status

    assert status() == "FAIL"
    assert status(changes={("a", "b"): {"at_sender": end(carried=0.1)}}) == "UNDECIDED"


def test_links_that_scatter_would_hide_a_slow_one() -> None:
    scatter = {(x, y): 1 - 0.17 * ((3 * i + 5 * j) % 4) / 3 - 0.17 * ((i * j) % 3) / 2
               for i, x in enumerate("abcdefgh") for j, y in enumerate("abcdefgh")}  # fmt: skip
    verdict = judge(run(tournament("abcdefgh", slow=scatter)))
    assert verdict.visible_links is not None and verdict.visible_links < 0.75
    assert verdict.status == "UNDECIDED"
    assert "links scatter so much" in str(verdict)


EVERY = [(a, b) for a in "abcd" for b in "abcd"]
BLIND = end().model_copy(update={"sent_bytes": None})
SCATTER = {("a", "*"): 1.0, ("b", "*"): 0.9, ("c", "*"): 0.8, ("d", "*"): 0.95,
           ("*", "a"): 0.95, ("*", "b"): 0.85, ("*", "c"): 0.75, ("*", "d"): 0.9}  # fmt: skip


def noisy(cv: float, together: float | None = None) -> dict[str, object]:
    return {"noise": Noise(pair=("a", "b"), cv=cv, together=together), "company": 1}


def ab(**changes: object) -> dict[str, object]:
    """What is odd about one pair."""
    return {"changes": {("a", "b"): changes}}


@pytest.mark.parametrize(
    ("fields", "found", "words"),
    [
        (ab(wrong_bytes=1), ("fault", "corrupt", ("a", "b")), "1 wrong bytes in 1 measurements"),
        (ab(rates=(), error="no route"), ("fault", "unreachable", ("a", "b")), "no route"),
        ({"slow": {(n, "*"): 0.5 for n in "ab"} | {("*", n): 0.5 for n in "ab"}},
         ("open", "peers", ()), ""),
        ({"slow": SCATTER}, ("open", "scatter", ()), "would have been seen"),
        (noisy(0.08), ("open", "noise", ()), "scatter by 8.0%"),
        ({"noise": None}, ("open", "noise", ()), "not known how steady"),
        (noisy(0.01, 0.6), ("remark", "contention", ()), "0.60 of their rate alone"),
        (noisy(0.01, 0.0), ("open", "contention", ()), ""),
        ({"changes": {pair: {"at_sender": end(busy=0.95)} for pair in EVERY}},
         ("open", "cpu-limited", ()), "processors, not links"),
        (ab(at_sender=end(carried=0.1)), ("open", "interface", ("a",)), "carried 10%"),
        (ab(at_sender=BLIND), ("open", "interface", ("a",)), "could not be read"),
    ],
)  # fmt: skip
def test_one_thing_that_is_wrong_is_one_finding(fields, found, words) -> None:
    verdict = judge(run(tournament(**fields)))
    assert told(verdict) == [found] and words in verdict.findings[0].evidence
    assert verdict.status == {"fault": "FAIL", "open": "UNDECIDED", "remark": "PASS"}[found[0]]
    assert lines(verdict, "r1") == [], "neither end of a link is to be drained"


def test_a_run_that_was_cut_short_passes_only_where_each_node_met_enough() -> None:
    found = tournament("abcdefgh", cut="9 of 14 rounds were measured in 60 s")
    verdict = judge(run(found))
    assert verdict.status == "PASS" and told(verdict) == [("remark", "coverage", ())]
    few = tuple(m for m in found.measurements if m.sender != "a" or m.receiver in "bc")
    for cut in (found.cut, None):
        verdict = judge(run(found.model_copy(update={"measurements": few, "cut": cut})))
        assert verdict.status == "UNDECIDED"
        assert "met 2 of 7 others or more" in verdict.findings[0].evidence
    most = found.model_copy(update={"measurements": found.measurements[1:], "cut": None})
    verdict = judge(run(most))
    assert verdict.status == "PASS"
    assert verdict.findings[0].evidence.startswith("each node met 6 of 7 others")


@pytest.mark.parametrize(
    ("job", "whats"),
    [
        (note(step(), ended=False), ["stopped"]),
        (note(step("preflight", code=None), phases=("preflight", "tournament"), expected=""),
         ["failed", "not measured"]),
        (note(step("preflight"), phases=("preflight", "tournament"), expected=""),
         ["not measured"]),
        (note(step("tournament", code=1)), ["failed"]),
    ],
)  # fmt: skip
def test_a_job_that_did_not_come_to_its_end_is_no_pass(job, whats) -> None:
    verdict = judge(run(tournament(), job))
    assert verdict.status == "UNDECIDED"
    assert told(verdict) == [("open", what, ()) for what in whats]


@pytest.mark.parametrize(
    ("what", "weight"),
    [("gave up", "fault"), ("not met", "open"), ("container", "open"), (None, "open")],
)
def test_a_node_that_did_not_come_is_named(what: str | None, weight: str) -> None:
    troubles = (Trouble(node="d", what=what, found="ib0 is not there"),) if what else ()
    verdict = judge(run(tournament("abc"), note(step("tournament", *troubles, code=2))))
    (absent,) = [f for f in verdict.findings if f.what == "absent"]
    assert (absent.weight, absent.nodes) == (weight, ("d",))
    assert not troubles or "ib0 is not there" in absent.evidence
    assert verdict.status == ("FAIL" if weight == "fault" else "UNDECIDED")


def test_nodes_without_facts_are_no_pass() -> None:
    job = note(step("preflight"), step())
    verdict = judge(run(tournament(), job, facts=facts_of("abc", MTU="1500")))
    assert verdict.status == "UNDECIDED" and told(verdict) == [("open", "unknown", ("d",))]


def test_many_slow_links_are_one_finding() -> None:
    """Routes that collide make many links slow in company; the slowest are tested again."""
    slow = {("a", "b"): 0.5, ("b", "c"): 0.6, ("c", "d"): 0.6, ("d", "e"): 0.7}
    first = retest("link", ("a", "b"), 1.0, "recovered")
    verdict = judge(run(tournament("abcdefgh", slow=slow, retests=(first,))))
    assert verdict.status == "PASS"
    one, more = verdict.findings
    assert "3 more links were slow (0.60 b -> c, 0.60 c -> d, 0.70 d -> e)" in more.evidence
    assert one.nodes == ("a", "b")
    worse = retest("link", ("a", "b"), 0.5, "confirmed")
    verdict = judge(run(tournament("abcdefgh", slow=slow, retests=(worse,))))
    assert [f.weight for f in verdict.findings] == ["fault", "open"]


def test_a_job_that_measured_nothing() -> None:
    trouble = Trouble(node="b", what="container", found="no such image")
    verdict = judge(run(None, note(step("tournament", trouble, code=1))))
    assert verdict.status == "UNDECIDED"
    assert told(verdict) == [("open", "container", ("b",)), ("open", "nothing", ())]


def test_rates_have_three_digits_and_their_unit() -> None:
    rates = (999.7e6, 999.4e6, 12.34e9, 950.0)
    assert [bits(rate) for rate in rates] == ["1 Gbit/s", "999 Mbit/s", "12.3 Gbit/s", "950 bit/s"]
    assert [seconds(2.0), seconds(3e-5), size(2**20), size(8)] == ["2 s", "30 us", "1 MiB", "8 B"]


def test_lines_to_paste() -> None:
    again = (retest("node", ("c",), 0.26, "confirmed"),)
    verdict = judge(run(tournament(slow=SLOW, retests=again)))
    assert lines(verdict, "r1") == [
        "scontrol update NodeName=c State=DRAIN Reason='ic-both 0.26x run=r1'",
        "# once it is fixed: scontrol update NodeName=c State=RESUME",
        "# or keep jobs away from it: --exclude=c",
    ]
    # many slow nodes are not drained one by one
    slow = {key: 0.5 for n in "ab" for key in ((n, "*"), ("*", n))}
    again = tuple(retest("node", (n,), 0.5, "confirmed") for n in "ab")
    verdict = judge(run(tournament("abcdefgh", slow=slow, retests=again)))
    assert verdict.status == "FAIL"
    (line,) = lines(verdict, "r1")
    assert line.startswith("# 2 of 8 nodes are slow, more than 1: look for what they share (a, b)")


def test_measurements_of_other_phases_are_in_no_verdict_twice() -> None:
    noise = measurement("a", "b", phase="noise")
    found = tournament()
    more = found.model_copy(update={"measurements": (noise, *found.measurements)})
    assert judge(run(more)) == judge(run(found))


@pytest.mark.parametrize(
    ("node", "name"),
    [("c", "it's; touch x"), ("$(echo x)", "$HOME"), ("a b", "`id`\n`id`"), ("c\ntouch x", "r\n1")],
)
def test_lines_to_paste_are_what_they_look_like(node: str, name: str) -> None:
    fault = Finding(weight="fault", what="node", nodes=(node,), ratio=0.3, evidence="slow")
    verdict = Verdict(status="FAIL", findings=(fault,), nodes=4, middle=1e9, visible=0.9)
    said = lines(verdict, name)
    assert not [line for line in said if "\n" in line]
    (command,) = (line for line in said if not line.startswith("#"))
    shown = {"\n": "?"}
    clean, run_name = (text.translate(str.maketrans(shown)) for text in (node, name))
    script = f"set -- {command}; printf '%s\\n' \"$@\""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "scontrol", "update", f"NodeName={clean}", "State=DRAIN",
        f"Reason=ic-both 0.30x run={run_name}",
    ]  # fmt: skip
