"""The figure of a sigmoid's inputs: of which runs, at which steps."""

from __future__ import annotations

import pytest

from tests.analysis.builders import config, epochs_frame, record, technique
from tests.measured.sigmoid_inputs import figure
from train.record.run import RunRecord


def watched(name: str, seed: int, status: str = "completed", **changes: object) -> RunRecord:
    asked = config(name, model="mlp", seed=seed, technique=technique(name), epochs=3, **changes)
    inputs = [{"sigmoid_input": (-1.0 - k, 0.1 * k, 1.0 + seed)} for k in range(3)]
    return record(asked, status=status, epoch_changes=inputs)


def test_a_row_per_run_and_epoch_at_the_steps_so_far() -> None:
    items = [watched("naive", 0), watched("naive", 1), watched("lamb", 0)]
    gone = watched("lamb", 1, status="diverged")
    every = [*items, gone, record(config())]  # the last has no sigmoids
    found = figure(epochs_frame(every), every)
    assert found is not None and len(found.data) == 9
    assert found.data["panel"].unique().tolist() == ["naive; mlp", "lamb; mlp"]
    own = found.data[found.data["cell_id"] == items[1].cell_id]
    each = items[1].epochs[0].steps
    assert own["step"].tolist() == [each, 2 * each, 3 * each]
    assert own["sigmoid_p15"].tolist() == pytest.approx([-1, -2, -3])
    assert own["sigmoid_p50"].tolist() == pytest.approx([0, 0.1, 0.2])
    assert own["sigmoid_p85"].tolist() == pytest.approx([2, 2, 2])
    assert "<svg" in str(found.svg) and "a colour per seed" in found.caption


def test_rank_counts_with_one_batch_are_panels_of_their_own() -> None:
    items = [watched("naive", 0, gpus=2, batch_per_rank=8), watched("naive", 0, batch_per_rank=16)]
    found = figure(epochs_frame(items), items)
    assert found is not None and found.data["panel"].nunique() == 2


def test_networks_without_a_sigmoid_have_no_figure() -> None:
    items = [record(config())]
    assert figure(epochs_frame(items), items) is None
