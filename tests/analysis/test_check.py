"""analysis check: thresholds are judged by intervals; the exit code is that of the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from typer.testing import CliRunner, Result

from analysis import check
from analysis.__main__ import app
from analysis.topics.comparisons import changes
from analysis.topics.scaling import efficiency
from tests.analysis.builders import config, record, write_sweep
from tests.analysis.planned import seeds, sweep
from train.config.run import RunConfig
from train.record.run import RunRecord

NO_RUN = "no usable run of a planned condition."


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, words)])


def runs(gpus: int, rates: Sequence[float], accuracies: Sequence[float] = (),
         name: str = "naive", diverged: int = 0) -> list[RunRecord]:  # fmt: skip
    """A run per rate, given as its efficiency against 100 images/s of one rank; the first
    ``diverged`` of them diverged."""
    found = accuracies or [0.8 + seed / 100 for seed in range(len(rates))]
    return [
        record(config(name, gpus=gpus, seed=seed), images_per_s=100 * gpus * rate,
               status="diverged" if seed < diverged else "completed",
               accuracies=[0.1, None] if seed < diverged else [0.3, 0.5, reached])
        for seed, (rate, reached) in enumerate(zip(rates, found, strict=True))
    ]  # fmt: skip


def scaled(**efficiencies: float) -> list[RunRecord]:
    """Three runs of each rank count."""
    each = [runs(int(n[1:]), [e - 0.01, e, e + 0.01]) for n, e in efficiencies.items()]
    return [one for own in each for one in own]


def reached(*accuracies: float, name: str = "naive") -> list[RunRecord]:
    return runs(2, [0.9] * len(accuracies), accuracies, name)


def lost(gpus: int, count: int = 5, name: str = "naive") -> list[RunConfig]:
    return seeds(name, count + 3, gpus=gpus)[3:]


EVEN = [0.99, 1.0, 1.01]


@pytest.mark.parametrize(
    ("items", "gone", "code", "said"),
    [
        (scaled(r1=1, r2=0.95, r4=0.9), [], 0, "2 passed of 2."),
        (scaled(r1=1, r2=0.95, r4=0.7, r8=0.6), [], 1, "Failed: efficiency of naive (weak, 16 "
         "per rank) at 4 ranks, batch 64: 0.700 (0.680 to 0.721), 6 runs, threshold 0.8; 4 ranks: "
         "the first count that fails.\n1 passed, 2 failed of 3."),
        (scaled(r1=1, r2=0.95, r4=0.8), [], 3, "Undecided: efficiency of naive (weak, 16 per "
         "rank) at 4 ranks"),
        # of a plan that begins at two ranks, of one count alone, of runs that were lost
        (scaled(r2=1, r4=1), [], 0, "1 passed of 1."),
        (scaled(r1=1), [], 3, ": no baseline: no other rank count"),
        (scaled(r1=1, r4=0.95), lost(4), 3, "of 11 planned runs with those of its baseline: "
         "5 not usable."),
        (scaled(r1=1, r4=0.95), lost(1), 3, "of 11 planned runs with those of its baseline: "
         "5 not usable."),
        (scaled(r2=0.5, r4=0.5), lost(1), 3, f"at 1 rank, batch 16: n/a, threshold 0.8: "
         f"{NO_RUN}\n1 passed, 1 undecided of 2."),
        ([*scaled(r1=1, r2=0.95), *runs(4, EVEN, diverged=1)], [], 3,
         "of 6 planned runs with those of its baseline: 1 diverged."),
        ([*scaled(r1=1, r2=0.95), *runs(4, EVEN, diverged=3)], [], 1, "1 passed, 1 failed"),
        ([], [], 3, "Undecided: efficiency of every condition: n/a, threshold 0.8: nothing of "
         "the kind was measured."),
    ],
)  # fmt: skip
def test_efficiency_is_judged_by_its_interval(
    items: list[RunRecord], gone: list[RunConfig], code: int, said: str
) -> None:
    found = check.table(sweep(items, lost=gone).frames, {"efficiency": 0.8})
    text = "\n".join(check.sentences(found))
    assert (check.exit_code([found]), said in text) == (code, True), text


@pytest.mark.parametrize(
    ("items", "plan", "least", "code", "said"),
    [
        (reached(0.80, 0.81, 0.82), {}, 0.7, 0, "1 passed of 1."),
        (reached(0.50, 0.51, 0.52, name="lamb"), {}, 0.7, 1, "Failed: accuracy of lamb at 2 ranks"),
        (reached(0.60, 0.72, 0.84), {}, 0.7, 3, "the threshold lies in the interval."),
        (reached(0.90), {}, 0.7, 3, ": n=1."),
        (reached(0.8, 0.8), {}, 0.7, 3, "the runs are identical"),
        # cut at 1, it has to pass at twice its width: of 0.975 (0.921 to 1) from 0.867 on
        (reached(0.95, 0.985, 0.99), {}, 0.9, 3, "cut at 1"),
        (reached(0.95, 0.985, 0.99), {}, 0.85, 0, "1 passed of 1."),
        # no evidence is no pass
        (reached(0.80, 0.81, 0.82), {"lost": lost(4)}, 0.7, 3, NO_RUN),
        (reached(0.80, 0.81, 0.82), {"unknown": 1}, 0.7, 3, "accuracy of cells of an unknown conf"),
        (reached(0.80, 0.81, 0.82), {"lost": lost(2)}, 0.7, 3, "of 8 planned runs: 5 not usable."),
        (runs(2, EVEN, diverged=1), {}, 0.7, 3, "of 3 planned runs: 1 diverged."),
        (runs(2, EVEN, diverged=3), {}, 0.7, 1, "1 failed of 1."),
    ],
)  # fmt: skip
def test_accuracy_is_judged_by_its_interval(
    items: list[RunRecord], plan: dict, least: float, code: int, said: str
) -> None:
    found = check.table(sweep(items, **plan).frames, {"accuracy": least})
    text = "\n".join(check.sentences(found))
    assert (check.exit_code([found]), said in text) == (code, True), text


def test_each_batch_that_fails_is_named() -> None:
    """Batch 32 of two ranks and batch 64 of four; of each, the first count that fails."""
    items = [record(config("lamb", gpus=gpus, seed=seed, batch_per_rank=batch // gpus),
                    accuracies=[0.3, 0.4, 0.5 + seed / 100])
             for gpus, batch in ((2, 32), (2, 64), (4, 64)) for seed in range(3)]  # fmt: skip
    first, second, _ = check.sentences(check.table(sweep(items).frames, {"accuracy": 0.7}))
    assert "at 2 ranks, batch 32" in first and "at 2 ranks, batch 64" in second


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
    done = call(write_sweep(tmp_path / "s", scaled(r1=1)), *words)
    assert done.exit_code == 2, done.output
    assert call(tmp_path / "none", "--min-accuracy", "0.7").exit_code == 2


def test_junit_has_a_case_per_condition(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", scaled(r1=1, r2=0.95, r4=0.7, r8=0.8))
    words = ("--min-efficiency", 0.8, "--min-accuracy", 0.1, "--baseline", folder)
    done = call(folder, *words, "--junit", tmp_path / "check.xml")
    assert (
        done.exit_code == 1 and "4 undecided of 4." in done.output and "check: FAIL" in done.output
    )
    suites = Xml.parse(tmp_path / "check.xml").getroot()
    counts = [(s.get("name"), s.get("tests"), s.get("failures"), s.get("errors")) for s in suites]
    assert counts == [
        ("efficiency", "3", "1", "1"), ("accuracy", "4", "0", "0"), ("change", "4", "0", "4")
    ]  # fmt: skip
    (case,) = [one for one in suites.iter("testcase") if one.find("failure") is not None]
    assert case.get("name") == "efficiency of naive (weak, 16 per rank) at 4 ranks, batch 64"


def test_a_sweep_that_has_not_ended_is_not_as_good_as_its_baseline() -> None:
    whole = runs(2, [0.999, 1.0, 1.001, 1.002], [0.8, 0.801, 0.802, 0.803])
    found = changes.table(sweep(whole).frames, sweep(whole, lost=seeds("naive", 5)[4:]).frames)
    assert check.exit_code([found]) == 3
    said, _ = check.sentences(found)
    assert ": 1 of 5 planned runs have no record, or were cancelled or preempted" in said


def test_a_part_that_fails_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no table")

    monkeypatch.setattr(efficiency, "columns", broken)
    frames = sweep(scaled(r1=1, r2=0.3)).frames
    found = check.table(frames, {"efficiency": 0.8, "accuracy": 0.7})
    text = "\n".join(check.sentences(found))
    assert check.exit_code([found]) == 3 and "ValueError: no table" in text
    assert "2 passed, 1 undecided of 3." in text
