"""Answers on accuracy: techniques, their ranking, what a larger batch costs, libraries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.page.answer import THREE, TWO, Answer, Rows, groups, sentence, some
from analysis.stats.power import MARGIN
from analysis.table import Row, count, estimate_in, joined, p_value, runs_in_words, signed
from analysis.topics.comparisons.comparison import ALL_DIVERGED, SOME_DIVERGED
from analysis.topics.comparisons.ranking import NOT_DECIDED
from analysis.topics.topic import namer

#: Verdicts that read badly in a sentence.
_OPEN = {"inconclusive": "undecided"}
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
        said += [f"{_OPEN.get(verdict, verdict)}: {some(names)}" for verdict, names in by.items()
                 if verdict not in ("higher", "lower")]  # fmt: skip
        text = "; ".join(said)
    batches = {row["global_batch"] for row in found}
    batch = batches.pop() if len(batches) == 1 else None
    at = f"At batch {count(batch)}, " if batch is not None else ""
    yield Answer(
        "techniques", "Which technique is better than the reference?", f"{at}{text}.", "claims",
        "tests", {verdict: len(names) for verdict, names in by.items()},
    )  # fmt: skip


def _gain(row: Row) -> float:
    return -math.inf if row["difference"] is None else float(row["difference"])


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


def ranking(found: Rows, pairs: Rows) -> Iterable[Answer]:
    """The highest means of each workload, and whether the first two are told apart."""
    same = ("context", "framework", "gpus", "global_batch")
    known = [row for row in found if row["accuracy"] is not None]
    ranked = [rows for rows in groups(known, same) if len(rows) > 1]
    for rows in ranked[:_MOST]:
        first, second = sorted(rows, key=lambda row: -row["accuracy"])[:2]
        text = f"highest means{_of(rows[0], ranked)}: {_mean(first)}, {_mean(second)}"
        if first["n"] == second["n"] and not first["n_diverged"] + second["n_diverged"]:
            text += f", {runs_in_words(first['n'])} each"
        ends = {first["technique_label"], second["technique_label"]}
        pair = next(
            (p for p in pairs if {p["technique_label"], p["second"]} == ends
             and all(p[name] == first[name] for name in same)),
            None,
        )  # fmt: skip
        text += _apart(pair) if pair is not None else ""
        yield Answer("ranking", "Which technique is best?", sentence(text), "ranking", "pairs",
                     {"first": first["technique_label"], "accuracy": first["accuracy"],
                      "low": first["accuracy_low"], "high": first["accuracy_high"],
                      "second": second["technique_label"]})  # fmt: skip


def _mean(row: Row) -> str:
    text = f"{row['technique_label']} {estimate_in(row, 'accuracy').text(THREE)}"
    lost = row["n_diverged"]
    return f"{text}, but {lost} of its {runs_in_words(row['n'])} diverged" if lost else text


def _apart(pair: Row) -> str:
    """Whether two techniques are told apart, after their names."""
    if pair["p_holm"] is None:
        return "; whether these two differ is not tested"
    open_ = pair["verdict"] == NOT_DECIDED
    pairs = pair["family"]
    over = f"p {p_value(pair['p_holm'])}" + (f" after correction for {pairs} pairs" * (pairs > 1))
    shown = "the difference may be chance" if open_ else "the difference is shown"
    text = f"; {shown} ({over})"
    if open_ and pair["further_runs"]:
        more = count(pair["further_runs"])
        text += f"; {more} more runs of each would detect a difference of {MARGIN:g}"
    return text


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
            text = f"{span}, {best['technique_label']} {_change(best)} of accuracy"
        else:
            ends = [f"{row['technique_label']}, {estimate_in(row, 'difference').text(signed(3))}"
                    for row in (best, worst)]  # fmt: skip
            text = f"{span}, the mean change of accuracy is highest for {ends[0]}, and lowest for "
            text += ends[1]
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


def _change(row: Mapping[str, Any]) -> str:
    lost = -row["difference"]
    said = f"{'loses' if lost >= 0 else 'gains'} {THREE(abs(lost))}"
    ends = sorted(-row[f"difference_{end}"] for end in ("low", "high")
                  if row[f"difference_{end}"] is not None)  # fmt: skip
    if len(ends) < 2:
        return said
    if lost < 0:
        ends = sorted(-end for end in ends)
    return f"{said} ({THREE(ends[0])} to {THREE(ends[1])})"


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
