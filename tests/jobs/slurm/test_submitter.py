"""Which cells are submitted when: room in the queue, the preflight, refusals, make cancel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.state import CellState
from jobs.config.site import Site
from jobs.slurm import submitter as module
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import UNCLEAR, Array, RunNote
from jobs.slurm.submitter import Submitter
from jobs.slurm.watch.cancel import announce_cancel
from jobs.slurm.watch.preflight import Preflight
from tests.builders import config, record
from tests.jobs.slurm.fakes import PROBLEM, context, in_queue, note, report_preflight
from tests.opened import opened
from tests.unreadable import unreadable
from train.config.run import RunConfig


class Sbatch:
    """A stand-in of submit_cells: what each array meets, and what was submitted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.errors: list[SlurmError | OSError | None] = []  # None, or no more: it is accepted
        self.sent: list[tuple[int, str | None]] = []  # cells of an array, and its preflight
        self.ended: list[str] = []  # jobs that were cancelled
        self.limit: int | None = None  # that the cluster names
        self.before: Callable[[], None] = lambda: None
        patch.setattr(module, "submit_cells", self.submit_cells)
        patch.setattr(module, "submit_limit", lambda *_: self.limit)
        patch.setattr(module, "cancel", self.cancel)

    def submit_cells(self, context, array, cells, preflight, avoid) -> str:
        self.before()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.sent.append((len(array.cells), preflight))
        return "9"

    def cancel(self, jobs, *_, **__) -> str:
        self.ended += jobs
        return ""


@pytest.fixture
def sbatch(monkeypatch: pytest.MonkeyPatch) -> Sbatch:
    return Sbatch(monkeypatch)


@pytest.fixture
def preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Any preflight is job 6; the function writes its report."""
    monkeypatch.setattr(module, "submit_preflight", lambda *_: ("6", tmp_path))
    return partial(report_preflight, tmp_path)


class Sweep(Submitter):
    """One that says how many cells it has just submitted."""

    def turn(self, queue: dict[str, JobState], *notes: RunNote) -> int:
        self.sent: dict[str, RunConfig] = {}
        self.more(queue, notes, self.sent)
        return len(self.sent)


def submitter(
    folder: Path, cells: int = 6, ranks: tuple[int, ...] = (1,), *, limit: int | None = None,
    held: bool = False, **more: Any,
) -> Sweep:  # fmt: skip
    """Of a sweep with so many cells of each number of ranks."""
    configs = [config(seed=seed, gpus=count) for count in ranks for seed in range(cells)]
    todo = [CellState(one, folder / one.cell_id(), "new") for one in configs]
    site = Site(ranks_per_node=1, submit_limit=limit)
    return Sweep(context(folder, site), todo, held, **more)


def others(count: int, preflight: str | None = None) -> dict[str, JobState]:
    """The user's jobs: so many of other sweeps, and the preflight."""
    states = {str(100 + number): "RUNNING" for number in range(count)}
    return in_queue(states | ({"6": preflight} if preflight else {}))


def refused(words: str, *, passing: bool = False) -> SlurmError:
    error = SlurmError("sbatch", words, passing=passing)
    error.refused = True
    return error


def test_one_preflight_for_all_waves(tmp_path: Path, sbatch: Sbatch, preflight) -> None:
    sweep = submitter(tmp_path, limit=3, held=True)
    assert sweep.turn({}) == 2, "the preflight is a job in the queue, too"
    assert sweep.turn(others(2, "RUNNING")) == 0, "no room"
    assert sweep.turn(others(1, "RUNNING")) == 1, "it has not ended: they wait for it"
    preflight()
    assert sweep.turn(others(1, "COMPLETED")) == 2
    assert sweep.turn(others(3)) == 0, "jobs of other sweeps count: the limit is the user's"
    assert sbatch.sent == [(2, "6"), (1, "6"), (2, None)]
    assert sweep.waits()


def test_nothing_more_after_a_bad_preflight(tmp_path: Path, sbatch: Sbatch, preflight) -> None:
    sweep = submitter(tmp_path, limit=3, held=True)
    sweep.turn({})
    preflight(PROBLEM)
    assert sweep.turn({}) == 0 and not sweep.waits()


def test_how_a_preflight_ended_that_left_no_report_is_named(
    tmp_path: Path, sbatch: Sbatch, preflight, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """An administrator cancelled it, say."""
    monkeypatch.setattr(Preflight, "outcome", lambda *_: "left no report")
    monkeypatch.setattr(module, "end_of", lambda job, _: f"job {job}: it was cancelled")
    sweep = submitter(tmp_path, 2, limit=2, held=True)
    assert sweep.turn({}) == 1
    assert sweep.turn({}) == 0 and not sweep.waits()
    words = "the preflight, job 6, left no report (job 6: it was cancelled)"
    assert words in capsys.readouterr().err


def test_a_preflight_that_finds_no_room_waits_as_cells_do(
    tmp_path: Path, sbatch: Sbatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other jobs of the user filled the queue: nothing more was submitted, for good."""
    answers: list[Any] = [refused("QOSMaxSubmitJobPerUserLimit"), ("6", tmp_path)]

    def submit(*_) -> tuple[str, Path]:
        if isinstance(answer := answers.pop(0), SlurmError):
            raise answer
        return answer

    monkeypatch.setattr(module, "submit_preflight", submit)
    sbatch.limit = 2
    sweep = submitter(tmp_path, 1, held=True)
    assert sweep.turn(others(2)) == 0 and sweep.waits()
    assert sweep.turn(others(2)) == 0 and len(answers) == 1, "no room"
    assert sweep.turn({}) == 1 and sbatch.sent == [(1, "6")]


@pytest.mark.parametrize("recent", [True, False])
def test_a_preflight_that_sbatch_may_have_accepted_is_not_submitted_again(
    tmp_path: Path, sbatch: Sbatch, preflight, recent: bool
) -> None:
    """A slow controller got one more at each try."""
    sent = datetime.now(UTC) - (timedelta(0) if recent else UNCLEAR)
    array = Array(cells=("preflight",), nodes=1, ranks_per_node=1, minutes=1)
    note = RunNote(run="r1", site="s", job_name="n", submitted_at=sent, arrays=(array,),
                   kind="preflight")  # fmt: skip
    sweep = submitter(tmp_path, 1, held=True)
    assert sweep.turn({}, note) == (0 if recent else 1) and sweep.waits() == recent


@pytest.mark.parametrize("passed", [True, False])
def test_a_preflight_that_slurm_has_forgotten_is_waited_for_no_more(
    tmp_path: Path, sbatch: Sbatch, preflight, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    """The list of jobs, which may be a minute older than the refusal, still shows it. Without a
    report it is made again, once."""

    def earlier(context, layout, notes, queue) -> Preflight | None:
        return Preflight("5", tmp_path) if "5" in queue or passed else None

    monkeypatch.setattr(module, "earlier_preflight", earlier)
    sbatch.before = preflight if passed else sbatch.before
    sbatch.errors += [refused("Job dependency problem") for _ in range(1 if passed else 2)]
    sweep = submitter(tmp_path, 1, held=True)
    with nullcontext() if passed else pytest.raises(SlurmError, match="dependency"):
        assert sweep.turn(in_queue({"5": "RUNNING"})) == 1
    assert sbatch.sent == [(1, None)] * passed
    assert passed or (sweep.preflight and sweep.preflight.job == "6")


@pytest.mark.parametrize(("passing", "cancelled"), [(True, []), (False, ["6"])])
def test_a_preflight_is_cancelled_with_the_cells_that_sbatch_will_never_take(
    tmp_path: Path, sbatch: Sbatch, preflight, passing: bool, cancelled: list[str]
) -> None:
    """It would hold its nodes for nothing; where the refusal may pass, it stays."""
    sbatch.errors.append(refused("no", passing=passing))
    with pytest.raises(SlurmError, match="no"):
        submitter(tmp_path, 1, held=True).turn({})
    assert sbatch.ended == cancelled


def test_make_cancel_ends_the_submissions_of_a_waiting_sweep(tmp_path, sbatch) -> None:
    announce_cancel(tmp_path)  # an earlier one
    sweep = submitter(tmp_path, limit=1)
    unreadable(tmp_path / ".slurm" / "cancel")
    assert sweep.turn({}) == 1, "a read error is none"
    announce_cancel(tmp_path)
    assert sweep.turn({}) == 0 and not sweep.waits()


def test_make_cancel_during_a_wave_ends_it(tmp_path: Path, sbatch: Sbatch) -> None:
    sbatch.before = lambda: announce_cancel(tmp_path)
    sweep = submitter(tmp_path, 1, (1, 2))
    assert sweep.turn({}) == 1 and not sweep.waits()
    assert sbatch.ended == ["9"], "make cancel looked before it was in the queue"


def test_make_cancel_during_the_submission_of_a_preflight_ends_that(
    tmp_path: Path, sbatch: Sbatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = lambda *_: announce_cancel(tmp_path) or ("6", tmp_path)  # noqa: E731
    monkeypatch.setattr(module, "submit_preflight", submit)
    sweep = submitter(tmp_path, 1, held=True)
    assert sweep.turn({}) == 0 and not sweep.waits() and sbatch.ended == ["6"]


def test_what_was_submitted_before_an_error_is_watched(tmp_path: Path, sbatch: Sbatch) -> None:
    """And the rest is tried again, unless the same would be refused again."""
    for error, waits in ((refused("Invalid qos"), False), (OSError(28, "No space left"), True)):
        sbatch.errors += [None, error]
        sweep = submitter(tmp_path, 1, (1, 2))
        with pytest.raises(type(error)):
            sweep.turn({})
        assert len(sweep.sent) == 1 and sweep.waits() == waits
    assert sweep.turn({}) == 1 and not sweep.waits()


@pytest.mark.parametrize("earlier", [True, False])
def test_what_sbatch_may_have_accepted_is_not_submitted_again(tmp_path, sbatch, earlier) -> None:
    """By this make sweep or an earlier one. Seen: it timed out, the job came into the queue, and
    the next look submitted another one."""
    cell = config().cell_id()
    sent_now, old = note(cell), note(cell, submitted_at=datetime.now(UTC) - UNCLEAR)
    for later, sent in ((sent_now.with_id(0, "9"), 1), (old, 0)):
        sweep = submitter(tmp_path, 1, notes=[sent_now] if earlier else [])
        if not earlier:
            sbatch.errors.append(SlurmError("sbatch", "Socket timed out", passing=True))
            with pytest.raises(SlurmError, match="timed out"):
                sweep.turn({})
        assert sweep.turn({}, sent_now) == 0 and sweep.waits(), "not known yet"
        assert sweep.turn({}, later) == 1 and not sweep.waits()
        assert len(sbatch.sent) == 1 - sent, "found, or after that time submitted again"


def test_make_cancel_ends_every_job_that_came_late(tmp_path: Path, sbatch: Sbatch) -> None:
    """Two calls of sbatch were unclear; one of the jobs, or both, come after make cancel."""
    notes = [note(config(seed=seed).cell_id(), run=f"r{seed}") for seed in range(2)]
    for later, ended in ((notes[1], ["8"]), (notes[1].with_id(0, "9"), ["8", "9"])):
        sbatch.ended = []
        sweep = submitter(tmp_path, 2, notes=notes)
        assert sweep.turn({}, *notes) == 0
        announce_cancel(tmp_path)
        sweep.turn({}, notes[0].with_id(0, "8"), later)
        assert sbatch.ended == ended and sweep.waits() == (len(ended) == 1)
        assert not sbatch.sent


def test_arrays_are_cut_by_a_limit_that_can_be_read(tmp_path: Path, sbatch: Sbatch) -> None:
    """Seen: an array that can never fit gave exit code 3, and make sweep again tried the same."""
    sbatch.limit = 1
    sbatch.errors.append(refused("QOSMaxSubmitJobPerUserLimit"))
    sweep = submitter(tmp_path, 2, (1, 2))
    assert sweep.turn({}) == 1 and sweep.turn({}) == 1, "of one array, and none of the other"


def test_a_limit_that_others_fill_is_tried_again_when_there_may_be_room(tmp_path, sbatch) -> None:
    sbatch.limit = 100
    sbatch.errors += [refused("AssocGrpSubmitJobsLimit")] * 3  # of 6, 3 and 1
    sweep = submitter(tmp_path)
    with pytest.raises(SlurmError, match="others fill the queue") as caught:
        sweep.turn(others(2))
    assert caught.value.passing
    assert sweep.turn(others(2)) == 0, "nothing has changed"
    assert sweep.turn(others(1)) == 6


def test_what_others_leave_room_for_is_submitted(tmp_path: Path, sbatch: Sbatch) -> None:
    """Else a sweep of the size of the group's limit waits until nobody else has a job."""
    sbatch.limit = 6
    sbatch.errors.append(refused("AssocGrpSubmitJobsLimit"))
    sweep = submitter(tmp_path)
    assert sweep.turn({}) == 3 and sweep.turn(others(3)) == 3


@pytest.mark.parametrize("words", ["AssocGrpSubmitJobsLimit", "QOSMaxSubmitJobPerAccountLimit"])
@pytest.mark.parametrize("limit", [2, 100])
def test_a_limit_of_a_group_may_be_filled_by_others_alone(
    tmp_path: Path, sbatch: Sbatch, words: str, limit: int
) -> None:
    """None of the jobs is ours: the sweep gave up for good, as did one larger than the limit."""
    sbatch.limit = limit
    sbatch.errors += [refused(words)] * 3  # of 6, then of 2 or 3, and of 1
    sweep = submitter(tmp_path)
    with pytest.raises(SlurmError, match="others fill the queue") as caught:
        sweep.turn({})
    assert caught.value.passing and sweep.waits() and not sweep.room.left


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
         100),
        ("QOSMaxSubmitJobPerUserLimit", None),
        ("AssocGrpSubmitJobsLimit", 0),  # a closed account: there is never room
        ("AssocMaxSubmitJobLimit", 0),
    ],
)  # fmt: skip
def test_a_limit_that_is_another_one_or_cannot_be_read(tmp_path, sbatch, words, limit) -> None:
    sbatch.limit = limit
    sbatch.errors.append(refused(words))
    with pytest.raises(SlurmError) as caught:
        submitter(tmp_path).turn(others(2))
    assert not caught.value.passing


def test_a_node_that_failed_is_asked_for_where_nothing_runs_without_it(
    tmp_path: Path, sbatch: Sbatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "failed_node", lambda _: "n1")
    monkeypatch.setattr(module, "usable_nodes", lambda _: {"n1", "n2"})
    sbatch.errors.append(refused("Requested node configuration is not available"))
    sweep = submitter(tmp_path, 1)
    sweep.todo = [replace(cell, status="lost") for cell in sweep.todo]
    assert sweep.turn({}) == 1


def test_records_are_read_only_of_cells_whose_node_may_have_failed(
    tmp_path: Path, sbatch: Sbatch
) -> None:
    """Seen: a record.json of each of 1,000 waiting cells was opened at each refill."""
    sweep = submitter(tmp_path, 6, limit=1)
    sweep.todo = [replace(sweep.todo[0], status="lost"), *sweep.todo[1:]]
    for cell in sweep.todo:
        cell.folder.mkdir()
        (cell.folder / "record.json").write_text(record(cell.config).model_dump_json())
    with opened(tmp_path) as files:
        sweep.turn({})
    assert files.count("record.json") == 1
