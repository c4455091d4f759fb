"""The plan: sizes, steps, rates, and every impossible cell at once."""

from __future__ import annotations

import io
import re
import shlex
from typing import Any

import pytest
from rich.console import Console

from jobs.plan.estimate import Rate, rate_key
from jobs.plan.rows import PlanRow, plan_rows, summary
from jobs.plan.text import render_plan
from train.config.run import RunConfig, Target
from train.config.schedule import Grow
from train.config.technique import Technique
from train.errors import ConfigError

FACTS = {("digits", None): 1437, ("mnist", None): 60_000, ("folder:a", 32): 100}


def config(**changes: Any) -> RunConfig:
    technique = {"name": "naive", "base_lr": 0.1, "base_batch": 64, **changes.pop("technique", {})}
    fields = {"dataset": "digits", "model": "cnn", "gpus": 2, "batch_per_rank": 64, "epochs": 5}
    return RunConfig(**{"seed": 0, **fields, **changes}, technique=Technique(**technique))


def text_of(rows: tuple[PlanRow, ...], lines: dict[str, list[str]], **console: Any) -> str:
    out = io.StringIO()
    render_plan(rows, lines, Console(file=out, **console))
    return out.getvalue()


def test_the_numbers_of_a_row() -> None:
    run = config(technique={"lr_scaling": "linear"})
    (row,) = plan_rows([run], FACTS, {})
    assert row == PlanRow(
        cell_id=run.cell_id(), dataset="digits", model="cnn", technique="naive", gpus=2,
        global_batch=128, last_batch=128, accumulation=1, steps_per_epoch=11, total_steps=55,
        epochs=5, lr=0.2, seconds=None, source="never run here",
        initial_share=0.0, left_out=pytest.approx(29 / 1437),
    )  # fmt: skip


def test_rows_keep_the_order_of_the_configs() -> None:
    runs = [config(seed=seed) for seed in (3, 1, 2)]
    assert [row.cell_id for row in plan_rows(runs, FACTS, {})] == [run.cell_id() for run in runs]


def test_data_sets_are_told_apart_by_image_size() -> None:
    small = config(dataset="folder:a", image_size=32, batch_per_rank=10)
    assert plan_rows([small], FACTS, {})[0].steps_per_epoch == 5
    with pytest.raises(ConfigError, match="size of the data set folder:a is not known"):
        plan_rows([config(dataset="folder:a")], FACTS, {})


def test_all_cells_without_a_step_are_named_at_once() -> None:
    good = config()
    bad = [config(batch_per_rank=1000), config(gpus=4, batch_per_rank=512, seed=1)]
    with pytest.raises(ConfigError) as caught:
        plan_rows([bad[0], good, bad[1]], FACTS, {})
    text = str(caught.value)
    assert text.startswith("2 of 3 cells cannot run on their data:")
    assert all(run.cell_id() in text for run in bad)
    assert good.cell_id() not in text
    assert "at most 718" in text  # 1,437 images / 2 ranks
    assert "at most 359" in text  # / 4 ranks


@pytest.mark.parametrize(("rule", "rate"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_plan_shows_the_scaled_rate(rule: str, rate: float) -> None:
    technique = {"base_lr": 0.1, "base_batch": 64, "lr_scaling": rule}
    (row,) = plan_rows([config(gpus=4, batch_per_rank=64, technique=technique)], FACTS, {})
    assert row.lr == pytest.approx(rate)


def test_estimates_count_the_images_really_processed() -> None:
    run = config()
    rates = {rate_key(run): Rate(images_per_s=11.0, fixed_s=4.0, eval_s=1.0, cells=3)}
    (row,) = plan_rows([run], FACTS, rates)
    assert row.seconds == pytest.approx(4 + 55 * 128 / 11 + 5)
    assert row.source == "3 earlier cells like it"


GROWING = {"batch_growth": Grow(milestones=(0.5,), factor=4), "base_batch": 16}


def test_a_batch_that_grows_is_shown_from_first_to_last() -> None:
    run = config(epochs=4, batch_per_rank=16, technique=GROWING)
    rates = {rate_key(run): Rate(images_per_s=10.0, fixed_s=0.0, eval_s=1.0, cells=1)}
    (row,) = plan_rows([run], FACTS, rates)
    # 44 steps of 32 images, then 11 of 128
    assert (row.global_batch, row.last_batch, row.steps_per_epoch) == (32, 128, 44)
    assert row.total_steps == 2 * 44 + 2 * 11
    assert row.seconds == pytest.approx((88 * 32 + 22 * 128) / 10 + 4)
    assert " 32-128 " in text_of((row,), {}, width=100)


def test_growth_beyond_the_data_is_refused_with_the_others() -> None:
    with pytest.raises(
        ConfigError, match=r"1 of 1 cells .*\n.* from 512 to 2,048, passes the larg"
    ):
        plan_rows([config(batch_per_rank=256, epochs=4, technique=GROWING)], FACTS, {})


def test_an_adapted_regime_has_the_steps_of_the_base_batch_in_more_epochs() -> None:
    adapted = {"regime_adaptation": True, "base_batch": 64}
    run = config(batch_per_rank=128, technique=adapted)
    rates = {rate_key(run): Rate(images_per_s=100.0, fixed_s=0.0, eval_s=1.0, cells=1)}
    (row,) = plan_rows([run], FACTS, rates)
    assert (row.steps_per_epoch, row.total_steps, row.epochs) == (5, 5 * 22, 22)
    assert row.seconds == pytest.approx(110 * 256 / 100 + 22)


def test_accumulated_batches_are_named_as_what_they_are() -> None:
    runs = [config(), config(batch_per_rank=32, accumulation=4)]
    rows = plan_rows(runs, FACTS, {})
    assert [(row.global_batch, row.accumulation) for row in rows] == [(128, 1), (256, 4)]
    assert "1 accumulate up to 4 batches per step" in summary(rows)[1]


@pytest.mark.parametrize(
    ("technique", "cell", "share"),
    [
        # the courses' trap: 72 steps at Keras' momentum leave half of the initial statistics
        ({"normalisation": "batch_norm", "bn_momentum": 0.99}, {}, 0.99**72),
        ({"normalisation": "batch_norm", "bn_momentum": 0.99}, {"accumulation": 2}, 0.99**72),
        ({"normalisation": "batch_norm"}, {}, 0.9**72),
        (
            {"normalisation": "ghost_batch_norm", "ghost_batch": 16, "bn_momentum": 0.99}, {},
            0.99 ** (72 * 4),
        ),
        (
            {"normalisation": "ghost_batch_norm", "ghost_batch": 16, "bn_momentum": 0.99,
             "bn_momentum_per": "batch"}, {}, 0.99**72,
        ),
        (
            {"normalisation": "batch_norm", "bn_momentum": 0.99, "bn_statistics": "reestimated"},
            {}, 0.0,
        ),
    ],
)  # fmt: skip
def test_moving_averages_that_have_not_moved_are_told(
    technique: dict[str, Any], cell: dict[str, Any], share: float
) -> None:
    """1,536 images: 12 steps of 2 x 64 in each of 6 epochs, or 6 steps of two such batches."""
    facts = {("digits", None): 1536}
    (row,) = plan_rows([config(epochs=6, technique=technique, **cell)], facts, {})
    assert row.initial_share == pytest.approx(share)
    assert ("batch-norm statistics stay" in "\n".join(summary([row]))) == (share > 0.05)


def test_images_that_fill_no_whole_step_are_told() -> None:
    """39 steps of 512 are 19,968 of 20,000 images, four of 4,096 are 16,384: 18 % fewer."""
    facts = {("digits", None): 20_000}
    small, large = (config(batch_per_rank=256, accumulation=k) for k in (1, 8))
    rows = plan_rows([small, large], facts, {})
    assert [row.left_out for row in rows] == pytest.approx([32 / 20_000, 3616 / 20_000])
    told = "\n".join(summary(rows))
    assert "1 leave out up to 18% of the images in each epoch" in told
    assert "leave out" not in "\n".join(summary(rows[:1]))


def test_a_rule_that_acts_in_no_cell_is_told() -> None:
    scaled = {"name": "scaled", "base_lr": 0.1, "lr_scaling": "linear", "base_batch": 64}
    plain = {"name": "plain", "base_lr": 0.1, "base_batch": 64}
    idle = [config(gpus=1, technique=row) for row in (scaled, plain)]
    acting = [*idle, config(gpus=2, technique=scaled)]
    said = ["scaled: all cells have the base batch" in "\n".join(summary(plan_rows(c, FACTS, {})))
            for c in (idle, acting)]  # fmt: skip
    assert said == [True, False]


def test_the_summary_names_what_stands_behind_the_times() -> None:
    runs = [config(seed=0), config(seed=1), config(gpus=1), config(model="resnet_mini")]
    rates = {rate_key(runs[0]): Rate(images_per_s=704.0, fixed_s=5.0, eval_s=1.0, cells=2)}
    lines = summary(plan_rows(runs, FACTS, rates))
    # 2 x (5 + 10 + 5) s on two ranks; 5 + 7040 / 352 + 5 = 30 s on one
    assert lines == [
        "4 cells: cnn on digits, resnet_mini on digits; batch = images per step over all ranks",
        "time: about 1:10 one cell after another, 1 never run here left out",
        "  2 estimated from 2 earlier cells like it",
        "  1 estimated from 2 earlier cells on gpus=2, scaled in proportion",
    ]


def test_without_any_estimate_it_says_so() -> None:
    assert "never run here" in summary(plan_rows([config()], FACTS, {}))[1]


def test_in_a_pipe_nothing_is_cut_and_launch_lines_can_be_pasted() -> None:
    runs = [config(), config(seed=1, technique={"name": "a_technique_with_a_name_as_long_as_this"})]
    tokens = ["python", "-m", "train", "/a folder/[bold]/" + "x" * 200, "--data", "d'ata"]
    text = text_of(plan_rows(runs, FACTS, {}), {run.cell_id(): tokens for run in runs}, width=40)
    table, launch = text.split("launch lines", 1)
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["cell", "gpus", "batch", "steps/epoch", "epochs", "steps", "peak", "lr",
                       "time"]  # fmt: skip
    assert rows[1] == [runs[0].cell_id(), "2", "128", "11", "5", "55", "0.1", "?"]
    assert rows[2][0] == runs[1].cell_id()
    assert sum(shlex.split(line) == tokens for line in launch.splitlines()) == 2


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    runs = [config(technique={"name": name}) for name in ("naive", "lr_scaling_warmup")]
    rows = plan_rows(runs, FACTS, {})
    screen = {"force_terminal": True, "color_system": None}
    wide = text_of(rows, {}, width=200, **screen)
    assert all(run.cell_id() in wide for run in runs)
    narrow = text_of(rows, {}, width=80, **screen)
    assert max(len(line) for line in narrow.splitlines()) <= 80
    for run in runs:  # what all ids begin with is left out, the rest is whole
        assert f"..{run.cell_id().removeprefix('digits-cnn-')} " in narrow
    assert "launch lines" not in narrow


def test_finished_cells_are_shown_as_done_and_cost_nothing() -> None:
    runs = [config(seed=0), config(seed=1)]
    rates = {rate_key(runs[0]): Rate(images_per_s=704.0, fixed_s=5.0, eval_s=1.0, cells=2)}
    rows = plan_rows(runs, FACTS, rates)
    done = {runs[0].cell_id()}
    text = summary(rows, done)
    assert "1 have a good record and are skipped" in text
    assert "time: about 0:20 one cell after another" in text
    assert summary(rows, {run.cell_id() for run in runs})[-1] == "nothing to train"
    out = io.StringIO()
    render_plan(rows, {}, Console(file=out), done)
    assert re.search(rf"{runs[0].cell_id()} .*done", out.getvalue())
    assert re.search(rf"{runs[1].cell_id()} .*~0:20", out.getvalue())


def test_what_ids_do_not_say_has_a_column_where_it_differs() -> None:
    runs = [config(technique={"name": "naive", "bn_momentum": m, "normalisation": "batch_norm"},
                   framework=f) for m in (0.9, 0.99) for f in ("horovod", "mirrored")]  # fmt: skip
    rows = plan_rows([*runs, config(technique={"name": "other"})], FACTS, {})
    head, *lines = text_of(rows, {}, width=200).splitlines()
    assert head.split()[:4] == ["cell", "framework", "bn_momentum", "gpus"]
    assert [line.split()[1:3] for line in lines[:5]] == [
        ["horovod", "0.9"], ["mirrored", "0.9"], ["horovod", "0.99"], ["mirrored", "0.99"],
        ["horovod", "0.9"],
    ]  # fmt: skip


def test_what_a_cell_stops_at_is_told() -> None:
    goal = Target(train_accuracy=0.75, validation_accuracy=0.25, within_s=240)
    lines = summary(plan_rows([config(), config(seed=1, target=goal)], FACTS, {}))
    assert lines[1] == (
        "1 stop at train 0.75 and validation 0.25 held 2 times within 240 s, "
        "or when that is out of reach"
    )


def test_what_a_batch_below_the_base_batch_turns_round_is_told() -> None:
    """A warm-up that climbs nowhere, and a regime of fewer steps instead of more."""
    climbing = {"lr_scaling": "linear", "warmup_epochs": 2, "base_batch": 256}
    adapted_row = {"regime_adaptation": True, "base_batch": 256}
    cells = [config(technique=row, batch_per_rank=b) for row in (climbing, adapted_row) for b in
             (64, 256)]  # fmt: skip
    rows = plan_rows(cells, FACTS, {})
    assert [row.flat_warmup for row in rows] == [True, False, False, False]
    assert [row.shortened for row in rows] == [False, False, True, False]
    told = "\n".join(summary(rows))
    first, adapted = cells[0].cell_id(), cells[2].cell_id()
    assert f"climbs nowhere, from the base rate to a lower one ({first})" in told
    assert f"below base_batch ({adapted}), so they take fewer steps than their epochs" in told
    assert rows[2].total_steps == 25 and "down to 25: set base_batch" in told
    assert "regime" not in "\n".join(summary(rows[3:]))
    (as_many,) = plan_rows([config(technique=adapted_row, batch_per_rank=120)], FACTS, {})
    assert not as_many.shortened, "240 images a step, and 5 steps an epoch as of 256"


def test_ranks_that_repeat_each_other_are_told() -> None:
    text = " ".join(summary(plan_rows([config(partition="same"), config()], FACTS, {})))
    assert "1 let all ranks draw the same images (partition: same; digits-cnn" in text
    alone = plan_rows([config(partition="same", gpus=1)], FACTS, {})
    assert "same images" not in " ".join(summary(alone))


def test_a_schedule_that_adascale_may_not_end_is_told() -> None:
    scaled = {"lr_scaling": "adascale", "base_batch": 32, "optimizer": {"name": "sgd"}}
    decaying = scaled | {"schedule": {"name": "cosine"}}
    alone = decaying | {"base_batch": 128}
    rows = plan_rows([config(technique=row) for row in (scaled, decaying, alone)], FACTS, {})
    assert [row.undecayed for row in rows] == [False, True, False]
    assert "1 have AdaScale and a schedule that decays" in "\n".join(summary(rows))
