"""The thread that ends a hang: in processes of its own, since its last act is to end them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeps import ROOT, wait_until
from train.distributed import watchdog
from train.distributed.watchdog import EXIT_STALLED, Watchdog, is_orphan

STALLING = """
import sys, time
from pathlib import Path
from train.distributed.watchdog import Watchdog

def report(what):
    {report}

def forever_in_here():
    time.sleep(60)

{before}
with Watchdog(Path(sys.argv[1]), 60, None, report) as watchdog:
    watchdog.stall_s = 0.4
    watchdog.beat("counting sheep")
    forever_in_here()
"""
ORPHANED = """
import sys, time
from pathlib import Path
from train.distributed.watchdog import Watchdog

with Watchdog(Path(sys.argv[1]), 600, int(sys.argv[2]), print):
    time.sleep(1)
    print("lives", flush=True)
    time.sleep(300)
    print("lives on")
"""
#: What stands between a supervisor and a rank: nothing, or the starter of a container.
BETWEEN = {"alone": "", "in a container": "sh -c '\"$@\"; true' starter "}


def test_a_stall_ends_the_process_with_its_stacks_and_its_phase(tmp_path: Path) -> None:
    beat = tmp_path / "rank-0.beat"
    code = STALLING.format(report="print(what, flush=True)", before="")
    argv = [sys.executable, "-c", code, str(beat)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == EXIT_STALLED == 75
    assert "forever_in_here" in done.stderr, "the stack of the thread that hangs"
    assert re.search(r"no progress for \d+ s while: counting sheep", done.stdout)
    told = json.loads(beat.read_text())
    assert told["phase"] == "counting sheep" and told["idle_s"] > 0


#: Nobody reads what this process writes to its log any more.
FULL = """
import os
os.set_blocking(2, False)
try:
    while True:
        os.write(2, bytes(1024))
except BlockingIOError:
    os.set_blocking(2, True)
"""


@pytest.mark.parametrize(
    ("report", "before", "words_s"),
    [
        ("raise ValueError('the report is broken')", "", 55),
        ("time.sleep(60)", "", 3),  # the file system hangs, which may be the cause of the stall
        ("pass", "sys.stderr = None", 55),
        # opening a FIFO that nobody reads returns never, as on a file server that is gone
        ("pass", "import os; os.mkfifo(sys.argv[1])", 3),
        ("pass", FULL, 3),
    ],
)
def test_nothing_keeps_a_stalled_process_alive(
    tmp_path: Path, report: str, before: str, words_s: int
) -> None:
    """Last words that need not be waited for get more time than the test has."""
    before += (
        f"\nimport train.distributed.watchdog; train.distributed.watchdog.REPORT_S = {words_s}"
    )
    code = STALLING.format(report=report, before=before)
    argv = [sys.executable, "-c", code, str(tmp_path / "beat")]
    began = time.monotonic()
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.wait(240) == EXIT_STALLED
    finally:
        process.kill()
        process.communicate()
    assert time.monotonic() - began < 50


PATIENT = """
import sys, time
from pathlib import Path
from train.distributed.watchdog import Watchdog

with Watchdog(Path(sys.argv[1]), 8, None, lambda what: print(what, flush=True)) as watchdog:
    watchdog.beat("waiting for the other ranks", 60)
    time.sleep(10)
    for step in range(50):
        watchdog.beat(f"training step {step} of 50")
        time.sleep(0.2)
    graph = [0]
    watchdog.watch(lambda: f"training step {graph[0]} of 50")
    for graph[0] in range(50):
        time.sleep(0.2)
    watchdog.watch(None)
    watchdog.beat("they came")
    print("they came", flush=True)
    time.sleep(60)
"""


def test_a_patience_of_its_own_and_progress_for_longer_than_it_are_no_stall(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PATIENT, str(tmp_path / "beat")]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == EXIT_STALLED
    assert done.stdout.splitlines()[0] == "they came" and "while: they came" in done.stdout


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_process_whose_supervisor_is_gone_ends(tmp_path: Path, between: str) -> None:
    line = f'{between}"$1" -c "$2" "$3" $$ & wait'
    with subprocess.Popen(
        ["sh", "-c", line, "supervisor", sys.executable, ORPHANED, str(tmp_path / "beat")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    ) as supervisor:  # fmt: skip
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "lives\n"
        supervisor.kill()
        assert supervisor.stdout.read() == ""
    assert is_orphan(os.getpid()), "a process is not its own supervisor"


def test_signs_are_written_at_the_start_at_the_end_and_seldom_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: a stall would end the test run."""
    for name, seconds in (("BEAT_S", 600.0), ("REPORT_S", 240.0)):
        monkeypatch.setattr(watchdog, name, seconds)
    file, stalls = tmp_path / "rank-0.beat", []

    def phase() -> str:
        text = file.read_text() if file.exists() else ""
        return str(json.loads(text)["phase"]) if text else ""

    with Watchdog(file, 2400.0, os.getppid(), stalls.append) as dog:
        wait_until(lambda: phase() == "starting", "the first sign")
        written = file.stat()
        for doing in ("training", "validating"):
            dog.beat(doing)
            time.sleep(0.6)
        assert file.stat().st_mtime_ns == written.st_mtime_ns
        dog.beat("writing the record")
    assert phase() == "writing the record" and not stalls
    assert (file.stat().st_ino, file.stat().st_size) == (written.st_ino, written.st_size)
    time.sleep(0.3)
    assert phase() == "writing the record", "silent after the end"
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0.beat"]


def test_a_file_that_its_server_forgot_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "BEAT_S", 0.1)
    file = tmp_path / "beat"
    with Watchdog(file, 60, None, print) as dog:
        wait_until(lambda: file.exists() and file.stat().st_size > 0, "a life sign")
        file.unlink()
        assert dog._descriptor
        with Path(os.devnull).open() as unwritable:
            os.dup2(unwritable.fileno(), dog._descriptor)  # writes fail, as with ESTALE
        wait_until(file.exists, "the next but one")


STEPPING = """
import sys, time
from pathlib import Path
from train.distributed.watchdog import Watchdog

with Watchdog(Path(sys.argv[1]), 12, None, lambda what: print(what, flush=True)) as watchdog:
    watchdog.beat("a step that is stopped")
    while not Path(sys.argv[2]).exists():
        time.sleep(0.1)
    watchdog.beat("hanging")
    print("hanging", flush=True)
    time.sleep(60)
"""


def test_a_process_that_was_stopped_says_so_and_a_hang_after_it_is_found(tmp_path: Path) -> None:
    beat = tmp_path / "rank-0.beat"
    over = tmp_path / "over"
    argv = [sys.executable, "-c", STEPPING, str(beat), str(over)]

    def sign() -> dict[str, float]:
        return json.loads(beat.read_text() or "{}")

    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: beat.exists() and "stopped" in str(sign()), "its step")
            before_s = sign()["asleep_s"]
            process.send_signal(signal.SIGSTOP)
            time.sleep(15)  # more than its patience
            process.send_signal(signal.SIGCONT)
            wait_until(lambda: sign()["asleep_s"] >= before_s + 14.5, "its word on that")
            assert sign()["idle_s"] < 12, "it did not run, so it was not idle"
            over.touch()
            out, _ = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == EXIT_STALLED
    assert out.splitlines()[0] == "hanging" and "while: hanging" in out
