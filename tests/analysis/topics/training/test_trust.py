"""Trust ratios of the first and the last epoch, over runs, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.table import Table
from analysis.topics.training import trust as topic
from analysis.topics.training.trust import figure, numbers
from tests.analysis.builders import config, epochs_frame, record, runs_frame, technique
from train.config.optimizer import Lamb, Larc, Lars
from train.config.run import RunConfig
from train.record.run import RunRecord, TrustRatios


def made(*items: RunRecord, order: tuple[str, ...] = ("naive", "larc")) -> Table:
    runs = runs_frame(items)
    return topic.table(epochs_frame(items), runs, order)


def test_trust_ratios_of_the_first_and_the_last_epoch() -> None:
    def ratios(median: float, clipped: float) -> dict[str, TrustRatios]:
        parts = {"smallest": median / 10, "largest": median * 10, "clipped_share": clipped}
        return {"trust": TrustRatios(median=median, **parts)}

    def clipping(seed: int) -> RunConfig:
        return config("larc", seed=seed, technique=technique("larc", optimizer=Larc()))

    items = [
        record(clipping(seed), epoch_changes=[ratios(m, c) for m, c in found])
        for seed, found in enumerate(
            ([(0.02, 0.5), (9.0, 0.9), (0.04, 0.1)], [(0.04, 0.3), (9.0, 0.9), (0.08, 0.0)])
        )
    ]
    items.append(record(config("naive")))
    gone = clipping(2)
    items.append(record(gone, status="diverged", accuracies=[0.1], epoch_changes=ratios(50.0, 1.0)))
    found = made(*items)
    (row,) = (row for _, row in found.data.iterrows())
    assert row["technique"] == "larc" and row["n"] == 2
    assert row["first_median"] == pytest.approx(0.03)
    assert (row["first_smallest"], row["first_largest"]) == pytest.approx((0.002, 0.4))
    assert (row["first_clipped_share"], row["last_clipped_share"]) == pytest.approx((0.4, 0.05))
    assert (row["last_smallest"], row["last_largest"]) == pytest.approx((0.004, 0.8))
    shown = found.shown()
    (cells,) = shown.rows
    assert [c.heading for c in shown.columns][1:] == [
        "global batch", "first epoch", "plain rate kept, first", "last epoch",
        "plain rate kept, last", "runs",
    ]  # fmt: skip
    assert cells[2:] == ("0.0300 [0.00200, 0.400]", "40 %", "0.0600 [0.00400, 0.800]", "5 %", "2")


@pytest.mark.parametrize("optimizer", [Lamb(), Larc(clip=False)])
def test_where_nothing_can_be_clipped_no_share_is_0(optimizer: Any) -> None:
    trust = TrustRatios(median=0.02, smallest=0.001, largest=0.9, clipped_share=0.0)
    row = technique("row", optimizer=optimizer)
    item = record(config("row", technique=row), epoch_changes={"trust": trust})
    (cells,) = made(item).shown().rows
    assert (cells[3], cells[5]) == ("n/a", "n/a")


def test_no_trust_ratio_no_row() -> None:
    assert made(record()).shown().rows == ()
    assert made().shown().rows == ()


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
    found = topic.figure(runs_frame(items))
    assert found is not None and found.svg is not None
    data = found.data.set_index(["global_batch", "variable"])
    assert data.loc[(16, "a/kernel:0"), ["factor", "n"]].tolist() == pytest.approx([0.2, 2])
    assert data.loc[(16, "b/kernel:0"), "factor"] == pytest.approx(0.4)
    assert data.loc[(32, "a/kernel:0"), ["factor", "n"]].tolist() == pytest.approx([0.3, 1])
    assert data["place"].tolist() == [1, 2, 1, 2]
    assert topic.figure(runs_frame([record(config())])) is None


def test_other_ranks_at_one_batch_are_another_panel() -> None:
    def on(gpus: int, factor: float) -> RunRecord:
        ratios = {"trust": TrustRatios(median=1, smallest=1, largest=1, clipped_share=0.0,
                                        layers=(factor,))}  # fmt: skip
        asked = config("lars", gpus=gpus, batch_per_rank=32 // gpus,
                       technique=technique("lars", optimizer=Lars()))  # fmt: skip
        return record(asked, epoch_changes=ratios, adapted=("conv1/kernel",))

    found = topic.numbers(runs_frame([on(1, 0.01), on(2, 1.0)]))
    assert found["n"].tolist() == [1, 1]
    assert [name.split(", ")[-1] for name in found["condition"]] == ["1 ranks", "2 ranks"]
    assert found["factor"].tolist() == pytest.approx([0.01, 1.0])


def test_a_variable_that_does_not_move_counts() -> None:
    items = [record(config(seed=seed)) for seed in range(2)]
    runs = runs_frame(items).assign(layer_factors=['{"a": 0.0, "b": 4}', '{"a": 2.0, "b": 1}'])
    found = numbers(runs).set_index("variable")
    assert found["n"].tolist() == [2, 2] and found["factor"].tolist() == [0.0, 2.0]
    drawn = figure(runs)
    assert drawn is not None and "0, of a variable that does not move" in drawn.caption
