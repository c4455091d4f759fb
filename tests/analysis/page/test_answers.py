"""The sentences at the top: which a sweep gets follows from what it varies, and each says what its
numbers say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.analysis.builders import config, record, technique
from tests.analysis.planned import answers, report
from tests.analysis.topics.convergence.to_target import run as run_to_target
from train.config.optimizer import Sgd
from train.config.run import RunConfig, Target
from train.record.measurements import TargetOutcome
from train.record.run import RunRecord


def runs(
    name: str = "naive", *, rate: float = 100.0, mean: float = 0.8, **changes: Any
) -> list[RunRecord]:
    """Three seeds that differ a little."""
    return [
        record(config(name, seed=seed, **changes), images_per_s=rate + seed / 2,
               accuracies=[0.1, 0.2, mean + seed / 500])
        for seed in range(3)
    ]  # fmt: skip


def reached(name: str, *accuracies: float, **changes: Any) -> list[RunRecord]:
    """A run per accuracy."""
    return [record(config(name, seed=seed, **changes), accuracies=[0.1, 0.2, accuracy])
            for seed, accuracy in enumerate(accuracies)]  # fmt: skip


def of_two_batches(**means: float) -> list[RunRecord]:
    """Techniques by what they reach at the larger of two batches; at the smaller one it is 0.8."""
    return [item for name, mean in means.items()
            for item in (*runs(name), *runs(name, mean=mean, batch_per_rank=64))]  # fmt: skip


def diverged(name: str, *seeds: int, **changes: Any) -> list[RunRecord]:
    return [record(config(name, seed=seed, **changes), status="diverged", accuracies=[0.1, None])
            for seed in seeds]  # fmt: skip


RANKS = [*runs(), *runs(gpus=2, rate=190), *runs(gpus=4, rate=320)]
TECHNIQUES = [*runs(), *runs("lamb", mean=0.9), *runs("lars", mean=0.7)]
GOAL = Target(validation_accuracy=0.3)
AT_GOAL = {"gpus": 2, "accumulation": 4, "target": GOAL}
EASY, HARD = (Target(validation_accuracy=share, held_for=1) for share in (0.3, 0.35))
SAME_GOAL = [run_to_target(batch, seed, target=EASY) for batch in (16, 32) for seed in (0, 1)]
NO_PAIR = (
    "In this sweep, lamb is not compared with naive (no planned cell of naive with the same data, "
    "model, library, epochs, ranks and batch)."
)
#: Runs between which a test finds a difference that Bonferroni's interval of two leaves open.
CLOSE = [*reached("naive", 0.40, 0.41, 0.42), *reached("lamb", 0.60, 0.61, 0.62),
         *reached("lars", 0.430, 0.444, 0.462)]  # fmt: skip
LONGER = [
    record(config(seed=seed, technique=technique("lamb", regime_adaptation=True, base_batch=8)),
           accuracies=[*[0.1] * 5, 0.9 + seed / 500])
    for seed in range(3)
]  # fmt: skip


class Case(NamedTuple):
    """``said``: parts of the answer in their order, ... between them."""

    items: Sequence[RunRecord]
    key: str
    said: str
    unsaid: str = "None"
    lost: Sequence[RunConfig] = ()


CASES = {
    # techniques
    "techniques": Case(
        TECHNIQUES, "techniques",
        "At batch 16, 1 of 2 (lamb) ends higher than naive in accuracy: +0.100 (+0.094 to +0.106), "
        "3 runs each. 1 of 2 (lars) ends lower than naive in accuracy: -0.100 (-0.106 to -0.094)"),
    "a sentence claims what the printed interval shows": Case(
        CLOSE, "techniques", "1 of 2 (lamb) ends higher than naive in accuracy: +0.200 (+0...1 of "
        "2 (lars) does not differ detectably from naive in accuracy: +0.035 (-0."),
    "the best is above all": Case(
        TECHNIQUES, "ranking",
        "The highest mean is lamb 0.902 (0.897 to 0.907), shown to be above all others."),
    "one run each": Case([*reached("naive", 0.4), *reached("lamb", 0.5)], "techniques",
                         "lamb is not tested against naive in accuracy: +0.100, 1 run each (n=1)."),
    "equal runs have no interval": Case(
        [*reached("naive", 0.8, 0.8, 0.8), *reached("lamb", 0.9, 0.9, 0.9)], "techniques",
        "lamb is not tested against naive in accuracy: +0.100, 3 runs each (no spread within "
        "either set of runs (0.900 and 0.800), so no interval).", "identical"),
    "untested is not undecided": Case(
        [*runs(), *runs("lars", mean=0.801), *reached("lamb", 0.9)], "techniques",
        "1 of 2 (lars) does not differ detectably...1 of 2 (lamb) is not tested against naive",
        "none of 2"),
    "a technique that lost its runs is not compared": Case(
        runs(), "techniques",
        "lamb is not compared with naive (no usable run of lamb at the planned scale).",
        lost=[config("lamb", seed=seed) for seed in range(3)]),
    "a technique of which all diverged": Case(
        [*runs(), *diverged("lamb", 0, 1, 2)], "techniques",
        "At batch 16, lamb is not compared with naive (all 3 runs of lamb diverged)."),
    "a name keeps its small letters": Case(
        [*runs(), *runs("lamb", gpus=2)], "techniques", NO_PAIR),
    "each against a reference of its own": Case(
        [*runs(technique=technique(optimizer=Sgd(weight_decay=0.0))), *runs("lamb", mean=0.9),
         *runs(mean=0.801, technique=technique(optimizer=Sgd(weight_decay=0.001)))],
        "techniques", "At batch 16, 2 of 2 end higher than the reference in accuracy: lamb "
        "against naive (optimizer.weight_decay=0.0) +0.1"),
    "planned runs that are missing": Case(
        [*runs(), *runs("lamb", mean=0.9)], "techniques",
        "Planned runs are missing: lamb (3 of 5).",
        lost=[config("lamb", seed=seed) for seed in (3, 4)]),
    "other numbers of images": Case([*runs(), *LONGER], "techniques",
                                    "Images are unequal: lamb saw 2 times those of naive."),
    "accuracies close to 1": Case(
        [*reached("naive", 0.96, 0.955, 0.965), *reached("lamb", 0.975, 0.9999, 1.0)],
        "techniques", "Close to 0 or 1, up to 10 % of claims are false: lamb."),
    "untested pairs are counted as such": Case(
        [*runs(), *runs("lars", mean=0.7), *runs("muon", mean=0.71), *reached("lamb", 0.99),
         *reached("adam", 0.3)],
        "ranking", "No technique is shown to be best besides the comparisons with the reference: 1 "
        "of 6 pairs is shown to differ, 5 are untested."),
    "each data set has a ranking of its own": Case(
        [item for name, means in {"naive": (0.1, 0.1), "lars": (0.5, 0.7), "lamb": (0.501, 0.9)}
         .items() for item in (*runs(name, mean=means[0]),
                               *runs(name, mean=means[1], dataset="mnist"))],
        "ranking", "The highest mean (digits) is lamb 0.503 (0.498 to 0.508), shown to be above "
        "naive. It is not shown to differ from lars. | The highest mean (mnist) is lamb 0.902..."
        "above all others"),
    "a ranking stands where it says more than the reference": Case(
        # none of two is told apart from the reference between them, yet they are from each other
        [*reached("naive", 0.45, 0.52, 0.47), *reached("lamb", 0.500, 0.505, 0.510),
         *reached("lars", 0.43, 0.435, 0.44)],
        "ranking", "The highest mean is lamb 0.505 (0.493 to 0.517), shown to be above lars. It is "
        "not shown to differ from naive."),
    # batches
    "batches": Case([*runs(), *runs(batch_per_rank=64, mean=0.7)], "larger_batch",
                    "From batch 16 to 64, naive loses accuracy: -0.100 (-0.105 to -0.095)"),
    "a loss is one that its interval shows": Case(
        [*reached("naive", 0.8, 0.82, 0.84),
         *reached("naive", 0.788, 0.808, 0.828, batch_per_rank=64)],
        "larger_batch", "naive is not shown to lose accuracy: -0.012 (-0.057 to +0.033), 3 runs"),
    "batches are said of those that have them": Case(
        [*runs(), *runs(batch_per_rank=32, mean=0.7),
         *runs("lamb"), *runs("lamb", batch_per_rank=128, mean=0.79)],
        "larger_batch", "From batch 16 to 32, naive los...| From batch 16 to 128, lamb los"),
    "the least and the largest loss": Case(
        of_two_batches(naive=0.7, lamb=0.79), "larger_batch",
        "From batch 16 to 64, 2 of 2 lose accuracy: naive -0.100 (-0.106 to -0.094), lamb "
        "-0.010 (-0.016 to -0.004)."),
    "one of two loses": Case(
        of_two_batches(naive=0.8, lamb=0.6), "larger_batch",
        "1 of 2 (lamb) loses accuracy: -0.200 (...1 of 2 (naive) is not shown to lose accuracy: "
        "+0.000 (-0.006 to +0.006), 3 runs each"),
    "a loss that one of several has by chance is none": Case(
        # alone, -0.020 (-0.039 to -0.002) would be one
        [*of_two_batches(lamb=0.8, lars=0.8), *reached("naive", 0.810, 0.815, 0.822),
         *reached("naive", 0.785, 0.795, 0.805, batch_per_rank=64)],
        "larger_batch", "3 of 3 are not shown to lose accuracy: naive -0.021 (-0.051 to +0.010), ",
        "loses"),
    "none of two loses": Case(
        of_two_batches(naive=0.8, lamb=0.8), "larger_batch",
        "2 of 2 are not shown to lose accuracy: naive +0.000 (-0.006 to +0.006), lamb "),
    "changes without intervals": Case(
        [item for item in of_two_batches(naive=0.8, lamb=0.6) if item.config.seed == 0],
        "larger_batch", "2 of 2 are untested: lamb -0.200, naive +0.000 (n=1).", "shown"),
    # libraries
    "libraries": Case(
        [*runs(), *runs(rate=75.0, mean=0.802, framework="mirrored")], "libraries", "horovod has "
        "1.33 (1.31 to 1.35) times the throughput of mirrored; accuracy: equal to within 0.01."),
    "several conditions of a library are counted": Case(
        [*runs(rate=75.0), *runs(framework="mirrored"), *runs("lamb", rate=200.0),
         *runs("lamb", framework="mirrored", rate=150)],
        "libraries", "horovod has 0.75 to 1.33 times the throughput of mirrored: 2 of 2 "
        "conditions are shown to differ"),
    # targets
    "lost runs are said beside those that reached the target": Case(
        [record(config(seed=seed, **AT_GOAL), accuracies=[0.35, 0.4], throughput=None,
                epoch_changes={"train_s": 2.0}, target=TargetOutcome(
                    met=True, epoch=2, steps=4, images=512, seconds=5.0, why="held"))
         for seed in (0, 1)],
        "targets", "2 of 2 runs reached validation accuracy 0.3 (2 evaluations in a row); 3 are "
        "lost. The median is 5 s.", lost=[config(seed=seed, **AT_GOAL) for seed in (2, 3, 4)]),
    "times to an easy and to a hard target say nothing of each other": Case(
        [*SAME_GOAL[:2], *(run_to_target(16, seed, target=HARD, epochs=40) for seed in (0, 1))],
        "targets", "2 of 2 runs reached validation accuracy 0.3. The median is ... | 2 of 2 runs "
        "reached validation accuracy 0.35. The median is ", "Median time"),
    "times of two networks say nothing of each other": Case(
        [*SAME_GOAL, *(run_to_target(batch, seed, target=EASY, width=2, model="resnet_mini")
                       for batch in (16, 32) for seed in (0, 1))],
        "targets", "s at batch 16 to ... s at batch 32...No pair is tested... | 4 of 4 runs "
        "reached validation accuracy 0.3 (resnet_mini, "),
    "no run reached it": Case(
        [run_to_target(16, met=False, epochs=5, target=EASY, dataset=name)
         for name in ("digits", "mnist")], "targets",
        "0 of 1 run reached validation accuracy 0.3 (digits). | 0 of 1 run reached validation "
        "accuracy 0.3 (mnist)."),
    "steps that follow 48 (1 + 64 / B)": Case(
        [run_to_target(batch) for batch in (16, 32, 64, 128)], "critical_batch",
        "64 images with naive, 4 runs."),
    "censored": Case(
        [*(run_to_target(batch) for batch in (16, 32, 64, 128)),
         run_to_target(256, 1, met=False, epochs=30)],
        "critical_batch", "with naive, 5 runs (1 censored)."),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_sentence_says_what_its_numbers_say(name: str) -> None:
    items, key, said, unsaid, lost = CASES[name]
    text = answers(items, lost=lost)[key]
    assert re.search(".*".join(map(re.escape, said.split("..."))), text), text
    assert unsaid not in text and "1 runs" not in text


@pytest.mark.parametrize(
    ("items", "keys"),
    [
        (RANKS, {"scaling", "more_ranks", "forecast", "larger_batch"}),
        (TECHNIQUES, {"techniques", "ranking"}),
        (CASES["batches"].items, {"larger_batch"}),
        ([record()], set()),
        (diverged("naive", 0, 1), set()),
        (CASES["a technique of which all diverged"].items, {"techniques"}),
        # the runs on other rank counts differ in their batch
        ([record(config(gpus=2)), record(config(gpus=4, batch_per_rank=64))], {"larger_batch"}),
        ([run_to_target(batch) for batch in (16, 32)], {"targets"}),
    ],
)  # fmt: skip
def test_answers_follow_from_what_a_sweep_varies(items: list[RunRecord], keys: set[str]) -> None:
    found = report(items)
    assert {answer.key for answer in found.answers} == keys
    for answer in found.answers:
        assert answer.question.endswith("?") and answer.text.endswith(".")
        assert len(found.tables[answer.evidence].data)


def test_nothing_is_said_of_techniques_that_do_not_differ_detectably() -> None:
    """Four techniques whose means lie within their spread."""
    shifts = {"naive": 0.0, "lamb": 0.004, "lars": -0.004, "muon": 0.006}
    means = {name: [0.8 + shift + seed / 50 for seed in range(3)] for name, shift in shifts.items()}
    found = answers([item for name, own in means.items() for item in reached(name, *own)])
    more = re.fullmatch(
        "At batch 16, 3 of 3 do not differ detectably from naive in accuracy: muon [^.]*"
        r"\.[^)]*\), lamb, lars\. (\d+) more runs each would show a difference of 0.02\.",
        found["techniques"],
    )  # fmt: skip
    assert more and int(more[1]) > 3
    assert "ranking" not in found, "it would say the same of the same runs"
