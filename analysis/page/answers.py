"""The answers of a report: sentences with a number, its interval and the number of runs.

Which answers a sweep gets depends on what it varies; a question that it cannot answer is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pandas as pd

from analysis.page.accuracy_answers import against, larger_batch, libraries, ranking
from analysis.page.answer import THREE, Answer, Rows, groups, sentence
from analysis.page.failures import complete
from analysis.page.parts import parts
from analysis.page.scaling_answers import scaling
from analysis.records.frames import Frames
from analysis.records.labels import without_batch
from analysis.stats.differences import ratio
from analysis.table import (
    Estimate,
    Table,
    count,
    estimate_in,
    joined,
    number,
    plain_rows,
    runs_in_words,
    significant,
)
from analysis.topics import axes, ranks
from analysis.topics.convergence.critical_batch import images
from analysis.topics.scaling.nodes import blamed, ready_command, suspects
from analysis.topics.topic import named, only, with_context

#: Conditions of a sweep that compares nothing, or critical batches, on the first screen.
_MOST = 3


def answers(frames: Frames, tables: Mapping[str, Table], failures: list[str]) -> tuple[Answer, ...]:
    """In the order in which a reader asks; see the module.

    Args:
        failures: gets a sentence for each answer that could not be made.
    """
    rows = {key: plain_rows(table.data) for key, table in tables.items()}

    def found(*questions: Callable[[], Iterable[Answer]]) -> list[Answer]:
        made = parts([partial(_all, one) for one in questions], "An answer", failures)
        return [answer for own in made for answer in own]

    first = found(lambda: complete(frames))
    if not len(frames.runs):
        return tuple(first)
    first += found(
        lambda: scaling(frames, rows),
        lambda: against(rows.get("claims", ())),
        lambda: ranking(rows.get("ranking", ()), rows.get("pairs", ())),
        lambda: larger_batch(rows.get("larger_batch", ())),
        lambda: libraries(rows.get("frameworks", ())),
        lambda: axes.answers(rows.get("axes", ())),
        lambda: _sharpness(frames.runs),
        lambda: _targets(rows.get("targets", ())),
        lambda: _critical_batch(rows.get("critical_batch", ())),
        lambda: _nodes(frames, rows.get("node_effects", ())),
        lambda: ranks.answer(frames, rows.get("ranks", ())),
    )
    if {answer.key for answer in first} <= {"complete", "nodes"}:
        first += found(lambda: _alone(rows))
    return tuple(first)


def _all(question: Callable[[], Iterable[Answer]]) -> tuple[Answer, ...]:
    return tuple(question())


def _sharpness(runs: pd.DataFrame) -> Iterable[Answer]:
    """What a larger batch does to the sharpest direction of the minimum."""
    known = runs[runs["sharpness_largest"] > 0]
    context = known["context"].fillna("").map(without_batch)
    spans: dict[str, list[tuple[str, Estimate, str]]] = {}
    for (label, _, _), own in known.groupby(["technique_label", context, "gpus"], sort=False):
        small, large = own["global_batch"].min(), own["global_batch"].max()
        values = own.groupby("global_batch")["sharpness_largest"].apply(list)
        if small != large:
            span = f"from batch {count(small)} to {count(large)}"
            each = f"{len(values[small])} + {runs_in_words(len(values[large]))}"
            times = ratio(values[large], values[small])
            spans.setdefault(span, []).append((str(label), times, each))
    if spans:
        span, found = next(iter(spans.items()))
        shown = {_direction(times) for _, times, _ in found}
        verdict = shown.pop() if len(shown) == 1 else "what minima do depends on the technique"
        by = [f"{times.text(significant)} with {label} ({each})" for label, times, each in found]
        more = f" and {len(by) - _MOST} more in the table" if len(by) > _MOST else ""
        times = found[0][1]
        yield Answer("sharpness", "Does a larger batch end in a sharper minimum?",
                     sentence(f"{span}, {verdict}: the largest eigenvalue of the Hessian is "
                              f"multiplied by {', by '.join(by[:_MOST])}{more}"),
                     "convergence", "runs",
                     {"times": times.value, "low": times.low, "high": times.high})  # fmt: skip


def _direction(times: Estimate) -> str:
    if times.low is not None and times.low > 1:
        return "minima get sharper"
    if times.high is not None and times.high < 1:
        return "minima get flatter"
    return "no change is shown"


def _targets(found: Rows) -> Iterable[Answer]:
    if not found:
        return
    met = sum(round(row["reached"] * row["reached_n"]) for row in found if row["reached_n"])
    runs = sum(row["reached_n"] for row in found)
    goals = groups(found, ("workload", "target"))
    one = {row["target"] for row in found}
    text = f"{met:,} of {runs_in_words(runs)} reached "
    text += f"{found[0]['target']}" if len(one) == 1 else "their targets"
    lost = sum(row["n"] for row in found) - runs
    text += f", and {lost:,} {'is' if lost == 1 else 'are'} lost" if lost else ""
    told = [(rows[0]["target"], said) for rows in goals if (said := _soonest(rows, found))]
    for target, said in told[:_MOST]:
        text += f"; {said}" if len(one) == 1 else f"; {target}: {said}"
    text += f"; {len(told) - _MOST} more in the table" if len(told) > _MOST else ""
    yield Answer("targets", "How long does the target take?", f"{text}.", "targets", "medians",
                 {"reached": met, "runs": runs, "lost": lost})  # fmt: skip


def _soonest(rows: Rows, found: Rows) -> str:
    """The median time of the fastest condition with one target; empty where none has a median."""
    known = [row for row in rows if row["seconds"] is not None]
    # a bound is no time
    known = [row for row in known if row["seconds_low"] is None or row["seconds_high"] is not None]
    if not known:
        return ""
    fast = min(known, key=lambda row: row["seconds"])
    text = f"{named(fast, found)} at batch {count(fast['global_batch'])}: median "
    text += f"{estimate_in(fast, 'seconds').text(_whole)} s, {fast['epoch']:g} epochs"
    if len(known) < 2:
        return text
    return f"shortest median of {len(known)} conditions, which no test compares: {text}"


def _whole(value: float) -> str:
    return "∞" if math.isinf(value) else number(0)(value)


def _critical_batch(found: Rows) -> Iterable[Answer]:
    known = [row for row in found if row["critical_batch"] is not None]
    if not known:
        return
    said = []
    for row in known[:_MOST]:
        batch = estimate_in(row, "critical_batch").text(images)
        text = f"of {named(row, found)}: {batch} images, "
        text += runs_in_words(row["reached"] + row["censored"])
        said.append(text + (f" ({row['censored']:,} censored)" if row["censored"] else ""))
    said += [f"{len(known) - _MOST} more in the table"] if len(known) > _MOST else []
    first = known[0]
    ends = [first[f"critical_batch_{end}"] for end in ("low", "high")]
    bounded = (ends[0] is None) != (ends[1] is None)
    yield Answer("critical_batch", "Up to which batch are steps saved?",
                 f"Critical batch {joined(said, '; ')}.", "critical_batch", "fits",
                 {"technique": first["technique_label"],
                  "images": None if bounded else first["critical_batch"],
                  "low": ends[0], "high": ends[1],
                  "runs": first["reached"], "censored": first["censored"]})  # fmt: skip


def _nodes(frames: Frames, found: Rows) -> Iterable[Answer]:
    if slow := suspects(found):
        text, numbers = blamed(slow), {"host": slow[0]["host"], "slower": slow[0]["effect"]}
        # without its site a command would not run: names may have been left out
        if site := only([*frames.attempts["site"].dropna().unique()]):
            command = ready_command(slow, found, site)
            numbers["command"] = command
            text += f"; {command} measures the network there and compares the hosts"
        text += "."
        yield Answer("nodes", "Is a machine to blame?", text, "node_effects", "hosts", numbers)


def _alone(rows: Mapping[str, Rows]) -> Iterable[Answer]:
    """A sweep that compares nothing: what its runs did."""
    by = ("technique", "technique_label", "gpus", "global_batch")
    rates = groups(rows.get("scaling", ()), by)
    shown = rows.get("convergence", ())[:_MOST]
    batches = len({row["global_batch"] for row in shown}) > 1
    for row in shown:
        accuracy, lost = estimate_in(row, "validation_accuracy"), round(row["diverged"] * row["n"])
        name = with_context(row) + (f" at batch {count(row['global_batch'])}" if batches else "")
        if lost == row["n"]:
            which = "the only run" if lost == 1 else f"all {runs_in_words(lost)}"
            text = f"{name}: {which} diverged"
        else:
            text = f"{name}: validation accuracy {accuracy.text(THREE)}"
            alike = [own for own in rates if all(own[0][key] == row[key] for key in by)]
            scaled = alike[0][0] if alike and len(alike[0]) == 1 else None
            if scaled is not None and scaled["images_per_s"] is not None:
                text += f", {significant(scaled['images_per_s'])} images/s"
            text += f", {number(0)(row['train_s'])} s of training" if row["train_s"] else ""
            text += f", {runs_in_words(row['n'] - lost)}"
            text += f"; {runs_in_words(lost)} diverged" if lost else ""
        yield Answer("one", "What did it do?", f"{text}.", "convergence", "runs",
                     {"accuracy": accuracy.value})  # fmt: skip
