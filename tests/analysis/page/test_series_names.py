"""A series is named by what tells it from the others, in sentences, tables and figures alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.page.report import Report, build
from analysis.records.load import load_frames
from analysis.table import plain_rows
from analysis.topics.names import namer
from tests.analysis.builders import config, rank_steps, record, write_sweep
from train.record.run import RunRecord

A100, H100 = ({"device": name, "device_kind": "gpu"} for name in ("A100", "H100"))


Changes = dict[str, Any]


def series(rate: float = 1.0, *, world: Changes | None = None, **changes: Any) -> list[RunRecord]:
    """One and two ranks, three seeds each; the second rank adds ``rate``."""
    first = changes.pop("seed", 0)
    return [
        record(config(gpus=gpus, seed=first + seed, **changes), world_changes=world,
               images_per_s=100.0 * (1 + rate * (gpus - 1)) + seed,
               steps=tuple(rank_steps(rank) for rank in range(gpus)))
        for gpus in (1, 2) for seed in range(3)
    ]  # fmt: skip


def report(folder: Path, *items: list[RunRecord]) -> Report:
    records = [item for own in items for item in own]
    return build(load_frames(write_sweep(folder / "s", records)), draw=False)


ON_A100: Changes = {"rate": 0.9, "world": A100}
ON_H100: Changes = {"rate": 0.6, "world": H100, "seed": 9}


def test_series_on_two_devices_are_told_by_them(tmp_path: Path) -> None:
    found = report(tmp_path, series(**ON_A100), series(**ON_H100))
    texts = {answer.key: answer.text for answer in found.answers}
    assert "At 2 GPUs, naive (A100) reaches an efficiency" in texts["scaling"]
    assert "with naive (A100)" in texts["more_ranks"]
    for key in ("scaling", "lost_efficiency"):
        contexts = found.tables[key].data["context"]
        assert set(contexts) == {"A100", "H100"}, key


def test_what_holds_for_all_series_is_not_said(tmp_path: Path) -> None:
    (text,) = (a.text for a in report(tmp_path, series()).answers if a.key == "scaling")
    assert "naive reaches" in text


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ({}, {"batch_per_rank": 32}, {"naive (weak, 16 a rank)", "naive (weak, 32 a rank)"}),
        ({}, {"dataset": "mnist"}, {"naive (digits)", "naive (mnist)"}),
        ({}, {"accumulation": 2}, {"naive", "naive (accumulation 2)"}),
        ({}, {"dataset": "mnist", "batch_per_rank": 32}, {"naive (digits)", "naive (mnist)"}),
        ({"batch_per_rank": 8}, {"world": {"cores_per_rank": 4}},
         {"naive (1 core per rank)", "naive (4 cores per rank)"}),
        ({"world": A100}, {"world": H100, "batch_per_rank": 32}, {"naive (A100)", "naive (H100)"}),
    ],
)  # fmt: skip
def test_a_name_says_what_differs(
    tmp_path: Path, first: Changes, second: Changes, names: set[str]
) -> None:
    made = report(tmp_path, series(**first), series(**second))
    rows = plain_rows(made.tables["scaling"].data)
    assert {namer(rows)(row) for row in rows} == names


def test_one_device_and_two_batches_of_one_name(tmp_path: Path) -> None:
    several: tuple[Changes, ...] = (ON_A100, ON_H100, {"world": A100, "batch_per_rank": 32})
    rows = plain_rows(report(tmp_path, *(series(**own) for own in several)).tables["scaling"].data)
    assert {namer(rows)(row) for row in rows} == {
        "naive (A100; weak, 16 a rank)", "naive (A100; weak, 32 a rank)", "naive (H100)"
    }  # fmt: skip


def test_a_doubted_efficiency_has_the_name_of_its_series(tmp_path: Path) -> None:
    found = report(tmp_path, series(1.5), series(0.9, dataset="mnist"))
    (text,) = (c.text for c in found.cautions if "lies above 1" in c.text)
    assert "(naive (digits) at 2 ranks)" in text
