"""compare: what is a regression, what is undecided, and what its exit code and JUnit say."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from analysis.records import cache
from analysis.records.frames import Frames
from analysis.records.load import load_frames
from analysis.stats.differences import holm
from analysis.topics.comparisons import changes
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_sweep
from train.record.run import read_record


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def paced(folder: Path, rates: list[float], accuracy: float = 0.8) -> Path:
    return write_sweep(folder, [
        record(config(seed=seed), images_per_s=rate, accuracies=[0.1, 0.2, accuracy + seed / 500])
        for seed, rate in enumerate(rates)
    ])  # fmt: skip


def test_compare_of_equal_measurements_is_zero(tmp_path: Path) -> None:
    rates = [100.0, 101.0, 102.0]
    done = call("compare", paced(tmp_path / "a", rates), paced(tmp_path / "b", rates))
    assert done.exit_code == 0, done.output
    assert "no change shown" in done.output


@pytest.mark.parametrize(
    ("rates", "accuracy", "said"),
    [([60.0, 61.0, 62.0], 0.8, "slower"), ([100.0, 101.0, 102.0], 0.7, "less accurate")],
)
def test_compare_with_a_worse_one_is_one(
    tmp_path: Path, rates: list[float], accuracy: float, said: str
) -> None:
    before = paced(tmp_path / "a", [100.0, 101.0, 102.0])
    done = call("compare", before, paced(tmp_path / "b", rates, accuracy))
    assert done.exit_code == 1, done.output
    assert said in done.output
    back = call("compare", tmp_path / "b", before)
    assert back.exit_code == 0, "better is no regression"


def test_compare_of_single_runs_is_three(tmp_path: Path) -> None:
    done = call("compare", paced(tmp_path / "a", [100.0]), paced(tmp_path / "b", [50.0]))
    assert done.exit_code == 3, done.output
    assert "undecided (n=1)" in done.output


def test_compare_with_a_condition_that_is_lost_is_one(tmp_path: Path) -> None:
    before = paced(tmp_path / "a", [100.0, 101.0])
    after = paced(tmp_path / "b", [100.0, 101.0])
    for file in after.glob("*/record.json"):
        file.unlink()
    done = call("compare", before, after)
    assert done.exit_code == 1 and "no completed run now" in done.output


def lose(folder: Path, runs: int, **error: str) -> Path:
    """The first runs of a sweep diverge and fail in turns; with ``error``, end so."""
    for place, path in enumerate(sorted(folder.glob("*/record.json"))[:runs]):
        asked = read_record(path).config
        gone = failed(asked, **error) if error or place % 2 else record(asked, status="diverged")
        path.write_text(gone.model_dump_json())
    return folder


@pytest.mark.parametrize(
    ("runs", "lost", "code", "said"),
    [(12, 6, 1, "loses more runs"), (4, 2, 3, "undecided (more runs lost, by chance or not")],
)
def test_compare_with_more_runs_lost_is_no_pass(
    tmp_path: Path, runs: int, lost: int, code: int, said: str
) -> None:
    """The runs that are left look as good as before. Fisher's exact test: p 0.007 and 0.21."""
    rates = [100.0 + seed / 10 for seed in range(runs)]
    before = paced(tmp_path / "a", rates)
    after = lose(paced(tmp_path / "b", rates), lost)
    done = call("compare", before, after)
    assert done.exit_code == code, done.output
    assert "0 % / 50 %" in done.output and said.split(" (", maxsplit=1)[0] in done.output
    assert "more runs" not in call("compare", after, before).output


@pytest.mark.parametrize("status", ["cancelled", "preempted"])
def test_a_run_that_was_ended_from_outside_is_not_lost_and_not_done(
    tmp_path: Path, status: str
) -> None:
    rates = [100.0 + seed / 10 for seed in range(6)]
    after = lose(paced(tmp_path / "b", rates), 1, status=status)
    file = tmp_path / "x.xml"
    done = call("compare", paced(tmp_path / "a", rates), after, "--junit", file)
    assert done.exit_code == 3 and "0 % / 0 %" in done.output, done.output
    assert "1 of 6 planned runs have no record, or were cancelled or pre" in file.read_text()


@pytest.mark.parametrize(
    ("rates", "accuracy"), [([40.0, 70.0], 0.8), ([100.0, 101.0, 102.0], 0.793)]
)
def test_what_an_interval_does_not_exclude_is_undecided(
    tmp_path: Path, rates: list[float], accuracy: float
) -> None:
    """The ratio may be 0.01; the accuracy may be 0.0115 lower, where 0.01 matters."""
    before = paced(tmp_path / "a", [100.0, 101.0, 102.0])
    done = call("compare", before, paced(tmp_path / "b", rates, accuracy))
    assert done.exit_code == 3, done.output


def test_other_accuracies_without_spread_are_undecided(tmp_path: Path) -> None:
    folders = [
        write_sweep(tmp_path / name, [
            record(config(seed=seed), images_per_s=100.0 + seed, accuracies=[0.1, 0.2, accuracy])
            for seed in range(3)
        ])
        for name, accuracy in (("a", 0.8), ("b", 0.5))
    ]  # fmt: skip
    assert call("compare", *folders).exit_code == 3
    assert call("compare", folders[0], folders[0]).exit_code == 0, "equal bit for bit"


def test_what_was_not_measured_before_is_not_asked_for_now(tmp_path: Path) -> None:
    """As of random labels, which have no accuracy."""
    folders = [
        write_sweep(tmp_path / name, [
            record(config(dataset="synthetic", seed=seed), images_per_s=100.0 + seed,
                   accuracies=[None] * 3)
            for seed in range(3)
        ])
        for name in ("a", "b")
    ]  # fmt: skip
    done = call("compare", *folders)
    assert done.exit_code == 0 and "no change shown" in done.output, done.output


def test_one_undecided_condition_is_no_pass(tmp_path: Path) -> None:
    def both(name: str, rate: float) -> Path:
        good = [record(config(seed=s), images_per_s=100.0 + s) for s in range(3)]
        return write_sweep(tmp_path / name, [*good, record(config("lamb"), images_per_s=rate)])

    done = call("compare", both("a", 100.0), both("b", 20.0))
    assert done.exit_code == 3 and "no change shown" in done.output, done.output


def test_a_condition_that_is_not_planned_now_is_named(tmp_path: Path) -> None:
    good = [record(config(seed=s), images_per_s=100.0 + s) for s in range(3)]
    lamb = [record(config("lamb", seed=s), images_per_s=100.0 + s) for s in range(3)]
    done = call("compare", write_sweep(tmp_path / "a", [*good, *lamb]),
                write_sweep(tmp_path / "b", good))  # fmt: skip
    assert done.exit_code == 3 and "not planned now" in done.output


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"world_changes": {"nodes": 2, "hostnames": ("node1", "node2")}}, "nodes 1 before, 2"),
        ({"world_changes": {"oversubscribed": True}}, "shared cores False before, True after"),
        ({"data": None}, "data ffff"),
    ],
)
def test_what_is_not_the_program_s_is_no_regression(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    def made(name: str, rate: float, accuracy: float, **changes: Any) -> Path:
        return write_sweep(tmp_path / name, [
            record(config(gpus=2, seed=s), images_per_s=rate + s,
                   accuracies=[0.1, 0.2, accuracy + s / 500], **changes)
            for s in range(3)
        ])  # fmt: skip

    lower = 0.8
    if "data" in changes:
        lower = 0.5
        changes = {"data": record(config(gpus=2)).data.model_copy(update={"fingerprint": "0" * 64})}
    slow = 100.0 if lower < 0.8 else 50.0
    done = call("compare", made("a", 100.0, 0.8), made("b", slow, lower, **changes))
    assert done.exit_code == 3, done.output
    assert said.split(maxsplit=1)[0] in done.output


def test_compare_of_two_devices_is_three(tmp_path: Path) -> None:
    rates = [100.0, 101.0, 102.0]
    before = paced(tmp_path / "a", rates)
    after = write_sweep(tmp_path / "b", [
        record(config(seed=seed), images_per_s=9 * rate, accuracies=[0.1, 0.2, 0.8 + seed / 500],
               world_changes={"device": "Another CPU"})
        for seed, rate in enumerate(rates)
    ])  # fmt: skip
    done = call("compare", before, after)
    assert done.exit_code == 3, done.output
    assert "Test CPU before, Another CPU after" in " ".join(done.output.split())


def test_compare_without_a_common_condition_is_three(tmp_path: Path) -> None:
    other = write_sweep(tmp_path / "b", [record(config("lamb"))])
    assert call("compare", paced(tmp_path / "a", [100.0, 101.0]), other).exit_code == 3


def test_compare_writes_junit(tmp_path: Path) -> None:
    rates = {"naive": ([100.0, 101.0, 102.0], [60.0, 61.0, 62.0]), "lamb": ([100.0], [50.0]),
             "lars": ([100.0, 101.0], [100.0, 101.0])}  # fmt: skip
    folders = [
        write_sweep(tmp_path / name, [
            record(config(technique, seed=seed), images_per_s=rate,
                   accuracies=[0.1, 0.2, 0.8 + seed / 500])
            for technique, both in rates.items() for seed, rate in enumerate(both[place])
        ], techniques=[*rates])
        for place, name in enumerate(("a", "b"))
    ]  # fmt: skip
    file = tmp_path / "compare.xml"
    assert call("compare", *folders, "--junit", file).exit_code == 1
    (suite,) = Xml.parse(file).getroot()
    assert (suite.get("name"), suite.get("failures"), suite.get("errors")) == (
        "b after a",
        "1",
        "1",
    )
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        "naive, ranks 1, global batch 16": ["failure"],
        "lamb, ranks 1, global batch 16": ["error"],
        "lars, ranks 1, global batch 16": [],
    }
    (worse,) = suite.iter("failure")
    assert worse.get("message") == "slower" and "throughput, after / before: 0.604 (" in worse.text
    assert call("compare", *folders, "--junit", tmp_path / "none" / "x.xml").exit_code == 2


def test_junit_of_nothing_to_compare_is_no_pass(tmp_path: Path) -> None:
    other = write_sweep(tmp_path / "b", [record(config("lamb"))])
    file = tmp_path / "compare.xml"
    before = paced(tmp_path / "a", [100.0, 101.0])
    assert call("compare", before, other, "--junit", file).exit_code == 3
    (suite,) = Xml.parse(file).getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")


def test_compare_writes_nothing_beside_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "WORTH_IT", 1)
    folders = [paced(tmp_path / name, [100.0, 101.0]) for name in ("a", "b")]
    call("compare", *folders)
    assert not any((folder / "report").exists() for folder in folders)


def test_compare_with_no_sweep_is_two(tmp_path: Path) -> None:
    done = call("compare", good_sweep(tmp_path / "a"), tmp_path / "none")
    assert done.exit_code == 2 and "no such folder" in done.stderr


def of_conditions(folder: Path, count: int) -> tuple[Frames, Frames]:
    """Two sweeps of three runs and many conditions, which differ in their names."""
    random, pair = np.random.default_rng(count), []
    for name in ("before", "after"):
        one = load_frames(paced(folder / f"{name}{count}", [100.0, 101.0, 102.0]), cache=False)
        each = np.repeat(np.arange(count), 3)
        made = {}
        for frame in ("runs", "planned"):
            rows = pd.concat([getattr(one, frame)] * count, ignore_index=True)
            names = pd.array([f"condition {number}" for number in each], dtype="string")
            made[frame] = rows.assign(condition=names, context=names)
        noise = random.lognormal(0, 0.02, 3 * count)
        runs = made["runs"].assign(images_per_s=made["runs"]["images_per_s"] * noise)
        pair.append(replace(one, runs=runs, planned=made["planned"]))
    return pair[0], pair[1]


def test_each_condition_is_tested_as_by_itself(tmp_path: Path) -> None:
    before, after = of_conditions(tmp_path, 5)
    found = changes.table(before, after).data
    p = []
    for row in found.itertuples():
        now, then = (
            np.log(one.runs.loc[one.runs["condition"] == row.context, "images_per_s"].astype(float))
            for one in (after, before)
        )
        test = stats.ttest_ind(now, then, equal_var=False)
        low, high = np.exp(test.confidence_interval(0.95))
        assert (row.ratio_low, row.ratio_high) == pytest.approx((low, high))
        assert row.ratio == pytest.approx(np.exp(now.mean() - then.mean()))
        p.append(test.pvalue)
    alike = [1.0] * 5  # of accuracy, with equal runs before and now
    assert found["ratio_p"].tolist() == pytest.approx(list(holm([*p, *alike])[:5]))


def test_thousands_of_conditions_take_seconds(tmp_path: Path) -> None:
    """Of processors, generously: looking up each in all runs takes a minute."""
    before, after = of_conditions(tmp_path, 5_000)
    began = time.process_time()
    assert len(changes.table(before, after).data) == 5_000
    assert time.process_time() - began < 15


@pytest.mark.parametrize("device", ["slower than before", "loses more runs", "less accurate"])
def test_the_name_of_a_device_is_no_verdict(tmp_path: Path, device: str) -> None:
    before = paced(tmp_path / "a", [100.0, 101.0])
    after = write_sweep(tmp_path / "b", [
        record(config(seed=seed), images_per_s=100.0 + seed, world_changes={"device": device},
               accuracies=[0.1, 0.2, 0.8 + seed / 500])
        for seed in range(2)
    ])  # fmt: skip
    done = call("compare", before, after, "--junit", tmp_path / "junit.xml")
    assert done.exit_code == 3, done.output
    assert "<failure" not in (tmp_path / "junit.xml").read_text()
