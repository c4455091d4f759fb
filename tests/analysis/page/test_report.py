"""What the report says about a whole sweep, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.page.report import build
from analysis.page.write import render
from analysis.records.columns import FRAMES
from analysis.records.load import load_frames
from tests.analysis.builders import REASON, config, record, technique, write_sweep
from tests.analysis.planned import report
from tests.analysis.samples import good_sweep, rich_sweep
from tests.analysis.topics.convergence.to_target import run
from train.record.run import RunRecord


def test_an_empty_plan_is_three(tmp_path: Path) -> None:
    found = build(load_frames(write_sweep(tmp_path / "s", [], techniques=())))
    assert found.exit_code == 3
    assert [answer.text for answer in found.answers] == [
        "The plan has no cells: there is nothing to report."
    ]


@pytest.mark.parametrize(
    ("made", "keys"),
    [
        (rich_sweep, ["claims", "ranking", "pairs", "convergence", "frameworks", "targets",
                      "scaling", "noise_scale", "every_rank", "every_run",
                      "provenance"]),
        (good_sweep, ["scaling", "lost_efficiency", "claims", "ranking", "convergence",
                      "larger_batch", "every_rank", "every_run", "provenance"]),
    ],
)  # fmt: skip
def test_tables_in_their_order_are_those_of_what_the_sweep_has(tmp_path, made, keys) -> None:
    found = build(load_frames(made(tmp_path / "s")), draw=False)
    assert found.exit_code == 0, found.frames.problems
    assert [table.key for table in found.tables.values() if len(table.data)] == keys
    assert not {*found.tables} & {*FRAMES}, "a notebook has both by their names"


def drawn(*items: RunRecord) -> list[str]:
    return [figure.key for figure in report(items, draw=True).figures]


def test_figures_of_batches_and_rates_need_several_of_them() -> None:
    batches = [run(16), run(32)]
    assert "steps_by_batch" in drawn(*batches) and "steps_by_batch" not in drawn(batches[0])
    rates = [record(config(technique=technique(base_lr=rate))) for rate in (0.1, 0.2, 0.4)]
    assert "accuracy_by_rate" in drawn(*rates) and "accuracy_by_rate" not in drawn(*rates[:2])


def first_of(*items: RunRecord) -> list[str]:
    return [figure.key for figure in report(items, draw=True).first_figures]


def test_the_first_screen_shows_what_the_sweep_varies() -> None:
    ranks = [record(config(gpus=gpus)) for gpus in (1, 2)]
    assert first_of(*ranks) == ["efficiency", "step_parts"]
    no_rate = [record(config(gpus=gpus), images_per_s=None) for gpus in (1, 2)]
    assert first_of(*no_rate) == ["accuracy_by_batch", "step_parts"]
    seeds = [record(config(name, seed=seed), accuracies=[0.1, 0.2, 0.3 + seed / 50])
             for name in ("naive", "lamb") for seed in (0, 1)]  # fmt: skip
    shown = ["against_reference", "step_parts"]
    assert first_of(*seeds) == shown
    both = [
        record(item.config.model_copy(update={"gpus": gpus})) for item in seeds for gpus in (1, 2)
    ]
    assert first_of(*both)[0] == "efficiency", "ranks before techniques"
    assert first_of(record()) == ["step_parts", "validation_accuracy"]


def test_what_cannot_be_drawn_is_not_on_the_page() -> None:
    """The tables' notes say why there is no value."""
    random = record(config(dataset="synthetic"), images_per_s=None, steps=None)
    found = report([random], draw=True)
    text = render(found)
    assert not found.figures
    assert "Not drawn" not in text and "random labels" in text and REASON in text
