"""Against a baseline: what is a regression, what is undecided, what exit code and JUnit say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from analysis.records import cache
from analysis.records.frames import Frames
from analysis.records.load import load_frames
from analysis.topics.comparisons import changes
from tests.analysis.builders import config, failed, record, write_sweep
from train.record.run import RunRecord

RATES = (100.0, 101.0, 102.0)


def check(before: Path, after: Path, *more: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, (after, "--baseline", before, *more))])


def runs(
    rates: Sequence[float] = RATES, accuracy: float = 0.8, name: str = "naive",
    step: float = 0.002, of: dict[str, Any] | None = None, **changes: Any,
) -> list[RunRecord]:  # fmt: skip
    """A run of two ranks per throughput, each ``step`` more accurate than the one before."""
    return [
        record(config(name, **{"seed": seed, "gpus": 2, **(of or {})}), images_per_s=rate,
               **{"accuracies": [0.1, 0.2, accuracy + step * seed], **changes})
        for seed, rate in enumerate(rates)
    ]  # fmt: skip


def compared(
    folder: Path, before: Sequence[RunRecord], after: Sequence[RunRecord], *more: object
) -> Result:
    names = dict.fromkeys(item.config.technique.name for item in [*before, *after])
    sweeps = [write_sweep(folder / name, items, techniques=[*names])
              for name, items in (("a", before), ("b", after))]  # fmt: skip
    return check(*sweeps, *more)


SYNTHETIC = {"of": {"dataset": "synthetic"}, "accuracies": [None] * 3}
CASES = {
    "equal": (runs(), runs(), 0, "no loss shown"),
    "slower": (runs(), runs([60.0, 61.0, 62.0]), 1, "slower"),
    "faster": (runs([60.0, 61.0, 62.0]), runs(), 0, "no loss shown"),
    "less accurate": (runs(), runs(accuracy=0.7), 1, "less accurate"),
    "single runs": (runs([100.0]), runs([50.0]), 3, "n=1"),
    # the ratio may be 0.01; the accuracy may be 0.0115 lower, where 0.01 matters
    "wide ratio": (runs(), runs([40.0, 70.0]), 3, "undecided"),
    "wide difference": (runs(), runs(accuracy=0.793), 3, "undecided"),
    "no spread": (runs(step=0), runs(accuracy=0.5, step=0), 3, "undecided"),
    "equal bit for bit": (runs(step=0), runs(step=0), 0, "no loss shown"),
    "never measured": (runs(**SYNTHETIC), runs(**SYNTHETIC), 0, "no loss shown"),
    "one is open": (
        [*runs(), *runs([100.0], name="lamb")], [*runs(), *runs([20.0], name="lamb")],
        3, "no loss shown",
    ),
    "lost": (runs(), [failed(one.config) for one in runs()], 1, "no completed run now"),
    "not planned": ([*runs(), *runs(name="lamb")], runs(), 3, "not planned now"),
    "nothing in common": (runs(), runs(name="lamb"), 3, "not planned now"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_what_is_a_regression_and_what_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(cache, "WORTH_IT", 1)
    (before, after, code, said), file = CASES[kind], tmp_path / "x.xml"
    done = compared(tmp_path, before, after, "--junit", file)
    verdicts = done.output + file.read_text()
    assert done.exit_code == code and said in verdicts, verdicts
    assert not [*tmp_path.glob("*/report")], "nothing is written beside the records"


def lose(items: list[RunRecord], lost: int, **error: str) -> list[RunRecord]:
    """The first runs diverge and fail in turns; with ``error``, end so."""
    gone = [
        failed(item.config, **error) if error or place % 2
        else record(item.config, status="diverged")
        for place, item in enumerate(items[:lost])
    ]  # fmt: skip
    return [*gone, *items[lost:]]


@pytest.mark.parametrize(
    ("count", "code", "said"), [(12, 1, "loses more runs"), (4, 3, "more runs lost, by chance")]
)
def test_more_runs_lost_is_no_pass(tmp_path: Path, count: int, code: int, said: str) -> None:
    """Half of them; the others look as good as before. Fisher's exact test: p 0.007 and 0.21."""
    items = runs(np.linspace(100, 101, count), step=0)
    done = compared(tmp_path, items, lose(items, count // 2))
    assert done.exit_code == code, done.output
    assert "0 % / 50 %" in done.output and said in done.output
    assert "more runs" not in check(tmp_path / "b", tmp_path / "a").output


def test_lost_runs_are_in_the_family_of_all_conditions(tmp_path: Path) -> None:
    """4 of 6 lost: p 0.03 alone. The gate once failed in every third sweep that lost no more."""
    several = [runs(np.linspace(100, 101, 6), name=name) for name in ("naive", "lamb", "lars")]
    before, after = ([one for own in (first, *several[1:]) for one in own]
                     for first in (several[0], lose(several[0], 4)))  # fmt: skip
    done = compared(tmp_path, before, after)
    assert done.exit_code == 3 and "more runs lost, by chance or not" in done.output, done.output
    assert compared(tmp_path, several[0], lose(several[0], 5)).exit_code == 1, "p 0.008 of three"


@pytest.mark.parametrize("status", ["cancelled", "preempted"])
def test_a_run_that_was_ended_from_outside_is_not_lost_and_not_done(
    tmp_path: Path, status: str
) -> None:
    items, file = runs(np.linspace(100, 101, 6)), tmp_path / "x.xml"
    done = compared(tmp_path, items, lose(items, 1, status=status), "--junit", file)
    assert done.exit_code == 3 and "0 % / 0 %" in done.output, done.output
    assert "1 of 6 planned runs have no record, or were cancelled or pre" in file.read_text()


OTHER_DATA = record(config(gpus=2)).data.model_copy(update={"fingerprint": "0" * 64})
NODES = {"nodes": 2, "hostnames": ("node1", "node2")}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (runs([50.0, 51.0, 52.0], world_changes=NODES), "nodes: 1 (before), 2 (after)"),
        (
            runs([50.0, 51.0, 52.0], world_changes={"oversubscribed": True}),
            "shared cores: no",
        ),
        (runs(accuracy=0.5, data=OTHER_DATA), "data: ffff"),
        (
            runs(world_changes={"device": "Other CPU"}),
            "device: Test CPU (before), Oth",
        ),
    ],
)
def test_what_is_not_the_program_s_is_no_regression(
    tmp_path: Path, after: list[RunRecord], said: str
) -> None:
    done = compared(tmp_path, runs(), after, "--junit", tmp_path / "junit.xml")
    assert done.exit_code == 3, done.output
    file = (tmp_path / "junit.xml").read_text()
    assert said in file and "<failure" not in file


def test_each_condition_is_a_case_of_junit(tmp_path: Path) -> None:
    before, after = (
        [*runs(naive), *runs([lamb], name="lamb"), *runs(name="lars")]
        for naive, lamb in ((RATES, 100.0), ([60.0, 61.0, 62.0], 50.0))
    )
    file = tmp_path / "check.xml"
    done = compared(tmp_path, before, after, "--junit", file)
    assert done.exit_code == 1 and "1 passed, 1 failed, 1 undecided of 3." in done.output
    assert "Failed: change of naive at 2 ranks, batch 32: throughput ratio 0.60 (" in done.output
    assert "Undecided: change of lamb at 2 ranks, batch 32: throughput" in done.output
    (suite,) = Xml.parse(file).getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    (worse,) = suite.iter("failure")
    assert worse.get("message") == "slower" and "throughput ratio 0.60 (" in worse.text
    assert compared(tmp_path, [], after, "--junit", file).exit_code == 3
    (suite,) = Xml.parse(file).getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1"), "nothing is no pass"


def of_conditions(folder: Path, count: int) -> tuple[Frames, Frames]:
    """Two sweeps of three runs and many conditions, which differ in their names."""
    pair = []
    for name in ("before", "after"):
        one = load_frames(write_sweep(folder / f"{name}{count}", runs()), cache=False)
        each = np.repeat(np.arange(count), 3)
        made = {}
        for frame in ("runs", "planned"):
            rows = pd.concat([getattr(one, frame)] * count, ignore_index=True)
            names = pd.array([f"condition {number}" for number in each], dtype="string")
            made[frame] = rows.assign(condition=names, context=names)
        pair.append(replace(one, **made))
    return pair[0], pair[1]


def test_thousands_of_conditions_take_seconds(tmp_path: Path) -> None:
    """Of processors, generously: looking up each in all runs takes a minute."""
    before, after = of_conditions(tmp_path, 5_000)
    began = time.process_time()
    assert len(changes.table(before, after).data) == 5_000
    assert time.process_time() - began < 15
