"""Watching a sweep's jobs: patience with Slurm, leaving, and submitting the rest."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.stop import Reason, Stop
from jobs.slurm import reconcile as inventory
from jobs.slurm import submitter as submitter_module
from jobs.slurm import watch as module
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.cancel import announce_cancel
from jobs.slurm.client.run import Answer, SlurmError
from jobs.slurm.client.sacct import Ending, History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.preflight import PREFLIGHT_FOLDER, PreflightReport, Problem, preflight_task
from jobs.slurm.reconcile import UNCLEAR_S, unclear_in
from jobs.slurm.submissions import ArrayNote, RunNote, array_folder, write_note
from jobs.slurm.submit import plan_arrays
from jobs.slurm.submitter import Submitter
from jobs.slurm.watch import Left, Pace, Watcher, follow
from tests.builders import config, record
from tests.caching import seen_late
from tests.unreadable import unreadable
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
    def endings(self, over, gone=()) -> dict[str, Ending]:
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
    array = ArrayNote(job_id=job, units=units, nodes=1, ranks_per_node=1, minutes=1)
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

    monkeypatch.setattr(module, "shared_query", query)
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


def sending(sweep: Path, limit: int | None = 3):
    from jobs.cell.image import Image
    from jobs.config.site import Site
    from jobs.slurm.submissions import SubmissionContext

    return SubmissionContext(
        sweep="t", folder=sweep, site_name="s", site=Site(ranks_per_node=1, submit_limit=limit),
        image=Image("none", None), root=sweep, data=sweep, store=sweep, folders=(),
        stall_s=60, pack=1, git_commit=None, git_dirty=None,
    )  # fmt: skip


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str | None]]:
    """How many cells were sent with which preflight, by a stand-in of send."""
    found: list[tuple[int, str | None]] = []

    def send(sending, arrays, cells, preflight, avoid):
        found.append((sum(len(array.units) for array in arrays), preflight))
        yield from ((array, "9") for array in arrays)

    monkeypatch.setattr(submitter_module, "send", send)
    monkeypatch.setattr(submitter_module, "submit_preflight", lambda *_: "6")
    return found


def jobs(count: int, preflight: str | None = None) -> dict[str, JobState]:
    """The user's jobs: so many of other sweeps, and the preflight."""
    ids = [str(number) for number in range(100, 100 + count)]
    found = {job: JobState(job, "RUNNING", "", None, "", "", "x") for job in ids}
    if preflight:
        found["6"] = JobState("6", preflight, "", None, "", "", "x")
    return found


def todo(sweep: Path, count: int = 6):
    from jobs.cell.state import CellState

    configs = [config(seed=seed) for seed in range(count)]
    return [CellState(one, sweep / one.cell_id(), "new", "") for one in configs]


def preflight_said(sweep: Path, *problems: Problem) -> None:
    folder = sweep / PREFLIGHT_FOLDER / "r"
    folder.mkdir(parents=True)
    told = PreflightReport(key="k", job="6", at=datetime.now(UTC), seconds=1, nodes=("n1",),
                           versions={}, problems=problems)  # fmt: skip
    (folder / "report.json").write_text(told.model_dump_json())


def test_one_preflight_for_all_waves(tmp_path: Path, sent) -> None:
    submitter = Submitter(sending(tmp_path), todo(tmp_path), preflight=True)
    assert len(submitter.more({})) == 2, "the preflight is a job in the queue, too"
    assert submitter.more(jobs(2, "RUNNING")) == [], "no room"
    assert len(submitter.more(jobs(1, "RUNNING"))) == 1, "it has not ended: they wait for it"
    preflight_said(tmp_path)
    assert len(submitter.more(jobs(1, "COMPLETED"))) == 2
    assert submitter.more(jobs(3)) == [], "jobs of other sweeps count: the limit is the user's"
    assert sent == [(2, "6"), (1, "6"), (2, None)]
    assert submitter.waits()


def test_the_smallest_limit_is_no_dead_end(tmp_path: Path, sent) -> None:
    """Room for one job: the preflight alone, and when it has passed one cell after another."""
    submitter = Submitter(sending(tmp_path, 1), todo(tmp_path, 2), preflight=True)
    assert submitter.more({}) == []
    assert submitter.first == "6" and submitter.more(jobs(0, "RUNNING")) == []
    preflight_said(tmp_path)
    assert len(submitter.more(jobs(0, "COMPLETED"))) == 1
    assert submitter.more(jobs(1)) == []
    assert len(submitter.more({})) == 1 and not submitter.waits()
    assert sent == [(1, None), (1, None)]


@pytest.mark.parametrize("report", [True, False])
def test_nothing_more_after_a_bad_preflight(tmp_path: Path, sent, monkeypatch, report) -> None:
    """Bad also when it died without a report, once that would have been seen."""
    submitter = Submitter(sending(tmp_path), todo(tmp_path), preflight=True)
    submitter.more({})
    if report:
        problem = Problem(node="n", check="c", found="f", expected="e", fix="x")
        preflight_said(tmp_path, problem)
    else:
        assert submitter.more(jobs(1)) == [] and submitter.waits(), "it may be seen later"
        monkeypatch.setattr(submitter_module, "SETTLE_WELL_S", 0.0)
    assert submitter.more({}) == []
    assert not submitter.waits()


def test_a_recent_good_preflight_is_enough(tmp_path: Path, sent, monkeypatch) -> None:
    monkeypatch.setattr(submitter_module, "is_whole", lambda *_: True)
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path), preflight=True)
    assert len(submitter.more(jobs(5))) == 6
    assert sent == [(6, None)]


def test_a_preflight_of_an_earlier_run_is_waited_for(tmp_path: Path, sent) -> None:
    """Else each make sweep after a refusal would leave one more."""
    first = sending(tmp_path, None)
    task = preflight_task(first, NodeLayout(1, 1), datetime.now(UTC))
    array = ArrayNote(job_id="6", units=(("preflight",),), nodes=1, ranks_per_node=1, minutes=1)
    write_note(tmp_path, RunNote(run="r", site="s", job_name="n", submitted_at=datetime.now(UTC),
                                 arrays=(array,), kind="preflight", key=task.key))  # fmt: skip
    submitter = Submitter(first, todo(tmp_path), preflight=True)
    assert len(submitter.more(jobs(0, "PENDING"))) == 6
    assert sent == [(6, "6")]


def test_make_cancel_ends_the_submissions_of_a_waiting_sweep(tmp_path: Path, sent) -> None:
    announce_cancel(tmp_path)  # an earlier one
    submitter = Submitter(sending(tmp_path, 1), todo(tmp_path), preflight=False)
    assert len(submitter.more({})) == 1
    announce_cancel(tmp_path)
    assert submitter.more({}) == [] and not submitter.waits()


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> list[SlurmError | None]:
    """What each sbatch of a stand-in of send meets, None: it is accepted; the rest is accepted."""
    told: list[SlurmError | None] = []

    def send(sending, arrays, cells, preflight, avoid):
        for array in arrays:
            error = told.pop(0) if told else None
            if error is not None:
                raise error
            yield array, "9"

    monkeypatch.setattr(submitter_module, "send", send)
    return told


def refused(words: str) -> SlurmError:
    error = SlurmError("sbatch", words, passing=False)
    error.refused = True
    return error


def shapes(folder: Path, *gpus: int):
    from jobs.cell.state import CellState

    configs = [config(gpus=count) for count in gpus]
    return [CellState(one, folder / one.cell_id(), "new", "") for one in configs]


def test_what_was_submitted_before_a_refusal_is_watched(tmp_path: Path, fails) -> None:
    fails += [None, refused("Invalid qos specification")]
    submitter = Submitter(sending(tmp_path, None), shapes(tmp_path, 1, 2), preflight=False)
    assert len(submitter.more({})) == 1, "the first array is in the queue"
    with pytest.raises(SlurmError, match="Invalid qos"):
        submitter.more({})


def test_what_sbatch_may_have_accepted_is_not_submitted_again(
    tmp_path: Path, fails, monkeypatch
) -> None:
    """Seen: it timed out, the job came into the queue, and the next look submitted another one."""
    error = SlurmError("sbatch", "Socket timed out", passing=True)
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path, 1), preflight=False)
    (array,) = plan_arrays(submitter.sending, submitter.todo)
    error.submission = ("r1", "0", array)
    fails.append(error)
    assert submitter.more({}) == [] and submitter.last is error
    assert submitter.more({}) == [] and submitter.waits(), "not known yet"
    job = JobState("9", "PENDING", "", None, "", "", "x", comment="horoscale:r1:0")
    assert len(submitter.more({"9": job})) == 1 and not submitter.waits()
    submitter.todo = todo(tmp_path, 1)
    fails.append(error)
    monkeypatch.setattr(submitter_module, "UNCLEAR_S", 0.0)
    assert submitter.more({}) == []
    assert len(submitter.more({})) == 1, "nowhere after that time: submitted again"


def test_what_an_earlier_make_sweep_may_have_submitted_is_waited_for(tmp_path: Path) -> None:
    note = RunNote(
        run="r1", site="s", job_name="n", submitted_at=datetime.now(UTC),
        arrays=(ArrayNote(units=((ONE.cell_id(),),), nodes=1, ranks_per_node=1, minutes=1),),
    )  # fmt: skip
    cells = todo(tmp_path, 2)
    assert unclear_in(tmp_path, [note], cells) == [], "its sbatch was never called"
    script = array_folder(tmp_path, "r1", 0) / "submission.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    (one,) = unclear_in(tmp_path, [note], cells)
    assert [cell.config for cell in one.cells] == [ONE]
    then = time.time() - UNCLEAR_S - 1
    os.utime(script, (then, then))
    assert unclear_in(tmp_path, [note], cells) == []


def test_a_disk_that_fills_in_a_wave_forgets_nothing(tmp_path: Path, fails) -> None:
    fails += [None, OSError(28, "No space left on device")]
    submitter = Submitter(sending(tmp_path, None), shapes(tmp_path, 1, 2), preflight=False)
    assert len(submitter.more({})) == 1 and isinstance(submitter.last, OSError)
    assert len(submitter.more({})) == 1 and not submitter.waits()


def test_a_limit_that_others_fill_is_tried_again_when_there_may_be_room(
    tmp_path: Path, fails, monkeypatch
) -> None:
    monkeypatch.setattr(submitter_module, "submit_limit", lambda *_: 100)
    fails.append(refused("AssocGrpSubmitJobsLimit"))
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path, 6), preflight=False)
    assert submitter.more(jobs(2)) == [] and submitter.last is not None
    assert submitter.more(jobs(2)) == [], "nothing has changed"
    assert len(submitter.more(jobs(1))) == 6


def test_a_limit_without_a_name_is_another_one_where_there_is_room(
    tmp_path: Path, fails, monkeypatch
) -> None:
    monkeypatch.setattr(submitter_module, "submit_limit", lambda *_: 100)
    fails.append(refused("Job violates accounting/QOS policy (job submit limit, user's size and/or "
                         "time limits)"))  # fmt: skip
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path, 6), preflight=False)
    with pytest.raises(SlurmError, match="violates"):
        submitter.more(jobs(2))


def test_a_read_error_is_no_make_cancel(tmp_path: Path, sent, monkeypatch) -> None:
    announce_cancel(tmp_path)
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path, 1), preflight=False)
    unreadable(tmp_path / ".slurm" / "cancel")
    assert len(submitter.more({})) == 1


def test_make_cancel_during_a_wave_ends_it(tmp_path: Path, monkeypatch) -> None:
    ended: list[list[str]] = []

    def send(sending, arrays, cells, preflight, avoid):
        for array in arrays:
            announce_cancel(tmp_path)
            yield array, "9"

    monkeypatch.setattr(submitter_module, "send", send)
    monkeypatch.setattr(
        submitter_module, "cancel", lambda ids, *_, **__: ended.append(ids) or Answer(0, "", "")
    )
    submitter = Submitter(sending(tmp_path, None), shapes(tmp_path, 1, 2), preflight=False)
    assert len(submitter.more({})) == 1 and not submitter.waits()
    assert ended == [["9"]], "make cancel looked before it was in the queue"


def test_a_node_that_failed_is_asked_for_where_nothing_runs_without_it(
    tmp_path: Path, fails, monkeypatch
) -> None:
    monkeypatch.setattr(submitter_module, "failed_nodes", lambda _: {"n1"})
    monkeypatch.setattr(submitter_module, "usable_nodes", lambda _: {"n1", "n2"})
    fails.append(refused("Requested node configuration is not available"))
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path, 1), preflight=False)
    assert len(submitter.more({})) == 1


def test_a_preflight_that_passed_and_is_forgotten_needs_no_dependency(
    tmp_path: Path, fails, monkeypatch
) -> None:
    """A list may be a minute old, and Slurm forgets jobs sooner at some sites."""
    monkeypatch.setattr(submitter_module, "submit_preflight", lambda *_: "6")
    fails.append(refused("Job dependency problem"))
    preflight_said(tmp_path)
    submitter = Submitter(sending(tmp_path, None), todo(tmp_path, 1), preflight=True)
    assert len(submitter.more({})) == 1 and not submitter.preflight


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
