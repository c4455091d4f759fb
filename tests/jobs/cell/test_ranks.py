"""What is left of ranks that nobody watches, and which signals end those who watch them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from jobs.cell.ranks import end_leftovers
from jobs.cell.stop import stopped_by_signals
from jobs.slurm.job.allocation import WARNINGS


def test_leftovers_are_those_of_the_cell_and_no_others(tmp_path: Path) -> None:
    mine, other = tmp_path / "it's a\ncell", tmp_path / "it's a\ncell too"

    def orphan(cell: Path) -> subprocess.Popen[bytes]:
        mark = str(cell / "logs" / "rendezvous-1-99")
        env = os.environ | {"HOROSCALE_RENDEZVOUS": mark}
        return subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)

    ours, stopped, others = orphan(mine), orphan(mine), orphan(other)
    try:
        stopped.send_signal(signal.SIGSTOP)
        end_leftovers(mine)
        assert ours.wait(60) == stopped.wait(60) == -signal.SIGKILL
        assert others.poll() is None
    finally:
        for process in (ours, stopped, others):
            process.kill()
            process.wait()


def test_the_first_signal_counts_an_ignored_one_stays_so_except_for_slurms_warning() -> None:
    numbers = (signal.SIGHUP, signal.SIGUSR2)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as some daemons leave it to their children
    try:
        with stopped_by_signals() as stop, stopped_by_signals(signals=WARNINGS) as warned:
            assert subprocess.run(["false"], check=False).returncode == 1, "ends are seen"
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.reason is None
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.reason is not None and stop.reason.text == "got SIGTERM"
            os.kill(os.getpid(), signal.SIGUSR2)
            first = warned.at
            os.kill(os.getpid(), signal.SIGUSR2)
            assert first is not None and warned.at == first, "though batch scripts ignore it"
        assert all(signal.getsignal(number) == signal.SIG_IGN for number in numbers)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
