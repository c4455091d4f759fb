"""A claim: what one comparison shows; and sentences about a family of them.

Tables and CSVs have the columns of a Contrast. Sentences are made from the same columns, here
alone, so that no sentence claims what no interval shows, or calls undecided what nobody tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis import fmt
from analysis.stats.levels import DETECTED, SAME_BUDGET
from analysis.stats.power import MAX_RUNS, TOO_MANY
from analysis.table import Estimate, Row, estimate_in
from analysis.topics.comparisons.contrast import (
    HIGHER,
    LOWER,
    NOT_COMPARED,
    RESULTS,
    UNDECIDED,
    Contrast,
)
from analysis.topics.names import only
from analysis.topics.topic import MOST_CHARACTERS, Answer

#: Characters of the names in one sentence; answers of one kind.
_NAMES, _ANSWERS = 50, 3
#: More further runs than these are no advice.
_WORTH = 100


@dataclass(frozen=True)
class Claim:
    """``subject`` against ``other``; ``estimate`` has the simultaneous interval.

    ``runs``: usable and planned ones of the subject, then of the other. ``why``: there is no test.
    ``images``: of the subject's runs, as a multiple of the other's. ``skewed``: accuracies lie so
    close to 0 or 1 that tests err more often. ``further``: runs that would decide it.
    """

    subject: str
    other: str
    result: str
    estimate: Estimate
    asks: Contrast
    runs: tuple[tuple[int, int], ...]
    why: str = ""
    images: float | None = None
    skewed: bool = False
    further: int | None = None

    @classmethod
    def of(cls, row: Row, asks: Contrast, subject: str, other: str, *ends: str) -> Claim:
        """``ends``: of the columns of the subject and of the other."""
        too_many = MAX_RUNS if row.get("further_runs_note") == TOO_MANY else None
        return cls(
            subject, other, row[f"{asks.tests}verdict"], estimate_in(row, f"{asks.name}_family"),
            asks, tuple((row[f"n{end}"] or 0, row[f"n_planned{end}"] or 0) for end in ends),
            row[f"{asks.tests}verdict_why"] or "", row.get("images_ratio"),
            bool(row.get("skewed")), row.get("further_runs") or too_many,
        )  # fmt: skip

    @property
    def is_shown(self) -> bool:
        return self.result in (HIGHER, LOWER)

    @property
    def number(self) -> str:
        return self.estimate.text(self.asks.write) + (" times" if self.asks.ratio else "")

    @property
    def measured(self) -> str:
        """``+0.100 (+0.094 to +0.106), 3 runs each``."""
        (n, _), (others, _) = self.runs
        each = "each" if n == others else f"against {others}"
        return f"{self.number}, {fmt.runs(n)} {each}"

    def turned(self) -> Claim:
        """The same, said of the other one."""
        value, high, low = (None if end is None else -end for end in self.estimate[:3])
        found = self.estimate._replace(value=value, low=low, high=high)
        result = {HIGHER: LOWER, LOWER: HIGHER}.get(self.result, self.result)
        return replace(self, subject=self.other, other=self.subject, result=result, estimate=found,
                       runs=self.runs[::-1], images=self.images and 1 / self.images)  # fmt: skip


def by_result(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Those that there are, in the order in which sentences have them; the largest first."""
    ordered = sorted(claims, key=lambda one: -abs(one.estimate.value or 0))
    found = {result: [one for one in ordered if one.result == result] for result in RESULTS}
    return {result: own for result, own in found.items() if own}


def sentences(
    claims: Sequence[Claim], verbs: Mapping[str, tuple[str, str]], other: str = ""
) -> list[str]:
    """One per result, without its full stop. ``verbs``: by result, of one subject and of several,
    with {} for ``other``; one that is missing is the result itself."""
    size, said = len(claims), []
    for result, own in by_result(claims).items():
        first, others = own[0], own[1:]
        verb = verbs.get(result, (f"is {result}", f"are {result}"))[bool(others)]
        which = f"{len(own)} of {size}{'' if others else f' ({first.subject})'}"
        which = which if size > 1 else first.subject
        reason = only([one.why for one in own])
        reason = "" if reason == "" else f" ({reason or 'reasons in the table'})"
        numbers = first.measured if first.estimate.value is not None else ""
        verb = verb.format(other).rstrip()
        text = fmt.joined([f"{which} {verb}", _listed(own) if others else numbers], ": ")
        said.append(f"{text}{reason}")
    return said


def _listed(claims: Sequence[Claim]) -> str:
    """Of several: names, the first with its number; of two both, of many the first and the last."""
    every = [one.subject for one in claims]
    if claims[0].estimate.value is None:
        return names(every)
    first, last = (f"{one.subject} {one.number}" for one in (claims[0], claims[-1]))
    if len(", ".join(every)) > _NAMES and claims[2:]:
        return f"from {first} to {last}"
    return ", ".join([first, *(every[1:] if claims[2:] else [last])])


def names(every: Sequence[str]) -> str:
    """``a, b and 7 more``: as many as a sentence can hold, at least one of them."""
    count = 1
    while count < len(every) and len(", ".join(every[: count + 1])) <= _NAMES:
        count += 1
    return fmt.first_of(every, count)


def counts(claims: Sequence[Claim], what: str) -> str:
    """``2 of 12 pairs are shown to differ, 1 is undecided, 9 are untested``."""
    shown = sum(one.is_shown for one in claims)
    number = 1 if len(claims) == 1 else shown
    parts = [(f"{shown} of {fmt.counted(len(claims), what)}", number, "shown to differ")]
    parts += [(str(len(own)), len(own), result)
              for result, own in by_result(claims).items() if not own[0].is_shown]  # fmt: skip
    return ", ".join(f"{which} {'is' if n == 1 else 'are'} {how}" for which, n, how in parts)


def cautions(claims: Sequence[Claim]) -> list[str]:
    """What a reader of these claims should know: each a sentence without its full stop."""
    claims = [one for one in claims if one.result != NOT_COMPARED]
    lost = [f"{name} ({n} of {planned})" for one in claims
            for name, (n, planned) in zip((one.subject, one.other), one.runs, strict=True)
            if n < planned]  # fmt: skip
    uneven = [f"{one.subject} saw {one.images:.2g} times those of {one.other}"
              for one in claims if one.images and abs(one.images - 1) >= SAME_BUDGET]  # fmt: skip
    skewed = [one.subject for one in claims if one.skewed]
    found = {"planned runs are missing": lost, "images are unequal": uneven,
             "close to 0 or 1, up to 10 % of claims are false": skewed}  # fmt: skip
    return [f"{what}: {names([*dict.fromkeys(own)])}" for what, own in found.items() if own]


def needed(claims: Sequence[Claim]) -> str:
    """How many more runs would decide the undecided ones; empty where unknown."""
    known = [one for one in claims if one.result == UNDECIDED and one.further]
    most = _WORTH if known[1:] else MAX_RUNS - 1
    many = [one for one in known if (one.further or 0) > most]
    few = sorted(one.further or 0 for one in known if (one.further or 0) <= most)
    calm = {name for one in claims if one.result != UNDECIDED or (one.further or most) <= most
            for name in (one.subject, one.other)}  # fmt: skip
    parts = [f"runs of {_in_all(many, calm)} vary too much to be decided"] if many else []
    if few:
        ends = " to ".join(f"{runs:,}" for runs in dict.fromkeys([few[0], few[-1]]))
        each = f"{ends} more {'run' if few[-1] == 1 else 'runs'} each"
        among = " between others" if many else ""
        parts.append(f"{each} would show a difference of {DETECTED:g}{among}")
    return "; ".join(parts)


def _in_all(claims: Sequence[Claim], calm: Container[str]) -> str:
    """Few names, one of which each claim has; none of the ``calm`` ones, if another can explain."""
    found = list[str]()
    while claims and len(found) < 3:
        every = [name for one in claims for name in (one.subject, one.other)]
        loud = Counter(name for name in every if name not in calm) or Counter(every)
        found.append(loud.most_common(1)[0][0])
        claims = [one for one in claims if found[-1] not in (one.subject, one.other)]
    return ", ".join([*found, *(["others"] if claims else [])])


def told(
    key: str, evidence: str, link: str, found: Sequence[tuple[str, str, Sequence[str]]]
) -> Iterator[Answer]:
    """Answers to a few, each of its question, its verdict and what supports it; the last one counts
    the others, which the tables have."""
    for place, (question, verdict, more) in enumerate(found[:_ANSWERS], 1):
        left = len(found) - _ANSWERS if place == _ANSWERS else 0
        others = f"{left} more in the tables" if left > 0 else ""
        text = fmt.sentence(verdict)
        yield Answer(key, question, text, evidence, link, fitting(text, [others, *more]))


def fitting(verdict: str, more: Iterable[str]) -> list[str]:
    """Of ``more``, in its order, what an answer can hold beside its verdict."""
    room, kept = MOST_CHARACTERS - len(verdict) - 1, []
    for text in more:
        if text and len(text) + 2 <= room:
            kept.append(text)
            room -= len(text) + 2
    return kept
