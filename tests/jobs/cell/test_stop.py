"""Signals that end a sweep or a job."""

from __future__ import annotations

import os
import signal

from jobs.cell.stop import stopped_by_signals
from jobs.slurm.job.allocation import WARNINGS


def test_the_first_signal_counts_and_an_ignored_one_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.reason is None
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.reason is not None and stop.reason.text == "got SIGTERM"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_slurms_warning_is_heard_though_batch_scripts_ignore_it() -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with stopped_by_signals(signals=WARNINGS) as warned:
            os.kill(os.getpid(), signal.SIGUSR2)
            first = warned.at
            os.kill(os.getpid(), signal.SIGUSR2)
            assert first is not None and warned.at == first
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)
