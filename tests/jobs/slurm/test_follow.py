"""Watching a sweep's jobs: patience with Slurm, leaving, and submitting the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.slurm import follow as module
from jobs.slurm import inventory
from jobs.slurm import submitter as submitter_module
from jobs.slurm.commands import SlurmError
from jobs.slurm.follow import Left, Watcher, follow
from jobs.slurm.history import Ending, History
from jobs.slurm.notes import ArrayNote, RunNote, write_note
from jobs.slurm.preflight import FOLDER_NAME, PreflightReport, Problem
from jobs.slurm.queue import JobState
from jobs.slurm.submitter import Submitter
from jobs.stop import Reason, Stop
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
    def endings(self, jobs) -> dict[str, Ending]:
        return {}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "POLL_S", 0.05)
    monkeypatch.setattr(inventory, "SETTLE_S", 0.2)
    monkeypatch.setattr(inventory, "SETTLE_WELL_S", 0.2)
    for one in (ONE, TWO):
        (tmp_path / one.cell_id() / "logs").mkdir(parents=True)
    return tmp_path


def noted(sweep: Path, job: str, *cells) -> None:
    units = tuple((one.cell_id(),) for one in cells)
    array = ArrayNote(job_id=job, units=units, nodes=1, ranks_per_node=1, minutes=1)
    write_note(sweep, RunNote(run=f"r{job}", site="s", job_name="n",
                              submitted_at=datetime.now(UTC), arrays=(array,)))  # fmt: skip


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
    found = Watcher(sweep, "n", None)
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
    monkeypatch.setattr(inventory, "SETTLE_WELL_S", 5.0)
    noted(sweep, "7", ONE)
    gone: dict[str, str] = {}
    told = [{"7": "RUNNING"}, gone, gone, *[{"7": "PENDING"}] * 12, gone]
    stop = Stop()
    watch = watcher(sweep, monkeypatch, *told)
    seen: list[bool] = []

    def refill(alive: int) -> list:
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
        watch = Watcher(sweep, "n", None)
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
    monkeypatch.setattr(module, "POLL_S", 0.05)
    monkeypatch.setattr(inventory, "SETTLE_S", 0.0)
    monkeypatch.setattr(inventory, "SETTLE_WELL_S", 0.0)
    behind = tmp_path / "behind"
    cell = behind / ONE.cell_id()
    (cell / "logs").mkdir(parents=True)
    good = record(ONE, ended_at=datetime.now(UTC)).model_dump_json()
    with seen_late(behind, tmp_path / "seen") as seen:
        noted(seen, "7", ONE)
        watch = watcher(seen, monkeypatch, {"7": "RUNNING"}, {"7": "COMPLETED"})

        def refill(alive: int) -> list:
            if alive:
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

    def refill(alive: int) -> list:
        told.append(alive)
        if alive or not rest:
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

    def refill(alive: int) -> list:
        if alive or not rest:
            return []
        noted(sweep, "9", ONE)
        return [rest.pop()]

    results = follow(watch, [], Silent(), Stop(), refill, lambda: bool(rest))
    assert results == {ONE.cell_id(): "lost"}


def sending(sweep: Path, limit: int | None = 3):
    from jobs.site import Site
    from jobs.slurm.image import Image
    from jobs.slurm.send import Sending

    return Sending(
        sweep="t", folder=sweep, site_name="s", site=Site(ranks_per_node=1, submit_limit=limit),
        image=Image("none", None), root=sweep, data=sweep, store=sweep, folders=(),
        stall_s=60, pack=1, git_commit=None, git_dirty=None,
    )  # fmt: skip


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str | None]]:
    """How many cells were sent with which preflight, by a stand-in of send."""
    found: list[tuple[int, str | None]] = []

    def send(sending, cells, room, preflight):
        now, later = cells[:room], cells[room:] if room is not None else []
        found.append((len(now), preflight))
        array = ArrayNote(job_id="9", units=(("x",),), nodes=1, ranks_per_node=1, minutes=1)
        note = RunNote(run="r", site="s", job_name="n", submitted_at=datetime.now(UTC),
                       arrays=(array,))  # fmt: skip
        return note, [cell.config.cell_id() for cell in later]

    monkeypatch.setattr(submitter_module, "send", send)
    return found


def todo(sweep: Path, count: int = 6):
    from jobs.ledger import Standing

    configs = [config(seed=seed) for seed in range(count)]
    return [Standing(one, sweep / one.cell_id(), "new", "") for one in configs]


def preflight_said(sweep: Path, *problems: Problem) -> None:
    folder = sweep / FOLDER_NAME / "r"
    folder.mkdir(parents=True)
    told = PreflightReport(key="k", job="6", at=datetime.now(UTC), seconds=1, nodes=("n1",),
                           versions={}, problems=problems)  # fmt: skip
    (folder / "report.json").write_text(told.model_dump_json())


def test_one_preflight_for_all_waves(tmp_path: Path, sent, monkeypatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        submitter_module, "hold_by_preflight", lambda *_: asked.append("one") or "6"
    )
    submitter = Submitter(sending(tmp_path), todo(tmp_path), preflight=True)
    assert len(submitter.more(0)) == 2, "room for one less than the limit: the preflight"
    assert submitter.more(3) == [], "no room"
    assert submitter.more(1) == [], "the preflight has not ended yet"
    preflight_said(tmp_path)
    assert len(submitter.more(1)) == 1
    assert len(submitter.more(0)) == 2
    assert sent == [(2, "6"), (1, None), (2, None)]
    assert asked == ["one"]
    assert submitter.waits()


@pytest.mark.parametrize("report", [True, False])
def test_nothing_more_after_a_bad_preflight(tmp_path: Path, sent, monkeypatch, report) -> None:
    """Bad also when it died without a word: then none of the jobs that needed it is left."""
    monkeypatch.setattr(submitter_module, "hold_by_preflight", lambda *_: "6")
    submitter = Submitter(sending(tmp_path), todo(tmp_path), preflight=True)
    submitter.more(0)
    if report:
        problem = Problem(node="n", check="c", found="f", expected="e", fix="x")
        preflight_said(tmp_path, problem)
    assert submitter.more(0) == []
    assert not submitter.waits()
    assert len(sent) == 1


def test_a_recent_good_preflight_is_enough(tmp_path: Path, sent, monkeypatch) -> None:
    monkeypatch.setattr(submitter_module, "hold_by_preflight", lambda *_: None)
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path), preflight=True)
    assert len(submitter.more(5)) == 6
    assert sent == [(6, None)]


def test_even_the_smallest_limit_has_room_for_one(tmp_path: Path, sent) -> None:
    submitter = Submitter(sending(tmp_path, 1), todo(tmp_path), preflight=False)
    assert len(submitter.more(0)) == 1
    assert submitter.more(1) == []


def test_a_refused_submission_does_not_end_the_watch(sweep, monkeypatch) -> None:
    """What runs is watched to its end; only then is the refusal told."""
    noted(sweep, "7", ONE)
    watch = watcher(sweep, monkeypatch, *[{"7": "RUNNING"}] * 4, {})
    display = Silent()
    asked: list[int] = []

    def refill(alive: int) -> list:
        asked.append(alive)
        raise SlurmError("sbatch", "violates accounting/QOS policy", passing=False)

    with pytest.raises(SlurmError, match="QOS"):
        follow(watch, [ONE], display, Stop(), refill, lambda: True)
    assert asked == [1], "asked once only"
    assert display.over == [(ONE.cell_id(), "lost")]
