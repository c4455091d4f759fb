"""The preflight, from the login node: how large it is, whom a good one serves, what holds cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.container import Image
from jobs.config.site import Site
from jobs.slurm import preflight as module
from jobs.slurm.arrays import Array, NodeLayout
from jobs.slurm.job.task import PreflightReport, Problem
from jobs.slurm.preflight import (
    Gate,
    key_of,
    preflight_shape,
    submit_preflight,
)
from jobs.slurm.submissions import array_folder, comment_of, read_notes
from tests.jobs.slurm.fakes import context, fake_slurm, in_queue

PROBLEM = Problem(node="n", check="c", found="f", expected="e", fix="x")


def array(nodes: int, ranks: int) -> Array:
    return Array(units=(("a",),), nodes=nodes, ranks_per_node=ranks, minutes=60)


TWO_NODES = array(2, 4)


@pytest.fixture(autouse=True)
def _slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fake_slurm(tmp_path / "bin").path)


def report(folder: Path, *problems: Problem, age: timedelta = timedelta(0)) -> None:
    found = PreflightReport(
        key="k", job="101", at=datetime.now(UTC) - age, seconds=1, nodes=("n1", "n2"),
        versions={}, problems=problems,
    )  # fmt: skip
    (folder / "report.json").write_text(found.model_dump_json())


@pytest.mark.parametrize(
    ("shapes", "nodes", "ranks"),
    [([(1, 4)], 1, 4), ([(1, 1), (2, 8)], 2, 8), ([(1, 8), (16, 4)], 2, 4)],
)
def test_two_nodes_at_most_with_the_ranks_of_the_largest(
    shapes: list[tuple[int, int]], nodes: int, ranks: int
) -> None:
    assert preflight_shape([array(*shape) for shape in shapes]) == NodeLayout(nodes, ranks)


def test_where_things_are(tmp_path: Path) -> None:
    """The sweep that submitted it finds its job; the report is for all sweeps."""
    sweep = tmp_path / "results" / "a"
    job, folder = submit_preflight(context(sweep), NodeLayout(2, 4))
    assert job == "101" and folder.parent == tmp_path / "results" / "preflight"
    (note,) = read_notes(sweep)[0]
    assert (note.kind, note.run, note.arrays[0].job_id) == ("preflight", folder.name, "101")
    script = (array_folder(sweep, note.run, "preflight") / "submission.sh").read_text()
    assert f"--comment={comment_of(note.run, 'preflight')}\n" in script and "--nodes=2" in script


@pytest.mark.parametrize(
    ("change", "serves"),
    [
        ({}, True),
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
def test_what_a_good_one_has_to_share_with_a_sweep(
    tmp_path: Path, change: dict[str, Any], serves: bool
) -> None:
    one, other = context(tmp_path / "a"), context(tmp_path / "b", **change)
    assert (key_of(one) == key_of(other)) == serves


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
    tmp_path: Path, asked: tuple[int, int], age: timedelta, problems: list[Problem], serves: bool
) -> None:
    _, folder = submit_preflight(context(tmp_path / "a"), NodeLayout(2, 4))
    report(folder, *problems, age=age)
    gate = Gate(context(tmp_path / "b"), shut=True)
    assert gate.opens({}, [array(*asked)])
    assert gate.shut != serves and gate.job == (None if serves else "102")


@pytest.mark.parametrize(
    ("state", "comment", "used"),
    [
        ("PENDING", "", True),
        ("RUNNING", "horoscale:{run}:preflight", True),
        ("COMPLETED", "", False),
        ("RUNNING", "horoscale:r0:0", False),
    ],
)
def test_one_that_has_not_ended_serves_all_sweeps(
    tmp_path: Path, state: str, comment: str, used: bool
) -> None:
    """Else each sweep, and each make sweep after a refusal, would leave one more."""
    _, folder = submit_preflight(context(tmp_path / "a"), NodeLayout(2, 4))
    queue = in_queue({"101": state}, comment=comment.format(run=folder.name))
    gate = Gate(context(tmp_path / "b"), shut=True)
    assert gate.opens(queue, [TWO_NODES])
    assert gate.job == ("101" if used else "102") and gate.fresh != used
    report(folder)
    assert not used or (gate.opens(queue, [TWO_NODES]) and not gate.shut)


@pytest.mark.parametrize("problems", [None, [PROBLEM]])
def test_a_bad_one_holds_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: list[Problem] | None
) -> None:
    """Bad also when it died without a report, once that would have been seen."""
    gate = Gate(context(tmp_path / "a"), shut=True)
    assert gate.opens({}, [TWO_NODES]) and gate.fresh
    gate.fresh = False
    assert gate.opens(in_queue({"101": "RUNNING"}), [TWO_NODES])
    if problems is None:
        assert not gate.opens({}, [TWO_NODES]) and not gate.failure, "it may be seen later"
        monkeypatch.setattr(module, "UNSEEN_S", 0.0)
    else:
        (folder,) = (tmp_path / "preflight").iterdir()
        report(folder, *problems)
    assert not gate.opens({}, [TWO_NODES])
    assert ("failed" if problems else "left no report") in gate.failure
