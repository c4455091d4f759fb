"""The table of cells, whole in a pipe and fitted to a terminal, and what stands below it."""

from __future__ import annotations

import shlex
from typing import Any
from unittest.mock import patch

import pytest

from jobs.messages import columns
from jobs.plan.estimate import Rate, rate_key
from jobs.plan.rows import plan_rows
from jobs.plan.text import plan_lines, summary
from tests.jobs.plan.test_rows import IMAGES, config
from train.config.run import RunConfig, Target
from train.config.schedule import Grow


def test_columns_are_aligned_below_heads_of_several_lines() -> None:
    lines = columns(("a", "of\nb", "c"), [("left", "1", ""), ("l", "22", "x")], left=1)
    assert lines == ["      of", "a      b  c", "left   1", "l     22  x"]


def test_in_a_pipe_nothing_is_cut_and_launch_lines_can_be_pasted() -> None:
    runs = [config(), config(seed=1, technique={"name": "a_technique_with_a_name_as_long_as_this"})]
    tokens = ["python", "-m", "train", "/a folder/[bold]/" + "x" * 200, "--data", "d'ata"]
    lines = plan_lines(plan_rows(runs, IMAGES, {}), {run.cell_id(): tokens for run in runs[::-1]})
    rows = [line.split() for line in lines]
    assert rows[0] == ["cell", "gpus", "batch", "steps/epoch", "epochs", "steps", "peak", "lr",
                       "time"]  # fmt: skip
    assert rows[1] == [runs[0].cell_id(), "2", "128", "11", "5", "55", "0.1", "?"]
    assert rows[2][0] == runs[1].cell_id()
    assert lines[5:9] == [
        f"  {runs[0].cell_id()}:", f"    {shlex.join(tokens)}",
        f"  {runs[1].cell_id()}:", f"    {shlex.join(tokens)}",
    ]  # fmt: skip


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    runs = [config(technique={"name": name}) for name in ("naive", "lr_scaling_warmup")]
    rows = plan_rows(runs, IMAGES, {})
    with patch("sys.stdout.isatty", return_value=True):
        with patch.dict("os.environ", COLUMNS="200"):
            wide = "\n".join(plan_lines(rows, {}))
        with patch.dict("os.environ", COLUMNS="80"):
            narrow = plan_lines(rows, {})
    assert all(run.cell_id() in wide for run in runs)
    assert max(len(line) for line in narrow) <= 80
    for run in runs:  # what all ids begin with is left out, the rest is whole
        assert any(f"..{run.cell_id().removeprefix('digits-cnn-')} " in line for line in narrow)
    assert "launch lines" not in wide


def test_what_ids_do_not_say_has_a_column_where_it_differs() -> None:
    runs = [config(technique={"name": "naive", "bn_momentum": m, "normalisation": "batch_norm"},
                   framework=f) for m in (0.9, 0.99) for f in ("horovod", "mirrored")]  # fmt: skip
    rows = plan_rows([*runs, config(technique={"name": "other"})], IMAGES, {})
    head, *lines = plan_lines(rows, {})
    assert head.split()[:4] == ["cell", "framework", "bn_momentum", "gpus"]
    assert [line.split()[1:3] for line in lines[:5]] == [
        ["horovod", "0.9"], ["mirrored", "0.9"], ["horovod", "0.99"], ["mirrored", "0.99"],
        ["horovod", "0.9"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("technique", "batch", "rate"),
    [
        ({"lr_scaling": "none"}, "128", "0.1"),
        ({"lr_scaling": "linear"}, "128", "0.2"),
        ({"batch_growth": Grow(milestones=(0.5,), factor=4), "base_batch": 32}, "32-128", "0.1"),
    ],
)
def test_the_table_shows_a_batch_that_grows_and_the_peak_by_its_rule(
    technique: dict[str, Any], batch: str, rate: str
) -> None:
    size = 16 if "batch_growth" in technique else 64
    run = config(technique=technique, batch_per_rank=size, epochs=4)
    row = plan_lines(plan_rows([run], IMAGES, {}), {})[1].split()
    assert (row[2], row[6]) == (batch, rate)


# --- below the table


def said(*runs: RunConfig, images: int = 1437) -> str:
    return "\n".join(summary(plan_rows(runs, {("digits", None): images}, {})))


def of(technique: dict[str, Any], **changes: Any) -> RunConfig:
    return config(technique=technique, **changes)


SCALED = {"name": "scaled", "lr_scaling": "linear"}
CLIMBING = {"lr_scaling": "linear", "warmup_epochs": 2, "base_batch": 256}
ADAPTED = {"regime_adaptation": True, "base_batch": 256}
ADASCALE = {"lr_scaling": "adascale", "base_batch": 32, "optimizer": {"name": "sgd"}}
DECAYING = ADASCALE | {"schedule": {"name": "cosine"}}


@pytest.mark.parametrize(
    ("remark", "cell", "others"),
    [
        ("1 accumulate up to 4 batches", config(accumulation=4), [config()]),
        ("1 let all ranks draw the same images (partition: same; {cell})",
         config(partition="same"), [config(), config(partition="same", gpus=1)]),
        ("1 stop at training accuracy 0.75 (2 evaluations in a row), or when that is out of reach",
         config(target=Target(train_accuracy=0.75)), [config()]),
        ("1 have a warm-up from the base rate to a lower one ({cell})",
         of(CLIMBING), [of(CLIMBING, batch_per_rank=128)]),
        # 240 images a step make 5 steps an epoch, as 256 do
        ("1 have regime_adaptation and a batch below base_batch ({cell}), so fewer steps than "
         "their epochs have, down to 25",
         of(ADAPTED), [of(ADAPTED, batch_per_rank=size) for size in (120, 256)]),
        ("1 have AdaScale and a schedule that decays ({cell})",
         of(DECAYING), [of(ADASCALE), of(DECAYING | {"base_batch": 128})]),
    ],
)  # fmt: skip
def test_remarks_on_a_cell(remark: str, cell: RunConfig, others: list[RunConfig]) -> None:
    words = remark.format(cell=cell.cell_id())
    assert f"\n{words}" in said(*others, cell)
    assert words.partition("(")[0][2:] not in said(*others)


def test_a_rule_that_acts_in_no_cell() -> None:
    idle = [of(SCALED, gpus=1), of({"name": "plain"}, gpus=1)]
    assert "\nscaled: all cells have the base batch" in said(*idle)
    assert "base batch" not in said(*idle, of(SCALED))


SLOW = {"normalisation": "batch_norm", "bn_momentum": 0.99}
GHOSTS = {"normalisation": "ghost_batch_norm", "ghost_batch": 16, "bn_momentum": 0.99}


def test_images_that_fill_no_whole_step() -> None:
    """39 steps of 512 are 19,968 of 20,000 images, four of 4,096 are 16,384: 18 % fewer."""
    small, large = (config(batch_per_rank=256, accumulation=k) for k in (1, 8))
    assert "1 leave out up to 18% of the images" in said(small, large, images=20_000)
    assert "leave out" not in said(small, images=20_000)


@pytest.mark.parametrize(
    ("technique", "accumulation", "share"),
    [
        (SLOW, 1, "48%"),  # the courses' trap: 72 steps at Keras' momentum
        (SLOW, 2, "48%"),
        (SLOW | {"bn_momentum": 0.9}, 1, None),
        (SLOW | {"bn_statistics": "reestimated"}, 1, None),
        (GHOSTS, 1, "6%"),
        (GHOSTS | {"bn_momentum_per": "batch"}, 1, "48%"),
    ],
)
def test_moving_averages_that_have_not_moved(
    technique: dict[str, Any], accumulation: int, share: str | None
) -> None:
    """1,536 images: 12 steps of 2 x 64 in each of 6 epochs, or 6 steps of two such batches."""
    text = said(of(technique, epochs=6, accumulation=accumulation), images=1536)
    assert (f"up to {share} of the initial batch-norm" in text) == (share is not None)
    assert ("batch-norm statistics" in text) == (share is not None)


def test_moving_averages_of_a_network_as_built_have_its_own_momentum() -> None:
    """Keras' default is 0.99; seen: the technique's 0.9, or nothing for naive."""
    for technique in ({"name": "naive"}, {"normalisation": "batch_norm"}):
        cell = of(technique, epochs=6, model=f"vit.py:build@{'0' * 64}")
        text = said(cell, images=1536)
        assert "momentum of 0.99" in text and "up to 48% of its initial statistics" in text
        assert "batch-norm statistics" not in text
    assert "initial statistics" not in said(cell, images=15_360)


def test_times_and_what_they_are_estimated_from() -> None:
    runs = [config(seed=0), config(seed=1), config(gpus=1), config(model="resnet_mini")]
    rates = {rate_key(runs[0]): Rate(images_per_s=704.0, fixed_s=5.0, eval_s=1.0, cells=2)}
    rows = plan_rows(runs, IMAGES, rates)
    # 2 x (5 + 10 + 5) s on two ranks; 5 + 7040 / 352 + 5 = 30 s on one
    assert summary(rows) == [
        "4 cells: cnn on digits, resnet_mini on digits; batch = images per step over all ranks",
        "time: about 1:10 one cell after another, without 1 of time unknown (none alike ran here)",
        "  2 estimated from 2 earlier cells like it",
        "  1 estimated from 2 earlier cells on gpus=2, scaled in proportion",
    ]
    assert "time unknown: no cell like these ran here" in summary(rows[3:])[1]
    table = [line.split()[-1] for line in plan_lines(rows, {}, {runs[0].cell_id()})[1:5]]
    assert table == ["done", "~0:20", "~0:30", "?"]
    text = summary(rows, {runs[0].cell_id()})
    assert "1 have a good record and are skipped" in text
    assert (
        "time: about 0:50 one cell after another, without 1 of time unknown (none alike ran here)"
        in text
    )
    assert summary(rows, {run.cell_id() for run in runs})[-1] == "nothing to train"
