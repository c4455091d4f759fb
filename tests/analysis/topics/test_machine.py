"""Machines and code: every value with its number of runs, the most common first."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.records.frames import runs_frame
from analysis.topics import machine
from tests.analysis.builders import config, record


def found(*changes: dict[str, Any]) -> pd.DataFrame:
    items = [record(config(seed=seed), **change) for seed, change in enumerate(changes)]
    return machine.table(runs_frame(items)).data


def values(data: pd.DataFrame, what: str) -> list[tuple[str, int]]:
    own = data[data["what"] == what]
    return list(zip(own["value"], own["runs"], strict=True))


def test_one_run_has_one_value_of_each() -> None:
    data = found({})
    assert values(data, "git commit") == [("a" * 40, 1)]
    assert values(data, "tensorflow") == [("2.15.1", 1)]
    assert values(data, "hosts") == [("node1", 1)]
    assert data["what"].is_unique


def test_what_differs_is_counted_the_most_common_first() -> None:
    other = {"provenance_changes": {"git_commit": "b" * 40, "versions": {"tensorflow": "2.14"}}}
    data = found({}, other, other)
    assert values(data, "git commit") == [("b" * 40, 2), ("a" * 40, 1)]
    assert values(data, "horovod") == [("not recorded", 2), ("0.28.1", 1)]
    assert values(data, "tensorflow") == [("2.14", 2), ("2.15.1", 1)]


def test_a_record_without_provenance_is_counted() -> None:
    data = found({}, {"provenance": None})
    assert values(data, "git commit") == [("a" * 40, 1), ("not recorded", 1)]
    assert data.groupby("what")["runs"].sum().unique().tolist() == [2]


def test_of_many_values_the_rest_is_summed() -> None:
    many = [{"world_changes": {"hostnames": (f"node{i}",)}} for i in range(machine.MOST + 2)]
    named = values(found(*many), "hosts")
    assert len(named) == machine.MOST + 1
    assert named[-1] == ("2 others", 2)


def test_no_run() -> None:
    assert machine.table(runs_frame([])).shown().rows == ()
