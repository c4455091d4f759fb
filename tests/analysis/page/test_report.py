"""What the report says about a whole sweep, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.page.report import Report, build
from analysis.page.write import render
from analysis.records.load import load_frames
from tests.analysis.builders import REASON, config, failed, record, technique, write_sweep
from tests.analysis.many import many
from tests.analysis.samples import good_sweep, rich_sweep
from tests.analysis.topics.convergence.to_target import run
from train.record.run import RunRecord


def report_of(folder: Path) -> Report:
    return build(load_frames(folder), draw=False)


@pytest.mark.parametrize("planned", [["a"], []])
def test_nothing_usable_is_three(tmp_path: Path, planned: list[str]) -> None:
    report = report_of(write_sweep(tmp_path / "s", [failed(config())], also_planned=planned))
    assert report.exit_code == 3
    assert "rank 1 died" in report.answers[0].text
    assert [topic.key for topic in report.topics] == ["completeness"]


def test_an_empty_plan_is_three(tmp_path: Path) -> None:
    report = report_of(write_sweep(tmp_path / "s", [], techniques=()))
    assert report.exit_code == 3
    assert [answer.text for answer in report.answers] == [
        "The plan has no cells: there is nothing to report."
    ]


def test_a_technique_that_the_manifest_forgot_is_shown_last(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record(config("extra")), record()], techniques=["naive"])
    table = report_of(folder).tables["convergence"].data
    assert table["technique"].tolist() == ["naive", "extra"]


def test_tables_that_only_some_sweeps_have(tmp_path: Path) -> None:
    """In their order; one of two ranks and batches has others."""
    report = report_of(rich_sweep(tmp_path / "s"))
    assert report.exit_code == 0, report.frames.problems
    rich = [table.key for table in report.tables.values() if len(table.data)]
    assert rich == [
        "claims", "ranking", "pairs", "convergence", "frameworks", "targets", "scaling",
        "noise_scale", "classification", "ranks", "every_run", "provenance",
    ]  # fmt: skip
    plain = report_of(good_sweep(tmp_path / "plain"))
    found = [table.key for table in plain.tables.values() if len(table.data)]
    assert found == [
        "scaling", "lost_efficiency", "claims", "ranking", "pairs", "convergence", "larger_batch",
        "ranks", "every_run", "provenance",
    ]  # fmt: skip


def test_figures_of_batches_and_rates_need_several_of_them(tmp_path: Path) -> None:
    def drawn(folder: str, items: list[RunRecord]) -> set[str]:
        report = build(load_frames(write_sweep(tmp_path / folder, items)))
        return {figure.key for topic in report.topics for figure in topic.figures}

    batches = [run(16), run(32)]
    assert "steps_by_batch" in drawn("several", batches)
    assert "steps_by_batch" not in drawn("one", batches[:1])
    rates = [record(config(technique=technique(base_lr=rate))) for rate in (0.1, 0.2, 0.4)]
    assert "accuracy_by_rate" in drawn("rates", rates)
    assert "accuracy_by_rate" not in drawn("two", rates[:2])


def first_of(folder: Path, *items: RunRecord) -> list[str]:
    report = build(load_frames(write_sweep(folder, items)))
    assert not any("Not drawn" in figure.caption for t in report.topics for figure in t.figures)
    return [figure.key for figure in report.first_figures]


def test_the_first_screen_shows_what_the_sweep_varies(tmp_path: Path) -> None:
    ranks = [record(config(gpus=gpus)) for gpus in (1, 2)]
    assert first_of(tmp_path / "ranks", *ranks) == ["efficiency", "step_parts"]
    no_rate = [record(config(gpus=gpus), images_per_s=None) for gpus in (1, 2)]
    assert first_of(tmp_path / "parts", *no_rate) == ["accuracy_by_batch", "step_parts"]
    seeds = [record(config(name, seed=seed), accuracies=[0.1, 0.2, 0.3 + seed / 50])
             for name in ("naive", "lamb") for seed in (0, 1)]  # fmt: skip
    shown = ["against_reference", "step_parts"]
    assert first_of(tmp_path / "techniques", *seeds) == shown
    both = [
        record(item.config.model_copy(update={"gpus": gpus})) for item in seeds for gpus in (1, 2)
    ]
    assert first_of(tmp_path / "both", *both)[0] == "efficiency", "ranks before techniques"
    assert first_of(tmp_path / "one", record()) == ["step_parts", "validation_accuracy"]


def test_what_cannot_be_drawn_is_not_on_the_page(tmp_path: Path) -> None:
    """The tables' notes say why there is no value."""
    random = record(config(dataset="synthetic"), images_per_s=None, steps=None)
    folder = write_sweep(tmp_path / "s", [random])
    report = build(load_frames(folder))
    page = render(report, "report.html.j2")
    assert [f.key for topic in report.topics for f in topic.figures] == ["train_loss"]
    assert "Not drawn" not in page and "random labels" in page and REASON in page


def test_the_page_grows_little_with_the_runs(tmp_path: Path) -> None:
    """Of 30 conditions; where runs get many, rows of tables are left to the CSVs, which say all."""
    sizes = {}
    for seeds in (10, 20):
        frames = load_frames(many(tmp_path / f"s{seeds}", 30, seeds, epochs=2))
        report = build(frames, draw=False)
        assert len(report.tables["every_run"].data) == len(frames.runs) == 30 * seeds
        n = report.tables["convergence"].data["n"]
        assert len(n) == 30 and (n == seeds).all()
        sizes[seeds] = len(render(report, "report.html.j2"))
    assert sizes[20] - sizes[10] < 30 * 10 * 200, "bytes; a record has 10,000 and more"
    assert sizes[20] < 1_000_000
