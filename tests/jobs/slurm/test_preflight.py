"""The preflight, from the login node: how large it is, whom a good one serves, what holds cells."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.container import Image
from jobs.config.site import NodeLayout, Site
from jobs.slurm import preflight as module
from jobs.slurm.job.task import Problem
from jobs.slurm.preflight import Preflight, earlier_preflight, preflight_layout
from jobs.slurm.submissions import Array, array_folder, comment_of, read_notes
from jobs.slurm.submit import submit_preflight
from tests.jobs.slurm.fakes import PROBLEM, context, fake_slurm, in_queue, report_preflight

TWO_NODES = NodeLayout(2, 4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the report of a preflight that sweep a has submitted, as job 101."""
    monkeypatch.setenv("PATH", fake_slurm(tmp_path / "bin").path)
    job, folder = submit_preflight(context(tmp_path / "results" / "a"), TWO_NODES)
    assert job == "101" and folder.parent == tmp_path / "results" / "preflight"
    return folder


def other(folder: Path) -> Any:
    """Another sweep in the same folder of results."""
    return context(folder.parent.parent / "b")


@pytest.mark.parametrize(
    ("shapes", "layout"),
    [([(1, 4)], (1, 4)), ([(1, 1), (2, 8)], (2, 8)), ([(1, 8), (16, 4)], (2, 4))],
)
def test_two_nodes_at_most_with_the_ranks_of_the_largest(
    shapes: list[tuple[int, int]], layout: tuple[int, int]
) -> None:
    arrays = [Array(units=[["a"]], nodes=n, ranks_per_node=r, minutes=60) for n, r in shapes]
    assert preflight_layout(arrays) == NodeLayout(*layout)


def test_the_sweep_that_submitted_it_finds_its_job(folder: Path) -> None:
    sweep = folder.parent.parent / "a"
    (note,) = read_notes(sweep)[0]
    assert (note.kind, note.run, note.arrays[0].job_id) == ("preflight", folder.name, "101")
    script = (array_folder(sweep, note.run, "preflight") / "submission.sh").read_text()
    assert f"--comment={comment_of(note.run, 'preflight')}\n" in script and "--nodes=2" in script


@pytest.mark.parametrize(
    ("change", "serves"),
    [
        ({"pack": 4}, True),
        ({"site": Site(ranks_per_node=1, requeue=False)}, True),
        ({"root": Path("/elsewhere/0123")}, True),
        ({"root": Path("/elsewhere/4567")}, False),
        ({"site": Site(ranks_per_node=1, time_min=7)}, False),
        ({"image": Image("/i.sif", "d")}, False),
        ({"data": Path("/d")}, False),
        ({"store": Path("/d")}, False),
        ({"folders": ("/d",)}, False),
        ({"cluster": "c"}, False),
    ],
)
def test_what_a_good_one_has_to_share_with_a_sweep(change: dict[str, Any], serves: bool) -> None:
    one, two = context(Path("/a")), context(Path("/b"), **change)
    assert (one.preflight_key == two.preflight_key) == serves


def test_another_python_is_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    key = context(Path("/a")).preflight_key
    monkeypatch.setattr(sys, "executable", "/other/python")
    assert context(Path("/a")).preflight_key != key


@pytest.mark.parametrize(
    ("asked", "age", "problems", "serves"),
    [
        ((2, 4), timedelta(hours=23), [], True),
        ((1, 1), timedelta(0), [], True),
        ((2, 8), timedelta(0), [], False),
        ((2, 4), timedelta(hours=25), [], False),
        ((2, 4), timedelta(0), [PROBLEM], False),
    ],
)
def test_a_good_one_serves_all_sweeps_for_a_day(
    folder: Path, asked: tuple[int, int], age: timedelta, problems: list[Problem], serves: bool
) -> None:
    report_preflight(folder, *problems, age=age)
    served = Preflight("101", folder) if serves else None
    assert earlier_preflight(other(folder), NodeLayout(*asked), {}) == served


@pytest.mark.parametrize(
    ("state", "comment", "serves"),
    [
        ("PENDING", "", True),
        ("RUNNING", "horoscale:{run}:preflight", True),
        ("COMPLETED", "", False),
        ("RUNNING", "horoscale:r0:0", False),
    ],
)
def test_one_that_has_not_ended_serves_all_sweeps(
    folder: Path, state: str, comment: str, serves: bool
) -> None:
    """Else each sweep, and each make sweep after a refusal, would leave one more."""
    queue = in_queue({"101": state}, comment=comment.format(run=folder.name))
    served = Preflight("101", folder) if serves else None
    assert earlier_preflight(other(folder), TWO_NODES, queue) == served


def test_its_report_decides_once_it_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preflight, running = Preflight("101", folder), in_queue({"101": "RUNNING"})
    assert preflight.outcome(running) == "alive"
    assert preflight.outcome({}) == "unseen", "it may be seen later"
    report_preflight(folder)
    assert preflight.outcome({}) == preflight.outcome(running) == "passed"
    report_preflight(folder, PROBLEM)
    assert preflight.outcome({}) == "failed"
    (folder / "report.json").unlink()
    monkeypatch.setattr(module, "UNSEEN_S", 0.0)
    assert preflight.outcome({}) == "left no report"
