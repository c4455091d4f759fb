"""Two sets of runs may be compared where nothing but the question differs; else a sentence says
what does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.topics.comparable import ACCURACY, PROGRAM, TIMES, comparable, facts
from tests.analysis.builders import config, record, runs_frame

GPU = {"device": "A100", "device_kind": "gpu"}


def reasons(
    now: dict[str, Any], then: dict[str, Any] | None = None, *, planned: tuple[int, int] = (1, 1)
) -> str | None:
    """Of two runs that differ in the changes to their records alone."""
    runs = runs_frame([record(config(), **(then or {})), record(config(seed=1), **now)])
    found = facts(runs, np.array([0, 1]), 2, np.array(planned))
    (said,) = comparable(found.iloc[[0]], found.iloc[[1]], (*TIMES, *ACCURACY, *PROGRAM, "lost"),
                         ("before", "now"))  # fmt: skip
    return said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"world_changes": {"device": "Other"}}, "device: Test CPU (before), Other (now)"),
        ({"world_changes": {"cores_per_rank": 4}}, "cores per rank: 1 (before), 4 (now)"),
        ({"world_changes": {"oversubscribed": True}}, "shared cores: no (before), yes (now)"),
        ({"world_changes": {"nodes": 2}}, "nodes: 1 (before), 2 (now)"),
        ({"provenance_changes": {"git_dirty": True}},
         "git commit: aaaaaaaa (before), aaaaaaaa with changes (now)"),
        ({"provenance_changes": {"image_digest": "sha256:4567"}},
         "container image: 0123 (before), 4567 (now)"),
        ({"train_images": 640}, "images per run: 960 (before), 1,920 (now)"),
    ],
)  # fmt: skip
def test_each_fact_that_differs_has_a_sentence(changes: dict[str, Any], said: str | None) -> None:
    assert reasons(changes) == said


def test_cores_of_a_gpu_s_host_do_not_matter() -> None:
    sides = [{"world_changes": {**GPU, "cores_per_rank": cores}} for cores in (1, 8)]
    assert reasons(*sides) is None


def test_lost_runs_and_sets_without_a_run() -> None:
    lost = "planned runs without a usable record: 0 of 1 (before), 2 of 3 (now)"
    assert reasons({}, planned=(1, 3)) == lost
    found = facts(runs_frame([record()]), np.array([0]), 2, np.array([1, 1]))
    assert comparable(found.iloc[[0]], found.iloc[[1]], TIMES) == [None]


def test_runs_of_one_set_that_differ_are_all_named() -> None:
    two = [record(config(seed=seed), world_changes={"device": name})
           for seed, name in enumerate(("B", "A", "A"))]  # fmt: skip
    found = facts(runs_frame(two), np.array([0, 0, 1]), 2)
    said = comparable(found.iloc[[0]], found.iloc[[1]], ("device",), (["lamb"], "naive"))
    assert said == ["device: A and B (lamb), A (naive)"]
