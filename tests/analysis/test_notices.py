"""Doubts that records raise stand above everything else, on the page and on the terminal."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.load import load_sweep
from analysis.report import build_report
from tests.analysis.builders import config, failed, record, write_sweep
from train.record import RunRecord

SAME = "in 9 of 9 steps the ranks train on the same images"


def warnings(folder: Path, *items: RunRecord) -> tuple[str, ...]:
    return build_report(load_sweep(write_sweep(folder / "s", items)), draw=False).warnings


def test_alarms_come_first_and_name_the_runs_that_raise_them(tmp_path: Path) -> None:
    items = [record(config(seed=s), alarms=(SAME,)) for s in range(2)]
    items += [record(config(seed=2), alarms=("another",)), failed(config(seed=3))]
    found = warnings(tmp_path, *items)
    assert found[0] == f"ALARM in {items[0].cell_id}, {items[1].cell_id}: {SAME}"
    assert found[1] == f"ALARM in {items[2].cell_id}: another"
    assert "planned cell(s) are in no table" in found[2]


def test_many_runs_with_one_alarm_are_counted(tmp_path: Path) -> None:
    (found,) = warnings(tmp_path, *(record(config(seed=s), alarms=(SAME,)) for s in range(6)))
    assert found.startswith("ALARM in 6 runs (")
    assert found.count("digits-cnn") == 4


def test_skipped_steps_are_counted_over_the_runs_that_have_some(tmp_path: Path) -> None:
    bad = record(config(seed=1), epoch_changes={"skipped_steps": 3})
    (found,) = warnings(tmp_path, record(), bad)
    assert found.startswith("9 of 60 steps made no update")
    assert bad.cell_id in found


def test_a_sweep_without_a_doubt_has_no_notice(tmp_path: Path) -> None:
    assert warnings(tmp_path, record()) == ()


def test_alarms_stand_on_the_page_and_on_the_terminal(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record(alarms=(SAME,))])
    for command in ("summary", "report"):
        done = CliRunner().invoke(app, [command, str(folder)])
        assert done.exit_code == 0, done.output
        first, second = (done.output.index(text) for text in ("ALARM in", "Convergence: "))
        assert first < second
    page = (folder / "report" / "report.html").read_text()
    assert '<li class="alarm">ALARM in' in page
    assert page.index("ALARM in") < page.index("<table>")
    assert "**Note.** ALARM in" in (folder / "report" / "report.md").read_text()
