"""What the first screen says of efficiency where baselines, clocks or batches differ."""

from __future__ import annotations

from pathlib import Path

from analysis.page.report import Report, build
from analysis.records.load import load_frames
from analysis.topics.topic import Answer
from tests.analysis.builders import config, rank_steps, record, write_sweep
from train.record.run import RunRecord


def report(folder: Path, items: list[RunRecord]) -> Report:
    techniques = dict.fromkeys(item.config.technique.name for item in items)
    return build(
        load_frames(write_sweep(folder / "s", items, techniques=[*techniques])), draw=False
    )


def answers(folder: Path, items: list[RunRecord]) -> dict[str, Answer]:
    return {answer.key: answer for answer in report(folder, items).answers}


def runs(name: str, gpus: int, step_s: float, median_s: float | None = None) -> list[RunRecord]:
    """Three seeds; ``step_s``: by the throughput, ``median_s``: of the step that most are like."""
    return [
        record(config(name, gpus=gpus, seed=seed), images_per_s=16 * gpus / (step_s + seed / 1000),
               steps=tuple(rank_steps(rank, (median_s or step_s) + seed / 1000, 0.01, 0.02)
                           for rank in range(gpus)), wall_s=3600)
        for seed in range(3)
    ]  # fmt: skip


def test_stalls_between_usual_steps_have_no_cause_and_no_forecast(tmp_path: Path) -> None:
    """Half of all steps take twice as long on 4 ranks; the median does not see them."""
    items = [*runs("naive", 1, 0.160), *runs("naive", 2, 0.200, 0.165),
             *runs("naive", 4, 0.270, 0.170)]  # fmt: skip
    found = report(tmp_path, items)
    said = {answer.key: answer.text for answer in found.answers}
    assert "Largest loss" not in said["scaling"]
    why = ("ompared with 1, 4 ranks have 63 % of the throughput that the median step gives: what "
           "makes other steps longer is in no model")  # fmt: skip
    assert f"C{why}." in said["scaling"]
    assert "model expects" not in said["more_ranks"]
    assert set(found.tables["forecast"].data["why"]) == {f"c{why}"}


def test_a_median_step_that_is_longer_than_the_throughput_says_is_no_share(tmp_path: Path) -> None:
    """Most steps are slow, some are very fast."""
    items = [*runs("naive", 1, 0.160), *runs("naive", 2, 0.165, 0.200)]
    found = report(tmp_path, [*items, *runs("naive", 4, 0.170, 0.200)])
    (why,) = set(found.tables["forecast"].data["why"])
    assert why.startswith("compared with 1, 4 ranks have 118 % of the throughput that the median")
    assert why.endswith("what makes other steps shorter is in no model")
    text = answers(tmp_path / "two", items)["scaling"].text
    assert "Compared with 1, 2 ranks have 121 % of the throughput that" in text
    assert "explains" not in text


def test_a_sweep_without_a_steady_throughput_is_reported(tmp_path: Path) -> None:
    """Epochs that are all left out of the throughput still have steps."""
    items = [
        record(config(gpus=gpus, seed=seed), images_per_s=None, wall_s=3600,
               steps=tuple(rank_steps(rank, 0.16 + seed / 1000, 0.01, 0.02)
                           for rank in range(gpus)))
        for gpus in (1, 2, 4) for seed in range(3)
    ]  # fmt: skip
    assert "scaling" not in answers(tmp_path, items)


def test_even_steps_have_a_forecast(tmp_path: Path) -> None:
    items = [*runs("naive", 1, 0.160), *runs("naive", 2, 0.165), *runs("naive", 4, 0.170)]
    said = {answer.key: answer.text for answer in answers(tmp_path, items).values()}
    assert "A model expects an efficiency of" in said["more_ranks"]


def test_conditions_that_differ_in_their_batch_alone_are_told_apart(tmp_path: Path) -> None:
    """One run of the larger batch diverged, so that no change of accuracy is judged."""
    items = [
        record(config(seed=seed, batch_per_rank=batch), images_per_s=rate + seed,
               accuracies=[0.1, 0.2, 0.8 + seed / 100])
        for batch, rate in ((16, 100.0), (32, 200.0)) for seed in (0, 1)
    ]  # fmt: skip
    gone = record(config(seed=2, batch_per_rank=32), status="diverged", accuracies=[0.1, None])
    texts = [answer.text for answer in report(tmp_path, [*items, gone]).answers]
    first, second = (text for text in texts if text.startswith("naive"))
    assert first.startswith("naive, batch 16: validation accuracy 0.805") and ", 100 im" in first
    assert second.startswith("naive, batch 32: validation accuracy 0.805") and ", 20" in second
