"""compare: what is a regression, what is undecided, and what its exit code and JUnit say."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
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


def test_compare_with_more_runs_lost_is_one(tmp_path: Path) -> None:
    """The runs that are left look as good as before."""
    rates = [100.0, 101.0, 102.0, 103.0]
    before = paced(tmp_path / "a", rates)
    after = paced(tmp_path / "b", rates)
    paths = sorted(after.glob("*/record.json"))
    cell = read_record(paths[0])
    paths[0].write_text(record(cell.config, status="diverged").model_dump_json())
    paths[1].write_text(failed(read_record(paths[1]).config).model_dump_json())
    done = call("compare", before, after)
    assert done.exit_code == 1, done.output
    assert "loses more runs" in done.output and "0 % / 50 %" in done.output
    assert call("compare", after, before).exit_code == 0
    paths[0].unlink()
    paths[1].unlink()
    assert call("compare", before, after).exit_code == 0, "not run yet is no loss"


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
    assert (suite.get("name"), suite.get("failures"), suite.get("skipped")) == (
        "b after a",
        "1",
        "1",
    )
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        "naive, ranks 1, global batch 16": ["failure"],
        "lamb, ranks 1, global batch 16": ["skipped"],
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
    assert (suite.get("tests"), suite.get("skipped")) == ("1", "1")


def test_compare_with_no_sweep_is_two(tmp_path: Path) -> None:
    done = call("compare", good_sweep(tmp_path / "a"), tmp_path / "none")
    assert done.exit_code == 2 and "no such folder" in done.stderr
