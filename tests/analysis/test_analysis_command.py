"""The command line: exit codes, what is printed, and that a wrong request is no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep, rich_sweep
from train.record.run import Classification, ClassScore


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_report_writes_and_names_its_files(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    done = call("report", folder)
    assert done.exit_code == 0, done.output
    for name in ("report.html", "report.md", "runs.csv", "convergence.csv", "scaling.csv"):
        assert (folder / "report" / name).stat().st_size > 0
    for path in (folder / "report", folder / "report" / "report.html"):
        assert str(path) in done.output
    assert "8 planned: 8 completed" in done.output and "1.00 (baseline)" in done.output
    assert "lamb against naive at 2 rank(s): " in done.output


def test_an_unchanged_report_is_left_and_a_changed_record_renews_it(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    page = folder / "report" / "report.html"
    assert call("report", folder, "--if-changed").exit_code == 0
    first = page.stat().st_mtime_ns
    assert "newer than all records" in call("report", folder, "--if-changed").output
    assert page.stat().st_mtime_ns == first
    touched = next(folder.glob("*/record.json"))
    os.utime(touched, ns=(first + 1, first + 1))
    assert call("report", folder, "--if-changed").exit_code == 0
    assert page.stat().st_mtime_ns > first


def test_an_unchanged_report_ends_as_it_did_before(tmp_path: Path) -> None:
    folder = mixed_sweep(tmp_path / "s")
    assert [call("report", folder, "--if-changed").exit_code for _ in range(3)] == [1, 1, 1]
    nothing = write_sweep(tmp_path / "n", [failed(config())])
    assert [call("report", nothing, "--if-changed").exit_code for _ in range(2)] == [3, 3]


def test_a_record_that_is_gone_renews_the_report(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    assert call("report", folder, "--if-changed").exit_code == 0
    gone = next(folder.glob("*/record.json"))
    gone.unlink()
    done = call("report", folder, "--if-changed")
    assert done.exit_code == 1 and "8 planned: 7 completed" in done.output
    assert gone.parent.name in (folder / "report" / "cells_not_used.csv").read_text()


def test_summary_prints_tables_and_writes_nothing(tmp_path: Path) -> None:
    folder = mixed_sweep(tmp_path / "s")
    done = call("summary", folder)
    assert done.exit_code == 1, done.output
    for text in ("validation accuracy", "efficiency", "1.00 (baseline)", "inconclusive", "rejected",
                 "300 images processed"):  # fmt: skip
        assert text in done.output
    assert not (folder / "report").exists()


def test_summary_prints_every_table_but_a_long_one_of_classes(tmp_path: Path) -> None:
    folder = rich_sweep(tmp_path / "s")
    done = call("summary", folder)
    assert done.exit_code == 0, done.output
    for head in ("Frameworks", "Targets", "Classes", "Noise scale", "Trust ratios", "What was"):
        assert f"\n{head}" in done.output, head
    assert "dog" in done.output
    scores = tuple(
        ClassScore(name=f"c{i}", precision=0.5, recall=0.5, f1=0.5, support=1) for i in range(50)
    )
    many = Classification(epoch=3, classes=scores, confusion=((1,) * 50,) * 50)
    long = call("summary", write_sweep(tmp_path / "many", [record(classification=many)]))
    assert "51 rows: read them in the report" in long.output
    assert "c49" not in long.output


def test_the_frameworks_are_compared_in_words(tmp_path: Path) -> None:
    printed = " ".join(call("report", rich_sweep(tmp_path / "s")).output.split())
    assert (
        "horovod against multi_worker_mirrored, naive at 2 rank(s): throughput horovod is faster, "
        "ratio 1.33; accuracy no difference shown, difference -0.002"
    ) in printed


def test_an_open_comparison_says_why(tmp_path: Path) -> None:
    items = [record(config(name), accuracies=[0.1, 0.2, a]) for name, a in
             (("naive", 0.4), ("lamb", 0.5))]  # fmt: skip
    done = call("report", write_sweep(tmp_path / "s", items))
    assert done.exit_code == 0
    assert "inconclusive, difference in validation accuracy +0.100 (n=1)" in done.output


def test_terminal_markup_in_a_record_is_text(tmp_path: Path) -> None:
    bad = failed(config(seed=1), what="[bold red]not markup[/] [/nothing]")
    done = call("summary", write_sweep(tmp_path / "s", [record(), bad]))
    assert done.exit_code == 1
    assert "[bold red]not markup[/] [/nothing]" in done.output


@pytest.mark.parametrize("command", ["report", "summary"])
def test_no_usable_record_is_three(tmp_path: Path, command: str) -> None:
    done = call(command, write_sweep(tmp_path / "s", [failed(config())]))
    assert done.exit_code == 3
    assert "rank 1 died" in done.output
    assert (tmp_path / "s" / "report" / "report.html").exists() == (command == "report")


@pytest.mark.parametrize("command", ["report", "summary"])
def test_no_sweep_is_two_and_no_traceback(tmp_path: Path, command: str) -> None:
    done = call(command, tmp_path / "quick")
    assert done.exit_code == 2
    assert "make sweep SWEEP=quick" in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_folder_that_cannot_be_written_is_two(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    (folder / "report").write_text("a file where the folder should be")
    done = call("report", folder)
    assert done.exit_code == 2
    assert "cannot write" in done.stderr
