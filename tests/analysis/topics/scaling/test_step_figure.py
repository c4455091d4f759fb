"""Parts of a step add up to the step, each condition by itself."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.plots.figure import Figure, looks
from analysis.topics.scaling.step_figure import MOST_ROWS, PARTS, figure, numbers
from tests.analysis.builders import config, rank_steps, record, runs_frame, spread
from train.record.run import RunRecord

SEEN = looks(["naive"])


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


def tips(found: Figure | None) -> list[str]:
    root = ElementTree.fromstring(str(found and found.svg))
    return [e.text for e in root.iter("{http://www.w3.org/2000/svg}title") if e.text]


def test_parts_of_a_step_by_hand() -> None:
    found = parts(run(1.0)).loc["naive"]
    expected = {"input": 100, "compute": 437.5, "update": 62.5, "exposed": 100, "rest": 300}
    assert found.to_dict() == pytest.approx(expected)


def test_parts_add_up_to_the_mean_step_of_the_completed_runs() -> None:
    items = [run(1.0), run(3.0, seed=1), run(99.0, seed=2, status="diverged"), run(2.5, gpus=2)]
    found = parts(*items).sum(axis=1)
    assert found.to_dict() == pytest.approx({"naive, 1 rank, batch 16": 2000.0,
                                             "naive, 2 ranks, batch 32": 2500.0})  # fmt: skip


def test_what_is_not_known_is_in_the_rest_and_said() -> None:
    item = run(1.0, None, missing={"steps.exposed_s": "too short"})
    data = numbers(runs_frame([item])).set_index("part")["milliseconds"]
    assert pd.isna(data["exposed"]) and data["rest"] == pytest.approx(400)
    words, rest = PARTS["exposed"][0], PARTS["rest"][0]
    both = figure(runs_frame([item, run(1.0, gpus=2)]), SEEN)
    assert f"Where it is not known, {words} is in the bar '{rest}'." in both.caption
    assert "not known" not in figure(runs_frame([run(1.0)]), SEEN).caption


def test_a_part_that_some_runs_lack_is_not_the_mean_of_the_others() -> None:
    items = [run(1.0, None, missing={"steps.exposed_s": "too short"}), run(1.0, seed=1)]
    data = numbers(runs_frame(items)).set_index("part")["milliseconds"]
    assert pd.isna(data["exposed"]) and data["rest"] == pytest.approx(400)


def test_an_older_record_has_its_update_in_the_computing() -> None:
    data = numbers(runs_frame([record()])).set_index("part")["milliseconds"]
    assert data.drop("update").to_dict() == pytest.approx(
        {"input": 100, "compute": 700, "exposed": 200, "rest": 0}
    )
    assert pd.isna(data["update"])
    said = "Where it is not known, update is in the bar 'forward and backward pass'."
    assert said in figure(runs_frame([record()]), SEEN).caption


def test_a_step_that_is_shorter_than_its_parts_has_a_bar_left_of_zero() -> None:
    """0.1 + 0.5 + 0.6 are 1.2 s of parts in a step of 1 s."""
    found = figure(runs_frame([run(1.0, 0.6)]), SEEN)
    shares = [float(re.search(r"(-?\d+) %", tip)[1]) for tip in tips(found)]
    assert shares == [10, 44, 6, 60, -20], "of the step, so 100 % together"
    assert "Left of 0: by how much less" in found.caption
    assert "Left of 0" not in figure(runs_frame([run(1.0)]), SEEN).caption


def test_each_part_has_a_bar_and_a_tip() -> None:
    titles = tips(figure(runs_frame([run(1.0)]), SEEN))
    assert "naive: forward and backward pass 438 ms, 44 %" in titles
    assert len(titles) == len(PARTS)


def test_rows_that_are_left_out_are_said() -> None:
    items = [run(1.0, gpus=g) for g in range(1, MOST_ROWS + 2)]
    found = figure(runs_frame(items), SEEN)
    assert found.data["name"].nunique() == MOST_ROWS
    assert f"Shown: {MOST_ROWS} of {MOST_ROWS + 1} conditions" in found.caption


def test_without_parts_there_is_no_figure() -> None:
    assert figure(runs_frame([record(steps=None)]), SEEN) is None
    assert figure(runs_frame([]), SEEN) is None


@pytest.mark.filterwarnings("error")
def test_long_names_leave_room_for_the_bars() -> None:
    """Matplotlib warns where they do not."""
    words = "nesterov (schedule=polynomial), 12 epochs, 0.4096 of the data"
    items = [run(1.0), run(2.0, seed=1)]
    runs = runs_frame(items).assign(technique_label=[words, f"{words}, once more"])
    runs = runs.assign(condition=["a", "b"])
    assert figure(runs, looks([words, f"{words}, once more"])) is not None
