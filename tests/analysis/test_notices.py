"""Doubts that records raise stand above everything else, on the page and on the terminal."""

from __future__ import annotations

import statistics
from pathlib import Path

from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.load import load_sweep
from analysis.report import build_report
from tests.analysis.builders import config, failed, record, technique, write_sweep
from train.config.run import RunConfig
from train.config.schedule import Grow
from train.record.run import RunRecord, Throughput, ThroughputSample

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


def paced(run: RunConfig, seconds: list[float]) -> RunRecord:
    """A run whose epochs took so long."""
    made = record(run, epoch_changes=[{"train_s": s} for s in seconds])
    rates = [(e.epoch, e.images / e.train_s) for e in made.epochs[1:]]
    median = statistics.median(rate for _, rate in rates)
    samples = tuple(ThroughputSample(epoch=n, images_per_s=rate) for n, rate in rates)
    told = Throughput(images_per_s=median, samples=samples, left_out=(1,))
    return made.model_copy(update={"throughput": told})


def test_a_run_that_was_not_alone_on_its_machine_is_named(tmp_path: Path) -> None:
    quiet = paced(config(epochs=5), [9.0, 2.0, 2.1, 2.0, 2.9])
    held = paced(config(epochs=5, seed=1), [2.0, 2.0, 2.0, 8.0, 2.0])
    (found,) = warnings(tmp_path, quiet, held)
    assert found.startswith("The slowest steady epoch took more than 1.5 times the median one")
    assert f"up to 4.0 times, in {held.cell_id}: something else" in found


def test_epochs_of_less_than_a_second_are_uneven_by_themselves(tmp_path: Path) -> None:
    assert warnings(tmp_path, paced(config(epochs=5), [0.9, 0.2, 0.2, 0.2, 1.1])) == ()


def test_epochs_of_a_growing_batch_may_differ(tmp_path: Path) -> None:
    grown = technique(batch_growth=Grow(milestones=(0.4,), factor=2))
    run = config(epochs=5, technique=grown)
    assert warnings(tmp_path, paced(run, [2.0, 2.0, 9.0, 9.0, 9.0])) == ()


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
