"""Cells run in order on free cores; each start leaves one record and no process, whatever its
ranks, signals and disks do.

The ranks here are scripted; real ones are in tests/test_end_to_end.py.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cell import attempt, heartbeat
from jobs.cell.attempt import attend
from jobs.cell.missing_record import ATTEMPT_NAME, RESERVE_NAME
from jobs.cell.state import BROKEN, FORCED, MAY_RUN, OTHERS, RUNNING, UNREADABLE, recorded
from jobs.cell.stop import Reason
from jobs.local import supervisor
from jobs.messages import EXIT_INTERRUPTED, Interrupted
from jobs.slurm.watch.reconcile import by_files
from tests.builders import config, epoch, record
from tests.jobs.local.conftest import Sweep
from tests.jobs.local.scripted import GOOD, LONG, Trial
from tests.sweeps import ROOT, rank_processes, wait_until
from tests.unreadable import is_untouched, stale, unreadable
from train.distributed.machine.cores import claim
from train.record.lock import hold, holder
from train.record.run import RunRecord, read_record

STOPPED = Reason("cancelled", "a test")
#: Numbers of cores that no machine has, and no real rank claims.
FIRST = 1_000_000 + 10 * os.getpid()
#: waits until another cell has begun, too, however slow the machine is
TOGETHER = """
mark(os.environ["HOROSCALE_CORES"])
until = time.time() + 60
while SIZE < 4 and len(list(CELL.parent.glob("*/mark-*"))) < 3 and time.time() < until:
    live(0.05)
good()
"""


def left(cell: Path) -> RunRecord:
    """The record; and nothing else may be left of the start."""
    assert not rank_processes(cell)
    assert not (cell / RESERVE_NAME).exists() and not list(cell.rglob("*.tmp"))
    assert not (cell / "logs" / ATTEMPT_NAME).exists()
    assert holder(cell) is None
    return read_record(cell / "record.json")


def in_play(*cells: Path) -> bool:
    return all(list(cell.glob("mark-in-*")) for cell in cells)


def when(trial: Trial, ready: Callable[[], object], act: Callable[[], object]) -> None:
    """Act once, in the sweep's own thread, when it is so."""

    def look() -> None:
        if ready():
            trial.display.on_tick = lambda: None
            act()

    trial.display.on_tick = look


def starts_and_ends(*cells: Path) -> list[tuple[str, ...]]:
    return [one for c in cells for one in (("started", c.name), ("ended", c.name, "completed"))]


def test_one_after_the_other_in_order(sweep: Sweep) -> None:
    trial = sweep(GOOD, 1, 2, 1, 1)
    (trial.cells[3] / "record.json").write_text(record(trial.configs[3]).model_dump_json())
    assert trial.run() == ["completed"] * 3 + ["not run"]
    assert trial.display.events == starts_and_ends(*trial.cells[:3])


def test_two_at_once_on_cores_of_their_own_and_a_big_one_alone(sweep: Sweep) -> None:
    trial = sweep(TOGETHER, 1, 2, 4)
    cores = tuple(range(FIRST, FIRST + 3))
    assert trial.run(cores=cores, at_once=3) == ["completed"] * 3
    events, (a, b, c) = trial.display.events, trial.cells
    assert events[:2] == [("started", a.name), ("started", b.name)], "side by side"
    assert events[4:] == starts_and_ends(c), "four ranks on three cores"
    marks = [sorted(file.name for file in cell.glob("mark-*")) for cell in (a, b)]
    first, second, third = cores
    assert marks == [[f"mark-{first}-0"], [f"mark-{second}-0", f"mark-{third}-1"]]


def test_cores_of_another_run_are_left_to_it(sweep: Sweep) -> None:
    """Seen: two sweeps on one machine took the same core, at half the speed, without a remark."""
    cores = tuple(range(FIRST, FIRST + 3))
    other = claim(cores[:1], ())
    told = 'mark(os.environ["HOROSCALE_CORES"] + "-" + os.environ["HOROSCALE_SPARE"])\n'
    trial = sweep(told + GOOD, 1, 2)
    assert trial.run(cores=cores[:2], more_cores=cores[2:]) == ["completed"] * 2
    marks = [file.name for cell in trial.cells for file in sorted(cell.glob("mark-*"))]
    assert marks[0] == f"mark-{FIRST + 1}-{FIRST},{FIRST + 2}-0"
    assert [mark.split("-")[1] for mark in marks[1:]] == [str(FIRST + 1), str(FIRST + 2)]
    assert not trial.display.said and not other.shared()
    assert trial.run(force=True, cores=cores[:2]) == ["completed"] * 2
    (line,) = trial.display.said
    assert "ranks share them" in line


def test_of_a_good_start_one_log_stays(sweep: Sweep) -> None:
    body = "os.system('echo out; echo err >&2')\n(CELL / 'logs' / 'srun.log').touch()\n" + GOOD
    trial = sweep(body, 2)
    assert trial.run() == ["completed"]
    left(trial.cell)
    files = {str(f.relative_to(trial.cell)) for f in trial.cell.rglob("*") if f.is_file()}
    assert files == {".running", "config.json", "epochs.jsonl", "logs/rank-0.log", "record.json"}
    assert (trial.cell / "logs" / "rank-0.log").read_text() == "out\nerr\n"


@pytest.mark.parametrize("change", [{"alarms": ("odd",)}, {"status": "diverged"}])
def test_of_a_start_with_alarms_and_of_a_diverged_one_all_logs_stay(sweep: Sweep, change) -> None:
    trial = sweep(GOOD, 2)
    text = record(trial.configs[0], **change).model_dump_json()
    (trial.stage / "good" / f"{trial.cell.name}.json").write_text(text)
    assert trial.run() == [change.get("status", "completed")]
    assert {"rank-0.log", "rank-1.log"} <= {file.name for file in trial.cell.glob("logs/*")}


@pytest.mark.parametrize("before", [FORCED, BROKEN])
def test_what_is_run_again_is_put_aside_whole(sweep: Sweep, before: str) -> None:
    trial = sweep(GOOD, 1)
    text = record(trial.configs[0]).model_dump_json()
    text = text if before == FORCED else text[:-9]
    (trial.cell / "record.json").write_text(text)
    (trial.cell / "logs").mkdir()
    (trial.cell / "logs" / "rank-0.log").write_text("earlier")
    assert trial.run(force=before == FORCED) == ["completed"]
    (kept,) = trial.cell.glob("archive/*")
    assert (kept / "record.json").read_text() == text
    assert (kept / "logs" / "rank-0.log").read_text() == "earlier"
    assert (trial.cell / "config.json").exists(), "which a start needs"
    assert trial.run(force=True) == ["completed"]
    assert len(list(trial.cell.glob("archive/*"))) == 2, "side by side"


@pytest.mark.parametrize(
    ("body", "rank", "words"),
    [
        ("if RANK: live(3000)\nprint('last words', flush=True); os._exit(1)", 0, "exit code 1"),
        ("(CELL / 'record.json').write_text('{')", 0, "no good record"),
    ],
)
def test_a_bad_end_is_a_failed_record_with_its_culprit(sweep, body, rank, words) -> None:
    waiting = "while not (CELL / 'mark-e-0').exists():\n    time.sleep(0.01)\n"
    trial = sweep(f"beat()\nepoch(1)\nmark('e')\n{waiting}{body}\n")
    assert trial.run() == ["failed"]
    found = left(trial.cell)
    assert found.error and found.error.rank == rank and words in found.error.what
    assert "last words" not in body or found.error.log_tail == ("last words",)
    assert [e.epoch for e in found.epochs] == [1], "what was measured before is kept"
    assert [a.status for a in found.attempts] == ["failed"]
    assert (trial.cell / "logs" / "rank-1.log").exists(), "of a failed start all files stay"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent ranks are ended after 5 s."""
    for name, seconds in (("BEAT_S", 4.0), ("CACHED_S", 0.0), ("LOOK_S", 1.0)):
        monkeypatch.setattr(heartbeat, name, seconds)


def test_ranks_that_all_fell_silent_are_ended(sweep: Sweep, soon: None) -> None:
    trial = sweep("beat('all-reduce')\ntime.sleep(240)\n")
    began = time.monotonic()
    assert trial.run(stall_s=0.0) == ["failed"]
    assert 5 < time.monotonic() - began < 60
    error = left(trial.cell).error
    assert error is not None
    told = rf"a hang: rank {error.rank} showed no life for \d+ s \(while: all-reduce\)"
    assert re.search(told, error.what)


#: A sweep of one cell in a process of its own (its folder, ranks' Python), which signals stop and
#: which gives up before a rank deaf to SIGTERM is killed.
ALONE = """
import sys
from pathlib import Path
from jobs.cell.stop import stopped_by_signals
from jobs.local import supervisor, sweep
from tests.jobs.local.scripted import Trial
from train.config.run import load_config
cell, sys.executable = Path(sys.argv[1]), sys.argv[2]
trial = Trial(cell, cell.parent, [load_config(cell / "config.json")])
supervisor.Ranks.term_s, sweep.END_S = 20, 1
with stopped_by_signals() as trial.stop, trial.display:
    trial.run()
"""


def alone(trial: Trial) -> subprocess.Popen[str]:
    python = str(trial.stage / "python")
    return subprocess.Popen(
        [python, "-c", ALONE, str(trial.cell), python], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def test_after_a_killed_supervisor_its_ranks_are_ended_and_its_start_is_lost(sweep: Sweep) -> None:
    """Its ranks cannot notice it."""
    trial = sweep("beat()\nepoch(1)\nmark('in')\nos._exit(4) if ATTEMPT == 2 else time.sleep(60)\n")
    cell = trial.cell
    with alone(trial) as process:
        wait_until(lambda: len(list(cell.glob("mark-in-*"))) == 2, "the ranks")
        assert by_files(recorded(trial.configs[0], cell)).state == RUNNING
        process.kill()
        process.communicate()
    assert by_files(recorded(trial.configs[0], cell)).state == "lost", "as make status says"
    time.sleep(1.5)
    wrote = max(file.stat().st_mtime for file in cell.glob("mark-in-*"))
    assert len(rank_processes(cell)) == 2 and not (cell / "record.json").exists()
    (found,) = trial.look()
    assert found.status == "lost"
    first = left(cell)
    assert abs(first.ended_at.timestamp() - wrote) < 1, "its last sign of life"
    assert [e.epoch for e in first.epochs] == [1]
    assert trial.run() == ["failed"]
    second = left(cell)
    assert [a.status for a in second.attempts] == ["lost", "failed"]
    assert second.error and "exit code 4" in second.error.what


def test_a_folder_that_is_removed_meanwhile(sweep: Sweep) -> None:
    trial = sweep("mark('in')\nlive(1)\n", 1, 1)
    when(trial, lambda: in_play(trial.cell), lambda: shutil.rmtree(trial.cell, ignore_errors=True))
    assert trial.run()[1] == "failed", "it goes on, whatever became of the cell"


def test_a_stop_ends_what_runs_and_starts_nothing_more(sweep: Sweep) -> None:
    trial = sweep(LONG, 1, 1, 1)
    when(trial, lambda: in_play(*trial.cells[:2]), lambda: setattr(trial.stop, "told", STOPPED))
    with pytest.raises(Interrupted, match="a test"):
        trial.run(at_once=2)
    for cell in trial.cells[:2]:
        found = left(cell)
        assert found.status == "cancelled" and [e.epoch for e in found.epochs] == [1]
    assert not (trial.cells[2] / "record.json").exists()
    ended = [event[2] for event in trial.display.events if event[0] == "ended"]
    assert ended == ["cancelled"] * 2


def test_a_stop_does_not_wait_for_ever(sweep: Sweep) -> None:
    trial = sweep("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LONG, 1)
    with alone(trial) as process:
        wait_until(lambda: in_play(trial.cell), "the rank")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert f"could not be ended in time: {trial.cell.name}" in err
    wait_until(lambda: not rank_processes(trial.cell), "the rank's end")


def test_whatever_goes_wrong_here_ends_what_runs(sweep: Sweep) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    trial = sweep(LONG, 1)
    when(trial, lambda: in_play(trial.cell), fail)
    with pytest.raises(OSError, match="No space left"):
        trial.run()
    assert left(trial.cell).status == "cancelled"


def test_a_fault_of_our_own_in_one_cell_ends_no_other(sweep: Sweep, monkeypatch, capfd) -> None:
    trial = sweep(GOOD, 1, 1)

    def faulty(cell: Path, *told: object, **options: object) -> RunRecord:
        return {}["ours"] if cell == trial.cell else attend(cell, *told, **options)

    monkeypatch.setattr(supervisor, "attend", faulty)
    assert trial.run() == ["lost", "completed"]
    assert "KeyError: 'ours'" in capfd.readouterr().err


@pytest.mark.parametrize("completed", [True, False])
def test_a_cell_that_somebody_else_runs_is_waited_for(sweep: Sweep, completed: bool) -> None:
    trial, other = sweep("mark('in')\n" + GOOD, 1, 1), ExitStack()
    later = time.monotonic() + 1

    def release() -> None:
        assert trial.display.events == [("started", trial.cell.name)]
        if completed:
            good = record(trial.configs[0]).model_dump_json()
            (trial.cell / "record.json").write_text(good)
        other.close()

    when(trial, lambda: time.monotonic() > later, release)
    assert other.enter_context(hold(trial.cell))
    assert trial.look()[0].status == RUNNING
    assert trial.run() == ["completed", "completed"]
    assert in_play(trial.cell) is not completed, "else it is run here"


def test_a_stop_ends_the_waiting(sweep: Sweep) -> None:
    trial = sweep(GOOD, 1)
    trial.display.on_tick = lambda: setattr(trial.stop, "told", STOPPED)
    with hold(trial.cell), pytest.raises(Interrupted):
        trial.run()
    assert not (trial.cell / "record.json").exists()


@pytest.mark.parametrize("name", ["record.json", "config.json"])
def test_a_cell_that_cannot_be_read_keeps_no_other_from_running(sweep: Sweep, name: str) -> None:
    trial = sweep(GOOD, 1, 1)
    cells = trial.look()
    file = unreadable(trial.cell / name)
    assert trial.attend(cells) == [UNREADABLE, "completed"], "it became so meanwhile"
    assert trial.attend([replace(cells[0], status=FORCED)])[0] == UNREADABLE
    (trial.cells[1] / "record.json").unlink()
    assert trial.run() == ["not run", "completed"]
    assert is_untouched(trial.cell, file)


def test_a_folder_that_cannot_be_used_keeps_no_other_from_running(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: `make sweep` ended with exit code 2, and nothing ran."""
    trial = sweep(GOOD, 1, 1, 1)
    cells = trial.look()
    stale(monkeypatch, trial.cell)
    assert trial.attend(cells)[:2] == [UNREADABLE, "completed"], "it became so meanwhile"
    (trial.cells[2] / "record.json").unlink()
    assert trial.run() == ["not run", "not run", "completed"]
    assert [cell.left_alone for cell in trial.look()] == [True, False, False]
    monkeypatch.undo()
    assert not (trial.cell / "record.json").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_cell_that_may_run_on_another_machine_keeps_no_other_from_running(
    sweep: Sweep, force: bool
) -> None:
    trial = sweep("mark('in')\n" + GOOD, 1, 1)
    cells = trial.look()
    signature = "job 7_1, process 7 on node9, boot 1, 0:45"
    (trial.cell / ".running").write_text(signature)
    again = [replace(cells[0], status=FORCED) if force else cells[0], cells[1]]
    assert trial.attend(again) == [MAY_RUN, "completed"], "it became so meanwhile"
    assert trial.run() == ["not run", "not run"]
    assert not in_play(trial.cell) and not (trial.cell / "record.json").exists()
    assert (trial.cell / ".running").read_text() == signature


@pytest.mark.parametrize(("seed", "status"), [(7, OTHERS), (0, "completed")])
def test_a_record_that_came_meanwhile_stays(sweep: Sweep, seed: int, status: str) -> None:
    """Another config's, or a good one in the place of one that was broken."""
    trial = sweep("mark('in')\n", 1)
    file = trial.cell / "record.json"
    file.write_text("{")
    cells = trial.look()
    assert cells[0].status == BROKEN
    file.write_text(text := record(config(seed=seed)).model_dump_json())
    assert trial.attend(cells) == [status]
    assert file.read_text() == text and not in_play(trial.cell)


def test_a_retry_counts_on_and_starts_clean(sweep: Sweep) -> None:
    trial = sweep(
        """
if ATTEMPT == 1:
    epoch(1); fail("ValueError: first")
assert not (CELL / "epochs.jsonl").exists() and not list(CELL.glob("logs/*.error.json"))
os._exit(4)
""",
        1,
    )
    assert trial.run() == ["failed"]
    (trial.cell / ".checkpoint.npz.0123456789ab.tmp").write_text("half a checkpoint")
    assert trial.run() == ["failed"]
    found = left(trial.cell)
    assert [a.number for a in found.attempts] == [1, 2]
    assert found.error and "exit code 4" in found.error.what and not found.epochs


@pytest.mark.parametrize("met", [True, False])
def test_going_on_keeps_what_there_is(sweep: Sweep, met: bool) -> None:
    """If its ranks fail in training, the next start begins at the first epoch."""
    body = "assert RESUME and (CELL / 'checkpoint.npz').exists()\n"
    body += "(CELL / 'logs' / 'start.json').touch()\n" * met + "epoch(2)\nos._exit(4)\n"
    trial = sweep(body, 1)
    (one,) = trial.configs
    (trial.cell / "record.json").write_text(record(one, status="timeout").model_dump_json())
    (trial.cell / "checkpoint.npz").write_text("x")
    (trial.cell / "epochs.jsonl").write_text(epoch(1, one).model_dump_json() + "\n")
    trial.run()
    assert [e.epoch for e in left(trial.cell).epochs] == [1, 2]
    assert (trial.cell / "checkpoint.npz").exists() is not met


@pytest.mark.parametrize("step", ["reserve", "announce", "_clear", "Watch"])
def test_an_error_of_the_supervisors_own_files_costs_no_checkpoint(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError(116, "Stale file handle")

    trial = sweep("assert RESUME and (CELL / 'checkpoint.npz').exists()\nlive(1)\n" + GOOD, 1)
    (one,) = trial.configs
    (trial.cell / "record.json").write_text(record(one, status="timeout").model_dump_json())
    (trial.cell / "checkpoint.npz").write_text("x")
    with monkeypatch.context() as errors:
        errors.setattr(attempt, step, away)
        assert trial.run() == ["failed"]
        assert "Stale file handle" in left(trial.cell).error.what
    assert trial.run() == ["completed"]


@pytest.mark.parametrize(
    ("spoil", "what", "todo"),
    [
        ("python", "No such file", "put right what it names, then make sweep again"),
        ("data", "null byte", "fault of the suite"),
    ],
)
def test_what_cannot_be_started_is_a_failed_record(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, spoil: str, what: str, todo: str
) -> None:
    trial, data = sweep(GOOD), "data"
    if spoil == "python":
        monkeypatch.setattr(sys, "executable", "/no/such/python")
    else:
        data = "a\0byte that no command line can hold"
    assert trial.run(data=Path(data)) == ["failed"]
    error = left(trial.cell).error
    assert error and error.where == "the supervisor" and what in error.what
    assert todo in error.what_to_do


def test_a_record_that_cannot_be_read_when_the_ranks_have_ended(sweep: Sweep) -> None:
    """It may be the good one of these very ranks: the start stays unsettled until it can be."""
    trial = sweep("os.symlink('/proc/self/mem', CELL / 'record.json')\nbeat()\n", 1)
    assert trial.run() == [UNREADABLE]
    assert (trial.cell / "logs" / ATTEMPT_NAME).exists() and not rank_processes(trial.cell)
    assert is_untouched(trial.cell, trial.cell / "record.json")
