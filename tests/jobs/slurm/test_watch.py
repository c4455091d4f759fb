"""Watching a sweep's jobs: patience with Slurm, leaving, and submitting the rest."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.state import Standing
from jobs.cell.stop import Reason, Stop
from jobs.slurm import reconcile as inventory
from jobs.slurm import watch as module
from jobs.slurm.arrays import Array
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.reconcile import UNCLEAR_S, unclear_in
from jobs.slurm.submissions import RunNote, array_folder, write_note
from jobs.slurm.watch import Left, Pace, Watcher, follow
from tests.builders import config, record
from tests.caching import seen_late
from train.record.atomic import write_atomically
from train.record.run import read_record

ONE, TWO = config(seed=0), config(seed=1)


class Silent:
    """A display that remembers."""

    def __init__(self) -> None:
        self.troubles: list[str | None] = []
        self.over: list[tuple[str, str]] = []

    def update(self, places, trouble) -> None:
        self.troubles.append(trouble)

    def ended(self, cell) -> None:
        self.over.append((cell.config.cell_id(), cell.status))

    def say(self, text: str) -> None: ...


class Nothing(History):
    def endings(self, over, gone=()) -> dict[str, JobState]:
        return {}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "FIRST_S", 0.05)
    monkeypatch.setattr(inventory, "SETTLE_S", 0.2)
    monkeypatch.setattr(inventory, "SETTLE_WELL_S", 0.2)
    monkeypatch.setattr(inventory, "FORGOTTEN_S", 0.2)
    for one in (ONE, TWO):
        (tmp_path / one.cell_id() / "logs").mkdir(parents=True)
    return tmp_path


def noted(sweep: Path, job: str, *cells) -> None:
    units = tuple((one.cell_id(),) for one in cells)
    array = Array(job_id=job, units=units, nodes=1, ranks_per_node=1, minutes=1)
    write_note(sweep, RunNote(run=f"r{job}", site="s", job_name="n",
                              submitted_at=datetime.now(UTC), arrays=(array,)))  # fmt: skip


def alive(queue) -> int:
    return sum(not job.ended for job in queue.values())


def watcher(sweep: Path, monkeypatch: pytest.MonkeyPatch, *answers) -> Watcher:
    """Each answer of squeue in turn, the last one for ever: job -> state, or an error to raise."""
    left = list(answers)

    def query(*_: object, **__: object) -> dict[str, JobState]:
        told = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(told, Exception):
            raise told
        return {job: JobState(job, state, "", None, "0:05", "n1", "n")
                for job, state in told.items()}  # fmt: skip

    monkeypatch.setattr(module, "query", query)
    found = Watcher(sweep, None)
    found.history = Nothing()
    return found


def test_a_controller_that_is_away_in_the_middle_settles_nothing(sweep, monkeypatch) -> None:
    noted(sweep, "7", ONE)
    away = SlurmError("squeue", "Unable to contact slurm controller", passing=True)
    running = {"7": "RUNNING"}
    watch = watcher(sweep, monkeypatch, running, away, away, running, {"7": "COMPLETED"})
    display = Silent()
    results = follow(watch, [ONE], display, Stop(), lambda _: [])
    assert results == {ONE.cell_id(): "lost"}
    troubles = [text for text in display.troubles if text]
    assert len(troubles) == 2 and "gives no answer since" in troubles[0]
    assert display.troubles[-1] is None
    assert len(read_record(sweep / ONE.cell_id() / "record.json").attempts) == 1


def test_a_job_that_comes_back_is_not_settled(sweep, monkeypatch) -> None:
    """Between its end and its requeue a job may not be in the queue for a moment."""
    monkeypatch.setattr(inventory, "FORGOTTEN_S", 5.0)
    noted(sweep, "7", ONE)
    gone: dict[str, str] = {}
    told = [{"7": "RUNNING"}, gone, gone, *[{"7": "PENDING"}] * 12, {"7": "NODE_FAIL"}]
    stop = Stop()
    watch = watcher(sweep, monkeypatch, *told)
    seen: list[bool] = []

    def refill(queue) -> list:
        seen.append((sweep / ONE.cell_id() / "record.json").exists())
        return []

    assert follow(watch, [ONE], Silent(), stop, refill) == {ONE.cell_id(): "lost"}
    assert not any(seen[:15]), "settled while it was to run again"


def test_a_watcher_that_comes_back_waits_as_the_first_one_would(sweep, monkeypatch) -> None:
    """After `make sweep` is started again; the job ended a minute ago, as squeue says."""
    monkeypatch.setattr(inventory, "SETTLE_WELL_S", 120.0)
    noted(sweep, "7", ONE)

    def ended_for(seconds: float) -> dict[str, JobState]:
        start = datetime.now() - timedelta(seconds=seconds + 5)
        return {"7": JobState("7", "COMPLETED", "", start.isoformat(), "0:05", "n1", "n")}

    def look(seconds: float) -> str:
        watch = Watcher(sweep, None)
        watch.history = Nothing()
        (place,) = watch.look([ONE], watch.notes(), ended_for(seconds))
        return "waits" if place.settling else place.standing.status

    assert look(60) == "waits"
    assert look(130) == "lost"


def test_a_good_record_behind_a_cache_is_never_replaced(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job wrote it on another machine; here it was asked for before, and is remembered absent.

    Without any patience, so that only the server's word keeps it.
    """
    monkeypatch.setattr(module, "FIRST_S", 0.05)
    monkeypatch.setattr(inventory, "SETTLE_S", 0.0)
    monkeypatch.setattr(inventory, "SETTLE_WELL_S", 0.0)
    behind = tmp_path / "behind"
    cell = behind / ONE.cell_id()
    (cell / "logs").mkdir(parents=True)
    good = record(ONE, ended_at=datetime.now(UTC)).model_dump_json()
    with seen_late(behind, tmp_path / "seen") as seen:
        noted(seen, "7", ONE)
        watch = watcher(seen, monkeypatch, {"7": "RUNNING"}, {"7": "COMPLETED"})

        def refill(queue) -> list:
            if alive(queue):
                write_atomically(cell / "record.json", good)
                assert not (seen / ONE.cell_id() / "record.json").exists(), "the cache knows better"
            return []

        assert follow(watch, [ONE], Silent(), Stop(), refill) == {ONE.cell_id(): "completed"}
    assert (cell / "record.json").read_text() == good


def test_leaving_touches_nothing(sweep, monkeypatch) -> None:
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, {"7": "RUNNING"})
    stop = Stop(told=Reason("cancelled", "got SIGINT"))
    with pytest.raises(Left, match="got SIGINT"):
        follow(watch, [ONE], Silent(), stop, lambda _: [])
    assert not (sweep / ONE.cell_id() / "record.json").exists()


def test_the_rest_is_submitted_when_there_is_room(sweep, monkeypatch) -> None:
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, {"7": "RUNNING"}, {})
    rest, told = [TWO], []

    def refill(queue) -> list:
        told.append(alive(queue))
        if alive(queue) or not rest:
            return []
        noted(sweep, "9", TWO)
        return [rest.pop()]

    results = follow(watch, [ONE], Silent(), Stop(), refill)
    assert set(results) == {ONE.cell_id(), TWO.cell_id()}
    assert told[0] == 1


def test_cells_that_wait_for_room_are_waited_for_also_when_none_is_in_the_queue(
    sweep, monkeypatch
) -> None:
    """The queue is full of other jobs of ours: the sweep must not end before it began."""
    watch = watcher(sweep, monkeypatch, {"3": "RUNNING"}, {"3": "RUNNING"}, {})
    rest = [ONE]

    def refill(queue) -> list:
        if alive(queue) or not rest:
            return []
        noted(sweep, "9", ONE)
        return [rest.pop()]

    results = follow(watch, [], Silent(), Stop(), refill, lambda: bool(rest))
    assert results == {ONE.cell_id(): "lost"}


def test_what_an_earlier_make_sweep_may_have_submitted_is_waited_for(tmp_path: Path) -> None:
    note = RunNote(
        run="r1", site="s", job_name="n", submitted_at=datetime.now(UTC),
        arrays=(Array(units=((ONE.cell_id(),),), nodes=1, ranks_per_node=1, minutes=1),),
    )  # fmt: skip
    cells = [Standing(one, tmp_path / one.cell_id(), "new", "") for one in (ONE, TWO)]
    assert unclear_in(tmp_path, [note], cells) == [], "its sbatch was never called"
    script = array_folder(tmp_path, "r1", 0) / "submission.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    (one,) = unclear_in(tmp_path, [note], cells)
    assert [cell.config for cell in one.cells] == [ONE]
    then = time.time() - UNCLEAR_S - 1
    os.utime(script, (then, then))
    assert unclear_in(tmp_path, [note], cells) == []


def test_a_sweep_that_waits_for_room_asks_at_its_pace(sweep, monkeypatch) -> None:
    """Seen: 38,136 questions in 0.3 s when nothing of it was in the queue."""
    asked: list[int] = []
    watch = watcher(sweep, monkeypatch, {"3": "RUNNING"})
    stop = Stop()

    def refill(queue) -> list:
        asked.append(1)
        if len(asked) == 5:
            stop.told = Reason("cancelled", "enough")
        return []

    began = time.monotonic()
    with pytest.raises(Left):
        follow(watch, [], Silent(), stop, refill, lambda: True)
    assert time.monotonic() - began > 4 * 0.05


def test_looks_become_rare_and_what_is_new_makes_them_frequent(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    pace = Pace(None, 0.0)
    first = []
    while now[0] < 60:
        first.append(pace.next_s("a"))
        now[0] += first[-1]
    assert first == [module.FIRST_S] * 12
    later = [pace.next_s("a") for _ in range(6)]
    assert later[0] > 30 and later[-1] == 60 and later == sorted(later)
    assert pace.next_s("b") == 30
    assert Pace(3.0).next_s("a") == 3.0


def test_a_refused_submission_does_not_end_the_watch(sweep, monkeypatch) -> None:
    """What runs is watched to its end; only then is the refusal told."""
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, *[{"7": "RUNNING"}] * 4, {})
    display = Silent()
    asked: list[int] = []

    def refill(queue) -> list:
        asked.append(alive(queue))
        raise SlurmError("sbatch", "violates accounting/QOS policy", passing=False)

    with pytest.raises(SlurmError, match="QOS"):
        follow(watch, [ONE], display, Stop(), refill, lambda: True)
    assert asked == [1], "asked once only"
    assert display.over == [(ONE.cell_id(), "lost")]
