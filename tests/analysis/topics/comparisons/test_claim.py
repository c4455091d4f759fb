"""Sentences about families of claims: each says its counts, its reasons and what would decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analysis.table import Estimate
from analysis.topics.comparisons import claim
from analysis.topics.comparisons.claim import Claim
from analysis.topics.comparisons.contrast import Contrast


def of(subject: str, result: str = "undecided", other: str = "naive", **more: Any) -> Claim:
    found = Estimate(0.1, 0.05, 0.15, 6)
    return Claim(subject, other, result, found, Contrast(), ((3, 3), (3, 3)), **more)


VERBS = {"higher": ("is above", "are above")}


def test_what_is_said_of_one_is_turned_for_the_other() -> None:
    (turned,) = (of("lamb", "higher", images=0.5).turned(),)
    assert (turned.subject, turned.other, turned.result) == ("naive", "lamb", "lower")
    assert turned.measured == "-0.100 (-0.150 to -0.050), 3 runs each" and turned.images == 2


def test_counts_tell_what_was_tested() -> None:
    every = [of("a", "higher"), of("b"), of("c", "untested"), of("d", "untested")]
    expected = "1 of 4 pairs is shown to differ, 1 is undecided, 2 are untested"
    assert claim.counts(every, "pair") == expected
    assert claim.counts(every[:1], "pair") == "1 of 1 pair is shown to differ"


def test_a_sentence_for_each_result_has_its_number_and_its_reason() -> None:
    none = Estimate(None)
    every = [
        of("a", "higher"),
        of("b", "higher"),
        of("c"),
        of("d", "untested", why="n=1"),
        of("e", "untested", why="some runs diverged"),
        of("f", "not compared", why="no run"),
    ]
    every[-1] = replace(every[-1], estimate=none)
    assert claim.sentences(every, VERBS) == [
        "2 of 6 are above: a +0.100 (+0.050 to +0.150), b +0.100 (+0.050 to +0.150)",
        "1 of 6 (c) is undecided: +0.100 (+0.050 to +0.150), 3 runs each",
        "2 of 6 are untested: d +0.100 (+0.050 to +0.150), e +0.100 (+0.050 to +0.150) (reasons in "
        "the table)",
        "1 of 6 (f) is not compared (no run)",
    ]
    (alone,) = claim.sentences(every[:1], VERBS)
    assert alone == "a is above: +0.100 (+0.050 to +0.150), 3 runs each"


@pytest.mark.parametrize(
    ("further", "said"),
    [
        ({"a": 1}, "1 more run each would show a difference of 0.02"),
        ({"a": 400}, "400 more runs each would show a difference of 0.02"),
        ({"a": 8, "b": 40, "c": None}, "8 to 40 more runs each would show a difference of 0.02"),
        ({"a": 8, "b": 400}, "runs of b vary too much to be decided; 8 more runs each would show "
         "a difference of 0.02 between others"),
        ({"a": None}, ""),
    ],
)  # fmt: skip
def test_what_would_decide(further: dict[str, int | None], said: str) -> None:
    """A number of thousands is no advice, and hides the few that others need."""
    assert claim.needed([of(name, further=runs) for name, runs in further.items()]) == said


def test_the_one_that_scatters_is_named_once() -> None:
    pairs = [of(a, other=b, further=500) for a, b in (("larc", "a"), ("b", "larc"), ("larc", "c"))]
    assert claim.needed(pairs) == "runs of larc vary too much to be decided"
    pairs = [*(of(name, further=500) for name in ("a", "b")), of("c", "higher")]
    assert claim.needed(pairs) == "runs of a, b vary too much to be decided", "naive decides c"


def test_of_many_names_a_sentence_has_what_fits_and_counts_the_rest() -> None:
    (text,) = claim.sentences([of(f"a_long_name_{i}", "higher") for i in range(9)], VERBS)
    number = "+0.100 (+0.050 to +0.150)"
    assert text == f"9 of 9 are above: from a_long_name_0 {number} to a_long_name_8 {number}"
    assert claim.names([f"a_long_name_{i}" for i in range(9)]).endswith("a_long_name_2 and 6 more")
    assert claim.names(["a" * 90, "b"]) == f"{'a' * 90} and 1 more"


def test_an_answer_leaves_out_what_it_cannot_hold() -> None:
    assert claim.fitting("v" * 200, ["a" * 90, "b" * 90, "", "c"]) == ["a" * 90, "c"]
