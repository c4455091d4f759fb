"""The sentences at the top: which a sweep gets follows from what it varies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.page.report import build
from analysis.page.write import answers_text
from analysis.records.load import load_frames
from analysis.topics.topic import Answer
from tests.analysis.builders import config, failed, rank_steps, record, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep, rich_sweep
from tests.analysis.topics.convergence.to_target import run as run_to_target
from train.config.run import Target
from train.record.run import RunRecord, Sharpness, TargetOutcome


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


@pytest.mark.parametrize(
    ("at_large", "says"),
    [([180.0, 200.0, 220.0], "minima get sharper"), ([0.9, 1.0, 1.1], "minima get flatter"),
     ([2.0, 10.0, 50.0], "no change is shown")],
)  # fmt: skip
def test_sharpness_is_compared_between_batches(
    tmp_path: Path, at_large: list[float], says: str
) -> None:
    items = [
        item.model_copy(update={"sharpness": Sharpness(
            images=8, largest=largest, largest_error=0, scaled=1.0, scaled_error=0)})
        for batch, values in ((64, [9.0, 10.0, 11.0]), (256, at_large))
        for item, largest in zip(runs(batch_per_rank=batch), values, strict=True)
    ]  # fmt: skip
    found = sweep(tmp_path, items)["sharpness"]
    assert found.text.startswith("From batch 64 to 256 with naive, the largest eigenvalue of the ")
    assert found.text.endswith(f" (3 + 3 runs): {says}.")
    # geometric means: independent of the program's own arithmetic
    mean = math.exp(sum(map(math.log, at_large)) / 3 - sum(map(math.log, (9, 10, 11))) / 3)
    assert found.numbers["times"] == pytest.approx(mean)


def test_sharpness_is_told_of_each_pair_of_batches(tmp_path: Path) -> None:
    """Of techniques with other batches: each multiple stands by its own."""
    values = {("naive", 64): 10.0, ("naive", 256): 40.0, ("lamb", 64): 10.0, ("lamb", 128): 11.0,
              ("lars", 32): 5.0, ("lars", 128): 20.0}  # fmt: skip
    items = [
        item.model_copy(update={"sharpness": Sharpness(
            images=8, largest=largest * (1 + seed / 10), largest_error=0, scaled=1.0,
            scaled_error=0)})
        for (name, batch), largest in values.items()
        for seed, item in enumerate(runs(name, batch_per_rank=batch))
    ]  # fmt: skip
    (text,) = (text for text in sentences(tmp_path, items) if "Hessian" in text)
    spans = (
        r"From batch 64 to 256 with naive, the largest .* by 4\.00 .*: minima get sharper\.",
        r" From batch 64 to 128 with lamb, it is .*: no change is shown\.",
        r" From batch 32 to 128 with lars, it is .* by 4\.00 .*: minima get sharper\.",
    )
    assert re.fullmatch("".join(spans), text), text


def test_ranks_vary(tmp_path: Path) -> None:
    items = [*runs(), *runs(gpus=2, rate=190), *runs(gpus=4, rate=320)]
    found = sweep(tmp_path, items)
    assert set(found) == {"scaling", "more_ranks", "larger_batch"}
    scaling = found["scaling"]
    assert (
        scaling.verdict == "At 4 ranks, naive reaches an efficiency of 0.80 (0.79 to 0.81), 3 runs."
    )
    assert scaling.details.startswith(
        "That is 3.19 times the throughput of 1 rank. Efficiency is below 0.9 from 4 ranks on."
    )
    assert scaling.numbers["gpus"] == 4 and scaling.numbers["runs"] == 3
    assert 0.78 < scaling.numbers["low"] < scaling.numbers["efficiency"] < 0.81


def test_techniques_vary(tmp_path: Path) -> None:
    found = sweep(tmp_path, [*runs(), *runs("lamb", mean=0.9), *runs("lars", mean=0.7)])
    assert set(found) == {"techniques", "ranking"}
    assert found["techniques"].text == (
        "At batch 16, 1 of 2 (lamb) ends higher than naive: +0.100 (+0.094 to +0.106), "
        "3 runs each. 1 of 2 (lars) ends lower than naive: -0.100 (-0.106 to -0.094), "
        "3 runs each."
    )
    assert found["techniques"].numbers == {"higher": 1, "lower": 1}
    assert found["ranking"].text == (
        "The highest mean is lamb 0.902 (0.897 to 0.907), shown to be above naive, lars "
        "(largest adjusted p < 0.001, family of 3 pairs)."
    )


def test_two_techniques_of_one_run_each_are_undecided_with_the_reason(tmp_path: Path) -> None:
    items = [record(config(name), accuracies=[0.1, 0.2, mean])
             for name, mean in (("naive", 0.4), ("lamb", 0.5))]  # fmt: skip
    found = sweep(tmp_path, items)
    assert found["techniques"].text == (
        "At batch 16, lamb is not tested against naive: +0.100, 1 run each."
    )
    assert "ranking" not in found, "no pair is tested"


def test_a_technique_that_lost_its_runs_is_not_compared(tmp_path: Path) -> None:
    items = [*runs(), *(failed(config("lamb", seed=seed)) for seed in range(3))]
    found = sweep(tmp_path, items)
    assert found["complete"].text.startswith("3 of 6 planned cells are usable (3 failed)")
    assert (
        "no claim about lamb against naive (not compared: no usable run of lamb"
        in found["techniques"].text
    )


def test_the_batch_varies(tmp_path: Path) -> None:
    found = sweep(tmp_path, [*runs(), *runs(batch_per_rank=64, mean=0.7)])
    assert set(found) == {"larger_batch"}
    assert found["larger_batch"].text.startswith(
        "From batch 16 to 64, naive loses accuracy: -0.100 (-0.105 to -0.095)"
    )
    assert found["larger_batch"].numbers["difference"] < 0


def test_libraries_vary(tmp_path: Path) -> None:
    answer = answers_of(rich_sweep(tmp_path / "s"))["libraries"]
    assert answer.text == (
        "horovod has 1.33 (1.27 to 1.38) times the throughput of multi_worker_mirrored; accuracy: "
        "no difference shown."
    )
    assert answer.evidence == "frameworks"


def test_lost_runs_are_said_beside_those_that_reached_the_target(tmp_path: Path) -> None:
    goal = Target(validation_accuracy=0.3)
    outcome = TargetOutcome(met=True, epoch=2, steps=4, images=512, seconds=5.0, why="held")
    asked = {"gpus": 2, "accumulation": 4, "target": goal}
    kept = [record(config(seed=seed, **asked), accuracies=[0.35, 0.4], throughput=None,
                   epoch_changes={"train_s": 2.0}, target=outcome) for seed in (0, 1)]  # fmt: skip
    lost = [failed(config(seed=seed, **asked)) for seed in (2, 3, 4)]
    text = sweep(tmp_path, [*kept, *lost])["targets"].text
    assert text.startswith(
        "2 of 2 runs reached validation accuracy 0.3 (2 evaluations in a row), and 3 are lost; the "
        "median is 5 s"
    )


def test_batches_with_a_target(tmp_path: Path) -> None:
    """Steps that follow 48 (1 + 64 / B), exactly or with one run censored."""
    items = [run_to_target(batch) for batch in (16, 32, 64, 128)]
    found = sweep(tmp_path / "a", items)
    assert found["critical_batch"].verdict == "64 images with naive, 4 runs."
    assert found["critical_batch"].numbers["images"] == pytest.approx(64, rel=1e-4)
    censored = run_to_target(256, 1, met=False, epochs=30)
    found = sweep(tmp_path / "b", [*items, censored])
    assert found["critical_batch"].verdict.endswith("with naive, 5 runs (1 censored).")
    assert "critical_batch" not in sweep(tmp_path / "c", items[:2])


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
    assert (
        found["techniques"].text == "At batch 16, no claim about lamb against naive (all diverged)."
    )
    assert "ranking" not in found


def test_no_baseline_no_efficiency(tmp_path: Path) -> None:
    """The runs on other rank counts differ in their batch."""
    found = sweep(tmp_path, [record(config(gpus=2)), record(config(gpus=4, batch_per_rank=64))])
    assert "scaling" not in found


def test_what_is_lacking_comes_first(tmp_path: Path) -> None:
    keys = list(answers_of(mixed_sweep(tmp_path / "s")))
    assert keys == ["complete", "scaling", "more_ranks", "techniques", "larger_batch"]
    assert "complete" not in answers_of(good_sweep(tmp_path / "g"))


def sentences(folder: Path, items: Sequence[RunRecord]) -> list[str]:
    techniques = dict.fromkeys(item.config.technique.name for item in items)
    written = write_sweep(folder / "s", items, techniques=[*techniques])
    return [answer.text for answer in build(load_frames(written), draw=False).answers]


def test_each_data_set_has_a_ranking_of_its_own(tmp_path: Path) -> None:
    digits = [*runs(mean=0.5), *runs("lamb", mean=0.501)]
    mnist = [*runs(mean=0.7, dataset="mnist"), *runs("lamb", mean=0.9, dataset="mnist")]
    found = sentences(tmp_path, digits + mnist)
    (first,) = (text for text in found if text.startswith("No technique is shown to be best"))
    (second,) = (text for text in found if text.startswith("The highest mean"))
    assert "(digits): 0 of 1 pair told apart. Means lie between naive 0.5" in first
    assert "(mnist) is lamb 0.902" in second and "above naive (largest adjusted p < 0.001" in second


def test_an_efficiency_that_recovers_is_not_below_from_there_on(tmp_path: Path) -> None:
    items = [
        run
        for gpus, share in ((1, 1.0), (2, 0.88), (4, 0.97), (8, 0.85))
        for run in runs(gpus=gpus, rate=100.0 * gpus * share)
    ]
    (text,) = [t for t in sentences(tmp_path, items) if "reaches an efficiency" in t]
    assert "below 0.9 from 8 ranks on" in text


def test_series_of_one_name_are_told_by_their_batch(tmp_path: Path) -> None:
    items = [
        run
        for batch, share in ((16, 1.0), (32, 0.6))
        for gpus in (1, 2)
        for run in runs(gpus=gpus, batch_per_rank=batch, rate=100.0 * (1 + share * (gpus - 1)))
    ]
    (text,) = [t for t in sentences(tmp_path, items) if "an efficiency" in t]
    assert "naive (weak, 16 a rank) reaches an efficiency of 1.0" in text


def test_batches_are_said_of_those_that_have_them(tmp_path: Path) -> None:
    items = [
        run
        for name, large, mean in (("naive", 32, 0.7), ("lamb", 128, 0.79))
        for run in (*runs(name), *runs(name, batch_per_rank=large, mean=mean))
    ]
    found = [t for t in sentences(tmp_path, items) if t.startswith("From batch")]
    assert [t[:30] for t in found] == [
        "From batch 16 to 32, naive los", "From batch 16 to 128, lamb los"
    ]  # fmt: skip


def test_a_technique_that_loses_runs_is_never_best(tmp_path: Path) -> None:
    of_lamb = runs("lamb", batch_per_rank=64, mean=0.85)
    lost = [record(item.config, status="diverged", accuracies=[0.1, None]) for item in of_lamb[:2]]
    items = [*runs(), *runs(batch_per_rank=64, mean=0.7), *runs("lamb"), *lost, of_lamb[2],
             *runs("lars", batch_per_rank=64, mean=0.6)]  # fmt: skip
    found = sentences(tmp_path, items)
    assert any("with 2 of 3 runs diverged" in t for t in found if "is shown to be best" in t)
    (text,) = [t for t in found if t.startswith("From batch")]
    assert "naive loses" in text and text.endswith("Some runs diverged of lamb.")


def test_a_mean_is_of_the_runs_that_completed(tmp_path: Path) -> None:
    items = runs()
    lost = record(items[2].config, status="diverged", accuracies=[0.1, None])
    (text,) = sentences(tmp_path, [*items[:2], lost])
    assert text.endswith("2 runs; 1 run diverged.")


def test_several_conditions_of_a_library_are_counted(tmp_path: Path) -> None:
    items = [
        run
        for name, rate in (("naive", 75.0), ("lamb", 200.0))
        for run in (*runs(name), *runs(name, rate=rate, framework="mirrored"))
    ]
    (text,) = [t for t in sentences(tmp_path, items) if "times the throughput" in t]
    assert text.startswith(
        "horovod has 0.50 to 1.33 times the throughput of mirrored (range of the estimates of 2 "
    )


def of_rates(
    gpus: int, rates: Sequence[float], name: str = "naive", **changes: Any
) -> list[RunRecord]:
    """A run per throughput."""
    return [record(config(name, seed=seed, gpus=gpus, **changes), images_per_s=rate)
            for seed, rate in enumerate(rates)]  # fmt: skip


#: Throughputs of runs on two ranks, of which those on one have 100, and what is said of them.
GAINS = {
    "loss": ([70.0, 70.5, 71.0], "times the throughput of 1: a loss."),
    "no gain": ([85.0, 89.0, 94.0], "give 0.89 (0.79 to 1.01) times the throughput of 1: no gain"),
    "little": ([120.0, 121.0, 122.0], "an added rank gives less than 70 % of the throughput that"),
    "much, perhaps": ([120.0, 170.0, 190.0], ": no gain is shown."),
    "open": (
        [150.0, 165.0, 185.0],
        "; whether each added rank up to 2 gives 70 % of the throughput",
    ),
    "gain": ([185.0, 186.0, 187.0], "Yes, up to 2 ranks: each added one gives at least 70 %"),
    "one run": ([190.0], "times the throughput of 1, without an interval."),
}


@pytest.mark.parametrize("kind", [*GAINS])
def test_what_a_second_rank_gives_is_said_by_its_interval(tmp_path: Path, kind: str) -> None:
    rates, said = GAINS[kind]
    items = [*of_rates(1, [99.5, 100.0, 100.5][: len(rates)]), *of_rates(2, rates)]
    text = sweep(tmp_path, items)["more_ranks"].text
    assert said in text
    assert "lower the throughput" not in text
    assert ("a loss" in text) == (kind == "loss")
    assert ("at least" in text) == (kind == "gain")


@pytest.mark.parametrize(
    ("eight", "said"),
    [
        ([620.0, 640.0, 660.0], "below 0.9 from 8 ranks on"),
        ([560.0, 680.0, 800.0], ""),  # mean 0.84, and the interval holds 0.9
        ([640.0], ""),  # one run has none
    ],
)
def test_a_low_efficiency_is_one_whose_interval_is_low(
    tmp_path: Path, eight: list[float], said: str
) -> None:
    items = [*of_rates(1, [99.5, 100.0, 100.5]), *of_rates(4, [340.0, 360.0, 380.0]),
             *of_rates(8, eight)]  # fmt: skip
    text = sweep(tmp_path, items)["scaling"].text
    assert said in text and ("below 0.9" in text) == bool(said)


def test_efficiency_loss_and_advice_are_of_one_series(tmp_path: Path) -> None:
    """The reference's, though lamb scales best and lars worst."""

    def timed(name: str, gpus: int, step: float) -> list[RunRecord]:
        return [
            record(config(name, gpus=gpus, seed=seed), images_per_s=16 * gpus / (step + seed / 1e4),
                   steps=tuple(rank_steps(rank, step + seed / 1e4, 0.01, step - 0.1)
                               for rank in range(gpus)))
            for seed in range(3)
        ]  # fmt: skip

    two = {"naive": 0.15, "lamb": 0.12, "lars": 0.3}
    items = [run for name, step in two.items()
             for run in (*timed(name, 1, 0.11), *timed(name, 2, step))]  # fmt: skip
    found = sweep(tmp_path, items)
    text = found["scaling"].text
    assert text.startswith("At 2 ranks, naive reaches an efficiency of 0.73 (0.7")
    assert "Largest loss: communication" in text and "lars" not in text
    assert found["more_ranks"].text.startswith("With naive, ")
    assert found["scaling"].numbers["technique"] == "naive"


@pytest.mark.parametrize("reference", ["naive", "lamb"])
def test_weak_and_strong_scaling_are_answers_of_their_own(tmp_path: Path, reference: str) -> None:
    strong = {"scaling": "strong"}
    items = [
        *of_rates(1, [99.5, 100.0, 100.5], reference), *of_rates(2, [189.0, 190.0], reference),
        *of_rates(1, [99.5, 100.0, 100.5], reference, batch_per_rank=64, **strong),
        *of_rates(2, [119.0, 120.0], reference, batch_per_rank=32, **strong),
    ]  # fmt: skip
    found = [text for text in sentences(tmp_path, items) if "an efficiency" in text]
    assert [text[:34] for text in found] == [
        f"Under weak scaling, at 2 ranks, {reference}"[:34],
        f"Under strong scaling, at 2 ranks, {reference}"[:34],
    ]
    assert "efficiency of 0.95" in found[0] and "efficiency of 0.60" in found[1]


def test_a_shortest_median_is_among_those_with_one_target(tmp_path: Path) -> None:
    """An easy and a hard target: that the easy one takes less time says nothing."""
    easy, hard = (
        Target(validation_accuracy=0.3, held_for=1),
        Target(validation_accuracy=0.35, held_for=1),
    )
    items = [run_to_target(16, seed, target=easy) for seed in (0, 1)]
    items += [run_to_target(16, seed, target=hard, epochs=40) for seed in (0, 1)]
    text = sweep(tmp_path, items)["targets"].text
    assert text.startswith("4 of 4 runs reached their targets. Validation accuracy 0.3: the med")
    assert ". Validation accuracy 0.35: the median is " in text
    assert "shortest" not in text and "soonest" not in text
    same = [*items[:2], *(run_to_target(32, seed, target=easy) for seed in (0, 1))]
    text = sweep(tmp_path / "same", same)["targets"].text
    assert "; the shortest median is " in text and "at batch 16, not shown shorter" in text
    wider = [run_to_target(batch, seed, target=easy, width=2, model="resnet_mini")
             for batch in (16, 32) for seed in (0, 1)]  # fmt: skip
    text = sweep(tmp_path / "wider", [*same, *wider])["targets"].text
    assert text.count("Validation accuracy 0.3") == 0, "once for all"
    assert text.count("than any other with its data and network") == 2


def test_nothing_is_said_of_techniques_that_do_not_differ_detectably(tmp_path: Path) -> None:
    """Four techniques whose means lie within their spread."""
    items = [
        record(config(name, seed=seed), accuracies=[0.1, 0.2, 0.8 + shift + seed / 50])
        for name, shift in (("naive", 0.0), ("lamb", 0.004), ("lars", -0.004), ("muon", 0.006))
        for seed in range(3)
    ]
    found = sweep(tmp_path, items)
    assert found["techniques"].text.startswith(
        "At batch 16, none of 3 differs detectably from naive; largest difference: muon "
    )
    more = re.search(r", 3 runs each\. (\d+) more runs of each would", found["techniques"].text)
    assert more and int(more[1]) > 3
    assert "ranking" not in found, "it would say the same of the same runs"


def test_a_ranking_stands_where_it_says_more_than_the_reference(tmp_path: Path) -> None:
    """None of two is told apart from the reference between them, yet they are from each other."""
    means = {
        "naive": (0.45, 0.52, 0.47),
        "lamb": (0.500, 0.505, 0.510),
        "lars": (0.43, 0.435, 0.44),
    }
    found = sweep(
        tmp_path,
        [
            record(config(name, seed=seed), accuracies=[0.1, 0.2, mean])
            for name, own in means.items()
            for seed, mean in enumerate(own)
        ],
    )
    assert "none of 2 differs detectably from naive" in found["techniques"].text
    assert found["ranking"].text.startswith("The highest mean is lamb 0.505")


@pytest.mark.parametrize(
    ("spread", "said"), [(50, "is not shown to change"), (900, "loses accuracy: -0.012")]
)
def test_a_loss_by_the_batch_is_one_that_its_interval_shows(
    tmp_path: Path, spread: int, said: str
) -> None:
    items = [
        record(config(seed=seed, batch_per_rank=batch),
               accuracies=[0.1, 0.2, mean + seed / spread])
        for batch, mean in ((16, 0.8), (64, 0.788)) for seed in range(3)
    ]  # fmt: skip
    assert said in sweep(tmp_path, items)["larger_batch"].text


def test_changes_by_the_batch_of_several_techniques_are_no_ranking(tmp_path: Path) -> None:
    items = [run for name, large in (("naive", 0.7), ("lamb", 0.79))
             for run in (*runs(name), *runs(name, batch_per_rank=64, mean=large))]  # fmt: skip
    text = sweep(tmp_path, items)["larger_batch"].text
    assert "lie between -0.100 (-0.105 to -0.095) with naive and -0.010" in text
    assert text.startswith("From batch 16 to 64, 2 of 2 techniques are shown to lose accuracy. ")
    assert text.endswith("No test compares them.")
