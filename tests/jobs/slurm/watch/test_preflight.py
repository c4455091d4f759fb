"""The preflight, from the login node: how large it is, whom a good one serves, what holds cells."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.cell.container import Image
from jobs.cell.needs import Need
from jobs.config.site import NodeLayout, Site
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import report_of
from jobs.slurm.submissions import Array, array_folder, comment_of, read_notes
from jobs.slurm.submit import submit_preflight
from jobs.slurm.watch import preflight as module
from jobs.slurm.watch.preflight import Preflight, earlier_preflight, preflight_layout
from tests.jobs.slurm.fakes import PROBLEM, FakeSlurm, context, in_queue, report_preflight


@pytest.fixture
def folder(fake: FakeSlurm, tmp_path: Path) -> Path:
    """Of the report of a preflight that sweep a has submitted, as job 101."""
    job, folder = submit_preflight(context(tmp_path / "results" / "a"), NodeLayout(2, 4))
    assert job == "101" and folder.parent == tmp_path / "results" / "preflight"
    return folder


def earlier(
    folder: Path, queue: dict[str, JobState], *asked: int, sweep: str = "b"
) -> Preflight | None:
    """What a sweep in the same folder of results finds."""
    of = folder.parent.parent / sweep
    return earlier_preflight(context(of), NodeLayout(*asked or (2, 4)), read_notes(of), queue)


@pytest.mark.parametrize(
    ("shapes", "layout"),
    [([(1, 4)], (1, 4)), ([(1, 1), (2, 8)], (2, 8)), ([(1, 8), (16, 4)], (2, 4))],
)
def test_two_nodes_at_most_with_the_ranks_of_the_largest(shapes, layout) -> None:
    arrays = [Array(cells=["a"], nodes=n, ranks_per_node=r, minutes=60) for n, r in shapes]
    assert preflight_layout(arrays) == NodeLayout(*layout)


def test_the_sweep_that_submitted_it_finds_its_job(folder: Path) -> None:
    sweep = folder.parent.parent / "a"
    (note,) = read_notes(sweep)
    assert (note.kind, note.run, note.arrays[0].job_id) == ("preflight", folder.name, "101")
    script = (array_folder(sweep, note.run, "preflight") / "submission.sh").read_text()
    assert f"--comment={comment_of(note.run, 'preflight')}\n" in script and "--nodes=2" in script


@pytest.mark.parametrize(
    ("change", "serves"),
    [
        ({"site": Site(ranks_per_node=1, requeue=False)}, True),
        ({"root": Path("/elsewhere/0123")}, True),
        ({"root": Path("/elsewhere/4567")}, False),
        # another TIME= asks for no other preflight
        ({"site": Site(ranks_per_node=1, time_min=1)}, True),
        ({"site": Site(ranks_per_node=1, max_time_min=7)}, True),
        ({"site": Site(ranks_per_node=2)}, False),
        ({"image": Image("/i.sif", "d")}, False),
        ({"needs": (Need(what="the data set", path="/d"),)}, False),
        ({"needs": (Need(what="the results folder", path="/a/b", use="write"),)}, True),
        ({"cluster": "c"}, False),
    ],
)
def test_what_a_good_one_has_to_share_with_a_sweep(monkeypatch, change, serves) -> None:
    key = context(Path("/a")).preflight_key
    assert (key == context(Path("/b"), **change).preflight_key) == serves
    monkeypatch.setattr(sys, "executable", "/other/python")
    assert key != context(Path("/a")).preflight_key


@pytest.mark.parametrize(
    ("asked", "hours", "problems", "serves"),
    [
        ((2, 4), 23, [], True),
        ((1, 1), 0, [], True),
        ((2, 8), 0, [], False),
        ((2, 4), 25, [], False),
        ((2, 4), 0, [PROBLEM], False),
    ],
)
def test_a_good_one_serves_all_sweeps_for_a_day(folder, asked, hours, problems, serves) -> None:
    report_preflight(folder, *problems, age=timedelta(hours=hours))
    assert earlier(folder, {}, *asked) == (Preflight("101", folder) if serves else None)


@pytest.mark.parametrize(
    ("state", "comment", "serves"),
    [
        ("PENDING", "", True),
        ("RUNNING", "horoscale:{run}:preflight", True),
        ("COMPLETED", "", False),
        ("RUNNING", "horoscale:r0:0", False),
    ],
)
def test_one_that_has_not_ended_serves_its_sweep(folder, state, comment, serves) -> None:
    """Else each make sweep after a refusal would leave one more. Another sweep submits its own,
    which make cancel of this one does not take away."""
    queue = in_queue({"101": state}, comment=comment.format(run=folder.name))
    assert earlier(folder, queue, sweep="a") == (Preflight("101", folder) if serves else None)
    assert earlier(folder, queue) is None
    report_preflight(folder, PROBLEM)
    assert earlier(folder, queue, sweep="a") is None, "it has failed, and is only ending"


def test_a_report_of_an_earlier_version_is_read(folder: Path) -> None:
    report_preflight(folder, PROBLEM)
    old = json.loads((folder / "report.json").read_text())
    del old["ranks_per_node"]
    (folder / "report.json").write_text(json.dumps(old | {"key": "k", "seconds": 3.0}))
    report = report_of(folder.parent.parent / "a", "101")
    assert report is not None and report.problems == (PROBLEM,)


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
