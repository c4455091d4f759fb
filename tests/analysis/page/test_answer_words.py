"""Words at the top that follow from numbers: of one or several, with or without an interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import fmt
from analysis.page.report import build
from analysis.records.load import load_frames
from analysis.topics.comparisons.contrast import further_in_words
from tests.analysis.builders import config, failed, record, technique, write_sweep
from tests.analysis.page.test_answers import runs, sweep
from tests.analysis.topics.test_ranks import late_run
from train.config.optimizer import Sgd
from train.record.run import RunRecord


def alike(*rates: float, runs: int = 3, **world: object) -> list[RunRecord]:
    """Runs on 1, 2, ... ranks without any spread."""
    return [
        record(config(seed=seed, gpus=gpus), images_per_s=rate, world_changes=world)
        for gpus, rate in enumerate(rates, start=1)
        for seed in range(runs)
    ]


def decayed(decay: float) -> list[RunRecord]:
    of = technique(optimizer=Sgd(weight_decay=decay))
    return runs(mean=0.8 + decay, technique=of)


LOSES = [
    item for name, at_large in (("naive", 0.8), ("lamb", 0.6))
    for batch, mean in ((16, 0.8), (64, at_large))
    for item in runs(name, mean=mean, batch_per_rank=batch)
]  # fmt: skip
ONE_EACH = [item for item in LOSES if item.config.seed == 0]
#: Items, the answer, what it says.
SAID = {
    "a name keeps its small letters": (
        [*runs(), *runs("lamb", gpus=2)], "techniques",
        "No claim about lamb against naive (not compared: no planned cell of naive with the same "
        "data, model, library, epochs, ranks and batch)."),
    "each against a reference of its own": (
        [*decayed(0.0), *decayed(0.001), *runs("lamb", mean=0.9)], "techniques",
        "largest difference: lamb against naive (optimizer.weight_decay=0.0) +0.1"),
    "one run each": (
        alike(100.0, 150.0, runs=1), "more_ranks", "of 1, without an interval."),
    "a loss by less than the digits": (
        [record(config(seed=seed, gpus=gpus), images_per_s=rate + seed / 1e4)
         for gpus, rate in ((1, 100.0), (2, 99.8)) for seed in range(3)],
        "more_ranks", "give 0.998 (0.998 to 0.998) times the throughput of 1: a loss."),
    "one of three pairs": (
        [*runs(), *runs("lars", mean=0.7),
         *(runs("lamb", mean=0.95)[:2]),
         record(config("lamb", seed=2), status="diverged", accuracies=[0.1])],
        "ranking", "no technique is shown to be best: 1 of 1 pair told apart"),
    "changes with intervals": (LOSES, "larger_batch", "No test compares them"),
    "GPUs are no ranks": (
        alike(100.0, 190.0, device_kind="gpu", device="A100"), "larger_batch",
        "From batch 16 on 1 GPU to 32 on 2 GPUs, naive"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_a_sentence_says_what_its_numbers_say(tmp_path: Path, case: str) -> None:
    items, key, words = SAID[case]
    text = sweep(tmp_path, items)[key].text
    assert words.lower() in text.lower() and (words[0].islower() or words in text), text


def test_changes_without_intervals_have_none_to_explain(tmp_path: Path) -> None:
    found = sweep(tmp_path, ONE_EACH)["larger_batch"]
    assert "no technique is shown" in found.text and "interval" not in found.text


def test_how_many_lose_accuracy_is_a_number(tmp_path: Path) -> None:
    found = sweep(tmp_path, LOSES)["larger_batch"]
    assert "1 of 2 techniques is shown to lose" in found.text
    assert (found.numbers["lose"], found.numbers["techniques"]) == (1, 2)


def test_further_runs_are_one_or_several() -> None:
    assert further_in_words([{"further_runs": 1}]).startswith("1 more run of each would detect")
    assert further_in_words([{"further_runs": n} for n in (None, 3)]).startswith("3 more runs of")
    assert not further_in_words([{"further_runs": None}])


def test_one_run_more_is_no_runs(tmp_path: Path) -> None:
    items = [late_run(64, {9 * seed: 0.1}, seed=seed) for seed in (1, 2)]
    report = build(load_frames(write_sweep(tmp_path / "s", items, techniques=["naive"])))
    (said,) = [answer for answer in report.answers if answer.evidence == "ranks"]
    assert "; ranks stand out in 1 more run." in said.text


def test_what_to_do_is_one_sentence(tmp_path: Path) -> None:
    items = [failed(config(), what_to_do="set it,\nthen \x1b[31mrun it.")]
    assert "What to do: set it, then " in (text := sweep(tmp_path, items)["complete"].text)
    assert "run it. Once" in text and "\x1b" not in text


def test_an_answer_has_a_few_rows_and_counts_the_others() -> None:
    assert fmt.few(["a", "b", "c"]) == ["a", "b", "c"]
    assert fmt.few(["a", "b", "c", "d", "e"]) == ["a", "b", "c", "2 more in the table"]
