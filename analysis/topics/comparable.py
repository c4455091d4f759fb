"""Whether two sets of runs may be compared: each reason against it, with its sentence, once.

A fact is what all runs of a set have in common. Two sets may be compared if the facts that the
comparison depends on are equal, or close. A topic refuses the pair, or adds the sentence as a note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import fmt
from analysis.stats.levels import SAME_BUDGET

#: Facts that seconds and images per second depend on; those of accuracy; and what any number does.
TIMES = ("device", "cores", "shared", "nodes")
ACCURACY = ("data", "budget")
PROGRAM = ("code", "image")
_UNKNOWN = "unknown"
#: Fact -> what a sentence calls it.
_WORDS = {
    "device": "device", "cores": "cores per rank", "shared": "shared cores", "nodes": "nodes",
    "data": "data", "code": "git commit", "image": "container image",
    "budget": "images per run", "lost": "planned runs without a usable record",
}  # fmt: skip


def _cores(runs: pd.DataFrame) -> pd.Series[Any]:
    """A GPU does the work wherever its host's cores are; without one the cores do it."""
    cores = runs["cores_per_rank"].astype("string").fillna(_UNKNOWN)
    return cores.where(runs["device_kind"] == "cpu", "any")


def _code(runs: pd.DataFrame) -> pd.Series[Any]:
    changed = runs["git_dirty"].map({True: " with changes"}).fillna("")
    return runs["git_commit"].str[:8].str.cat(changed)


#: Fact -> its value in each run.
_OF_A_RUN: dict[str, Callable[[pd.DataFrame], pd.Series[Any]]] = {
    "device": lambda runs: runs["device"],
    "cores": _cores,
    "shared": lambda runs: runs["oversubscribed"].map({True: "yes", False: "no"}),
    "nodes": lambda runs: runs["nodes"],
    "data": lambda runs: runs["data_fingerprint"].str[:8],
    "code": _code,
    "image": lambda runs: runs["image_digest"].str.removeprefix("sha256:").str[:8],
}


def facts(runs: pd.DataFrame, sets: NDArray[Any], count: int, planned: Any = None) -> pd.DataFrame:
    """A row per set of runs, with a column per fact.

    Args:
        runs: with the columns of RUNS that the facts need.
        sets: number of each run's set, from 0.
        count: number of sets.
        planned: planned runs of each set; without it the fact ``lost`` is unknown.

    Returns:
        a text per fact, ``a and b`` where runs of a set differ, null of a set without a run;
        ``budget``: mean number of images of a completed run; ``n`` and ``n_planned``: runs.
    """
    made: dict[str, Any] = {}
    for name, of in _OF_A_RUN.items():
        each = pd.DataFrame({"set": sets, "text": of(runs).astype("string").array})
        each = each.fillna(_UNKNOWN).drop_duplicates().sort_values("text")
        made[name] = each.groupby("set")["text"].agg(" and ".join).reindex(range(count)).array
    done = (runs["status"] == "completed").to_numpy(bool)
    images = runs["images"].to_numpy(float, na_value=np.nan)[done]
    made["budget"] = pd.Series(images).groupby(sets[done]).mean().reindex(range(count)).array
    made["n"] = np.bincount(sets, minlength=count)
    return pd.DataFrame(made).assign(n_planned=made["n"] if planned is None else planned)


def comparable(
    first: pd.DataFrame,
    second: pd.DataFrame,
    asks: Sequence[str],
    names: tuple[Any, Any] = ("first", "second"),
) -> list[str | None]:
    """Per pair of rows of :func:`facts`, why the two may not be compared; None where they may, or
    where one of the two has no run, which is a reason of its own.

    Args:
        asks: the facts that count: TIMES, ACCURACY, PROGRAM, ``lost``, or some of them.
        names: of the first and of the second: one for all pairs, or one per pair.
    """
    found: list[list[str]] = [[] for _ in range(len(first))]
    called = [np.broadcast_to(np.asarray(name, object), len(first)) for name in names]
    for fact in asks:
        differ = _differ(fact, first, second)
        for place in np.flatnonzero(differ):
            both = (_text(fact, side, place) for side in (first, second))
            said = (f"{text} ({name[place]})" for text, name in zip(both, called, strict=True))
            found[place].append(f"{_WORDS[fact]}: {', '.join(said)}")
    return ["; ".join(reasons) or None for reasons in found]


def _differ(fact: str, first: pd.DataFrame, second: pd.DataFrame) -> NDArray[np.bool_]:
    """Where both have runs and differ; of ``lost``, where both have runs and one has lost some."""
    if fact == "lost":
        n, planned = ([side[name].to_numpy(int) for side in (first, second)]
                      for name in ("n", "n_planned"))  # fmt: skip
        return (np.minimum(*n) > 0) & ((n[0] < planned[0]) | (n[1] < planned[1]))
    if fact == "budget":
        both = [side[fact].to_numpy(float, na_value=np.nan) for side in (first, second)]
        with np.errstate(invalid="ignore", divide="ignore"):
            apart: NDArray[np.bool_] = np.abs(both[0] / both[1] - 1) >= SAME_BUDGET
        return apart
    one, other = (side[fact].fillna("").to_numpy(object) for side in (first, second))
    return ((one != "") & (other != "") & (one != other)).astype(bool)


def _text(fact: str, side: pd.DataFrame, place: Any) -> str:
    row = side.iloc[place]
    if fact == "lost":
        return f"{row['n_planned'] - row['n']} of {row['n_planned']}"
    return fmt.count(row[fact]) if fact == "budget" else str(row[fact])
