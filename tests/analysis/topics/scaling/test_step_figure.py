"""Parts of a step add up to the step, each condition by itself."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.records.frames import runs_frame
from analysis.topics.scaling.step_figure import MOST_ROWS, PARTS, figure, numbers
from tests.analysis.builders import config, rank_steps, record, spread
from train.record.run import RunRecord


def run(seconds: float, exposed: float | None = 0.1, **changes: Any) -> RunRecord:
    """Of ``seconds`` a tenth waits for input, half is computing, an eighth of which updates."""
    settings = {name: changes.pop(name) for name in ("gpus", "seed") if name in changes}
    steps = rank_steps(0, seconds, 0.1 * seconds, 0.4 * seconds).model_copy(
        update={"update_s": spread(0.0625 * seconds), "sampled": 9, "exposed_s": exposed}
    )
    return record(config(**settings), steps=(steps,), **changes)


def parts(*items: RunRecord) -> pd.DataFrame:
    data = numbers(runs_frame(items))
    return data.pivot_table(index="name", columns="part", values="milliseconds", sort=False)


def test_parts_of_a_step_by_hand() -> None:
    found = parts(run(1.0)).loc["naive"]
    expected = {"input": 100, "compute": 437.5, "update": 62.5, "exposed": 100, "rest": 300}
    assert found.to_dict() == pytest.approx(expected)


def test_parts_add_up_to_the_mean_step_of_the_completed_runs() -> None:
    items = [run(1.0), run(3.0, seed=1), run(99.0, seed=2, status="diverged"), run(2.5, gpus=2)]
    found = parts(*items).sum(axis=1)
    assert found.to_dict() == pytest.approx({"naive, 1 rank, batch 16": 2000.0,
                                             "naive, 2 ranks, batch 32": 2500.0})  # fmt: skip


def test_what_is_not_known_is_in_the_rest() -> None:
    item = run(1.0, None, missing={"steps.exposed_s": "too short"})
    found = parts(item).loc["naive"]
    assert found["exposed"] == 0 and found["rest"] == pytest.approx(400)


def test_each_part_has_a_bar_and_a_tip() -> None:
    found = figure(runs_frame([run(1.0)]))
    assert found.svg is not None
    titles = [e.text for e in ElementTree.fromstring(found.svg).iter(
        "{http://www.w3.org/2000/svg}title") if e.text]  # fmt: skip
    assert "naive: forward and backward pass 438 ms, 44 %" in titles
    assert len(titles) == len(PARTS)


def test_rows_that_are_left_out_are_said() -> None:
    items = [run(1.0, gpus=g) for g in range(1, MOST_ROWS + 2)]
    found = figure(runs_frame(items))
    assert found.data["name"].nunique() == MOST_ROWS
    assert f"Shown: {MOST_ROWS} of {MOST_ROWS + 1} conditions" in found.caption


def test_nothing_to_draw_says_why() -> None:
    found = figure(runs_frame([record(steps=None)]))
    assert (found.svg, found.caption) == (None, "Not drawn: no record has the parts of a step.")
    assert figure(runs_frame([])).svg is None
