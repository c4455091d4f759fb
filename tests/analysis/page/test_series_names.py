"""A series is named by what tells it from the others, in sentences, tables and figures alike."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.table import plain_rows
from analysis.topics.names import namer
from analysis.topics.scaling.efficiency import throughputs
from tests.analysis.builders import config, rank_steps, record
from tests.analysis.planned import report, sweep
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


def test_series_on_two_devices_are_told_by_them() -> None:
    found = report([*series(0.9, world=A100), *series(0.6, world=H100, seed=9)])
    texts = {answer.key: answer.text for answer in found.answers}
    assert "At 2 ranks, naive (A100) reaches an efficiency" in texts["scaling"]
    assert "with naive (A100)" in texts["more_ranks"]
    for key in ("scaling", "lost_efficiency"):
        assert set(found.tables[key].data["context"]) == {"A100", "H100"}, key


@pytest.mark.parametrize(
    ("several", "names"),
    [
        ([{}, {"batch_per_rank": 32}], {"naive (weak, 16 per rank)", "naive (weak, 32 per rank)"}),
        ([{}, {"dataset": "mnist"}], {"naive (digits)", "naive (mnist)"}),
        ([{}, {"accumulation": 2}], {"naive", "naive (accumulation 2)"}),
        ([{}, {"dataset": "mnist", "batch_per_rank": 32}], {"naive (digits)", "naive (mnist)"}),
        ([{"batch_per_rank": 8}, {"world": {"cores_per_rank": 4}}],
         {"naive (1 core per rank)", "naive (4 cores per rank)"}),
        ([{"world": A100}, {"world": H100, "batch_per_rank": 32}],
         {"naive (A100)", "naive (H100)"}),
        ([{"world": A100}, {"world": H100, "seed": 9}, {"world": A100, "batch_per_rank": 32}],
         {"naive (A100; weak, 16 per rank)", "naive (A100; weak, 32 per rank)", "naive (H100)"}),
    ],
)  # fmt: skip
def test_a_name_says_what_differs(several: list[Changes], names: set[str]) -> None:
    items = [item for own in several for item in series(**own)]
    rows = plain_rows(throughputs(sweep(items)).data)
    assert {namer(rows)(row) for row in rows} == names
