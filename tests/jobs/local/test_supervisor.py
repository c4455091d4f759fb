"""One start leaves exactly one record and no process, whatever its ranks, signals and disks do.

The ranks here are scripted; real ones are in tests/test_end_to_end.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jobs.cell.attempt import PROBE_NAME
from jobs.cell.heartbeat import Watch, is_stopped
from jobs.cell.launch import CellTask
from jobs.cell.lock import hold, holder, is_running
from jobs.cell.missing_record import ATTEMPT_NAME, RESERVE_NAME, settle_lost
from jobs.cell.ranks import end_leftovers
from jobs.cell.stop import stopped_by_signals
from jobs.local import ranks
from jobs.local.supervisor import run_cell
from tests.builders import config, epoch, record
from tests.jobs.local.scripted import Play, alive, play
from tests.sweeps import ROOT, wait_until
from tests.unreadable import is_untouched
from train.errors import Unreadable
from train.record.run import OtherCell, RunRecord, read_record

GOOD = "beat()\nepoch(1)\ngood()\n"
LONG = "beat()\nepoch(1)\nmark('in')\nlive()\n"


def left(cell: Path) -> RunRecord:
    """The record; and nothing else may be left of the start."""
    assert not alive(cell)
    names = {file.name for file in cell.iterdir()}
    assert not names & {RESERVE_NAME, PROBE_NAME} and not list(cell.rglob("*.tmp"))
    assert not (cell / "logs" / ATTEMPT_NAME).exists()
    assert not is_running(cell) and holder(cell) is None
    return read_record(cell / "record.json")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "GRACE_S", 0.5)


def in_play(cell: Path) -> None:
    wait_until(lambda: len(list(cell.glob("mark-in-*"))) == 2, "the ranks")


def stop_for(seconds: float, pids: Sequence[int]) -> None:
    """They come back one after another."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)


def test_a_good_run(tmp_path: Path) -> None:
    scene = play(tmp_path, GOOD)
    assert run_cell(scene.told()) == "completed"
    assert left(scene.cell).status == "completed"


def test_a_good_record_is_kept_and_nothing_started(tmp_path: Path) -> None:
    scene = play(tmp_path, "mark('in')\n")
    text = record(scene.config).model_dump_json()
    (scene.cell / "record.json").write_text(text)
    assert run_cell(scene.told()) == "kept"
    assert (scene.cell / "record.json").read_text() == text
    assert not list(scene.cell.glob("mark-*"))


def test_the_record_of_another_config_is_no_reason_to_skip(tmp_path: Path) -> None:
    scene = play(tmp_path, "mark('in')\n")
    text = record(config(seed=7)).model_dump_json()
    (scene.cell / "record.json").write_text(text)
    with pytest.raises(OtherCell):
        run_cell(scene.told())
    assert (scene.cell / "record.json").read_text() == text
    assert not list(scene.cell.glob("mark-*"))


@pytest.mark.parametrize(
    "name", ["two words", 'it\'s "quoted" $HOME `x`', "new\nline", "ü-%j-*", "no utf-8 \udce9"]
)
def test_folders_with_any_name(tmp_path: Path, name: str) -> None:
    scene = play(tmp_path, GOOD, name=name)
    assert run_cell(scene.told()) == "completed"
    left(scene.cell)
    bad = play(tmp_path / "bad", "os._exit(3)\n", name=name)
    assert run_cell(bad.told()) == "failed"
    error = left(bad.cell).error
    assert "exit code 3" in error.what and re.search(r"rank-[01]\.log", error.what_to_do)


@pytest.mark.parametrize(
    ("body", "rank", "words"),
    [
        ("if RANK: live()\nprint('last words', flush=True); os._exit(1)", 0, "exit code 1"),
        ("os.kill(os.getpid(), 9) if RANK else live()", 1, "SIGKILL"),
        ("fail('ValueError: bad') if RANK else live()", 1, "bad"),
        ("", 0, "all ranks ended well, yet there is no good record"),
        ("(CELL / 'record.json').write_text('{')", 0, "no good record"),
    ],
)
def test_a_bad_end_is_a_failed_record_with_its_culprit(tmp_path, body, rank, words) -> None:
    waiting = "while not (CELL / 'mark-e-0').exists():\n    time.sleep(0.01)\n"
    scene = play(tmp_path, f"beat()\nepoch(1)\nmark('e')\n{waiting}{body}\n")
    assert run_cell(scene.told()) == "failed"
    found = left(scene.cell)
    assert found.error.rank == rank and words in found.error.what
    assert [e.epoch for e in found.epochs] == [1], "what was measured before is kept"
    assert [a.status for a in found.attempts] == ["failed"]


def test_a_consequence_is_not_the_cause_though_it_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "GRACE_S", 60.0)
    body = """
if RANK == 0:
    fail("Broken pipe", consequence=True)
while not (CELL / "logs" / "rank-0.error.json").exists():
    time.sleep(0.01)
fail("ValueError: bad")
"""
    scene = play(tmp_path, body)
    assert run_cell(scene.told()) == "failed"
    error = left(scene.cell).error
    assert error.rank == 1 and "bad" in error.what


def test_the_log_of_the_culprit_is_in_the_record(tmp_path: Path) -> None:
    scene = play(tmp_path, "print('hello from', RANK, flush=True); os._exit(RANK)\n")
    run_cell(scene.told())
    assert left(scene.cell).error.log_tail == ("hello from 1",)


def test_a_hang_is_blamed_on_the_rank_that_was_stopped(tmp_path: Path) -> None:
    body = """
beat("reading data")
if RANK == 1:
    mark("stops")
    os.kill(os.getpid(), signal.SIGSTOP)
while not (CELL / "mark-stops-1").exists():
    time.sleep(0.01)
began = time.monotonic()
while time.monotonic() < began + 4:
    beat("all-reduce", time.monotonic() - began)
    time.sleep(0.1)
fail("no progress for 4 s while: all-reduce", code=75)
"""
    scene = play(tmp_path, body)
    assert run_cell(scene.told()) == "failed"
    error = left(scene.cell).error
    assert error.rank == 1 and "shows no life (while: reading data)" in error.what


def test_ranks_that_all_fell_silent_are_ended(tmp_path: Path) -> None:
    scene = play(tmp_path, "beat('all-reduce')\ntime.sleep(240)\n", stall_s=0.0)
    began = time.monotonic()
    assert run_cell(scene.told()) == "failed"
    assert 5 < time.monotonic() - began < 60, "1.5 * 0 + 5 = 5 s"
    error = left(scene.cell).error
    told = rf"a hang: rank {error.rank} showed no life for \d+ s \(while: all-reduce\)"
    assert re.search(told, error.what)


def test_ranks_that_are_stopped_together_do_not_hang(tmp_path: Path) -> None:
    """Their supervisor is not: a step was stopped or frozen; they come back one after another."""
    body = "beat('all-reduce')\nmark('in')\nlive(6)\nepoch(1)\ngood()\n"
    scene = play(tmp_path, body, stall_s=2.0)  # silent for 1.5 * 2 + 5 = 8 s
    with scene.supervisor() as process:
        in_play(scene.cell)
        stop_for(10, alive(scene.cell))
        out, err = process.communicate(timeout=240)
    assert (out, err) == ("completed\n", "")
    assert left(scene.cell).status == "completed"


def test_a_process_in_a_frozen_control_group_is_stopped() -> None:
    group = Path("/sys/fs/cgroup/freezer") / f"horoscale-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer that can be used here: {error}")
    with subprocess.Popen(["sleep", "240"]) as process:
        try:
            (group / "tasks").write_text(str(process.pid))
            assert not is_stopped(process.pid)
            (group / "freezer.state").write_text("FROZEN")
            wait_until(lambda: is_stopped(process.pid), "the freezer")
        finally:
            (group / "freezer.state").write_text("THAWED")
            process.kill()
    group.rmdir()
    assert not is_stopped(process.pid)


def test_a_job_that_was_suspended_neither_hangs_nor_is_over_time(tmp_path: Path) -> None:
    """Ranks and supervisor are stopped, for longer than both limits; ranks come back last."""
    body = "mark('in')\nlive(6)\nepoch(1)\ngood()\n"
    scene = play(tmp_path, body, stall_s=0.0, limit_s=7.0)  # silent for 1.5 * 0 + 5 = 5 s
    with scene.supervisor() as process:
        in_play(scene.cell)
        stopped = [process.pid, *alive(scene.cell)]
        assert len(stopped) == 3
        stop_for(8, stopped)
        out, err = process.communicate(timeout=240)
    assert (out, err) == ("completed\n", "")
    assert left(scene.cell).status == "completed"


def test_life_signs_are_timed_by_our_clock_alone(tmp_path: Path) -> None:
    """A laptop that slept, a clock that was set, a file server an hour ahead or behind."""
    (tmp_path / "logs").mkdir()
    file, watch = tmp_path / "logs" / "rank-0.beat", Watch(tmp_path, 1)
    for hour in (-1, 5, -3, 0, 9):
        file.write_text('{"phase": "training", "idle_s": 0}')
        os.utime(file, (time.time() + 3600 * hour,) * 2)
        assert watch.stale(0.2) is None
        time.sleep(0.15)
    time.sleep(0.15)
    assert watch.stale(0.2).rank == 0


def test_a_time_limit(tmp_path: Path) -> None:
    scene = play(tmp_path, LONG, limit_s=1.0)
    assert run_cell(scene.told()) == "timeout"
    assert left(scene.cell).error.what == "the time limit of 1 s is over"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels(tmp_path: Path, number: signal.Signals) -> None:
    scene = play(tmp_path, LONG)
    with scene.supervisor() as process:
        in_play(scene.cell)
        process.send_signal(number)
        out, err = process.communicate(timeout=240)
    assert (out, err, process.returncode) == ("cancelled\n", "", 0)
    found = left(scene.cell)
    assert found.status == "cancelled" and number.name in found.error.what
    assert [e.epoch for e in found.epochs] == [1]


def test_many_signals_are_as_one(tmp_path: Path) -> None:
    """With ranks that are deaf to SIGTERM there is time for all of them."""
    scene = play(tmp_path, "signal.signal(15, signal.SIG_IGN)\n" + LONG)
    with scene.supervisor() as process:
        in_play(scene.cell)
        for _ in range(5):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                process.send_signal(number)
            time.sleep(0.05)
        out, err = process.communicate(timeout=240)
    assert (out, err) == ("cancelled\n", "")
    assert left(scene.cell).error.what.startswith("got SIG")


def test_a_signal_at_any_moment_of_the_start(tmp_path: Path) -> None:
    """From before Python hears it to after the ranks' start: no record, or a cancelled one."""
    scene = play(tmp_path, LONG)
    for delay in (0.05, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6):
        (scene.cell / "record.json").unlink(missing_ok=True)
        with scene.supervisor() as process:
            time.sleep(delay)
            process.terminate()
            process.communicate(timeout=240)
        assert not alive(scene.cell)
        if (scene.cell / "record.json").exists():
            assert left(scene.cell).status == "cancelled"


def test_an_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.reason is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.reason.text == "got SIGTERM"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ignored_sigchld_hides_no_exit_code(tmp_path: Path) -> None:
    scene = play(tmp_path, "os._exit(3)\n")
    code = (
        "import json, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "from jobs.local.supervisor import run_cell; run_cell(json.loads(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, json.dumps(scene.told())], cwd=ROOT, check=True)
    assert "exit code 3" in left(scene.cell).error.what


@pytest.fixture
def orphaned(tmp_path: Path) -> Iterator[tuple[Play, float]]:
    """A cell whose supervisor was killed, with ranks that cannot notice it; when these wrote last,
    seconds."""
    body = "beat()\nepoch(1)\nmark('in')\nos._exit(4) if ATTEMPT == 2 else time.sleep(60)\n"
    scene = play(tmp_path, body)
    with scene.supervisor() as process:
        in_play(scene.cell)
        process.kill()
    yield scene, max(file.stat().st_mtime for file in scene.cell.glob("mark-in-*"))
    end_leftovers(scene.cell)


def test_a_start_after_a_killed_supervisor_ends_its_ranks_and_counts_it(orphaned) -> None:
    scene, _ = orphaned
    assert len(alive(scene.cell)) == 2 and not (scene.cell / "record.json").exists()
    assert run_cell(scene.told()) == "failed"
    found = left(scene.cell)
    assert [a.status for a in found.attempts] == ["lost", "failed"]
    assert "exit code 4" in found.error.what


def test_a_lost_start_ended_with_its_last_sign_of_life(orphaned) -> None:
    scene, wrote = orphaned
    end_leftovers(scene.cell)
    time.sleep(1.5)
    assert settle_lost(scene.cell, scene.config)
    found = left(scene.cell)
    assert (found.status, found.attempts[0].status) == ("lost", "lost")
    assert abs(found.ended_at.timestamp() - wrote) < 1
    assert [e.epoch for e in found.epochs] == [1]
    assert not settle_lost(scene.cell, scene.config), "once"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"number": "x", "started_at": 3, "pid": null}',
     '{"number": 1, "started_at": "2026-01-01T00:00:00", "pid": 1}', "\ud800"],
)  # fmt: skip
def test_a_broken_attempt_file_is_no_attempt(tmp_path: Path, text: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / ATTEMPT_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert not settle_lost(tmp_path, config())
    assert not (tmp_path / "record.json").exists()


def test_settling_leaves_a_broken_record_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    told = {"number": 1, "started_at": "2026-01-01T00:00:00Z", "pid": 1}
    (tmp_path / "logs" / ATTEMPT_NAME).write_text(json.dumps(told))
    (tmp_path / "record.json").write_text('{"schema_version": 1, "status": "comple')
    assert not settle_lost(tmp_path, config())
    assert (tmp_path / "record.json").read_text().endswith("comple")


def test_a_second_supervisor_waits_and_then_keeps_the_record(tmp_path: Path) -> None:
    waiting = "while not (STAGE / 'go').exists():\n    live(0.1)\n"
    scene = play(tmp_path, f"mark(f'in-{{os.getppid()}}')\n{waiting}good()\n")
    with scene.supervisor() as first:
        wait_until(lambda: list(scene.cell.glob("mark-in-*-1")), "the ranks")
        assert str(holder(scene.cell)) == f"process {first.pid} on {os.uname().nodename}"
        with scene.supervisor() as second:
            wait_until(lambda: hears(second.pid, signal.SIGTERM), "its signal handlers")
            (tmp_path / "stage" / "go").touch()
            assert first.communicate(timeout=240)[0] == "completed\n"
            assert second.communicate(timeout=240)[0] == "kept\n"
    assert len(list(scene.cell.glob("mark-in-*"))) == 2, "ranks were started once"


def hears(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (proc(5), SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


def test_a_waiting_supervisor_hears_signals_and_leaves_the_other_alone(tmp_path: Path) -> None:
    scene = play(tmp_path, LONG)
    with hold(scene.cell) as ours, scene.supervisor() as process:
        assert ours
        wait_until(lambda: hears(process.pid, signal.SIGTERM), "its signal handlers")
        process.terminate()
        assert process.communicate(timeout=240)[0] == "cancelled\n"
        assert is_running(scene.cell)
    assert not (scene.cell / "record.json").exists()


def test_a_retry_counts_on_and_starts_clean(tmp_path: Path) -> None:
    body = """
if ATTEMPT == 1:
    epoch(1); fail("ValueError: first")
assert not (CELL / "epochs.jsonl").exists() and not list(CELL.glob("logs/*.error.json"))
os._exit(4)
"""
    scene = play(tmp_path, body, ranks=1)
    assert run_cell(scene.told()) == "failed"
    (scene.cell / ".checkpoint.npz.1.tmp").write_text("half a checkpoint")
    assert run_cell(scene.told()) == "failed"
    found = left(scene.cell)
    assert [a.number for a in found.attempts] == [1, 2]
    assert "exit code 4" in found.error.what and not found.epochs


def test_going_on_keeps_what_there_is(tmp_path: Path) -> None:
    body = "assert RESUME and (CELL / 'checkpoint.npz').exists()\nepoch(2)\nos._exit(4)\n"
    scene = play(tmp_path, body, ranks=1, resume=True)
    (scene.cell / "checkpoint.npz").write_text("x")
    (scene.cell / "epochs.jsonl").write_text(epoch(1, scene.config).model_dump_json() + "\n")
    run_cell(scene.told())
    assert [e.epoch for e in left(scene.cell).epochs] == [1, 2]


@pytest.mark.parametrize("spoil", ["python", "logs", "log"])
def test_what_cannot_be_started_is_a_failed_record(tmp_path: Path, spoil: str) -> None:
    scene = play(tmp_path, GOOD)
    task = scene.task
    if spoil == "python":
        task = CellTask(**{**scene.told(), "python": "/no/such/python"})
    elif spoil == "logs":
        (scene.cell / "logs").write_text("a file")
    else:
        (scene.cell / "logs" / "rank-1.log").mkdir(parents=True)
    assert run_cell(Play(task, scene.config).told()) == "failed"
    error = left(scene.cell).error
    assert error.where == "the supervisor" and "Error: " in error.what
    assert error.what_to_do == "put right what it names, then make sweep again"


def test_a_fault_of_our_own_is_a_failed_record_too(tmp_path: Path) -> None:
    scene = play(tmp_path, GOOD)
    told = {**scene.told(), "data": "a\0byte that no command line can hold"}
    assert run_cell(told) == "failed"
    error = left(scene.cell).error
    assert "null byte" in error.what and "fault of the suite" in error.what_to_do


def test_a_record_that_cannot_be_read_when_the_ranks_have_ended(tmp_path: Path) -> None:
    """It may be the good one of these very ranks: the start stays unsettled until it can be."""
    body = "os.symlink('/proc/self/mem', CELL / 'record.json')\nbeat()\n"
    scene = play(tmp_path, body, ranks=1)
    with pytest.raises(Unreadable):
        run_cell(scene.told())
    assert (scene.cell / "logs" / ATTEMPT_NAME).exists() and not alive(scene.cell)
    assert is_untouched(scene.cell, scene.cell / "record.json")
