"""How many epochs a run has, for those who have its data and for those who have not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config, row
from train.config.plan import RunPlan, checked_plan, epochs_to_train, most_epochs, plan_of
from train.config.run import RunConfig
from train.errors import ConfigError


def adapted(base: int, **changes: object) -> RunConfig:
    return config(technique=row(base_batch=base, regime_adaptation=True), **changes)


def warmed(epochs: float, steps: int | None = None, **changes: object) -> RunConfig:
    technique = row(base_batch=64, lr_scaling="linear", warmup_epochs=epochs, **changes)
    return config(technique=technique, batch_per_rank=20, steps_per_epoch=steps)


def test_where_no_batch_divides_the_images_it_is_counted_all_the_same() -> None:
    """20,000 images: 12 x 78 steps of 256 are 234 epochs of 4 steps of 4,096, not 12 x 16."""
    run = adapted(256, dataset="cifar10", data_fraction=0.4, batch_per_rank=4096, epochs=12)
    assert epochs_to_train(run) == 234 == len(plan_of(run, 50_000).epochs)


def test_images_that_are_validated_on_are_not_counted() -> None:
    run = adapted(
        100, dataset="cifar10", data_fraction=0.02, batch_per_rank=500, epochs=2,
        validate_on="train_part",
    )  # fmt: skip
    # 900 images: 2 x 9 steps, one an epoch
    assert epochs_to_train(run) == 18


def test_of_a_folder_and_of_what_cannot_run_it_is_not_known() -> None:
    assert epochs_to_train(adapted(16, dataset="folder:a")) is None
    assert epochs_to_train(adapted(16, batch_per_rank=10_000)) is None


@given(
    base=st.integers(1, 400), batch=st.integers(1, 400), images=st.integers(1, 2000),
    epochs=st.integers(1, 9),
)  # fmt: skip
def test_the_bound_holds_for_any_folder(base: int, batch: int, images: int, epochs: int) -> None:
    run = adapted(base, dataset="folder:a", batch_per_rank=batch, epochs=epochs)
    try:
        planned = len(RunPlan(run, images).epochs)
    except ConfigError:
        return  # the data is smaller than a batch
    assert planned <= most_epochs(run)


def test_the_bound_is_exact_where_the_number_is_known() -> None:
    assert most_epochs(config(epochs=7, dataset="folder:a")) == 7
    assert most_epochs(adapted(64, dataset="cifar10", batch_per_rank=256, epochs=2)) == 9


def test_an_epoch_has_no_more_steps_than_a_pass_over_the_images() -> None:
    with pytest.raises(ConfigError, match=r"steps_per_epoch 5 is more than a pass .* at most 4$"):
        plan_of(config(batch_per_rank=20, steps_per_epoch=5), 83)
    assert plan_of(config(batch_per_rank=20, steps_per_epoch=4, epochs=3), 83).total_steps == 12
    assert plan_of(warmed(1, steps=2), 83).warmup_steps == 2


def test_a_warm_up_of_no_step_is_refused_with_the_shortest_that_has_one() -> None:
    """83 images are 4 steps of 20. Exactly half a step rounds down."""
    with pytest.raises(ConfigError, match=r"of 4 steps .* to 0 steps, .* to 0\.25 \(one step\)"):
        checked_plan(warmed(0.125), 83)
    assert plan_of(warmed(0.25), 83).warmup_steps == 1
    assert plan_of(warmed(0), 83).warmup_steps == 0
    # with the regime adapted, epochs are the base batch's: one step of 64
    with pytest.raises(ConfigError, match=r"of 1 steps each .* or to 1 \(one step\)"):
        plan_of(warmed(0.5, regime_adaptation=True), 83)
