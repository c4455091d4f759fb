"""Watching a sweep's jobs: what a look sees, patience with Slurm, and leaving."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobs.cell.stop import Reason, Stop
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import comment_of, read_notes, write_note
from jobs.slurm.sweep import follow
from jobs.slurm.watch import endings, reconcile
from jobs.slurm.watch.endings import pause_s
from jobs.slurm.watch.reconcile import Watcher
from tests.builders import config, record
from tests.caching import seen_late
from tests.jobs.slurm.fakes import Told, in_queue, note
from tests.opened import opened
from train.record.atomic import write_atomically
from train.record.run import read_record

ONE, TWO = config(seed=0), config(seed=1)
RUNNING, OVER = in_queue({"7": "RUNNING"}), in_queue({"7": "COMPLETED"})


class Silent(Mock):
    """A display that remembers."""

    @property
    def over(self) -> list[tuple[str, str]]:
        return [(call.args[0].name, call.args[1]) for call in self.ended.call_args_list]


class Rest:
    """A submitter, and what it does at each turn: ``refill`` returns the cells it submits."""

    def __init__(self, refill=lambda queue: [], waits=lambda: False) -> None:
        self.refill, self.waits = refill, waits
        self.unclear: list[object] = []

    def more(self, queue, notes, unended) -> None:
        unended |= {one.cell_id(): one for one in self.refill(queue)}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(endings, "FIRST_S", 0.05)
    for name in ("SETTLE_S", "SETTLE_WELL_S", "FORGOTTEN_S"):
        monkeypatch.setattr(endings, name, 0.2)
    for one in (ONE, TWO):
        (tmp_path / one.cell_id() / "logs").mkdir(parents=True)
    return tmp_path


def noted(sweep: Path, job: str | None, *cells) -> Path:
    return write_note(sweep, note(*(one.cell_id() for one in cells), job=job, run=f"r{job}"))


def alive(queue) -> int:
    return sum(not job.ended for job in queue.values())


def watcher(sweep: Path, monkeypatch: pytest.MonkeyPatch, *answers) -> Watcher:
    """Each answer of squeue in turn, the last one for ever: jobs, a function, or an error."""
    left = list(answers)

    def query(*_: object, **__: object) -> dict[str, JobState]:
        told = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(told, Exception):
            raise told
        return told() if callable(told) else told

    monkeypatch.setattr(reconcile, "query", query)
    found = Watcher(sweep, None)
    found.history = Told()
    return found


def test_what_is_submitted_while_we_look_is_not_lost(sweep: Path, monkeypatch) -> None:
    """Another shell's sbatch runs right after squeue had been asked."""
    watch = watcher(sweep, monkeypatch, lambda: noted(sweep, "7", ONE) and {})
    (cell,) = watch.look([ONE])
    assert cell.state == "not submitted" and not (cell.folder / "record.json").exists()


def test_a_job_whose_id_nobody_wrote_down_is_found(sweep: Path, monkeypatch) -> None:
    noted(sweep, None, ONE)
    jobs = in_queue({"7": "RUNNING"}, comment_of("rNone", 0))
    (cell,) = watcher(sweep, monkeypatch, jobs).look([ONE])
    assert (cell.state, cell.job) == ("starting", "7")
    assert read_notes(sweep)[0].arrays[0].job_id == "7"


def test_a_note_is_read_when_it_has_changed(sweep: Path, monkeypatch) -> None:
    """Seen: 1,000 single jobs, and 1,000 opened notes in each look at which nothing happened."""
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, RUNNING)
    watch.look([ONE])
    with opened(sweep / ".slurm") as files:
        watch.look([ONE])
    assert files == []
    noted(sweep, "8", TWO)
    write_note(sweep, note(ONE.cell_id(), job="9", run="r7"))
    watch.look([ONE])
    assert [one.arrays[0].job_id for one in watch.notes] == ["8", "9"]


def test_a_controller_that_is_away_in_the_middle_settles_nothing(sweep, monkeypatch) -> None:
    noted(sweep, "7", ONE)
    away = SlurmError("squeue", "Unable to contact slurm controller", passing=True)
    watch = watcher(sweep, monkeypatch, RUNNING, away, away, RUNNING, OVER)
    display = Silent()
    follow(watch, [ONE], display, Stop(), Rest())
    assert display.over == [(ONE.cell_id(), "lost")]
    troubles = [call.args[1] for call in display.update.call_args_list]
    assert [bool(text) for text in troubles] == [False, True, True, False, False]
    assert "gives no answer since" in troubles[1]
    assert len(read_record(sweep / ONE.cell_id() / "record.json").attempts) == 1


def test_a_good_record_behind_a_cache_is_never_replaced(tmp_path, monkeypatch) -> None:
    """The job wrote it on another machine; here it was asked for before, and is remembered absent.

    Without any patience, so that only the server's word keeps it.
    """
    monkeypatch.setattr(endings, "FIRST_S", 0.05)
    monkeypatch.setattr(endings, "SETTLE_S", 0.0)
    monkeypatch.setattr(endings, "SETTLE_WELL_S", 0.0)
    behind = tmp_path / "behind"
    cell = behind / ONE.cell_id()
    (cell / "logs").mkdir(parents=True)
    good = record(ONE, ended_at=datetime.now(UTC)).model_dump_json()
    with seen_late(behind, tmp_path / "seen") as seen:
        noted(seen, "7", ONE)
        watch = watcher(seen, monkeypatch, RUNNING, OVER)

        def refill(queue) -> list:
            if alive(queue):
                write_atomically(cell / "record.json", good)
                assert not (seen / ONE.cell_id() / "record.json").exists(), "the cache knows better"
            return []

        display = Silent()
        follow(watch, [ONE], display, Stop(), Rest(refill))
        assert display.over == [(ONE.cell_id(), "completed")]
    assert (cell / "record.json").read_text() == good


@pytest.mark.parametrize("first", [[ONE], []])
def test_the_rest_is_submitted_when_there_is_room(sweep, monkeypatch, first) -> None:
    """Also where none of the sweep is in the queue: it is full of other jobs of ours."""
    noted(sweep, "7", *first or [TWO])
    watch = watcher(sweep, monkeypatch, in_queue({"7" if first else "3": "RUNNING"}), {})
    rest, told = [TWO], []

    def refill(queue) -> list:
        told.append(alive(queue))
        if alive(queue) or not rest:
            return []
        noted(sweep, "9", TWO)
        return [rest.pop()]

    display = Silent()
    follow(watch, first, display, Stop(), Rest(refill, lambda: bool(rest)))
    assert [name for name, _ in display.over] == [one.cell_id() for one in (*first, TWO)]
    assert told[0] == 1


def test_a_sweep_that_waits_for_room_asks_at_its_pace(sweep, monkeypatch) -> None:
    """Seen: 38,136 questions in 0.3 s when nothing of it was in the queue."""
    asked: list[int] = []
    watch = watcher(sweep, monkeypatch, in_queue({"3": "RUNNING"}))
    stop = Stop()

    def refill(queue) -> list:
        asked.append(1)
        if len(asked) == 5:
            stop.told = Reason("cancelled", "enough")
        return []

    began = time.monotonic()
    follow(watch, [], Silent(), stop, Rest(refill, lambda: True))
    assert time.monotonic() - began > 4 * 0.05


def test_looks_become_rare() -> None:
    now = time.monotonic()
    assert (pause_s(None, now), pause_s(None, now - 61), pause_s(3.0, now)) == (5, 60, 3)


def test_a_refill_does_not_make_looks_frequent_again(sweep, monkeypatch) -> None:
    """Seen: each refill began another minute of a look every 5 s."""
    now, rests, rest = [0.0], list[float](), [config(seed=seed) for seed in range(2, 7)]
    monkeypatch.setattr("jobs.slurm.sweep.time.monotonic", lambda: now[0])
    monkeypatch.setattr(endings, "FIRST_S", 5.0)
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, RUNNING)
    stop = Mock(reason=None)

    def wait(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds
        stop.reason = "enough" if now[0] > 500 else None

    stop.wait = wait
    refill = lambda queue: [rest.pop()] if rest and now[0] > 60 else []  # noqa: E731
    follow(watch, [ONE], Silent(), stop, Rest(refill))
    assert rests == [0, *[5.0] * 12, *[60.0] * 8]


def test_a_refused_submission_does_not_end_the_watch(sweep, monkeypatch) -> None:
    """What runs is watched to its end; only then is the refusal told."""
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, *[RUNNING] * 4, {})
    display, answers = Silent(), [True, True, False]

    def refill(queue) -> list:
        if answers:
            words = "violates accounting/QOS policy"
            raise SlurmError("sbatch", words, passing=answers.pop(0))
        return []

    with pytest.raises(SlurmError, match="QOS"):
        follow(watch, [ONE], display, Stop(), Rest(refill, lambda: bool(answers)))
    assert display.over == [(ONE.cell_id(), "lost")]
    said = [call.args[0][:18] for call in display.say.call_args_list]
    assert said == ["could not submit: ", "no more cells are "]
