"""Which cells are submitted when: room in the queue, the preflight, refusals, make cancel."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
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
from jobs.slurm.submitter import FULL_S, Submitter
from jobs.slurm.watch.cancel import announce_cancel
from jobs.slurm.watch.preflight import Preflight
from tests.builders import config
from tests.jobs.slurm.fakes import PROBLEM, context, in_queue, note, report_preflight
from tests.unreadable import unreadable
from train.config.run import RunConfig


class Sbatch:
    """A stand-in of submit_cells: what each array meets, and what was submitted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.errors: list[SlurmError | OSError | None] = []  # None, or no more: it is accepted
        self.sent: list[tuple[int, str | None]] = []  # cells of an array, and its preflight
        self.ended: list[str] = []  # jobs that were cancelled
        self.before: Callable[[], None] = lambda: None
        patch.setattr(module, "submit_cells", self.submit_cells)
        patch.setattr(module, "cancel", self.cancel)

    def submit_cells(self, context, array, cells, preflight) -> str:
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
    sweep = submitter(tmp_path, 1, held=True)
    for _ in range(2):
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


def test_a_queue_of_two_jobs_takes_an_array_of_three_bit_by_bit(tmp_path, sbatch) -> None:
    """After a refusal for a limit on jobs half of the array is tried; what was too much is not
    tried again. Seen: 1,130 refusals in a sweep of 600 cells, a ladder of halves for each job that
    ended; and exit code 3 of WAIT=0, as if Slurm gave no answer."""
    sweep = submitter(tmp_path, 3)
    sbatch.errors.append(refused("QOSMaxSubmitJobPerUserLimit"))
    assert [sweep.turn(others(alive)) for alive in (0, 1, 2, 1)] == [1, 1, 0, 1]
    assert not sweep.waits()


def test_a_limit_that_others_fill_is_tried_again_with_one_job(
    tmp_path: Path, sbatch: Sbatch, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Nobody says when their jobs end."""
    sbatch.errors += [refused("AssocGrpSubmitJobsLimit")] * 3  # of 6, 3 and 1
    sweep = submitter(tmp_path)
    assert sweep.turn(others(2)) == 0
    words = "6 cells wait for room (array_parallel 64, a limit of the cluster on submitted jobs)"
    said = capsys.readouterr().err
    assert words in said and said.count("sbatch refuses more jobs (AssocGrpSubmitJobsLimit)") == 1
    assert sweep.turn(others(2)) == 0, "nothing has changed"
    later = time.monotonic() + FULL_S + 1
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    assert sweep.turn(others(2)) == 1
    assert sweep.turn(others(2)) == 5, "also if a job has ended since"


@pytest.mark.parametrize("words", ["AssocGrpSubmitJobsLimit", "QOSMaxSubmitJobPerAccountLimit"])
def test_a_limit_of_a_group_may_be_filled_by_others_alone(tmp_path, sbatch, words) -> None:
    """None of the jobs is ours: the sweep gave up for good."""
    sbatch.errors += [refused(words)] * 3
    sweep = submitter(tmp_path)
    assert sweep.turn({}) == 0 and sweep.waits() and sweep.room.left == 0


#: Slurm's words for a limit of any kind.
UNNAMED = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(("words", "alive"), [(UNNAMED, 2), ("AssocMaxSubmitJobLimit", 0)])
def test_a_job_that_will_never_be_accepted_is_refused_for_good(
    tmp_path: Path, sbatch: Sbatch, words: str, alive: int
) -> None:
    """It is a limit on time or size, whatever is in the queue, or on the jobs of a closed account,
    which is 0."""
    sbatch.errors += [refused(words)] * 3
    with pytest.raises(SlurmError) as caught:
        submitter(tmp_path).turn(others(alive))
    assert not caught.value.passing and not sbatch.errors


def test_a_limit_without_a_name_is_one_on_jobs_where_such_a_job_was_accepted(
    tmp_path: Path, sbatch: Sbatch
) -> None:
    sweep = submitter(tmp_path, 3)
    sbatch.errors += [refused(UNNAMED), None, refused(UNNAMED)]
    assert [sweep.turn(others(alive)) for alive in (0, 1, 0)] == [1, 0, 1]
    two = submitter(tmp_path, 1, (1, 2))  # layouts: the first of them fills the queue
    sbatch.errors += [None, refused(UNNAMED)]
    assert [two.turn(others(alive)) for alive in (0, 1)] == [1, 0] and two.waits()
