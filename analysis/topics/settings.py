"""Settings that a sweep varies: which are axes, which cells differ in one alone, and their words.

Cells are those of the plan, so that runs that are lost move no end and hide no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.records.labels import Settings, flat_settings, in_short

#: Of the config; the others are what may not differ.
_SETTINGS = ("model", "width", "shortcuts", "image_size", "pretrained", "data_fraction", "epochs",
             "epoch_images", "partition", "deterministic")  # fmt: skip
BATCH = "global_batch"
_EQUAL = ("technique", "gpus", BATCH, "accumulation", "scaling", "framework", "dataset", "target",
          "validate_on")  # fmt: skip
#: Of a technique. No axis: it has a topic of its own.
_RATE = "base_lr"
SHARE = "the share of the training images"
_WORDS = {"data_fraction": SHARE, "epoch_images": "images an epoch",
          _RATE: "base learning rate", "gpus": "ranks", BATCH: "batch"}  # fmt: skip
#: A setting that is left out.
_NONE = "none"


class OneSetting(NamedTuple):
    """Cells that differ in one setting alone, and in what follows from it."""

    axis: str  # in words
    too: str  # in words: what follows from it, and differs between these cells
    equal: str  # in words: what they have in common, of what differs in the sweep
    values: pd.Series[Any]  # of the setting, by the index of the cells; at least two differ


def one_at_a_time(
    cells: pd.DataFrame, techniques: Settings, *, batch: bool = False
) -> Iterator[OneSetting]:
    """Sets of cells, axis by axis.

    Args:
        cells: with the columns of CONFIG, of known configs.
        batch: whether the global batch, of the same ranks, is an axis, too.
    """
    settings = _settings(cells, techniques)
    ways = settings.groupby(["gpus", BATCH])["accumulation"].nunique()
    differing = settings.loc[:, settings.nunique() > 1]
    free = bool((ways > 1).any())  # else accumulation follows from ranks and batch
    if not free:
        differing = differing.drop(columns="accumulation", errors="ignore")
    axes = _axes(differing, [BATCH, "accumulation"] if batch else [])
    for along in (own for axis, own in axes.items() if not free and BATCH in (axis, *own)):
        along.append("accumulation")
    for axis, along in axes.items():
        values = settings[axis].dropna()
        others = differing.loc[values.index].drop(columns=[axis, *along], errors="ignore")
        which = pd.Series(0, others.index)
        if others.shape[1]:
            which = others.groupby([*others], sort=False, dropna=False).ngroup()
        for _, own in values.groupby(which):
            if own.nunique() > 1:
                too = [_words(one) for one in along if settings.loc[own.index, one].nunique() > 1]
                equal = _equal(others.loc[own.index[0]])
                yield OneSetting(_words(axis), ", ".join(too), equal, own)


def _settings(cells: pd.DataFrame, techniques: Settings) -> pd.DataFrame:
    """Per cell: what could be an axis, and what must be equal. Of techniques only fields that
    differ within one name; null elsewhere."""
    found = in_short(cells[[*_EQUAL, *_SETTINGS]].astype(object))
    found = found.where(found.notna(), _NONE)
    flat = {key: flat_settings(found) for key, found in techniques.items()}
    for _, own in cells.groupby("technique", sort=False):
        told = {key: flat[key] for key in own["technique_settings"].unique() if key in flat}
        for field in sorted({field for one in told.values() for field in one} - {"name"}):
            values = {key: _plain(one.get(field)) for key, one in told.items()}
            if len(set(values.values())) > 1:
                found.loc[own.index, field] = own["technique_settings"].map(values).astype(object)
    return found


def _plain(value: Any) -> Any:
    """A value that can be compared: lists and mappings as text."""
    if value is None:
        return _NONE
    return value if isinstance(value, Real) else str(value)


def _axes(differing: pd.DataFrame, also: Sequence[str]) -> dict[str, list[str]]:
    """Axis -> the settings that follow from it. ``also``: axes that _EQUAL has."""
    varied = [str(name) for name in differing if name not in _EQUAL or name in also]
    varied.sort(key=lambda name: (name == _RATE, -differing[name].nunique()))
    axes: dict[str, list[str]] = {}
    for name in varied:
        of = next((axis for axis in axes if _follows(name, axis, differing)), "")
        if of:
            axes[of].append(name)
        # where that one is not known, this one may differ by itself
        if name != _RATE and (not of or differing.loc[differing[of].isna(), name].nunique() > 1):
            axes[name] = []
    return axes


def _follows(name: str, axis: str, differing: pd.DataFrame) -> bool:
    """Whether each value of the axis has one of the setting, where both are known."""
    pairs = differing[[name, axis]].dropna().astype(str).drop_duplicates()
    return len(pairs) > 0 and bool(pairs[axis].is_unique)


def _equal(row: pd.Series[Any]) -> str:
    parts = [f"{_words(str(name))} {value_text(v)}" for name, v in row.items() if not pd.isna(v)]
    return ", ".join(parts)


def _words(name: str) -> str:
    return _WORDS.get(name, name.rpartition(".")[2].replace("_", " "))


def value_text(value: Any) -> str:
    """Of a setting, in full: values that differ must not read alike."""
    if isinstance(value, (bool, np.bool_)):
        return "on" if value else "off"
    whole = isinstance(value, Real) and float(value).is_integer()
    return fmt.count(value) if whole else str(value)
