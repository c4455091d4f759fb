"""Answers on accuracy: techniques, their ranking, what a larger batch costs, libraries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.page.answer import THREE, TWO, Answer, Rows, groups, sentence, some
from analysis.stats.power import MARGIN
from analysis.table import Estimate, Row, count, estimate_in, joined, p_value, runs_in_words, signed
from analysis.topics.comparisons.comparison import ALL_DIVERGED, SOME_DIVERGED
from analysis.topics.comparisons.ranking import HIGHER, NOT_DECIDED
from analysis.topics.comparisons.techniques import INCONCLUSIVE
from analysis.topics.topic import namer

#: Workloads, or pairs of batches, that the first screen tells of; the tables have all.
_MOST = 2


def against(found: Rows) -> Iterable[Answer]:
    """The confirmatory family in a few words. ``found``: rows of the table of claims."""
    if not found:
        return
    references = list(dict.fromkeys(row["reference"] for row in found if row["reference"]))
    reference = references[0] if len(references) == 1 else "the reference"
    labels = {row["technique_label"] for row in found}
    what = "techniques" if len(labels) == len(found) and len(references) < 2 else "comparisons"
    by: dict[str, list[str]] = {}
    named = namer(found)
    for row in sorted(found, key=_gain, reverse=True):
        name = named(row)
        if row["verdict"] in ("higher", "lower"):
            name += f" ({signed(3)(row['difference'])})"
        name += f" than {row['reference']}" if len(references) > 1 and row["reference"] else ""
        by.setdefault(row["verdict"], []).append(name)
    if len(found) == 1:
        text = _one_against(found[0], reference)
    else:
        said = []
        for verdict in ("higher", "lower"):
            if names := by.get(verdict):
                ends = "ends" if len(names) == 1 else "end"
                said.append(f"{len(names)} of {len(found)} {what} {ends} {verdict} than "
                            f"{reference}: {some(names)}")  # fmt: skip
        if INCONCLUSIVE in by:
            said.append(_undecided(found, reference, what))
        said += [f"{verdict}: {some(names)}" for verdict, names in by.items()
                 if verdict not in ("higher", "lower", INCONCLUSIVE)]  # fmt: skip
        text = "; ".join(said)
    batches = {row["global_batch"] for row in found}
    batch = batches.pop() if len(batches) == 1 else None
    at = f"At batch {count(batch)}, " if batch is not None else ""
    yield Answer(
        "techniques", "Which technique is better than the reference?", f"{at}{text}.", "claims",
        "tests", {verdict: len(names) for verdict, names in by.items()},
    )  # fmt: skip


def _undecided(found: Rows, reference: str, what: str) -> str:
    """How many are not told apart from the reference, and the largest difference among them."""
    rows = [row for row in found if row["verdict"] == INCONCLUSIVE]
    most = max(rows, key=lambda row: abs(row["difference"] or 0.0))
    value, low, high = (most[f"difference{end}"] for end in ("", "_family_low", "_family_high"))
    # the interval of the family, whose test decides
    said = Estimate(value, low, high).text(signed(3))
    if most["n"] == most["n_reference"]:
        said += f", {runs_in_words(most['n'])} each"
    largest = f"{namer(found)(most)} {said}"
    if len(rows) == 1:
        return f"not told apart from {reference}: {largest}"
    of = "none" if len(rows) == len(found) else f"{len(rows)}"
    differ = "differs" if of == "none" else "do not differ"
    return f"{of} of {len(found)} {what} {differ} detectably from {reference} (largest: {largest})"


def _gain(row: Row) -> float:
    return -math.inf if row["difference"] is None else float(row["difference"])


def _one_against(row: Mapping[str, Any], reference: str) -> str:
    """A family of one."""
    name, note = row["technique_label"], row["difference_note"]
    difference = estimate_in(row, "difference").text(signed(3))
    if row["verdict"] in ("higher", "lower"):
        return f"{name} ends {row['verdict']} than {reference}: difference {difference}"
    if row["verdict"] == INCONCLUSIVE:
        why = f" ({note})" if note else ""
        return f"{name} against {reference} is undecided: difference {difference}{why}"
    if row["verdict"] == SOME_DIVERGED:
        return f"{name} against {reference} confirms nothing: some runs diverged"
    if row["verdict"] == ALL_DIVERGED:
        return f"all runs of {name} diverged"
    return f"{name} is not compared with {reference}" + (f" ({note})" if note else "")


def ranking(found: Rows, pairs: Rows) -> Iterable[Answer]:
    """Of each workload: whether the highest mean is shown to be above the others."""
    same = ("context", "framework", "gpus", "global_batch")
    known = [row for row in found if row["accuracy"] is not None]
    ranked = [rows for rows in groups(known, same) if len(rows) > 1]
    for rows in ranked[:_MOST]:
        ordered = sorted(rows, key=lambda row: -row["accuracy"])
        there = [p for p in pairs if all(p[name] == rows[0][name] for name in same)]
        yield Answer("ranking", "Which technique is best?",
                     sentence(_best(ordered, there, _of(rows[0], ranked))), "ranking", "pairs",
                     {"first": ordered[0]["technique_label"], "accuracy": ordered[0]["accuracy"],
                      "low": ordered[0]["accuracy_low"], "high": ordered[0]["accuracy_high"],
                      "second": ordered[1]["technique_label"]})  # fmt: skip


def _best(ordered: Rows, pairs: Rows, of: str) -> str:
    """``ordered``: rows of one workload by falling mean; ``of``: which, where there are several."""
    first, others = ordered[0], ordered[1:]
    apart = {frozenset((p["technique_label"], p["second"])): p for p in pairs}
    its = [apart.get(frozenset((first["technique_label"], row["technique_label"])))
           for row in others]  # fmt: skip
    tested = [pair for pair in apart.values() if pair["p_holm"] is not None]
    open_ = [pair for pair in tested if pair["verdict"] == NOT_DECIDED]
    low, high = _mean(ordered[-1]), _mean(first)
    if not tested:
        means = joined([_mean(row) for row in ordered[:_MOST]], ", ")
        return f"no difference between techniques is tested{of}; the first means: {means}"
    if not any(pair and pair["verdict"] == HIGHER for pair in its):
        counted = f"{len(tested) - len(open_)} of {len(tested)} pairs"
        none = "no pair is told apart" if len(open_) == len(tested) else f"{counted} are told apart"
        return (
            f"no technique is shown to be best{of}: the means of {len(ordered)} lie between {low} "
            f"and {high}, and {none}{_more(open_)}"
        )
    above = [row["technique_label"] for row, pair in zip(others, its, strict=True)
             if pair and pair["verdict"] == HIGHER]  # fmt: skip
    near = [row["technique_label"] for row, pair in zip(others, its, strict=True)
            if pair in open_]  # fmt: skip
    shown = [pair for pair in its if pair and pair["verdict"] == HIGHER]
    p, family = max(pair["p_holm"] for pair in shown), shown[0]["family"]
    over = f" after correction for {family} pairs" if family > 1 else ""
    text = f"the highest mean{of} is {high}, shown to be above {some(above)} (p "
    text += f"{'' if p < 0.001 or len(shown) == 1 else 'at most '}{p_value(p)}{over})"
    if near:
        nearest = [pair for pair in its if pair in open_][:1]
        more = _more(nearest, f"{near[0]}: " if len(near) > 1 else "")
        text += f"; not told apart from {some(near)}{more}"
    return text


def _more(open_: Rows, whose: str = "") -> str:
    """How many more runs would tell the open pairs apart, if they differ."""
    needed = [pair["further_runs"] for pair in open_ if pair["further_runs"]]
    if not needed:
        return ""
    more = f"{count(max(needed))} more runs of each would detect a difference of {MARGIN:g}"
    return f" ({whose}{more})"


def _mean(row: Row) -> str:
    text = f"{row['technique_label']} {estimate_in(row, 'accuracy').text(THREE)}"
    lost = row["n_diverged"]
    return f"{text}, but {lost} of its {runs_in_words(row['n'])} diverged" if lost else text


def larger_batch(found: Rows) -> Iterable[Answer]:
    """Who keeps most and least of its accuracy, for each pair of batches and workload."""
    known = [row for row in found if row["difference"] is not None]
    same = ("global_batch_small", "global_batch_large", "framework", "context")
    compared = groups(known, same)
    for rows in compared[:_MOST]:
        lost = [row for row in rows if row["n_diverged_small"] or row["n_diverged_large"]]
        whole = sorted((r for r in rows if r not in lost), key=lambda row: -row["difference"])
        if not whole:
            continue
        best, worst = whole[0], whole[-1]
        small, large = (count(best[f"global_batch_{end}"]) for end in ("small", "large"))
        span = f"from batch {small} to {large}{_of(best, compared)}"
        if len(whole) == 1:
            text = f"{span}, {best['technique_label']} {_change(best)}"
        else:
            changes = [estimate_in(row, "difference").text(signed(3)) for row in (worst, best)]
            ends = [f"{change} with {row['technique_label']}"
                    for change, row in zip(changes, (worst, best), strict=True)]  # fmt: skip
            text = f"{span}, the mean changes of accuracy of {len(whole)} techniques lie between "
            text += f"{ends[0]} and {ends[1]}; no test compares them"
        if lost:
            text += f"; some runs diverged of {some([row['technique_label'] for row in lost])}"
        yield Answer("larger_batch", "What does a larger batch cost?", sentence(text),
                     "larger_batch", "runs",
                     {"technique": best["technique_label"], "difference": best["difference"],
                      "low": best["difference_low"], "high": best["difference_high"]})  # fmt: skip


def _of(row: Row, compared: list[list[Row]]) -> str:
    """What sets one group of rows apart from the others; empty where there is one group."""
    names = [(rows[0]["context"] or "", rows[0]["framework"] or "") for rows in compared]
    context, framework = row["context"] or "", row["framework"] or ""
    if len(compared) < 2:
        return ""
    several = len({name for _, name in names}) > 1 and framework not in context
    told = joined([context, framework if several else ""], ", ")
    return f" ({told})" if told else ""


def _change(row: Row) -> str:
    """What is shown of one change of accuracy."""
    value, low, high, *_ = estimate_in(row, "difference")
    if value is None or low is None or high is None or low <= 0 <= high:
        said = estimate_in(row, "difference").text(signed(3))
        return f"is not shown to change in accuracy: {said}"
    small, large = sorted((abs(low), abs(high)))
    verb = "loses" if value < 0 else "gains"
    return f"{verb} {THREE(abs(value))} ({THREE(small)} to {THREE(large)}) of accuracy"


def libraries(found: Rows) -> Iterable[Answer]:
    """Ratio of throughputs and verdict on accuracy, for each pair of libraries."""
    for rows in groups(found, ("reference", "library")):
        first = rows[0]
        ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
        verdicts = list(dict.fromkeys(row["verdict"] for row in rows))
        if len(rows) == 1 and ratios:
            ratio = estimate_in(first, "ratio").text(TWO)
            text = f"{first['reference']} has {ratio} times the throughput of {first['library']}"
        elif ratios:
            text = (
                f"{first['reference']} has {TWO(min(ratios))} to {TWO(max(ratios))} times the "
                f"throughput of {first['library']} in {len(rows)} conditions"
            )
        else:
            text = f"{first['reference']} against {first['library']}"
        text += f"; accuracy: {some(verdicts)}."
        yield Answer("libraries", "Does the library matter?", text, "frameworks", "tests",
                     {"reference": first["reference"], "library": first["library"],
                      "ratio": first["ratio"] if len(rows) == 1 else None,
                      "low": first["ratio_low"] if len(rows) == 1 else None,
                      "high": first["ratio_high"] if len(rows) == 1 else None})  # fmt: skip
