"""Factors of layer-wise optimizers by variable, over runs, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.builders import config, record, runs_frame, technique
from tests.measured.layer_factors import figure, numbers
from train.config.optimizer import Lars
from train.record.measurements import TrustRatios
from train.record.run import RunRecord


def test_the_figure_has_the_factors_of_each_variable_by_batch() -> None:
    def run(seed: int, batch: int, factor: float, **changes: Any) -> RunRecord:
        trust = TrustRatios(
            median=factor, smallest=factor, largest=2 * factor, clipped_share=0.0,
            layers=(factor, 2 * factor),
        )  # fmt: skip
        first = trust.model_copy(update={"layers": (9.0, 9.0)})
        return record(
            config("larc", seed=seed, batch_per_rank=batch), adapted=("a/kernel:0", "b/kernel:0"),
            epoch_changes=[{"trust": one} for one in (first, first, trust)], **changes,
        )  # fmt: skip

    items = [run(0, 16, 0.1), run(1, 16, 0.4), run(0, 32, 0.3), run(1, 32, 5.0, status="diverged")]
    found = figure(runs_frame(items), items)
    assert found is not None and found.svg is not None
    data = found.data.set_index(["global_batch", "variable"])
    assert data.loc[(16, "a/kernel:0"), ["factor", "n"]].tolist() == pytest.approx([0.2, 2])
    assert data.loc[(16, "b/kernel:0"), "factor"] == pytest.approx(0.4)
    assert data.loc[(32, "a/kernel:0"), ["factor", "n"]].tolist() == pytest.approx([0.3, 1])
    assert data["place"].tolist() == [1, 2, 1, 2]
    assert figure(runs_frame(items[:1]), []) is None


def test_other_ranks_at_one_batch_are_another_panel() -> None:
    def on(gpus: int, factor: float) -> RunRecord:
        ratios = {"trust": TrustRatios(median=1, smallest=1, largest=1, clipped_share=0.0,
                                        layers=(factor,))}  # fmt: skip
        asked = config("lars", gpus=gpus, batch_per_rank=32 // gpus,
                       technique=technique("lars", optimizer=Lars()))  # fmt: skip
        return record(asked, epoch_changes=ratios, adapted=("conv1/kernel",))

    items = [on(1, 0.01), on(2, 1.0)]
    found = numbers(runs_frame(items), items)
    assert found["n"].tolist() == [1, 1]
    assert [name.split(", ")[-1] for name in found["condition"]] == ["1 ranks", "2 ranks"]
    assert found["factor"].tolist() == pytest.approx([0.01, 1.0])


def test_a_variable_that_does_not_move_counts() -> None:
    items = []
    for seed, layers in enumerate([(0.0, 4.0), (2.0, 1.0)]):
        trust = TrustRatios(median=1, smallest=0, largest=4, clipped_share=0.0, layers=layers)
        items.append(record(config(seed=seed), epoch_changes={"trust": trust}, adapted=("a", "b")))
    found = numbers(runs_frame(items), items).set_index("variable")
    assert found["n"].tolist() == [2, 2] and found["factor"].tolist() == [0.0, 2.0]
    drawn = figure(runs_frame(items), items)
    assert drawn is not None and "0, of a variable that does not move" in drawn.caption
