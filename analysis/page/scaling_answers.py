"""Answers on ranks: efficiency, the largest loss, and what more of them give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from analysis.page.answer import TWO, Answer, Rows, capital, groups, sentence
from analysis.prediction.increases import WORTH_IT
from analysis.records.frames import Frames
from analysis.table import Row, estimate_in, percent, runs_in_words, signed_percent
from analysis.topics.comparisons.techniques import reference_technique
from analysis.topics.scaling.cause import largest_cause
from analysis.topics.scaling.forecasts import MOST_UNEVEN
from analysis.topics.topic import named

#: Efficiency below this is worth a word.
_GOOD = 0.9


def scaling(frames: Frames, rows: Mapping[str, Rows]) -> Iterable[Answer]:
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
