"""What a setting that a sweep varies does: accuracy, and sharpness where it was measured.

Ranks, batch, technique, library and learning rate have topics of their own. Any other setting that
differs between runs of one technique is an axis here. Its values are compared where all else is
equal; a setting that follows from another one (epochs from the share of the data) is named, and no
axis. Numbers are compared between the ends of the axis, which the plan fixes; a value in between
that looks best, and the extremes of names, which have no order, are called exploratory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import Figure, looks, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.records.labels import flat_settings
from analysis.stats.differences import differences, ratios
from analysis.stats.intervals import Moments, grouped_moments, t_intervals
from analysis.table import (
    Column,
    Row,
    Table,
    estimate_in,
    estimates_as,
    frame,
    joined,
    number,
    plain_rows,
    runs_in_words,
    signed,
    significant,
)
from analysis.topics.comparisons.arms import SOME_DIVERGED, STOPS
from analysis.topics.names import ranks_text
from analysis.topics.topic import Answer, Sweep, Topic, capital, groups, sentence

#: Of the config; the others are what may not differ.
_SETTINGS = ("model", "width", "shortcuts", "image_size", "pretrained", "data_fraction", "epochs",
             "epoch_images", "partition", "deterministic")  # fmt: skip
_EQUAL = ("technique", "gpus", "global_batch", "accumulation", "scaling", "framework", "dataset",
          "target", "validate_on")  # fmt: skip
#: Of a technique: its name, and what the topic of learning rates shows.
_ELSEWHERE = ("name", "base_lr")
_WORDS = {"data_fraction": "the share of the training images", "epoch_images": "images an epoch"}
_MOST, _THREE = 3, number(3)
COLUMNS: tuple[Column, ...] = (
    Column("axis", "string", "setting"),
    Column("equal", "string", "with", "what else differs in the sweep", only_if_varied=True),
    Column("value", "string", "value"),
    Column("at", "Float64"),
    Column("n", "Int64", "runs", "completed"),
    Column("diverged", "Int64", "diverged", "runs that are in no mean", only_if_varied=True),
    Column("accuracy", "Float64", "validation accuracy", "mean over completed runs, with the 95 % "
           "t interval", format=_THREE, estimate=True),
    Column("change", "Float64", "against the first value", "difference of means, with Welch's 95 "
           "% interval, without correction for several values", format=signed(3), estimate=True),
    Column("sharpness", "Float64", "sharpness", "largest eigenvalue of the Hessian where a run "
           "ended, geometric mean", format=significant, estimate=True),
    Column("times", "Float64", "times the first value's", "ratio of geometric means, with its 95 % "
           "interval", format=number(2), estimate=True),
)  # fmt: skip


def table(of: Sweep) -> Table:
    """A row per axis, set of runs that are equal but for it, and value."""
    runs, settings = of.runs, _settings(of.runs, of.frames.settings)
    axes = _axes(settings)
    fixed = settings[[name for name in settings if settings[name].nunique() > 1]]
    rows: list[Row] = []
    for axis, along in axes.items():
        others = _told(fixed.drop(columns=[axis, *along], errors="ignore"))
        names = others.apply(_equal, axis=1) if others.shape[1] else pd.Series("", fixed.index)
        known = settings[axis].notna()
        for equal, own in runs[known].groupby(names[known], sort=False):
            if settings.loc[own.index, axis].nunique() > 1:
                rows += _rows(axis, along, str(equal), own, settings.loc[own.index, axis])
    sharp = any(row["sharpness"] is not None for row in rows)
    shown = COLUMNS if sharp else tuple(c for c in COLUMNS if c.name not in ("sharpness", "times"))
    return Table("axes", "What each setting does", shown, frame(rows, COLUMNS))


def answers(rows: Sequence[Row]) -> Iterable[Answer]:
    """One per axis: what changes from its first value to its last. ``rows``: of the table."""
    told = {row["axis"] for row in rows if row["change_note"] != STOPS or row["times"] is not None}
    for own in [own for own in groups(rows, ("axis",)) if own[0]["axis"] in told][:_MOST]:
        sets = groups(own, ("equal",))
        axis, words = own[0]["axis"], own[0]["axis"].partition(" (")[0]
        said = [_said(rows_, len(sets) > 1) for rows_ in sets[:_MOST]]
        more = f"; {len(sets) - _MOST} more in the table" if len(sets) > _MOST else ""
        first, last = sets[0][0], sets[0][-1]
        text = f"{_span(axis, sets[0])}, {'; '.join(said)}{more}"
        numbers = {"axis": words, "from": first["value"], "to": last["value"],
                   "change": last["change"], "low": last["change_low"],
                   "high": last["change_high"]}  # fmt: skip
        yield Answer("axis", f"What changes with {words}?", sentence(text), "axes", "runs", numbers)


def figure(data: pd.DataFrame) -> Figure | None:
    """Accuracy, or sharpness, against the first axis of numbers."""
    numeric = data[data["at"].notna()]
    if numeric.empty:
        return None
    axis = numeric["axis"].iloc[0]
    own = numeric[numeric["axis"] == axis]
    name = "sharpness" if own["sharpness"].notna().all() else "accuracy"
    wide = own["at"].max() >= 4 * own["at"].min() > 0
    x = Axis(str(axis), "octaves" if wide else "linear", "{:,.3g}".format)
    y = Axis("validation accuracy")
    if name == "sharpness":
        y = Axis("largest eigenvalue of the Hessian", "decades")
    sets = {str(equal): rows for equal, rows in own.groupby("equal", sort=False)}
    seen = looks([*sets])
    drawn = [
        Line(rows["at"], rows[name], seen[equal], equal, rows[f"{name}_low"], rows[f"{name}_high"],
             bars=True)
        for equal, rows in sets.items()
    ]  # fmt: skip
    caption = f"Means of completed runs with 95 % intervals, {n_of(own['n'])}."
    return Figure("axes", f"{capital(y.label)} against {axis}", caption, own,
                  lines({"": drawn}, x, y))  # fmt: skip


def _settings(runs: pd.DataFrame, techniques: Mapping[str, str]) -> pd.DataFrame:
    """Per run: what could be an axis, and what must be equal. Of techniques only fields that differ
    within one name; null elsewhere."""
    found = runs[[*_EQUAL, *_SETTINGS]].copy()
    parsed = {key: flat_settings(json.loads(text)) for key, text in techniques.items()}
    for _, own in runs.groupby("technique", sort=False):
        told = {key: parsed[key] for key in own["technique_settings"].unique() if key in parsed}
        for field in sorted({field for one in told.values() for field in one} - {*_ELSEWHERE}):
            values = {key: one.get(field) for key, one in told.items()}
            if len({json.dumps(value) for value in values.values()}) > 1:
                plain = {key: v if isinstance(v, Real) else str(v) for key, v in values.items()}
                found.loc[own.index, field] = own["technique_settings"].map(plain).astype(object)
    return found


def _axes(settings: pd.DataFrame) -> dict[str, list[str]]:
    """Axis -> the settings that follow from it."""
    varied = [n for n in settings if n not in _EQUAL and settings[n].nunique() > 1]
    varied.sort(key=lambda name: -settings[name].nunique())
    axes: dict[str, list[str]] = {}
    for name in varied:
        each = {a: settings[[name, a]].astype(str).drop_duplicates()[a] for a in axes}
        of = next((axis for axis, values in each.items() if values.is_unique), None)
        if of is None:
            axes[str(name)] = []
        else:
            axes[of].append(str(name))
    return axes


def _told(others: pd.DataFrame) -> pd.DataFrame:
    """Without the accumulation, where ranks and batch leave no choice of it."""
    rest = others.drop(columns="accumulation", errors="ignore")
    return rest if len(rest.drop_duplicates()) == len(others.drop_duplicates()) else others


def _equal(row: pd.Series[Any]) -> str:
    """What a set of runs has in common, of what differs in the sweep."""
    return joined([_named(str(name), v) for name, v in row.items() if not pd.isna(v)], ", ")


def _named(name: str, value: Any) -> str:
    if name == "gpus":
        return ranks_text(value)
    if name in ("technique", "model", "framework", "dataset"):
        return str(value)
    return f"{'batch' if name == 'global_batch' else _axis_words(name)} {_value(value)}"


def _axis_words(name: str) -> str:
    return _WORDS.get(name, name.rpartition(".")[2].replace("_", " "))


def _value(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "on" if value else "off"
    return f"{value:,.4g}" if isinstance(value, Real) else str(value)


def _rows(
    axis: str, along: Sequence[str], equal: str, runs: pd.DataFrame, values: pd.Series[Any]
) -> list[Row]:
    """Of runs that are equal but for the axis, a row per value; numbers in their order."""
    order = list(dict.fromkeys(values))
    numeric = all(isinstance(v, Real) and not isinstance(v, (bool, np.bool_)) for v in order)
    order = sorted(order) if numeric else order
    place = values.map({value: at for at, value in enumerate(order)}).to_numpy(int)
    size = len(order)
    done = (runs["status"] == "completed").to_numpy(bool)
    why = STOPS if runs["target"].notna().any() else None if done.all() else SOME_DIVERGED
    sharp = runs["sharpness_largest"].where(done & (runs["sharpness_largest"] > 0).fillna(False))
    with np.errstate(divide="ignore"):
        logs = np.log(sharp.to_numpy(float, na_value=np.nan))
    accuracy = grouped_moments(
        runs["validation_accuracy"].where(done).to_numpy(float, na_value=np.nan), place, size
    )
    sharpness = grouped_moments(logs, place, size)
    firsts = [
        Moments(*(np.full_like(part, part[0]) for part in own)) for own in (accuracy, sharpness)
    ]
    too = f" ({', '.join(map(_axis_words, along))} too)" if along else ""
    made = pd.DataFrame({
        "axis": _axis_words(axis) + too, "equal": equal, "value": [_value(v) for v in order],
        "at": order if numeric else [None] * size, "n": np.bincount(place[done], minlength=size),
        "diverged": np.bincount(place[~done], minlength=size),
        **estimates_as("accuracy", t_intervals(accuracy, "share")),
        **estimates_as("change", _unless(why, differences(accuracy, firsts[0]))),
        **estimates_as("sharpness", t_intervals(sharpness, "positive")),
        **estimates_as("times", ratios(sharpness, firsts[1])),
    })  # fmt: skip
    of_itself = {
        f"{name}{end}": None for name in ("change", "times") for end in ("", "_low", "_high")
    }
    rows = plain_rows(made)
    return [rows[0] | of_itself | {"change_note": why, "times_note": None}, *rows[1:]]


def _unless(why: str | None, found: pd.DataFrame) -> pd.DataFrame:
    """No difference of accuracy where runs end at a target, after epochs of their own, or where
    some diverged, so that the means are of the others."""
    return found.assign(value=np.nan, low=np.nan, high=np.nan, note=why) if why else found


def _is_list(rows: Sequence[Row]) -> bool:
    """Whether the values have no order, so that no two of them are its ends."""
    return len(rows) > 2 and rows[0]["at"] is None


def _span(axis: str, rows: Sequence[Row]) -> str:
    words, _, too = axis.partition(" (")
    if _is_list(rows):
        return f"of {len(rows)} values of {words}"
    first, last = rows[0], rows[-1]
    also = f" (with {too.removesuffix(' too)')} changing)" if too else ""
    return f"from {words} {first['value']} to {last['value']}{also}"


def _said(rows: Sequence[Row], several: bool) -> str:
    """What is shown to change from the first value to the last, what is not, and the best one."""
    first, last = rows[0], rows[-1]
    which = f"with {last['equal']} " if several else ""
    known = [row for row in rows if row["accuracy"] is not None]
    best = max(known, key=lambda row: row["accuracy"], default=last)
    if last["change_note"] == SOME_DIVERGED:
        lost, every = (sum(row[name] for row in rows) for name in ("diverged", "n"))
        return f"{which}{lost} of {lost + every} runs diverged: no change is claimed"
    if last["change_note"] == STOPS:
        best = last
    elif _is_list(rows) and known:
        low = min(known, key=lambda row: row["accuracy"])
        return (
            f"{which}the lowest mean accuracy is {_THREE(low['accuracy'])} ({low['value']}), the "
            f"highest {_THREE(best['accuracy'])} ({best['value']}); exploratory: no test compares "
            "them"
        )
    shown, open_ = [], []
    for name, what, same in (
        ("times", "the largest eigenvalue of the Hessian", 1),
        ("change", "validation accuracy", 0),
    ):
        found = estimate_in(last, name)
        if found.value is None:
            continue
        by = found.text(significant if same else signed(3))
        aside = ("times " if same else "") + by.replace(" (", ", ").removesuffix(")")
        if found.low is None or found.high is None:
            open_.append(f"{what} ({aside}, without an interval)")
        elif found.low <= same <= found.high:
            open_.append(f"{what} ({aside})")
        elif same:
            shown.append(f"{what} is multiplied by {by}")
        else:
            verb = "rises" if found.value > 0 else "falls"
            values = f"{_THREE(first['accuracy'])} to {_THREE(last['accuracy'])}"
            shown.append(f"{what} {verb} from {values}, by {by}")
    if open_:
        shown.append(f"no change is shown of {' and of '.join(open_)}")
    runs = f"{first['n']} + {runs_in_words(last['n'])}"
    text = f"{which}{', and '.join(shown) or 'nothing was measured'}, {runs}"
    if best is not first and best is not last:
        at = f"{_THREE(best['accuracy'])}, is at {best['value']}"
        text += f"; the highest of {len(rows)} means, {at} (exploratory: no test compares it)"
    return text


TOPIC = Topic(
    tables=(table,),
    plots=(lambda of: figure(of.made(table).data),),
    answers=(lambda of: answers(of.rows(table)),),
    asks=lambda of: len(of.made(table).data) > 0,
)
