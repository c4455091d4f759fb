"""Doubts that records raise stand above everything else, on the page and on the terminal."""

from __future__ import annotations

import statistics
from pathlib import Path

from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.topics.topic import Caution
from tests.analysis.builders import config, record, technique, write_sweep
from tests.analysis.planned import report
from train.config.run import RunConfig
from train.config.schedule import Grow
from train.record.measurements import Throughput, ThroughputSample
from train.record.run import RunRecord

SAME = "in 9 of 9 steps the ranks train on the same images"


def cautions(*items: RunRecord) -> tuple[Caution, ...]:
    return report(items).cautions


def test_alarms_come_first_and_name_the_runs_that_raise_them() -> None:
    items = [record(config(seed=s), alarms=(SAME,)) for s in range(2)]
    items += [record(config(seed=2), alarms=("a | b",))]
    items.append(record(config(seed=4), world_changes={"oversubscribed": True},
                        provenance_changes={"git_dirty": True}))  # fmt: skip
    first, second, dirty, third = cautions(*items)
    assert first.text == f"Alarm in {items[0].cell_id} and 1 more: {SAME}"
    assert second.text == f"Alarm in {items[2].cell_id}: a | b"
    assert first.is_alarm and second.is_alarm and not third.is_alarm
    assert first.touches == second.touches == "all"
    assert dirty.touches == "all" and "share cores" in third.text and third.touches == "times"


def test_ranks_that_repeat_each_other_as_asked_are_named_without_an_alarm() -> None:
    asked = record(config(gpus=2, partition="same"))
    (found,) = cautions(record(config(gpus=1, partition="same")), asked)
    assert found.text.startswith("All ranks train on the same images, as configured (partition: s")
    assert found.text.count("digits-cnn") == 1 and asked.cell_id in found.text
    assert found.touches == "all" and not found.is_alarm


def paced(run: RunConfig, seconds: list[float]) -> RunRecord:
    """A run whose epochs took so long."""
    made = record(run, epoch_changes=[{"train_s": s} for s in seconds])
    rates = [(e.epoch, e.images / e.train_s) for e in made.epochs[1:]]
    median = statistics.median(rate for _, rate in rates)
    samples = tuple(ThroughputSample(epoch=n, images_per_s=rate) for n, rate in rates)
    told = Throughput(images_per_s=median, samples=samples, left_out=(1,))
    return made.model_copy(update={"throughput": told})


def test_a_run_that_was_not_alone_on_its_machine_is_named() -> None:
    quiet = paced(config(epochs=5), [9.0, 2.0, 2.1, 2.0, 2.9])
    held = paced(config(epochs=5, seed=1), [2.0, 2.0, 2.0, 8.0, 2.0])
    (found,) = cautions(quiet, held)
    assert found.text == (
        f"In 1 of 2 runs an epoch took up to 4.0 times its run's median (most in {held.cell_id}): "
        "seconds are unreliable, compare images/s."
    )
    assert found.touches == "times"
    # less than a second is uneven by itself, and a growing batch may be
    assert cautions(paced(config(epochs=5), [0.9, 0.2, 0.2, 0.2, 1.1])) == ()
    grown = config(epochs=5, technique=technique(batch_growth=Grow(milestones=(0.4,), factor=2)))
    assert cautions(paced(grown, [2.0, 2.0, 2.0, 2.0, 9.0])) == ()


def test_sweep_files_with_one_name_share_a_folder_and_the_report_says_so(tmp_path: Path) -> None:
    """Seen: make report SWEEP=one.yaml printed the report of two.yaml and did not say so."""
    one = [record(config(seed=seed)) for seed in range(3)]
    folder = write_sweep(tmp_path / "x", [record(config("lamb"))], unplanned=one, title="Two")
    done = CliRunner().invoke(app, ["report", str(folder)])
    first = min(item.cell_id for item in one)
    said = (
        f"Not counted: 3 cells with a record in this folder ({first} and 2 more), which the last "
        "make sweep did not plan. Sweep files with the same `name:` share a folder: give each its "
        "own."
    )
    page = (folder / "report" / "report.html").read_text()
    assert said in done.output and page.index(said) < page.index("<nav"), "on the first screen"


def test_alarms_stand_on_the_page_and_on_the_terminal(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record(alarms=(SAME,))])
    for command in ("summary", "report"):
        done = CliRunner().invoke(app, [command, str(folder)])
        assert done.exit_code == 0, done.output
        said = (done.output.index(text) for text in ("Alarm in", "What each condition reaches"))
        assert sorted(said := list(said)) == said
    page = (folder / "report" / "report.html").read_text()
    assert '<li class="alarm">Alarm in' in page
    assert page.index("Alarm in") < page.index("<table")
