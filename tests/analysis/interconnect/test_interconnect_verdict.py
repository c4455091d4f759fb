"""Verdicts from runs whose truth is known: never a pass without evidence, never blame without a
second look."""

from __future__ import annotations

import subprocess

import pytest

from analysis.interconnect.finding import Finding, Verdict, bits, headline, lines
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    CONFIRMED,
    SLOW,
    end,
    facts_of,
    leaves,
    measurement,
    retest,
    run,
    tournament,
)
from train.interconnect.record import JobNote, Noise, Step, Suspect, Trouble


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
    ("outcome", "status", "found"),
    [
        ("confirmed", "FAIL", ("fault", "node", ("c",))),
        ("recovered", "PASS", ("remark", "contention", ("c",))),
        ("cpu", "UNDECIDED", ("open", "cpu", ("c",))),
        ("unreachable", "UNDECIDED", ("open", "node", ("c",))),
        ("unsure", "UNDECIDED", ("open", "node", ("c",))),
        (None, "UNDECIDED", ("open", "node", ("c",))),
    ],
)
def test_a_slow_node_is_what_the_second_look_makes_of_it(outcome, status, found) -> None:
    ratio = None if outcome == "unreachable" else 0.5
    again = (retest("node", ("c",), ratio, outcome),) if outcome else ()
    verdict = judge(run(tournament(slow=SLOW, retests=again)))
    assert verdict.status == status and told(verdict) == [found]
    assert outcome or verdict.findings[0].evidence.endswith("; not retested")


def test_a_second_look_narrows_a_node_to_one_direction() -> None:
    again = (retest("send", ("c",), 0.5, "confirmed"),)
    verdict = judge(run(tournament(slow=SLOW, retests=again)))
    assert told(verdict) == [("fault", "send", ("c",))]
    assert "0.50 of its peers, with 3 of 3 partners; alone with a, b 0.50" in str(verdict)


def test_wrong_bytes_fail_whatever_the_speed() -> None:
    verdict = judge(run(tournament(changes={("a", "b"): {"wrong_bytes": 1}})))
    assert verdict.status == "FAIL" and told(verdict) == [("fault", "corrupt", ("a", "b"))]
    assert "1 wrong bytes in 1 measurements, expected none" in verdict.findings[0].evidence


def test_what_lets_nothing_through_fails() -> None:
    broken = {"rates": (), "error": "no route to host"}
    verdict = judge(run(tournament(changes={("a", "b"): broken})))
    assert told(verdict) == [("fault", "unreachable", ("a", "b"))]
    assert lines(verdict, "r1") == [], "neither end of a link is to be drained"


@pytest.mark.parametrize("pairs", [["ad", "bd", "cd", "da", "db", "dc"], ["ad", "bd"]])
def test_a_lost_node_is_one_finding(pairs: list[str]) -> None:
    """Some of its pairs may be measured before it goes: those that failed are no links."""
    changes = {(a, b): {"rates": (), "error": "no answer"} for a, b in pairs}
    verdict = judge(run(tournament(changes=changes, lost={"d": "no answer"})))
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


def test_a_job_that_did_not_live_to_its_end_is_no_pass() -> None:
    step = Step(phase="tournament", seconds=1.0, exit_code=0, stopped=None, troubles=())
    note = JobNote(job="7", nodes="[a-d]", image="none", image_digest=None, steps=(step,),
                   phases=("tournament",), expected=tuple("abcd"), ended=False)  # fmt: skip
    verdict = judge(run(tournament(), note))
    assert verdict.status == "UNDECIDED" and told(verdict) == [("open", "stopped", ())]


def test_links_that_scatter_would_hide_a_slow_one() -> None:
    scatter = {(x, y): 1 - 0.17 * ((3 * i + 5 * j) % 4) / 3 - 0.17 * ((i * j) % 3) / 2
               for i, x in enumerate("abcdefgh") for j, y in enumerate("abcdefgh")}  # fmt: skip
    verdict = judge(run(tournament("abcdefgh", slow=scatter)))
    assert verdict.visible_links is not None and verdict.visible_links < 0.75
    assert verdict.status == "UNDECIDED"
    assert "links scatter so much" in str(verdict)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"noise": Noise(pair=("a", "b"), cv=0.08, together=None)}, "noise"),
        ({"slow": {("a", "*"): 0.5, ("*", "a"): 0.5, ("b", "*"): 0.5, ("*", "b"): 0.5}}, "peers"),
        (
            {"changes": {(x, y): {"at_sender": end(busy=0.95)} for x in "abcd" for y in "abcd"}},
            "cpu-limited",
        ),
        ({"changes": {("a", "b"): {"at_sender": end(carried=0.1)}}}, "interface"),
    ],
)
def test_what_a_run_cannot_decide_is_no_pass(changes, what) -> None:
    verdict = judge(run(tournament(**changes)))
    assert verdict.status == "UNDECIDED"
    assert [finding.what for finding in verdict.findings] == [what]


def test_a_wide_scatter_is_told_as_what_would_have_been_missed() -> None:
    shares = {("a", "*"): 1.0, ("b", "*"): 0.9, ("c", "*"): 0.8, ("d", "*"): 0.95}
    shares |= {("*", n): share - 0.05 for (n, _), share in shares.items()}
    verdict = judge(run(tournament(slow=shares)))
    assert verdict.status == "UNDECIDED" and "would have been seen" in str(verdict)


def test_counters_that_cannot_be_read_are_no_pass() -> None:
    blind = end().model_copy(update={"sent_bytes": None})
    verdict = judge(run(tournament(changes={("a", "b"): {"at_sender": blind}})))
    assert verdict.status == "UNDECIDED" and told(verdict) == [("open", "interface", ("a",))]


def test_pairs_that_disturb_each_other_are_a_remark() -> None:
    noise = Noise(pair=("a", "b"), cv=0.01, together=0.6)
    verdict = judge(run(tournament(noise=noise, company=1)))
    assert verdict.status == "PASS" and "0.60 of their rate alone" in str(verdict)
    noise = Noise(pair=("a", "b"), cv=0.01, together=0.0)
    verdict = judge(run(tournament(noise=noise, company=1)))
    assert verdict.status == "UNDECIDED" and told(verdict) == [("open", "contention", ())]


def test_a_run_that_was_cut_short_passes_only_where_each_node_met_enough() -> None:
    found = tournament("abcdefgh", cut="9 of 14 rounds were measured in 60 s")
    verdict = judge(run(found))
    assert verdict.status == "PASS" and told(verdict) == [("remark", "coverage", ())]
    few = tuple(m for m in found.measurements if m.sender != "a" or m.receiver in "bc")
    for cut in (found.cut, None):
        verdict = judge(run(found.model_copy(update={"measurements": few, "cut": cut})))
        assert verdict.status == "UNDECIDED"
        assert "met 2 of 7 others or more" in verdict.findings[0].evidence


def test_no_word_on_noise_is_no_pass() -> None:
    verdict = judge(run(tournament(noise=None)))
    assert verdict.status == "UNDECIDED" and told(verdict) == [("open", "noise", ())]


@pytest.mark.parametrize("code", [None, 0])
def test_phases_that_did_not_come_to_their_end(code: int | None) -> None:
    step = Step(phase="preflight", seconds=1.0, exit_code=code, stopped=None, troubles=())
    note = JobNote(job="7", nodes="n[1-4]", image="none", image_digest=None, steps=(step,),
                   phases=("preflight", "tournament"))  # fmt: skip
    verdict = judge(run(tournament(), note))
    expected = [("open", "failed", ())] if code is None else []
    assert told(verdict) == [*expected, ("open", "not measured", ())]


@pytest.mark.parametrize(
    ("what", "weight"),
    [("gave up", "fault"), ("not met", "open"), ("container", "open"), (None, "open")],
)
def test_a_node_that_did_not_come_is_named(what: str | None, weight: str) -> None:
    troubles = (Trouble(node="d", what=what, found="ib0 is not there"),) if what else ()
    step = Step(phase="tournament", seconds=1.0, exit_code=2, stopped=None, troubles=troubles)
    note = JobNote(job="7", nodes="[a-d]", image="none", image_digest=None, steps=(step,),
                   phases=("tournament",), expected=tuple("abcd"))  # fmt: skip
    verdict = judge(run(tournament("abc"), note))
    (absent,) = [f for f in verdict.findings if f.what == "absent"]
    assert (absent.weight, absent.nodes) == (weight, ("d",))
    assert not troubles or "ib0 is not there" in absent.evidence
    assert verdict.status == ("FAIL" if weight == "fault" else "UNDECIDED")


def test_nodes_without_facts_are_no_pass() -> None:
    note = JobNote(job="7", nodes="[a-d]", image="none", image_digest=None, steps=(
        Step(phase="preflight", seconds=1.0, exit_code=0, stopped=None, troubles=()),
        Step(phase="tournament", seconds=1.0, exit_code=0, stopped=None, troubles=()),
    ), phases=("preflight", "tournament"), expected=tuple("abcd"))  # fmt: skip
    verdict = judge(run(tournament(), note, facts=facts_of("abc", MTU="1500")))
    assert verdict.status == "UNDECIDED" and told(verdict) == [("open", "unknown", ("d",))]


def test_many_slow_links_are_one_finding() -> None:
    """Routes that collide make many links slow in company; the slowest are tested again."""
    slow = {("a", "b"): 0.5, ("b", "c"): 0.6, ("c", "d"): 0.6, ("d", "e"): 0.7}
    first = retest("link", ("a", "b"), 1.0, "recovered")
    verdict = judge(run(tournament("abcdefgh", slow=slow, retests=(first,))))
    assert verdict.status == "PASS"
    more, one = verdict.findings
    assert "3 more links were slow (0.60 and up: b -> c, c -> d, d -> e)" in more.evidence
    assert one.nodes == ("a", "b")
    worse = retest("link", ("a", "b"), 0.5, "confirmed")
    verdict = judge(run(tournament("abcdefgh", slow=slow, retests=(worse,))))
    assert [f.weight for f in verdict.findings] == ["open", "fault"]


def test_pairs_that_were_not_measured_are_told() -> None:
    found = tournament("abcdefgh")
    verdict = judge(run(found.model_copy(update={"measurements": found.measurements[1:]})))
    assert verdict.status == "PASS"
    assert verdict.findings[0].evidence.startswith("each node met 6 of 7 others")


def test_a_job_that_measured_nothing() -> None:
    step = Step(
        phase="tournament", seconds=1.0, exit_code=1, stopped=None,
        troubles=(Trouble(node="n2", what="container", found="no such image"),),
    )  # fmt: skip
    note = JobNote(job="7", nodes="n[1-2]", image="none", image_digest=None, steps=(step,))
    verdict = judge(run(None, note))
    assert verdict.status == "UNDECIDED"
    assert told(verdict) == [("open", "container", ("n2",)), ("open", "nothing", ())]


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (999.7e6, "1 Gbit/s"),
        (999.4e6, "999 Mbit/s"),
        (12.34e9, "12.3 Gbit/s"),
        (950.0, "950 bit/s"),
    ],
)
def test_rates_have_three_digits_and_their_unit(rate: float, text: str) -> None:
    assert bits(rate) == text


def test_lines_to_paste() -> None:
    again = (retest("node", ("c",), 0.26, "confirmed"),)
    verdict = judge(run(tournament(slow=SLOW, retests=again)))
    assert lines(verdict, "r1") == [
        "scontrol update NodeName=c State=DRAIN Reason='ic-both 0.26x run=r1'",
        "# once it is fixed: scontrol update NodeName=c State=RESUME",
        "# or keep jobs away from it: --exclude=c",
    ]


def test_many_slow_nodes_are_not_drained_one_by_one() -> None:
    slow = {key: 0.5 for n in "ab" for key in ((n, "*"), ("*", n))}
    again = tuple(retest("node", (n,), 0.5, "confirmed") for n in "ab")
    verdict = judge(run(tournament("abcdefgh", slow=slow, retests=again)))
    assert verdict.status == "FAIL"
    (line,) = lines(verdict, "r1")
    assert line.startswith("# 2 of 8 nodes are slow, more than 1: look for what they share (a, b)")


def test_a_link_is_no_reason_to_drain() -> None:
    again = (retest("link", ("a", "b"), 0.5, "confirmed"),)
    verdict = judge(run(tournament(slow={("a", "b"): 0.5}, retests=again)))
    assert told(verdict) == [("fault", "link", ("a", "b"))] and lines(verdict, "r1") == []


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
