"""Cells are started in order on free cores, and none runs on when the sweep ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs.cell.launch import CellTask
from jobs.cell.lock import holder, is_running
from jobs.cell.ranks import end_leftovers
from jobs.cell.state import BROKEN, FORCED, RUNNING, UNREADABLE, Standing, lay_out, survey
from jobs.cell.stop import Reason, Stop
from jobs.local import ranks
from jobs.local.supervisor import Machine, run_cells
from jobs.messages import Interrupted
from tests.builders import config, record
from tests.jobs.local.scripted import Play, alive, family, stage
from tests.sweeps import wait_until
from tests.unreadable import is_untouched, unreadable
from train.config.run import RunConfig
from train.record.run import SweepManifest, read_record

GOOD = "beat()\nepoch(1)\ngood()\n"
LONG = "beat()\nepoch(1)\nmark('in')\nlive()\n"
#: leaves when it ran and on which cores
SPAN = """
if RANK == 0:
    span = dict(begin=time.time(), cores=os.environ["HOROSCALE_CORES"])
    live(0.6)
    (CELL / "span.json").write_text(json.dumps(dict(span, end=time.time())))
good()
"""
#: the same, but waits until another cell has begun, too, however slow the machine is
TOGETHER = SPAN.replace(
    "    live(0.6)\n",
    """    (CELL / "begun").touch()
    until = time.time() + 60
    while len(list(CELL.parent.glob("*/begun"))) < 2 and time.time() < until:
        live(0.05)
    live(0.3)
""",
)
STOPPED = Reason("cancelled", "a test")


@dataclass
class Seen:
    """A display that remembers."""

    events: list[tuple[str, ...]] = field(default_factory=list)
    on_tick: Callable[[], object] = lambda: None

    def started(self, cell: Standing) -> None:
        self.events.append(("started", cell.folder.name))

    def tick(self) -> None:
        self.on_tick()

    def ended(self, cell: Standing, status: str, why: str) -> None:
        self.events.append(("ended", cell.folder.name, status))


@dataclass
class Sweep:
    folder: Path
    configs: list[RunConfig]
    display: Seen = field(default_factory=Seen)
    stop: Stop = field(default_factory=Stop)

    @property
    def cells(self) -> list[Path]:
        return [self.folder / one.cell_id() for one in self.configs]

    def run(self, *, cores: int = 2, at_once: int = 1, force: bool = False) -> list[str]:
        """Statuses, in the order of the configs."""
        machine = Machine(tuple(range(cores)), 1, Path("data"), Path("store"), 60, None, at_once)
        standing = survey(self.configs, self.folder)
        if force:
            standing = [Standing(c.config, c.folder, FORCED, "") for c in standing]
        found = run_cells(standing, self.folder, machine, self.display, self.stop)
        return [found.get(one.cell_id(), "not run") for one in self.configs]


@pytest.fixture
def sweep(tmp_path, monkeypatch) -> Callable[..., Sweep]:
    """Lay out cells of these rank counts, whose ranks play ``body``."""
    monkeypatch.setattr(ranks, "GRACE_S", 0.5)
    folders = []

    def make(body: str, *gpus: int) -> Sweep:
        scene = stage(tmp_path / "a 'stage'", body)
        monkeypatch.setattr(sys, "executable", scene.python)
        configs = [config(gpus=n, seed=seed) for seed, n in enumerate(gpus)]
        scene.expect(configs)
        folder = tmp_path / 'results of\n a "test"' / "trial"
        folder.mkdir(parents=True)
        folders.append(folder)
        names = tuple(one.cell_id() for one in configs)
        lay_out(configs, folder, SweepManifest(name="t", title="t", cells=names, techniques=()))
        return Sweep(folder, configs)

    yield make
    for folder in folders:
        for cell in folder.glob("*/config.json"):
            end_leftovers(cell.parent)
            assert not is_running(cell.parent), "no supervisor may be left"


def spans(sweep: Sweep) -> list[tuple[float, float, str]]:
    found = [json.loads((cell / "span.json").read_text()) for cell in sweep.cells]
    return [(one["begin"], one["end"], one["cores"]) for one in found]


def test_one_after_the_other_in_order(sweep) -> None:
    trial = sweep(SPAN, 1, 2, 1)
    assert trial.run() == ["completed"] * 3
    (_, a_end, _), (b_begin, b_end, _), (c_begin, _, _) = spans(trial)
    assert a_end < b_begin and b_end < c_begin
    names = [cell.name for cell in trial.cells]
    assert trial.display.events == [
        event for name in names for event in (("started", name), ("ended", name, "completed"))
    ]


def test_two_at_once_on_cores_of_their_own_and_a_big_one_alone(sweep) -> None:
    trial = sweep(TOGETHER, 1, 2, 4)
    assert trial.run(cores=3, at_once=3) == ["completed"] * 3
    (a_begin, a_end, a), (b_begin, b_end, b), (c_begin, _, _) = spans(trial)
    assert a_begin < b_end and b_begin < a_end, "side by side"
    assert {a, b} == {"0", "1"}
    assert c_begin > max(a_end, b_end), "four ranks on three cores"


def test_good_ones_are_not_run(sweep) -> None:
    trial = sweep(GOOD, 1, 1)
    (trial.cells[0] / "record.json").write_text(record(trial.configs[0]).model_dump_json())
    assert trial.run() == ["not run", "completed"]


@pytest.mark.parametrize("before", [FORCED, BROKEN])
def test_what_is_run_anew_is_put_aside_whole(sweep, before: str) -> None:
    trial = sweep(GOOD, 1)
    (cell,) = trial.cells
    text = record(trial.configs[0]).model_dump_json()
    text = text if before == FORCED else text[:-9]
    (cell / "record.json").write_text(text)
    (cell / "logs").mkdir()
    (cell / "logs" / "rank-0.log").write_text("earlier")
    assert trial.run(force=before == FORCED) == ["completed"]
    (kept,) = cell.glob("archive/*")
    assert (kept / "record.json").read_text() == text
    assert (kept / "logs" / "rank-0.log").read_text() == "earlier"


def test_a_failed_cell_does_not_end_the_sweep(sweep) -> None:
    trial = sweep("os._exit(3) if 's0' in CELL.name else good()\n", 1, 1)
    assert trial.run() == ["failed", "completed"]


def test_a_killed_supervisor_is_settled_before_the_next_cell(sweep) -> None:
    """Its ranks cannot notice; the next cell must not be measured beside them."""
    body = "beat()\nmark('in')\ntime.sleep(60) if 's0' in CELL.name else good()\n"
    trial = sweep(body, 2, 1)
    first, second = trial.cells

    def kill() -> None:
        if list(first.glob("mark-in-*")) and (first / "logs" / "attempt.json").exists():
            os.kill(holder(first).process, signal.SIGKILL)
            trial.display.on_tick = lambda: None

    trial.display.on_tick = kill
    assert trial.run() == ["lost", "completed"]
    assert read_record(first / "record.json").status == "lost"
    assert not alive(first)
    begun = (second / "mark-in-0").stat().st_mtime
    assert begun > (first / "record.json").stat().st_mtime


def test_a_supervisor_outlives_submitits_process(sweep) -> None:
    waiting = "while not (CELL.parent / 'go').exists():\n    live(0.1)\n"
    trial = sweep(f"mark('in')\n{waiting}good()\n", 1, 1)

    def kill() -> None:
        if list(trial.cells[0].glob("mark-in-*")):
            parent = int(
                Path(f"/proc/{holder(trial.cells[0]).process}/stat").read_text().split()[3]
            )
            os.kill(parent, signal.SIGKILL)
            (trial.folder / "go").touch()
            trial.display.on_tick = lambda: None

    trial.display.on_tick = kill
    assert trial.run() == ["completed", "completed"]
    assert read_record(trial.cells[0] / "record.json").attempts[0].number == 1


def test_a_supervisor_that_cannot_begin_leaves_its_reason(sweep) -> None:
    trial = sweep(GOOD, 1, 1)
    (trial.cells[0] / "config.json").write_text("{")
    assert trial.run() == ["lost", "completed"]
    error = read_record(trial.cells[0] / "record.json").error
    assert "before it could start a rank" in error.what
    assert any("is not a valid config" in line for line in error.log_tail)
    assert Path(error.where).exists()


def test_a_retry_that_cannot_begin_is_not_taken_for_the_earlier_failure(sweep) -> None:
    trial = sweep("os._exit(3)\n", 1)
    assert trial.run() == ["failed"]
    (trial.cells[0] / "config.json").write_text("{")
    assert trial.run() == ["lost"]
    found = read_record(trial.cells[0] / "record.json")
    assert [a.status for a in found.attempts] == ["failed", "lost"]


def test_a_folder_that_is_removed_meanwhile(sweep) -> None:
    trial = sweep("mark('in')\nlive(1)\n", 1, 1)

    def remove() -> None:
        if list(trial.cells[0].glob("mark-in-*")):
            shutil.rmtree(trial.cells[0], ignore_errors=True)
            trial.display.on_tick = lambda: None

    trial.display.on_tick = remove
    assert len(trial.run()) == 2, "it goes on, whatever became of the cell"


def test_a_stop_ends_what_runs_and_starts_nothing_more(sweep) -> None:
    trial = sweep(LONG, 1, 1, 1)

    def stop() -> None:
        if all(list(cell.glob("mark-in-*")) for cell in trial.cells[:2]):
            trial.stop.told = STOPPED

    trial.display.on_tick = stop
    with pytest.raises(Interrupted) as found:
        trial.run(at_once=2)
    assert found.value.left == () and str(found.value) == "a test"
    statuses = [read_record(cell / "record.json").status for cell in trial.cells[:2]]
    assert statuses == ["cancelled"] * 2
    assert not (trial.cells[2] / "record.json").exists()
    assert not any(alive(cell) for cell in trial.cells)


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.6])
def test_a_stop_at_any_moment_of_a_start(sweep, delay: float) -> None:
    trial = sweep(LONG, 1)

    def stop() -> None:
        trial.stop.told = STOPPED

    timer = threading.Timer(delay, stop)
    timer.start()
    with pytest.raises(Interrupted):
        trial.run()
    (cell,) = trial.cells
    assert not alive(cell) and not is_running(cell) and not family(trial.folder)
    if (cell / "record.json").exists():
        assert read_record(cell / "record.json").status == "cancelled"


def test_whatever_goes_wrong_here_ends_what_runs(sweep) -> None:
    trial = sweep(LONG, 1)

    def fail() -> None:
        if list(trial.cells[0].glob("mark-in-*")):
            raise OSError(28, "No space left on device")

    trial.display.on_tick = fail
    with pytest.raises(OSError, match="No space left"):
        trial.run()
    assert not alive(trial.cells[0])
    assert read_record(trial.cells[0] / "record.json").status == "cancelled"


@pytest.fixture
def orphan(sweep) -> Callable[[str], tuple[Sweep, Play]]:
    """A sweep of two cells, and an earlier sweep's supervisor for the first one."""

    def make(body: str) -> tuple[Sweep, Play]:
        trial = sweep(body, 1, 1)
        cell = str(trial.cells[0])
        task = CellTask(cell, "", "", sys.executable, ((0,),), False, 60.0, None, None)
        return trial, Play(task, trial.configs[0])

    return make


def test_a_cell_that_still_runs_is_waited_for_and_its_cores_left_alone(orphan) -> None:
    trial, earlier = orphan(SPAN.replace("0.6", "2.5"))
    with earlier.supervisor():
        wait_until(lambda: is_running(trial.cells[0]), "the supervisor")
        assert survey(trial.configs, trial.folder)[0].status == RUNNING
        assert trial.run(at_once=2) == ["completed", "completed"]
    (_, a_end, _), (b_begin, _, _) = spans(trial)
    assert a_end < b_begin
    assert len(read_record(trial.cells[0] / "record.json").attempts) == 1, "run once"


def test_a_cell_that_still_ran_and_failed_is_run_again(orphan) -> None:
    body = """
if ATTEMPT == 1 and "s0" in CELL.name:
    while not (CELL.parent / "go").exists():
        live(0.1)
    fail("first")
good()
"""
    trial, earlier = orphan(body)
    trial.display.on_tick = (trial.folder / "go").touch
    with earlier.supervisor():
        wait_until(lambda: is_running(trial.cells[0]), "the supervisor")
        assert trial.run() == ["completed", "completed"]
    assert trial.display.events.count(("started", trial.cells[0].name)) == 2


def test_a_stop_ends_a_cell_that_still_runs(orphan) -> None:
    trial, earlier = orphan(LONG)
    with earlier.supervisor():
        wait_until(lambda: list(trial.cells[0].glob("mark-in-*")), "the rank")
        trial.display.on_tick = lambda: setattr(trial.stop, "told", STOPPED)
        began = time.monotonic()
        with pytest.raises(Interrupted):
            trial.run()
        assert time.monotonic() - began < 30
    assert read_record(trial.cells[0] / "record.json").status == "cancelled"
    assert not alive(trial.cells[0])


def test_pickles_are_private_and_never_met_again(sweep) -> None:
    trial = sweep("os._exit(1)\n", 1)
    trial.run()
    trial.run()
    private = trial.folder / ".submitit"
    assert private.stat().st_mode & 0o777 == 0o700
    runs = list(private.iterdir())
    assert len(runs) == 2 and all(run.stat().st_mode & 0o777 == 0o700 for run in runs)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("name", ["record.json", "config.json"])
def test_a_cell_that_cannot_be_read_keeps_no_other_from_running(sweep, when, name) -> None:
    trial = sweep(GOOD, 1, 1)
    first = trial.cells[0]
    if when == "before":
        file = unreadable(first / name)
        assert trial.run() == ["not run", "completed"]
    else:
        standing = survey(trial.configs, trial.folder)
        file = unreadable(first / name)
        machine = Machine((0, 1), 1, Path("data"), Path("store"), 60, None, 1)
        found = run_cells(standing, trial.folder, machine, trial.display, trial.stop)
        assert list(found.values()) == [UNREADABLE, "completed"]
    assert is_untouched(first, file)
