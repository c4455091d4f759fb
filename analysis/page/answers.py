"""The answers of a report: sentences with a number, its interval and the number of runs.

Which answers a sweep gets depends on what it varies; a question that it cannot answer is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.records.frames import Frames
from analysis.stats.power import MARGIN
from analysis.table import (
    Table,
    count,
    estimate_in,
    joined,
    number,
    p_value,
    plain_rows,
    runs_in_words,
    signed,
    significant,
)
from analysis.topics.comparisons.comparison import ALL_DIVERGED, SOME_DIVERGED
from analysis.topics.comparisons.ranking import NOT_DECIDED
from analysis.topics.scaling.loss import largest_cause
from analysis.topics.topic import with_context

_three, _two = number(3), number(2)
#: Efficiency below this is worth a word.
_GOOD = 0.9
#: Verdicts that read badly in a sentence.
_OPEN = {"inconclusive": "undecided"}
#: Names in one sentence; more are counted.
_NAMED = 3


@dataclass(frozen=True)
class Answer:
    """``evidence``: anchor of what shows it. ``numbers``: what the sentence says, for programs."""

    key: str
    question: str
    text: str
    evidence: str = ""
    link: str = "evidence"
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        plain = {name: None if pd.isna(v) else v for name, v in self.numbers.items()}
        return {"key": self.key, "question": self.question, "text": self.text,
                "evidence": self.evidence, "numbers": plain}  # fmt: skip


def answers(frames: Frames, tables: Mapping[str, Table]) -> tuple[Answer, ...]:
    """In the order in which a reader asks; see the module."""
    rows = {key: plain_rows(table.data) for key, table in tables.items()}
    found = [*_complete(frames)]
    if len(frames.runs):
        found += [
            *_scaling(frames, rows),
            *_against(rows),
            *_ranking(rows),
            *_larger_batch(rows),
            *_libraries(rows),
            *_targets(rows),
        ]
        found += _one(rows) if all(answer.key == "complete" for answer in found) else []
    return tuple(found)


def _complete(frames: Frames) -> Iterable[Answer]:
    usable, planned = len(frames.runs), len(frames.planned)
    if not planned:
        yield Answer("complete", "Is it complete?", "The plan has no cells: there is nothing to "
                     "report.", numbers={"usable": 0, "planned": 0})  # fmt: skip
    if not frames.problems:
        return
    kinds: dict[str, int] = {}
    for problem in frames.problems:
        kinds[problem.kind] = kinds.get(problem.kind, 0) + 1
    lacking = joined([f"{n:,} {kind}" for kind, n in kinds.items()], ", ")
    text = f"{usable:,} of {planned:,} planned cells {'is' if usable == 1 else 'are'} usable "
    text += f"({lacking}); make sweep runs the rest."
    text += "" if usable else " Nothing can be compared or concluded yet."
    yield Answer("complete", "Is it complete?", text, "cells_not_used", "cells",
                 {"usable": usable, "planned": planned, **kinds})  # fmt: skip


def _scaling(frames: Frames, rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    known = [row for row in rows.get("scaling", ()) if row["efficiency"] is not None]
    several = [row for row in known if row["gpus"] != row["n0"]]
    if not several:
        return
    most = max(row["gpus"] for row in several)
    largest = sorted((r for r in several if r["gpus"] == most), key=lambda r: -r["efficiency"])
    best, worst = largest[0], largest[-1]
    what = "GPUs" if set(frames.runs["device_kind"]) == {"gpu"} else "ranks"
    if len(largest) == 1:
        said = estimate_in(best, "efficiency")
        text = (
            f"At {most} {what}, {_named(best, known)} reaches an efficiency of {said.text(_two)}, "
            f"{_two(best['speedup'])} times the throughput of {best['n0']}, "
            f"{runs_in_words(best['n'])}."
        )
        same = sorted((r for r in known if r["series"] == best["series"]), key=lambda r: r["gpus"])
        below = [r["gpus"] for r in same if r["efficiency"] < _GOOD]
        text += f" It is below {_GOOD} from {below[0]} {what} on." if below else ""
    else:
        ends = (
            f"{estimate_in(r, 'efficiency').text(_two)} with {_named(r, known)}"
            for r in (best, worst)
        )
        text = f"At {most} {what}, efficiency is {' and '.join(ends)}"
        text += "." if len(largest) == 2 else f", the best and worst of {len(largest)}."
    text += _cause(rows.get("lost_efficiency", ()), worst)
    numbers = {"gpus": most, "technique": best["technique_label"],
               "efficiency": best["efficiency"], "low": best["efficiency_low"],
               "high": best["efficiency_high"], "runs": best["n"]}  # fmt: skip
    yield Answer("scaling", "How far does it scale?", text, "scaling", "efficiency", numbers)


def _cause(losses: Sequence[dict[str, Any]], row: Mapping[str, Any]) -> str:
    """The largest loss of this row of the scaling table, as a sentence."""
    for loss in losses:
        same = ("technique_label", "scaling", "gpus", "context")
        if all(loss[name] == row[name] for name in same):
            cause = largest_cause(loss)
            return f" Largest loss: {cause.text}." if cause else ""
    return ""


def _larger_batch(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    known = [row for row in rows.get("larger_batch", ()) if row["difference"] is not None]
    if not known:
        return
    ordered = sorted(known, key=lambda row: -row["difference"])
    best, worst = ordered[0], ordered[-1]
    span = f"from batch {count(best['global_batch_small'])} to {count(best['global_batch_large'])}"
    if len(known) == 1:
        text = f"{_named(best, known)} {_change(best)} of accuracy {span}."
    else:
        text = (
            f"{span[0].upper()}{span[1:]}, {_named(best, known)} does best: it {_change(best)} of "
            f"accuracy; {_named(worst, known)} does worst: it {_change(worst)}."
        )
    numbers = {"technique": best["technique_label"], "difference": best["difference"],
               "low": best["difference_low"], "high": best["difference_high"]}  # fmt: skip
    yield Answer("larger_batch", "What does a larger batch cost?", text, "larger_batch", "runs",
                 numbers)  # fmt: skip


def _change(row: Mapping[str, Any]) -> str:
    lost = -row["difference"]
    said = f"{'loses' if lost >= 0 else 'gains'} {_three(abs(lost))}"
    ends = sorted(-row[f"difference_{end}"] for end in ("low", "high")
                  if row[f"difference_{end}"] is not None)  # fmt: skip
    if len(ends) < 2:
        return said
    if lost < 0:
        ends = sorted(-end for end in ends)
    return f"{said} ({_three(ends[0])} to {_three(ends[1])})"


def _against(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    """The confirmatory family in a few words."""
    found = rows.get("claims", ())
    if not found:
        return
    reference = next((row["reference"] for row in found if row["reference"]), "the reference")
    by: dict[str, list[str]] = {}
    for row in found:
        by.setdefault(row["verdict"], []).append(_named(row, found))
    if len(found) == 1:
        text = _one_against(found[0], reference)
    else:
        said = []
        for verdict in ("higher", "lower"):
            if names := by.get(verdict):
                ends = "ends" if len(names) == 1 else "end"
                said.append(f"{len(names)} of {len(found)} techniques {ends} {verdict} than "
                            f"{reference}: {_some(names)}")  # fmt: skip
        said += [f"{_OPEN.get(verdict, verdict)}: {_some(names)}" for verdict, names in by.items()
                 if verdict not in ("higher", "lower")]  # fmt: skip
        text = "; ".join(said)
    batches = {row["global_batch"] for row in found}
    batch = batches.pop() if len(batches) == 1 else None
    at = f"At batch {count(batch)}, " if batch is not None else ""
    yield Answer(
        "techniques", "Which technique is better than the reference?", f"{at}{text}.", "claims",
        "tests", {verdict: len(names) for verdict, names in by.items()},
    )  # fmt: skip


def _one_against(row: Mapping[str, Any], reference: str) -> str:
    """A family of one."""
    name, note = row["technique_label"], row["difference_note"]
    difference = estimate_in(row, "difference").text(signed(3))
    if row["verdict"] in ("higher", "lower"):
        return f"{name} ends {row['verdict']} than {reference}: difference {difference}"
    if row["verdict"] == "inconclusive":
        why = f" ({note})" if note else ""
        return f"{name} against {reference} is undecided: difference {difference}{why}"
    if row["verdict"] == SOME_DIVERGED:
        return f"{name} against {reference} confirms nothing: some runs diverged"
    if row["verdict"] == ALL_DIVERGED:
        return f"all runs of {name} diverged"
    return f"{name} is not compared with {reference}" + (f" ({note})" if note else "")


def _ranking(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    """The highest means, and whether the first two are told apart."""
    found = [row for row in rows.get("ranking", ()) if row["accuracy"] is not None]
    if len(found) < 2:
        return
    first, second = sorted(found, key=lambda row: -row["accuracy"])[:2]
    said = (f"{_named(row, found)} {estimate_in(row, 'accuracy').text(_three)}"
            for row in (first, second))  # fmt: skip
    text = f"Highest means: {', '.join(said)}"
    pair = next(
        (r for r in rows.get("pairs", ())
         if {r["technique_label"], r["second"]} == {first["technique_label"],
                                                         second["technique_label"]}),
        None,
    )  # fmt: skip
    if pair is not None and pair["p_holm"] is not None:
        apart = "told apart" if pair["verdict"] != NOT_DECIDED else "not told apart"
        text += f"; these two are {apart} (p {p_value(pair['p_holm'])}, Holm over all pairs)"
        if pair["verdict"] == NOT_DECIDED and pair["further_runs"]:
            text += f"; {count(pair['further_runs'])} more runs each would show a difference of "
            text += f"{MARGIN:g}"
    yield Answer("ranking", "Which technique is best?", f"{text}.", "ranking", "pairs",
                 {"first": first["technique_label"], "accuracy": first["accuracy"],
                  "low": first["accuracy_low"], "high": first["accuracy_high"],
                  "second": second["technique_label"]})  # fmt: skip


def _libraries(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    for row in rows.get("frameworks", ())[:2]:
        ratio = estimate_in(row, "ratio")
        text = f"{row['reference']} has {ratio.text(_two)} times the throughput of "
        text += f"{row['library']}; accuracy: {row['verdict']}."
        if ratio.value is None:
            text = f"{row['reference']} against {row['library']}: accuracy {row['verdict']}."
        yield Answer("libraries", "Does the library matter?", text, "frameworks", "tests",
                     {"reference": row["reference"], "library": row["library"],
                      "ratio": ratio.value, "low": ratio.low, "high": ratio.high})  # fmt: skip


def _targets(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    found = rows.get("targets", ())
    if not found:
        return
    reached = [row for row in found if row["seconds"] is not None]
    met = sum(round(row["reached"] * row["n"]) for row in found)
    runs = sum(row["n"] for row in found)
    goals = {row["target"] for row in found}
    text = f"{met:,} of {runs_in_words(runs)} reached "
    text += f"{goals.pop()}" if len(goals) == 1 else "their targets"
    if reached:
        fast = min(reached, key=lambda row: row["seconds"])
        text += f"; soonest {_named(fast, found)} at batch {count(fast['global_batch'])}: median "
        text += f"{number(0)(fast['seconds'])} s, {fast['epoch']:g} epochs"
    yield Answer("targets", "How long does the target take?", f"{text}.", "targets", "medians",
                 {"reached": met, "runs": runs})  # fmt: skip


def _one(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[Answer]:
    """A sweep that varies nothing: what its runs did."""
    for row in rows.get("convergence", ())[:1]:
        accuracy = estimate_in(row, "validation_accuracy")
        if row["diverged"] == 1:
            which = "the only run" if row["n"] == 1 else f"all {runs_in_words(row['n'])}"
            yield Answer("one", "What did it do?", f"{with_context(row)}: {which} diverged.",
                         "convergence", "runs", {"accuracy": None})  # fmt: skip
            return
        text = f"{with_context(row)}: validation accuracy {accuracy.text(_three)}"
        scaled = next(iter(rows.get("scaling", ())), None)
        if scaled is not None and scaled["images_per_s"] is not None:
            text += f", {significant(scaled['images_per_s'])} images/s"
        text += f", {number(0)(row['train_s'])} s of training" if row["train_s"] else ""
        yield Answer("one", "What did it do?", f"{text}, {runs_in_words(row['n'])}.",
                     "convergence", "runs", {"accuracy": accuracy.value})  # fmt: skip


def _named(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Technique of a row, and its context where the rows differ in it."""
    if len({other["context"] for other in rows}) < 2 or not row["context"]:
        return str(row["technique_label"])
    return f"{row['technique_label']} ({row['context']})"


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
