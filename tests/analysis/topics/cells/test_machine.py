"""Machines and code: every value with its number of runs, the most common first."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.topics.cells import machine
from tests.analysis.builders import config, record, runs_frame


def found(*changes: dict[str, Any]) -> pd.DataFrame:
    items = [record(config(seed=seed), **change) for seed, change in enumerate(changes)]
    return machine.table(runs_frame(items)).data


def values(data: pd.DataFrame, what: str) -> list[tuple[str, int]]:
    own = data[data["what"] == what]
    return list(zip(own["value"], own["runs"], strict=True))


def test_what_differs_is_counted_the_most_common_first() -> None:
    other = {"provenance_changes": {"git_commit": "b" * 40, "versions": {"tensorflow": "2.14"}}}
    data = found({}, other, other, {"provenance": None})
    assert values(data, "git commit") == [("b" * 40, 2), ("a" * 40, 1), ("not recorded", 1)]
    assert values(data, "horovod") == [("not recorded", 3), ("0.28.1", 1)]
    assert values(data, "tensorflow") == [("2.14", 2), ("2.15.1", 1), ("not recorded", 1)]
    assert values(data, "uncommitted changes") == [("no", 3), ("not recorded", 1)]


ONE = record()


def mixtures(records):
    return [one.text for one in machine.mixtures(runs_frame(records))]


def other(**changes):
    return record(config(seed=1), **changes)


def test_equal_runs_need_no_warning() -> None:
    assert mixtures([ONE, other()]) == []


@pytest.mark.parametrize(
    ("changes", "said", "touches"),
    [
        ({"git_commit": None}, "2 git commits: see the table", "none"),
        ({"git_dirty": True}, "1 of 2 runs ran from a checkout with unc", "all"),
        ({"driver": "550.1"}, "2 GPU drivers", "times"),
        ({"image_digest": "x"}, "2 container images", "all"),
        ({"versions": {"horovod": "0"}}, "2 sets of package versions", "none"),
        ({"device": "Other CPU"}, "2 devices", "times"),
        ({"fingerprint": "0" * 64}, "2 different contents", "all"),
    ],
)  # fmt: skip
def test_a_mixture_is_said_with_what_it_touches(changes: dict, said: str, touches: str) -> None:
    parts = {part: getattr(ONE, part) for part in ("provenance", "world", "data")}
    own = {part: found.model_copy(update=changes) for part, found in parts.items()
           if set(changes) <= set(type(found).model_fields)}  # fmt: skip
    (warning,) = machine.mixtures(runs_frame([ONE, other(**own)]))
    assert said in warning.text and warning.touches == touches


def test_a_machine_in_words() -> None:
    worlds = {"device": "X, 2 cores per rank"}, {"device_kind": "gpu", "device": "G", "nodes": 2}
    data = found(*({"world_changes": world} for world in worlds))
    (first, _), (second, _) = values(data, "machine")
    assert first.startswith("X, 2 cores per rank, 1 node, launcher")
    assert second.startswith("G, 1 GPU per rank, 2 nodes, launcher")
