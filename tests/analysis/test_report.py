"""What the report says about a whole sweep, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.load import load_sweep
from analysis.notices import NOTHING
from analysis.report import Report, build_report
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep, rich_sweep


def report_of(folder: Path) -> Report:
    return build_report(load_sweep(folder), draw=False)


def facts(report: Report) -> dict[str, str]:
    return dict(report.facts)


def test_all_good_is_zero(tmp_path: Path) -> None:
    report = report_of(good_sweep(tmp_path / "s"))
    assert report.exit_code == 0
    assert report.warnings == ()
    assert report.tables.problems.rows == ()


def test_something_missing_is_one_and_is_listed(tmp_path: Path) -> None:
    report = report_of(mixed_sweep(tmp_path / "s"))
    assert report.exit_code == 1
    assert report.counts == (
        "13 planned: 8 completed, 1 diverged, 1 missing, 1 failed, 1 rejected, 1 unreadable"
    )
    kinds = [row[1] for row in report.tables.problems.rows]
    assert kinds == ["failed", "rejected", "unreadable", "missing"]
    assert len(report.frames["runs"]) == 9
    assert len(report.unplanned) == 1
    assert "not in the present plan" in " ".join(report.warnings)


def test_a_diverged_cell_is_a_good_cell(tmp_path: Path) -> None:
    items = [record(), record(config(seed=1), status="diverged")]
    assert report_of(write_sweep(tmp_path / "s", items)).exit_code == 0


@pytest.mark.parametrize("planned", [["a"], []])
def test_nothing_usable_is_three(tmp_path: Path, planned: list[str]) -> None:
    report = report_of(write_sweep(tmp_path / "s", [failed(config())], also_planned=planned))
    assert report.exit_code == 3
    assert report.warnings[0] == NOTHING
    assert report.tables.convergence.rows == ()


def test_an_empty_plan_is_three(tmp_path: Path) -> None:
    assert report_of(write_sweep(tmp_path / "s", [], techniques=())).exit_code == 3


def test_the_header_names_the_machine_data_model_dates_and_commit(tmp_path: Path) -> None:
    found = facts(report_of(good_sweep(tmp_path / "s")))
    assert found["machine"] == (
        "Test CPU, 1 core per rank, 1 node, launcher horoscale, controller gloo, data plane gloo "
        "(8 runs)"
    )
    assert found["data"] == (
        "digits: 320 of 320 training images, 360 validation images, 10 classes"
    )
    assert found["model"] == "cnn"
    assert found["dates"] == "2025-03-01 12:00 to 2025-03-01 12:01 UTC"
    assert found["git commit"] == "a" * 12


def test_shared_cores_are_a_warning(tmp_path: Path) -> None:
    items = [record(world_changes={"oversubscribed": True})]
    assert any("share cores" in w for w in report_of(write_sweep(tmp_path / "s", items)).warnings)


def test_a_technique_that_the_manifest_forgot_is_shown_last(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record(config("extra")), record()], techniques=["naive"])
    table = report_of(folder).frames["convergence"]
    assert table["technique"].tolist() == ["naive", "extra"]


def test_an_efficiency_above_one_is_a_warning(tmp_path: Path) -> None:
    items = [
        record(config(gpus=1), images_per_s=100.0), record(config(gpus=2), images_per_s=250.0)
    ]  # fmt: skip
    built = build_report(load_sweep(write_sweep(tmp_path / "s", items)), draw=False)
    assert any("Efficiency above 1 (naive at 2 ranks)" in text for text in built.warnings)


def test_tables_that_only_some_sweeps_have(tmp_path: Path) -> None:
    """In their order, each with its CSV; one of two ranks and batches has others."""
    report = report_of(rich_sweep(tmp_path / "s"))
    assert report.exit_code == 0, report.tables.problems.rows
    assert [table.key for table in report.tables.others] == [
        "frameworks", "targets", "classification", "noise_scale", "trust_ratios", "applied",
    ]  # fmt: skip
    assert {table.key for table in report.tables.others} <= set(report.frames)
    assert report.warnings[0].startswith("ALARM in ")
    plain = report_of(good_sweep(tmp_path / "plain"))
    assert [table.key for table in plain.tables.others] == ["larger_batch", "applied"]
