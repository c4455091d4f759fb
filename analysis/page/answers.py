"""The answers of a report: sentences with a number, its interval and the number of runs.

Which answers a sweep gets depends on what it varies; a question that it cannot answer is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from analysis.page.accuracy_answers import against, larger_batch, libraries, ranking
from analysis.page.answer import THREE, TWO, Answer, Rows, groups, sentence
from analysis.page.parts import parts
from analysis.prediction.laws import WORTH_IT
from analysis.records.frames import Frames
from analysis.table import (
    Row,
    Table,
    count,
    estimate_in,
    joined,
    number,
    percent,
    plain_rows,
    runs_in_words,
    signed_percent,
    significant,
)
from analysis.topics.convergence.critical_batch import images
from analysis.topics.scaling.cause import largest_cause
from analysis.topics.scaling.forecasts import MOST_UNEVEN
from analysis.topics.scaling.nodes import blamed, ready_command, suspects
from analysis.topics.topic import named, only, with_context

#: Efficiency below this is worth a word.
_GOOD = 0.9
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

    first = found(lambda: _complete(frames))
    if not len(frames.runs):
        return tuple(first)
    first += found(
        lambda: _scaling(frames, rows),
        lambda: against(rows.get("claims", ())),
        lambda: ranking(rows.get("ranking", ()), rows.get("pairs", ())),
        lambda: larger_batch(rows.get("larger_batch", ())),
        lambda: libraries(rows.get("frameworks", ())),
        lambda: _targets(rows.get("targets", ())),
        lambda: _critical_batch(rows.get("critical_batch", ())),
        lambda: _nodes(frames, rows.get("node_effects", ())),
    )
    if {answer.key for answer in first} <= {"complete", "nodes"}:
        first += found(lambda: _alone(rows))
    return tuple(first)


def _all(question: Callable[[], Iterable[Answer]]) -> tuple[Answer, ...]:
    return tuple(question())


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
    # a rejected record says completed or diverged, so a sweep takes it for done
    again = "make sweep runs the rest"
    if "rejected" in kinds:
        again += ", a rejected cell once its folder is moved away"
    text = f"{usable:,} of {planned:,} planned cells {'is' if usable == 1 else 'are'} usable "
    text += f"({lacking}); {again}."
    text += "" if usable else " Nothing can be compared or concluded yet."
    yield Answer("complete", "Is it complete?", text, "cells_not_used", "cells",
                 {"usable": usable, "planned": planned, **kinds})  # fmt: skip


def _scaling(frames: Frames, rows: Mapping[str, Rows]) -> Iterable[Answer]:
    known = [row for row in rows.get("scaling", ()) if row["efficiency"] is not None]
    several = [row for row in known if row["gpus"] != row["n0"]]
    if not several:
        return
    most = max(row["gpus"] for row in several)
    largest = sorted((r for r in several if r["gpus"] == most), key=lambda r: -r["efficiency"])
    fewest = min(row["n0"] for row in largest)
    others = [row for row in largest if row["n0"] > fewest]
    largest = [row for row in largest if row["n0"] == fewest]
    best, worst = largest[0], largest[-1]
    what = "GPU" if set(frames.runs["device_kind"]) == {"gpu"} else "rank"
    if len(largest) == 1:
        said = estimate_in(best, "efficiency")
        text = (
            f"At {most} {what}s, {named(best, known)} reaches an efficiency of {said.text(TWO)}, "
            f"{TWO(best['speedup'])} times the throughput of {best['n0']} "
            f"{what}{'' if best['n0'] == 1 else 's'}, {runs_in_words(best['n'])}."
        )
        text += _below([r for r in known if r["series"] == best["series"]], what)
    else:
        ends = (
            f"{estimate_in(r, 'efficiency').text(TWO)} with {named(r, largest)}"
            for r in (best, worst)
        )
        text = f"At {most} {what}s, efficiency is {' and '.join(ends)}"
        each = sorted({row["n"] for row in largest})
        text += ", " if len(largest) == 2 else f", the best and worst of {len(largest)}, "
        text += f"{runs_in_words(each[0])} each{' or more' * (len(each) > 1)}."
    for row in others:
        text += (
            f" That of {named(row, known)} is against {row['n0']} {what}s, so not compared "
            "with these."
        )
    text += _cause(rows.get("lost_efficiency", ()), worst, alone=len(largest) == 1)
    numbers = {"gpus": most, "technique": best["technique_label"],
               "efficiency": best["efficiency"], "low": best["efficiency_low"],
               "high": best["efficiency_high"], "baseline": best["n0"],
               "runs": best["n"]}  # fmt: skip
    yield Answer("scaling", "How far does it scale?", text, "scaling", "efficiency", numbers)
    yield from _ahead(rows, best, known, what)


def _below(series: Rows, what: str) -> str:
    """From which count on the efficiency of one series stays low; empty where it does not."""
    ordered = sorted(series, key=lambda row: row["gpus"])
    good = [row["gpus"] for row in ordered if row["efficiency"] >= _GOOD]
    low = [row["gpus"] for row in ordered if row["gpus"] > max(good, default=0)]
    return f" Efficiency is below {_GOOD} from {low[0]} {what}s on." if low else ""


def _cause(losses: Rows, row: Row, *, alone: bool) -> str:
    """The largest loss of this row of the scaling table, as a sentence."""
    same = ("series", "gpus")
    loss = next((r for r in losses if all(r[name] == row[name] for name in same)), None)
    cause = largest_cause(loss) if loss else None
    if loss and loss["lost"] is not None:
        usual = row["efficiency"] * (1 + loss["lost"])
        if abs(usual - 1) > MOST_UNEVEN:
            return (
                f" The median step explains {signed_percent(loss['lost'])} of that: what makes "
                "other steps longer, or shorter, is not known."
            )
    whose = "" if alone else f" with {with_context(row)}"
    return f" Largest loss{whose}: {cause.text}." if cause else ""


def _ahead(rows: Mapping[str, Rows], row: Row, known: Rows, what: str) -> Iterable[Answer]:
    """Up to which count ranks pay, and the forecast, for the series of a row of the scaling
    table."""
    worth, ahead = (
        [r for r in rows.get(key, ()) if r["series"] == row["series"]]
        for key in ("recommended", "forecast")
    )
    said = []
    for own in worth:
        gives = f"{percent(WORTH_IT)} of the throughput of one before"
        if own["gpus_high"] == row["n0"]:
            first = min((r for r in rows["increases"] if r["series"] == own["series"]),
                        key=lambda r: r["gpus"])  # fmt: skip
            said.append(
                f"{what}s added to {first['before']} lower the throughput"
                if first["speedup"] < 1
                else f"the first added {what}s give less than {gives}"
            )
        elif own["gpus"] == row["n0"]:
            said.append(f"whether added {what}s give {gives} is open: up to {own['gpus_high']} may")
        else:
            up_to, low, high = map(count, estimate_in(own, "gpus")[:3])
            said.append(
                f"each added {what} up to {up_to} gives at least {gives}"
                + ("" if low == high else f" (the intervals allow {low} to {high})")
            )
    points = [r for r in ahead if r["efficiency"] is not None]
    if points:
        ends = (f"{estimate_in(r, 'efficiency').text(TWO)} at {r['gpus']}" for r in points)
        tried = f"{points[0]['hold_out_ranks']} {what}s: {signed_percent(points[0]['hold_out'])}"
        said.append(f"a model expects an efficiency of {' and '.join(ends)} {what}s (its error at "
                    f"{tried})")  # fmt: skip
    elif ahead and ahead[0]["hold_out"] is not None:
        said.append(f"no forecast: {ahead[0]['why']}")
    if said:
        several = len({other["series"] for other in known}) > 1
        whose = f"with {named(row, known)}, " if several else ""
        yield Answer(
            "more_ranks", f"Are more {what}s worth it?", sentence(whose + "; ".join(said)),
            "forecast" if ahead else "recommended", "increases",
            {"worth": worth[0]["gpus"] if worth else None,
             **{f"efficiency_{r['gpus']}": r["efficiency"] for r in points}},
        )  # fmt: skip


def _targets(found: Rows) -> Iterable[Answer]:
    if not found:
        return
    reached = [row for row in found if row["seconds"] is not None]
    met = sum(round(row["reached"] * row["reached_n"]) for row in found if row["reached_n"])
    runs = sum(row["reached_n"] for row in found)
    goals = {row["target"] for row in found}
    text = f"{met:,} of {runs_in_words(runs)} reached "
    text += f"{goals.pop()}" if len(goals) == 1 else "their targets"
    lost = sum(row["n"] for row in found) - runs
    text += f", and {lost:,} {'is' if lost == 1 else 'are'} lost" if lost else ""
    if reached:
        fast = min(reached, key=lambda row: row["seconds"])
        text += f"; soonest {named(fast, found)} at batch {count(fast['global_batch'])}: median "
        text += f"{number(0)(fast['seconds'])} s, {fast['epoch']:g} epochs"
    yield Answer("targets", "How long does the target take?", f"{text}.", "targets", "medians",
                 {"reached": met, "runs": runs, "lost": lost})  # fmt: skip


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
