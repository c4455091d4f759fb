"""analysis check: thresholds are judged by intervals; the exit code is that of the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from analysis.topics.scaling import efficiency
from tests.analysis.builders import config, failed, record, write_sweep
from train.record.run import RunRecord


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, words)])


def runs(
    gpus: int,
    rates: Sequence[float],
    accuracies: Sequence[float] | None = None,
    name: str = "naive",
) -> list[RunRecord]:
    """A run per rate, given as its efficiency against 100 images/s of one rank."""
    found = accuracies or [0.8 + seed / 100 for seed in range(len(rates))]
    return [
        record(config(name, gpus=gpus, seed=seed), images_per_s=100 * gpus * rate,
               accuracies=[0.3, 0.5, reached])
        for seed, (rate, reached) in enumerate(zip(rates, found, strict=True))
    ]  # fmt: skip


def scaled(folder: Path, *efficiencies: tuple[int, float], spread: float = 0.01) -> Path:
    """A sweep of three runs of each of these (ranks, efficiency), and of one rank."""
    ranks = [(1, 1.0), *efficiencies]
    each = [runs(n, [e - spread, e, e + spread]) for n, e in ranks]
    return write_sweep(folder, [one for own in each for one in own])


@pytest.mark.parametrize(
    ("efficiencies", "code", "said"),
    [
        ([(2, 0.95), (4, 0.9)], 0, "2 passed of 2"),
        ([(2, 0.95), (4, 0.7), (8, 0.6)], 1, "at 4 ranks, batch 64: 0.700 (0.6"),
        ([(2, 0.95), (4, 0.8)], 3, "Undecided: efficiency of naive (weak, 16 a rank) at 4 ranks"),
    ],
)
def test_efficiency_is_judged_by_its_interval(
    tmp_path: Path, efficiencies: list[tuple[int, float]], code: int, said: str
) -> None:
    done = call(scaled(tmp_path / "s", *efficiencies), "--min-efficiency", 0.8)
    assert done.exit_code == code, done.output
    assert said in done.output
    assert ("4 ranks: the first count that fails" in done.output) == (code == 1)
    assert "8 ranks: the first" not in done.output


@pytest.mark.parametrize(
    ("accuracies", "code", "said"),
    [
        ([0.80, 0.81, 0.82], 0, "1 passed of 1"),
        ([0.50, 0.51, 0.52], 1, "Failed: accuracy of lamb"),
        ([0.60, 0.72, 0.84], 3, "the threshold lies in the interval"),
        ([0.90], 3, ": n=1."),
        ([0.8, 0.8], 3, "the runs are identical"),
    ],
)
def test_accuracy_is_judged_by_its_interval(
    tmp_path: Path, accuracies: list[float], code: int, said: str
) -> None:
    made = runs(2, [0.9] * len(accuracies), accuracies, "lamb")
    done = call(write_sweep(tmp_path / "s", made), "--min-accuracy", 0.7)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_no_evidence_is_no_pass(tmp_path: Path) -> None:
    """A lost condition, a diverged run, one rank count alone, no run at all."""
    good = runs(1, [1.0] * 3)
    lost = write_sweep(tmp_path / "lost", [*good, failed(config(gpus=2))])
    done = call(lost, "--min-accuracy", 0.7)
    assert done.exit_code == 3 and "no usable run of a planned condition" in done.output
    diverged = record(config(seed=7), status="diverged", accuracies=[0.1, None])
    some = write_sweep(tmp_path / "some", [*good, diverged])
    assert "of 4 planned runs: 1 diverged" in (done := call(some, "--min-accuracy", 0.7)).output
    assert done.exit_code == 3
    all_ = write_sweep(tmp_path / "all", [diverged])
    assert call(all_, "--min-accuracy", 0.7).exit_code == 1
    one = write_sweep(tmp_path / "one", good)
    assert call(one, "--min-efficiency", 0.8).exit_code == 3
    none = write_sweep(tmp_path / "none", [])
    assert call(none, "--min-efficiency", 0.8, "--min-accuracy", 0.7).exit_code == 3


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--min-efficiency", "80"],
        ["--min-accuracy", "0"],
        ["--min-accuracy", "nan"],
        ["--baseline", "nowhere"],
        ["--min-accuracy", "0.7", "--junit", "nowhere/at/all.xml"],
    ],
)
def test_a_wrong_request_says_what_is_expected(tmp_path: Path, words: list[str]) -> None:
    done = call(write_sweep(tmp_path / "s", runs(1, [1.0] * 3)), *words)
    assert done.exit_code == 2, done.output
    assert call(tmp_path / "none", "--min-accuracy", "0.7").exit_code == 2


def test_junit_has_a_case_per_condition(tmp_path: Path) -> None:
    folder, file = scaled(tmp_path / "s", (2, 0.95), (4, 0.7), (8, 0.8)), tmp_path / "check.xml"
    words = ("--min-efficiency", 0.8, "--min-accuracy", 0.1, "--baseline", folder)
    assert call(folder, *words, "--junit", file).exit_code == 1
    suites = Xml.parse(file).getroot()
    counts = [(s.get("name"), s.get("tests"), s.get("failures"), s.get("errors")) for s in suites]
    assert counts == [
        ("efficiency", "3", "1", "1"), ("accuracy", "4", "0", "0"), ("change", "4", "0", "4")
    ]  # fmt: skip
    (case,) = [one for one in suites.iter("testcase") if one.find("failure") is not None]
    assert case.get("name") == "efficiency of naive (weak, 16 a rank) at 4 ranks, batch 64"


def lost_runs(gpus: int, seeds: range, name: str = "naive") -> list[RunRecord]:
    return [failed(config(name, gpus=gpus, seed=seed)) for seed in seeds]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([*runs(1, [1.0] * 3), *lost_runs(1, range(3, 8))], ("--min-accuracy", 0.7)),
        ([*runs(1, [0.99, 1.0, 1.01]), *runs(4, [0.94, 0.95, 0.96]), *lost_runs(4, range(3, 8))],
         ("--min-efficiency", 0.8)),
        ([*runs(1, [0.99, 1.0, 1.01]), *lost_runs(1, range(3, 8)), *runs(4, [0.94, 0.95, 0.96])],
         ("--min-efficiency", 0.8)),
    ],
    ids=["accuracy", "efficiency", "its baseline"],
)  # fmt: skip
def test_lost_runs_of_a_condition_leave_it_undecided(
    tmp_path: Path, items: list[RunRecord], words: tuple[object, ...]
) -> None:
    done = call(write_sweep(tmp_path / "s", items), *words)
    assert done.exit_code == 3, done.output
    assert "of 8 planned runs" in done.output and "5 not usable" in done.output


def test_a_sweep_that_has_not_ended_is_not_as_good_as_its_baseline(tmp_path: Path) -> None:
    whole = runs(2, [0.999, 1.0, 1.001, 1.002], [0.8, 0.801, 0.802, 0.803])
    before = write_sweep(tmp_path / "before", whole)
    missing = config(gpus=2, seed=7)
    after = write_sweep(tmp_path / "after", whole, also_planned=[missing.cell_id()])
    (after / missing.cell_id()).mkdir()
    (after / missing.cell_id() / "config.json").write_text(missing.model_dump_json())
    assert call(after, "--baseline", before, "--junit", tmp_path / "x.xml").exit_code == 3
    assert (
        "1 of 5 planned runs have no record, or were cancelled" in (tmp_path / "x.xml").read_text()
    )


@pytest.mark.parametrize("name", ["naive", "lamb"])
def test_a_lost_baseline_is_not_replaced_by_the_next_rank_count(tmp_path: Path, name: str) -> None:
    half = [one for n in (2, 4) for one in runs(n, [0.49, 0.5, 0.51], name=name)]
    good = [one for n in (1, 2, 4) for one in runs(n, [0.99, 1.0, 1.01])]
    items = [*lost_runs(1, range(3), name), *half, *(good if name != "naive" else [])]
    done = call(write_sweep(tmp_path / "s", items), "--min-efficiency", 0.8)
    assert done.exit_code == 3, done.output
    assert "measured against 2 ranks, while the plan begins at 1" in done.output
    assert f"2 undecided of {2 if name == 'naive' else 4}" in done.output


def test_a_plan_that_begins_at_two_ranks_can_pass(tmp_path: Path) -> None:
    items = [one for n in (2, 4) for one in runs(n, [0.99, 1.0, 1.01])]
    done = call(write_sweep(tmp_path / "s", items), "--min-efficiency", 0.8)
    assert (done.exit_code, "1 passed of 1" in done.output) == (0, True), done.output


def test_a_part_that_fails_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no table")

    monkeypatch.setattr(efficiency, "columns", broken)
    folder = scaled(tmp_path / "s", (2, 0.3))
    file = tmp_path / "check.xml"
    done = call(folder, "--min-efficiency", 0.8, "--min-accuracy", 0.7, "--junit", file)
    assert done.exit_code == 3, done.output
    assert "2 passed, 1 undecided of 3" in done.output and "ValueError: no table" in done.output
    assert [suite.get("errors") for suite in Xml.parse(file).getroot()] == ["1", "0"]


def test_an_interval_that_is_cut_has_to_pass_at_twice_its_width(tmp_path: Path) -> None:
    """Of 0.975 (0.921 to 1): from 0.867 on."""
    folder = write_sweep(tmp_path / "s", runs(2, [0.9] * 3, [0.95, 0.985, 0.99]))
    done = call(folder, "--min-accuracy", 0.9)
    assert done.exit_code == 3 and "cut at 1" in done.output, done.output
    assert call(folder, "--min-accuracy", 0.85).exit_code == 0


@pytest.mark.parametrize("diverged", [1, 3])
def test_diverged_runs_pass_no_efficiency(tmp_path: Path, diverged: int) -> None:
    items = [one for n in (1, 2) for one in runs(n, [0.99, 1.0, 1.01])]
    gone = [record(config(gpus=4, seed=seed), status="diverged", accuracies=[0.1, None])
            for seed in range(diverged)]  # fmt: skip
    items += [*gone, *runs(4, [0.99, 1.0, 1.01])[diverged:]]
    done = call(write_sweep(tmp_path / "s", items), "--min-efficiency", 0.8)
    assert done.exit_code == (1 if diverged == 3 else 3), done.output
    assert (
        "every run diverged" if diverged == 3 else "of 3 planned runs: 1 diverged"
    ) in done.output


def test_each_batch_that_fails_is_named(tmp_path: Path) -> None:
    """Batch 32 of two ranks and batch 64 of four; of each, the first count that fails."""
    items = [record(config("lamb", gpus=gpus, seed=seed, batch_per_rank=batch // gpus),
                    accuracies=[0.3, 0.4, 0.5 + seed / 100])
             for gpus, batch in ((2, 32), (2, 64), (4, 64)) for seed in range(3)]  # fmt: skip
    done = call(write_sweep(tmp_path / "s", items), "--min-accuracy", 0.7)
    assert done.exit_code == 1
    failures = [line for line in done.output.splitlines() if line.startswith("Failed")]
    assert len(failures) == 2, done.output
    assert "at 2 ranks, batch 32" in failures[0] and "at 2 ranks, batch 64" in failures[1]
