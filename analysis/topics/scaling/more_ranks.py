"""Are more ranks worth it? Up to which count each added rank was, and what a model says of the next
ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile

from analysis.table import Row, estimate_in, joined, percent, signed_percent
from analysis.topics.names import named, ratio_text
from analysis.topics.scaling.forecasts import ahead
from analysis.topics.scaling.how_far import chosen
from analysis.topics.topic import TWO, Answer, Rows, Sweep, Topic, counted, sentence

#: What an added rank must at least give, as a share of what one gave before.
WORTH_IT = 0.7


def _worth_it(of: Sweep) -> Iterable[Answer]:
    """What added ranks are shown to give, and the forecast, of one series."""
    what = of.what
    for one, known, under in chosen(of):
        gains, further = (
            [row for row in rows if row["series"] == one["series"]]
            for rows in (known, of.rows(ahead))
        )
        gains = [row for row in gains if row["before"] is not None]
        least = _last(gains, lambda low, high: low is not None and low >= WORTH_IT)
        most = _last(gains, lambda low, high: high is None or high >= WORTH_IT)
        several = len({other["series"] for other in known}) > 1
        whose = f"with {named(one, known)}" if several else ""
        yield Answer(
            "more_ranks", f"Are more {what}s worth it?",
            sentence(under + _up_to(gains[0], least, most, what, whose)),
            "forecast" if further else "scaling", "gains",
            {"worth": least, "at_most": most,
             **{f"efficiency_{row['gpus']}": row["efficiency"] for row in further
                if row["efficiency"] is not None}},
            [_expected(further, what)],
        )  # fmt: skip


def _last(gains: Rows, enough: Callable[[float | None, float | None], bool]) -> int:
    """The count up to which the interval of every gain is ``enough``, from the smallest one on."""
    paying = [row["gpus"] for row in takewhile(
        lambda row: enough(row["marginal_low"], row["marginal_high"]), gains
    )]  # fmt: skip
    return int(paying[-1] if paying else gains[0]["before"])


def _up_to(first: Row, least: int, most: int, what: str, whose: str) -> str:
    """Up to which count each added rank is shown to pay, from the ends of the intervals; ``first``:
    the smallest count but the baseline."""
    gives = f"{percent(WORTH_IT)} of the throughput that a {what} had before"
    if least > first["before"]:
        more = f"; from {least} to {most} {what}s this is undecided" if most > least else ""
        upto = joined([f"yes, up to {least} {what}s", whose])
        return f"{upto}: each added one gives at least {gives}{more}"
    speed = estimate_in(first, "speedup")
    if speed.low is None or speed.high is None:
        verdict = ", without an interval"
    elif speed.low <= 1:
        verdict = ": a loss" if speed.high < 1 else ": no gain is shown"
    elif most > first["before"]:
        verdict = f"; whether each added {what} up to {most} gives {gives} is undecided"
    else:
        verdict = f"; an added {what} gives less than {gives}"
    give = f"{counted(first['gpus'], what)} give {speed.text(ratio_text)} times the throughput of "
    return f"{joined([whose, give], ', ')}{first['before']}{verdict}"


def _expected(further: Rows, what: str) -> str:
    """The forecast with its error, or why there is none; empty where none could be tried."""
    if not further:
        return ""
    first = further[0]
    if first["efficiency"] is None:
        return f"no forecast: {first['why']}" if first["hold_out"] is not None else ""
    ends = (f"{estimate_in(row, 'efficiency').text(TWO)} at {row['gpus']}" for row in further)
    return (
        f"a model expects an efficiency of {' and '.join(ends)} {what}s (its error at "
        f"{first['hold_out_ranks']} {what}s: {signed_percent(first['hold_out'])})"
    )


TOPIC = Topic(tables=(ahead,), answers=(_worth_it,))
