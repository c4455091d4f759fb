"""The answers of a report: sentences with a number, its interval and the number of runs.

Which answers a sweep gets depends on what it varies; a question that it cannot answer is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from analysis.page.accuracy_answers import against, larger_batch, libraries, ranking
from analysis.page.answer import THREE, TWO, Answer, Rows, capital, groups, sentence
from analysis.page.failures import complete
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
from analysis.topics.comparisons.techniques import reference_technique
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

    first = found(lambda: complete(frames))
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


def _scaling(frames: Frames, rows: Mapping[str, Rows]) -> Iterable[Answer]:
    """Of weak and of strong scaling, each by itself: they answer different questions."""
    what = "GPU" if set(frames.runs["device_kind"]) == {"gpu"} else "rank"
    known = [row for row in rows.get("scaling", ()) if row["efficiency"] is not None]
    modes = [own for own in groups(known, ("scaling",))
             if any(row["gpus"] != row["n0"] for row in own)]  # fmt: skip
    for own in modes:
        under = f"under {own[0]['scaling']} scaling, " if len(modes) > 1 else ""
        yield from _of_a_mode(frames, rows, own, what, under)


def _of_a_mode(
    frames: Frames, rows: Mapping[str, Rows], known: Rows, what: str, under: str
) -> Iterable[Answer]:
    """Efficiency, its loss and what more ranks give, all of one series: that of the reference,
    since no test says which series scales best."""
    most = max(row["gpus"] for row in known if row["gpus"] != row["n0"])
    largest = [row for row in known if row["gpus"] == most and row["gpus"] != row["n0"]]
    fewest = min(row["n0"] for row in largest)
    others = [row for row in largest if row["n0"] > fewest]
    largest = [row for row in largest if row["n0"] == fewest]
    reference = reference_technique(frames.techniques)
    one = next((row for row in largest if row["technique"] == reference), largest[0])
    text = (
        f"{under}at {most} {what}s, {named(one, known)} reaches an efficiency of "
        f"{estimate_in(one, 'efficiency').text(TWO)}, {TWO(one['speedup'])} times the throughput "
        f"of {_counted(one['n0'], what)}, {runs_in_words(one['n'])}."
    )
    text += _below([row for row in known if row["series"] == one["series"]], what)
    text += _cause(rows.get("lost_efficiency", ()), one)
    if len(largest) > 1:
        low, high = (TWO(pick(row["efficiency"] for row in largest)) for pick in (min, max))
        all_ = "both" if len(largest) == 2 else f"all {len(largest)}"
        ends = f"are {low}" if low == high else f"lie between {low} and {high}"
        text += f" The means of {all_} conditions {ends}; no test compares them."
    for row in others:
        text += (
            f" That of {named(row, known)} is against {row['n0']} {what}s, so not compared with "
            "these."
        )
    numbers = {"gpus": most, "technique": one["technique_label"], "scaling": one["scaling"],
               "efficiency": one["efficiency"], "low": one["efficiency_low"],
               "high": one["efficiency_high"], "baseline": one["n0"], "runs": one["n"]}  # fmt: skip
    yield Answer("scaling", "How far does it scale?", capital(text), "scaling", "efficiency",
                 numbers)  # fmt: skip
    yield from _ahead(rows, one, known, what, under)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _below(series: Rows, what: str) -> str:
    """From which count on the efficiency of one series is shown to stay low; empty where it is
    not."""
    low = None
    for row in sorted(series, key=lambda row: -row["gpus"]):
        if row["efficiency_high"] is None or row["efficiency_high"] >= _GOOD:
            break
        low = row["gpus"]
    return f" Efficiency is below {_GOOD} from {low} {what}s on." if low else ""


def _cause(losses: Rows, row: Row) -> str:
    """The largest loss of this row of the scaling table, as a sentence."""
    same = ("series", "gpus")
    loss = next((r for r in losses if all(r[name] == row[name] for name in same)), None)
    if loss is None or loss["lost"] is None:
        return ""
    usual = row["efficiency"] * (1 + loss["lost"])
    if abs(usual - 1) > MOST_UNEVEN:
        others = "longer" if usual < 1 else "shorter"
        return (
            f" An image takes {_longer(1 / row['efficiency'] - 1)} than under ideal scaling, the "
            f"median step is {_longer(loss['lost'])}: what makes other steps {others} is not known."
        )
    cause = largest_cause(loss)
    return f" {cause.sentence}" if cause else ""


def _longer(share: float) -> str:
    return f"{100 * abs(share):.1f} % {'longer' if share >= 0 else 'shorter'}"


def _ahead(
    rows: Mapping[str, Rows], row: Row, known: Rows, what: str, under: str
) -> Iterable[Answer]:
    """What added ranks are shown to give, and the forecast, for the series of a row of the scaling
    table."""
    worth, steps, ahead = (
        [r for r in rows.get(key, ()) if r["series"] == row["series"]]
        for key in ("recommended", "increases", "forecast")
    )
    said = [_worth(own, steps, what) for own in worth]
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
        least, most = (int(worth[0][f"gpus_{end}"]) if worth else None for end in ("low", "high"))
        yield Answer(
            "more_ranks", f"Are more {what}s worth it?",
            sentence(under + whose + "; ".join(said)),
            "forecast" if ahead else "recommended", "increases",
            {"worth": least, "at_most": most,
             **{f"efficiency_{r['gpus']}": r["efficiency"] for r in points}},
        )  # fmt: skip


def _worth(own: Row, steps: Rows, what: str) -> str:
    """Up to which count each added rank is shown to pay, from the ends of the intervals."""
    gives = f"{percent(WORTH_IT)} of the throughput of one before"
    least, most = (int(own[f"gpus_{end}"]) for end in ("low", "high"))
    first = min(steps, key=lambda row: row["gpus"])
    if least > first["before"]:
        more = f"; whether more do, up to {most}, is not decided" if most > least else ""
        return f"each added {what} up to {least} gives at least {gives}{more}"
    speed = estimate_in(first, "speedup")
    said = (
        f"{_counted(first['gpus'], what)} give {speed.text(TWO)} times the throughput of "
        f"{first['before']}"
    )
    if most > first["before"]:
        said += f"; whether an added {what} gives {gives} is not decided, up to {most} may"
    elif speed.high is not None and speed.high < 1:
        said += ": a loss"
    elif speed.low is not None and speed.low <= 1:
        said += ": no gain is shown"
    else:
        said += f"; an added {what} gives less than {gives}"
    return said


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
