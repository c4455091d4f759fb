"""Verdicts from runs whose truth is known: never a pass without evidence, never blame without a
second look."""

from __future__ import annotations

import subprocess
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from analysis.interconnect.finding import Finding, Verdict, headline, lines
from analysis.interconnect.run import Run
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    SLOW,
    end,
    facts_of,
    leaves,
    measurement,
    note,
    retest,
    run,
    said,
    step,
    tournament,
)
from train.interconnect.facts.record import NetworkFault
from train.interconnect.record import Clock, Noise, Suspect, Tcp, Trouble

EIGHT = "abcdefgh"
BUSY = {"changes": {pair: {"at_sender": end(busy=0.95)} for pair in permutations("abcd", 2)}}
SCATTER = {("a", "*"): 1.0, ("b", "*"): 0.9, ("c", "*"): 0.8, ("d", "*"): 0.95,
           ("*", "a"): 0.95, ("*", "b"): 0.85, ("*", "c"): 0.75, ("*", "d"): 0.9}  # fmt: skip
LINKS_SCATTER = {(x, y): 1 - 0.17 * ((3 * i + 5 * j) % 4) / 3 - 0.17 * ((i * j) % 3) / 2
                 for i, x in enumerate(EIGHT) for j, y in enumerate(EIGHT)}  # fmt: skip
NOISY = Noise(pair=("a", "b"), cv=0.08, together=None)
ASTRAY = {("c", "b"): {"at_sender": end(carried=0.1)}}
HALF = {"slow": {(n, "*"): 0.5 for n in "ab"} | {("*", n): 0.5 for n in "ab"}}
#: Routes that collide make many links slow in company; the slowest are tested again.
MANY = {("a", "b"): 0.5, ("b", "c"): 0.6, ("c", "d"): 0.6, ("d", "e"): 0.7}


def made(names: str = "abcd", **fields: object) -> Run:
    return run(tournament(names, **fields))


def again(retested: str, ratio: float | None = 0.5) -> Run:
    """Node c is slow; "kind outcome" of its retest."""
    kind, outcome = retested.split()
    return made(slow=SLOW, retests=(retest(kind, ("c",), ratio, outcome),))


def ab(**changes: object) -> Run:
    """What is odd about one pair."""
    return made(changes={("a", "b"): changes})


def alone(together: float) -> Run:
    """Pairs that run at the same time reach only this share of their rate."""
    return made(noise=Noise(pair=("a", "b"), cv=0.01, together=together), company=1)


def many(outcome: str, ratio: float) -> Run:
    return made(EIGHT, slow=MANY, retests=(retest("link", ("a", "b"), ratio, outcome),))


def met(*receivers: str, cut: str | None = None) -> Run:
    """Node a sends to these alone, of seven others."""
    found = tournament(EIGHT, cut=cut)
    some = tuple(m for m in found.measurements if m.sender != "a" or m.receiver in receivers)
    return run(found.model_copy(update={"measurements": some}))


def lost() -> Run:
    """Nothing came from node d, so that its pairs were left out."""
    dead = {(a, "d"): {"rates": (), "error": "no answer"} for a in "ab"}
    found = tournament(changes=dead, lost={"d": "no answer"})
    others = tuple(m for m in found.measurements if "d" not in (m.sender, m.receiver))
    return run(found.model_copy(update={"measurements": others}))


def slow_in(name: str, **doubt: Any) -> Run:
    """A node is slow, in its retest, too, in a run with something else in doubt."""
    slow = {(name, "*"): 0.5, ("*", name): 0.5}
    return made(slow=slow, retests=(retest("node", (name,), 0.5, "confirmed"),), **doubt)


def came(what: str | None) -> Run:
    """Node d did not; what its program reported."""
    troubles = (Trouble(node="d", what=what, found="ib0 is not there"),) if what else ()
    return run(tournament("abc"), note(step("tournament", *troubles, code=2 if troubles else 0)))


def clocks(within_s: float) -> Run:
    ahead = zip("abcd", (0, 0.2, -5.0, 0.1), strict=True)
    return made(clocks={n: Clock(ahead_s=own, within_s=within_s) for n, own in ahead})


def paths(usual: int, small: int = 0, where: str = "", mtu: str | None = "9000") -> Run:
    """Path MTUs; where: pairs whose path is of smaller packets. mtu: of the interfaces."""
    changes = {
        (a, b): {"tcp": Tcp(path_mtu=small if a + b in where.split() else usual, rtt_s=1e-4,
                            min_rtt_s=1e-5, retransmitted=0, busy_s=1.0, rwnd_limited_s=0.0,
                            sndbuf_limited_s=0.0)}
        for a, b in permutations("abcd", 2)
    }  # fmt: skip
    return run(tournament(changes=changes), facts=facts_of("abcd", MTU=mtu) if mtu else ())


def apart() -> Run:
    """Two nodes whose packets do not pass, so that no pair could be measured."""
    fault = NetworkFault(what="MTU", nodes=("a", "b"), found="packets of 9,000 bytes do not arrive",
                         fix="set it")  # fmt: skip
    first, *others = facts_of("abc", MTU="9000")
    return run(None, facts=(first.model_copy(update={"faults": (fault,)}), *others))


def ports(link: str | None, layer: str) -> Run:
    told = {"link type": link, "mlx5_0:1 state": "ACTIVE", "mlx5_0:1 link layer": layer,
            "mlx5_0:1 physical state": "LinkUp"}  # fmt: skip
    return run(tournament(), facts=facts_of("abcd", **told))


def uplinks(*on: str, crossed: str = "", dead: str = "", fields: Any = None, **decided: Any) -> Run:
    """on: nodes of each leaf switch. crossed: pairs that loaded uplinks; dead: without a number."""
    found = tournament("".join(on), switches=leaves(*on), **(fields or {}))
    more = [measurement(a, b, phase="uplinks") for a, b in crossed.split()]
    more += [measurement(a, b, phase="uplinks", rates=(), error="no answer")
             for a, b in dead.split()]  # fmt: skip
    decision = found.decision.model_copy(update=decided)
    changed = {"measurements": (*found.measurements, *more), "decision": decision}
    return run(found.model_copy(update=changed))


def uplink(**fields: object) -> Run:
    """The first of two leaf switches sends slowly, in the retest, too."""
    both = ("leaf1", "leaf2")
    suspect = Suspect(kind="uplink-send", nodes=both, ratio=0.5, deviations=-9, slow=1, partners=1,
                      why="slow")  # fmt: skip
    fields["retests"] = (retest("uplink-send", both, 0.5, "confirmed"),)
    return uplinks("abcd", "efgh", crossed="ae ea", fields=fields, suspects=(suspect,))


PHASES = {"phases": ("preflight", "tournament"), "expected": ""}
THREE = partial(uplinks, "ab", "cd", "ef", crossed="ac ce ea ca")
ROWS: list[tuple[Run, str, str]] = [
    (made(), "", ""),
    (again("node confirmed"), "fault node c",
     "0.50 of its peers, with 3 of 3 partners; alone with a, b 0.50"),
    (again("send confirmed"), "fault send c", "; alone with a, b 0.50"),  # narrowed
    (again("node recovered"), "remark contention c", "slow only while others run"),
    (again("node cpu"), "open cpu c", "the processor, not the link"),
    (again("node unreachable", None), "open node c", "; then slow again"),
    (again("node unsure"), "open node c", "0.50: slow again"),
    (made(slow=SLOW), "open node c", "; not retested"),
    (ab(rates=(), error="no route"), "fault unreachable a b", "no route"),
    (made(**HALF), "open peers", ""),
    (made(slow=SCATTER), "open scatter", "would have been seen"),
    (made(EIGHT, slow=LINKS_SCATTER), "open scatter", "links scatter so much"),
    (made(noise=None), "open noise", "not known how steady"),
    (alone(0.6), "remark contention", "0.60 of their rate alone"),
    (alone(0.0), "open contention", ""),
    (ab(at_sender=end().model_copy(update={"sent_bytes": None})), "open interface a",
     "its byte counters could not be read"),
    # rates that are doubtful blame nobody; wrong bytes are no matter of speed
    (slow_in("c", noise=NOISY), "open node c; open noise", "scatter by 8.0%"),
    (slow_in("c", **BUSY), "open node c; open cpu-limited", "processors, not links"),
    (slow_in("c", changes=ASTRAY), "open node c; open interface c", "carried 10%"),
    (slow_in("d", changes=ASTRAY), "fault node d; open interface c", ""),
    (made(changes={("a", "b"): {"wrong_bytes": 1}}, noise=None),
     "fault corrupt a b; open noise", "1 wrong bytes in 1 measurements"),
    (lost(), "fault lost d", "no answer"),
    # many slow links are one finding
    (many("recovered", 1.0), "remark contention a b; remark contention",
     "3 more links were slow (0.60 b -> c, 0.60 c -> d, 0.70 d -> e)"),
    (many("confirmed", 0.5), "fault link a b; open links", ""),
    # each node is to meet enough others
    (met(*"bcdefgh", cut="9 of 14 rounds in 60 s"), "remark coverage", "9 of 14 rounds in 60 s; "),
    (met("b", "c"), "open coverage", "met 2 of 7 others or more"),
    (met(*"cdefgh"), "remark coverage", "each node met 6 of 7 others"),
    # jobs that did not come to their end
    (run(tournament(), note(step(), ended=False)), "open stopped", ""),
    (run(tournament(), note(step("preflight", code=None), **PHASES)),
     "open failed; open not measured", ""),
    (run(tournament(), note(step("tournament", code=1))), "open failed", ""),
    (run(None, note(step("tournament", Trouble(node="b", what="container", found="no image"),
                         code=1))), "open container b; open nothing", ""),
    (came("gave up"), "open gave up d; fault absent d", "tournament: ib0 is not there"),
    (came("not met"), "open not met d; open absent d", "tournament: ib0 is not there"),
    (came(None), "open absent d", ""),
    (run(tournament(), note(step("preflight"), step()), facts=facts_of("abc", MTU="1500")),
     "open unknown d", ""),
    (apart(), "fault MTU a b; open nothing", "packets of 9,000 bytes do not arrive; set it"),
    # clocks, where they are surely off; path MTUs; another fabric than the one that was measured
    (clocks(0.01), "remark clock c", "its clock is 5.0 s behind the others'"),
    (clocks(6.0), "", ""),
    (paths(9000), "", ""),
    (paths(9000, 1500, "ab"), "open path MTU",
     "1 of 12 paths take smaller packets than their interfaces or most paths do (a -> b: 1500)"),
    (paths(8950), "remark path MTU", ""),  # an overlay network, everywhere
    (paths(1500, 1400, "da db dc", mtu=None), "open path MTU", "3 of 12 paths"),
    (ports("Ethernet", "InfiniBand"), "open RDMA", "mlx5_0:1"),
    (ports("InfiniBand", "InfiniBand"), "", ""),
    (ports("Ethernet", "Ethernet"), "", ""),  # RoCE
    (ports(None, "InfiniBand"), "", ""),  # not known
    # uplinks that were not tested, not loaded, or all carry less than their nodes would
    (uplinks("abcdef", "gh"), "open uplinks not tested", "leaf1, leaf2: "),
    (uplinks("abc", *"defgh"), "", ""),  # pairs of single nodes load what there is
    (uplinks("abcd", "gh", "ef", crossed="ae ea bf fb"),
     "remark uplinks not tested; remark uplinks", "leaf2: "),
    (uplinks("abcde", "fgh", crossed="af fa"), "remark uplinks",
     "leaf1 have up to 5 nodes, and 3 pairs crossed at a time: an uplink that lost up to 40%"),
    (uplinks("abcd", "efgh", crossed="ae ea", dead="bf"), "open uplinks failed",
     "1 of 3 measurements gave no number, first b to f: no answer"),
    (uplinks("abcd", "efgh", crossed="ae ea", dead="bf", fields={"lost": {"f": "gone"}}),
     "fault lost f", ""),
    (uplinks("ab", "cd", crossed="ac ca", crossing=0.5), "open two leaf switches",
     "whole leaf switches reach 0.50 of each other"),
    (THREE(crossing=0.5), "remark uplinks", "whole leaf switches reach 0.50 of each other"),
    (THREE(visible_across=0.5), "remark uplinks", "below 0.50 of what is usual within"),
    (THREE(crossing=0.95, visible_across=0.9), "", ""),
    (uplink(), "fault uplink-send leaf1 leaf2", ""),
    (uplink(changes={("a", "b"): {"at_sender": end(carried=0.1)}}),
     "open uplink-send leaf1 leaf2; open interface a", ""),
]  # fmt: skip


@pytest.mark.parametrize(("found", "findings", "words"), ROWS)
def test_what_a_run_shows(found: Run, findings: str, words: str) -> None:
    verdict = judge(found)
    assert said(verdict) == findings
    assert words in "; ".join(finding.evidence for finding in verdict.findings)
    status = "FAIL" if "fault" in findings else "UNDECIDED" if "open" in findings else "PASS"
    assert verdict.status == status


def test_a_pass_names_what_it_would_have_seen() -> None:
    verdict = judge(made())
    assert headline(verdict) == (
        "no node or direction below 0.93 of the median, no link below 0.93 of what its ends reach "
        "with others"
    )
    assert lines(verdict, "r1") == []
    noise = measurement("a", "b", phase="noise")
    found = tournament()
    more = found.model_copy(update={"measurements": (noise, *found.measurements)})
    assert judge(run(more)) == verdict, "other phases count nowhere twice"


@pytest.mark.parametrize(
    ("nodes", "on", "or_else"),
    [("c", "abd c", True), ("c", "ab cd", False), ("c", "abd", False), ("ab", "ab cd", False),
     ("ab", "a b cd", False)],
)  # fmt: skip
def test_suspects_without_others_on_their_leaf(nodes: str, on: str, or_else: bool) -> None:
    slow, kind = ({("a", "b"): 0.25}, "link") if nodes == "ab" else (SLOW, "node")
    again = (retest(kind, tuple(nodes), 0.25, "confirmed"),)
    findings = judge(made(slow=slow, retests=again, switches=leaves(*on.split()))).findings
    (found,) = (one for one in findings if one.weight == "fault")
    assert ("; no other node of leaf" in found.evidence) == or_else


def test_lines_to_paste() -> None:
    assert lines(judge(again("node confirmed", 0.26)), "r1") == [
        "scontrol update NodeName=c State=DRAIN Reason='ic-both 0.26x run=r1'",
        "# once it is fixed: scontrol update NodeName=c State=RESUME",
        "# or keep jobs away from it: --exclude=c",
    ]
    assert lines(judge(ab(wrong_bytes=1)), "r1") == [], "neither end of a link is to be drained"
    # many slow nodes are not drained one by one
    both = tuple(retest("node", (n,), 0.5, "confirmed") for n in "ab")
    verdict = judge(made(EIGHT, retests=both, **HALF))
    assert verdict.status == "FAIL"
    (line,) = lines(verdict, "r1")
    assert line.startswith("# 2 of 8 nodes are slow, more than 1: look for what they share (a, b)")


def test_lines_to_paste_are_what_they_look_like() -> None:
    hostile = "it's; `id` $(id) $HOME\ntouch x"
    fault = Finding(weight="fault", what="node", nodes=(hostile,), ratio=0.3, evidence="slow")
    verdict = Verdict(status="FAIL", findings=(fault,), nodes=4, middle=1e9, visible=0.9)
    told = lines(verdict, hostile)
    assert not [line for line in told if "\n" in line]
    (command,) = (line for line in told if not line.startswith("#"))
    clean = hostile.replace("\n", "?")
    script = f"set -- {command}; printf '%s\\n' \"$@\""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "scontrol", "update", f"NodeName={clean}", "State=DRAIN",
        f"Reason=ic-both 0.30x run={clean}",
    ]  # fmt: skip
