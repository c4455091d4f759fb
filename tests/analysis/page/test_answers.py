"""The sentences at the top: which a sweep gets follows from what it varies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.page.answers import Answer
from analysis.page.report import build
from analysis.page.write import answers_text
from analysis.records.load import load_frames
from tests.analysis.builders import config, failed, rank_steps, record, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep, rich_sweep
from train.config.run import Target
from train.record.run import RunRecord, TargetOutcome


def answers_of(folder: Path) -> dict[str, Answer]:
    """Checked against answers.json and against the tables that they point at."""
    report = build(load_frames(folder), draw=False)
    told = json.loads(answers_text(report))
    assert told["schema_version"] == 1
    assert [answer["text"] for answer in told["answers"]] == [a.text for a in report.answers]
    for answer in report.answers:
        assert answer.question.endswith("?") and answer.text.endswith(".")
        assert "1 runs" not in answer.text and "None" not in answer.text, answer.text
        assert not answer.evidence or len(report.tables[answer.evidence].data)
    found = {answer.key: answer for answer in report.answers}
    assert len(found) == len(report.answers)
    return found


def sweep(folder: Path, items: Sequence[RunRecord]) -> dict[str, Answer]:
    techniques = dict.fromkeys(item.config.technique.name for item in items)
    return answers_of(write_sweep(folder / "s", items, techniques=[*techniques]))


def runs(
    name: str = "naive", *, rate: float = 100.0, mean: float = 0.8, **changes: Any
) -> list[RunRecord]:
    """Three seeds that differ a little."""
    return [
        record(config(name, seed=seed, **changes), images_per_s=rate + seed / 2,
               accuracies=[0.1, 0.2, mean + seed / 500])
        for seed in range(3)
    ]  # fmt: skip


def test_ranks_vary(tmp_path: Path) -> None:
    items = [*runs(), *runs(gpus=2, rate=190), *runs(gpus=4, rate=320)]
    found = sweep(tmp_path, items)
    assert set(found) == {"scaling", "larger_batch"}
    scaling = found["scaling"]
    assert scaling.text.startswith("At 4 ranks, naive reaches an efficiency of 0.80 (0.7")
    assert (
        "3.19 times the throughput of 1, 3 runs. It is below 0.9 from 4 ranks on." in scaling.text
    )
    assert scaling.numbers["gpus"] == 4 and scaling.numbers["runs"] == 3
    assert 0.78 < scaling.numbers["low"] < scaling.numbers["efficiency"] < 0.81


def test_the_largest_loss_is_named(tmp_path: Path) -> None:
    """Where steps are longer by what the records say: here, by communication."""

    def timed(gpus: int, total: float, sending: float) -> list[RunRecord]:
        return [
            record(config(gpus=gpus, seed=seed), images_per_s=16 * gpus / (total + seed / 1000),
                   steps=tuple(rank_steps(rank, total + seed / 1000, 0.1, sending + seed / 1000)
                               for rank in range(gpus)))
            for seed in range(3)
        ]  # fmt: skip

    found = sweep(tmp_path, [*timed(1, 1.0, 0.0), *timed(2, 1.5, 0.5)])
    assert "Largest loss: communication" in found["scaling"].text


def test_techniques_vary(tmp_path: Path) -> None:
    found = sweep(tmp_path, [*runs(), *runs("lamb", mean=0.9), *runs("lars", mean=0.7)])
    assert set(found) == {"techniques", "ranking"}
    assert found["techniques"].text == (
        "At batch 16, 1 of 2 techniques ends higher than naive: lamb; "
        "1 of 2 techniques ends lower than naive: lars."
    )
    assert found["techniques"].numbers == {"higher": 1, "lower": 1}
    assert found["ranking"].text.startswith("Highest means: lamb 0.902 (0.897 to 0.907), naive 0.8")
    assert "these two are told apart (p < 0.001, Holm over all pairs)" in found["ranking"].text


def test_two_techniques_of_one_run_each_are_undecided_with_the_reason(tmp_path: Path) -> None:
    items = [record(config(name), accuracies=[0.1, 0.2, mean])
             for name, mean in (("naive", 0.4), ("lamb", 0.5))]  # fmt: skip
    found = sweep(tmp_path, items)
    assert found["techniques"].text == (
        "At batch 16, lamb against naive is undecided: difference +0.100 (n=1)."
    )
    assert "told apart" not in found["ranking"].text, "nothing was tested"


def test_a_technique_that_lost_its_runs_is_not_compared(tmp_path: Path) -> None:
    items = [*runs(), *(failed(config("lamb", seed=seed)) for seed in range(3))]
    found = sweep(tmp_path, items)
    assert found["complete"].text.startswith("3 of 6 planned cells are usable (3 failed)")
    assert "lamb is not compared with naive (no usable run of lamb" in found["techniques"].text


def test_the_batch_varies(tmp_path: Path) -> None:
    found = sweep(tmp_path, [*runs(), *runs(batch_per_rank=64, mean=0.7)])
    assert set(found) == {"larger_batch"}
    assert found["larger_batch"].text.startswith(
        "naive loses 0.100 (0.095 to 0.105) of accuracy from batch 16 to 64"
    )
    assert found["larger_batch"].numbers["difference"] < 0


def test_libraries_vary(tmp_path: Path) -> None:
    answer = answers_of(rich_sweep(tmp_path / "s"))["libraries"]
    assert answer.text == (
        "horovod has 1.33 (1.27 to 1.38) times the throughput of multi_worker_mirrored; accuracy: "
        "no difference shown."
    )
    assert answer.evidence == "frameworks"


def test_a_target(tmp_path: Path) -> None:
    outcome = {"epoch": 2, "steps": 4, "images": 512, "seconds": 5.0, "why": "held"}
    item = record(
        config("naive", gpus=2, accumulation=4, target=Target(validation_accuracy=0.3)),
        accuracies=[0.35, 0.4], epoch_changes={"train_s": 2.0}, throughput=None,
        target=TargetOutcome(met=True, **outcome),
    )  # fmt: skip
    found = sweep(tmp_path, [item])
    assert found["targets"].text == (
        "1 of 1 run reached validation 0.3 held 2 times; soonest naive at batch 128: median 5 s, "
        "2 epochs."
    )


def test_one_cell_only(tmp_path: Path) -> None:
    found = sweep(tmp_path, [record()])
    assert set(found) == {"one"}
    assert found["one"].text == (
        "naive: validation accuracy 0.400, 100 images/s, 10 s of training, 1 run."
    )


def test_all_diverged(tmp_path: Path) -> None:
    items = [record(config(seed=seed), status="diverged") for seed in range(2)]
    found = sweep(tmp_path, items)
    assert set(found) == {"one"}
    assert found["one"].text == "naive: all 2 runs diverged."


def test_a_technique_of_which_all_diverged(tmp_path: Path) -> None:
    items = [*runs(), *(record(config("lamb", seed=s), status="diverged") for s in range(3))]
    found = sweep(tmp_path, items)
    assert found["techniques"].text == "At batch 16, all runs of lamb diverged."
    assert "ranking" not in found


def test_no_baseline_no_efficiency(tmp_path: Path) -> None:
    """The runs on other rank counts differ in their batch."""
    found = sweep(tmp_path, [record(config(gpus=2)), record(config(gpus=4, batch_per_rank=64))])
    assert "scaling" not in found


def test_what_is_lacking_comes_first(tmp_path: Path) -> None:
    keys = list(answers_of(mixed_sweep(tmp_path / "s")))
    assert keys == ["complete", "scaling", "techniques", "ranking", "larger_batch"]
    assert "complete" not in answers_of(good_sweep(tmp_path / "g"))


def test_nothing_usable(tmp_path: Path) -> None:
    found = sweep(tmp_path, [failed(config())])
    assert found["complete"].text == (
        "0 of 1 planned cells are usable (1 failed); make sweep runs the rest. Nothing can be "
        "compared or concluded yet."
    )
    assert set(found) == {"complete"}


def test_an_empty_plan(tmp_path: Path) -> None:
    assert list(sweep(tmp_path, [])) == ["complete"]
