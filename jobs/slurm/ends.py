"""What the end of a job means that left no record: a status, and words."""

from __future__ import annotations

import signal

from jobs.slurm.history import Ending
from jobs.slurm.script import NO_TASKS
from train.record.run import Status


def status_of(ending: Ending) -> tuple[Status, str]:
    """The status of a record for a start that left none, and a sentence about its end.

    For jobs whose supervisor could not say it itself, so that a good end is none here.
    """
    status, text = _told(ending)
    return status, text + (f" (on {ending.nodes})" if ending.nodes else "")


#: slurmstepd's "signal" for a job whose output files cannot be made.
NO_LOG = 53
#: Exit codes of the batch script before the supervisor has begun.
_SCRIPT_ENDS = {
    127: "its batch script found no Python on the node (exit code 127): the environment of "
    "this checkout must be at the same path on all nodes; PYTHON= names one that is",
    126: "its batch script may not run the Python of this checkout on the node (exit code 126): "
    "the folders on its way must be open to you there",
    NO_TASKS: "the node does not see the results folder: name one on a file system that all nodes "
    "share with RESULTS=DIR",
}
_ENDS: dict[str, tuple[Status, str]] = {
    "CANCELLED": ("cancelled", "it was cancelled, by scancel or by the site"),
    "TIMEOUT": ("timeout", "Slurm ended it at its time limit"),
    "DEADLINE": ("timeout", "Slurm ended it at its deadline"),
    "PREEMPTED": ("preempted", "Slurm ended it for a job of higher priority"),
    "NODE_FAIL": ("lost", "a node that it ran on failed"),
    "BOOT_FAIL": ("lost", "a node that it was to run on did not come up"),
    "COMPLETED": ("lost", "Slurm says that it completed, yet it left no record"),
}


def _told(ending: Ending) -> tuple[Status, str]:
    if ending.out_of_memory:
        return "failed", "it used more memory than it had asked for, and was ended"
    if ending.state in _ENDS:
        return _ENDS[ending.state]
    if ending.state == "FAILED":
        return _failed(ending)
    return "lost", f"Slurm says {ending.state}{_because(ending)}"


def _failed(ending: Ending) -> tuple[Status, str]:
    if ending.signal == NO_LOG:
        return "failed", (
            "Slurm could not open the job's log on the node (ExitCode 0:53), so nothing was "
            "started: the node does not see the results folder, or may not write there. Name a "
            "folder on a file system that all nodes share with RESULTS=DIR"
        )
    if ending.signal:
        return "lost", f"its supervisor was ended by {_signal_name(ending.signal)}"
    if ending.code in _SCRIPT_ENDS:
        return "failed", _SCRIPT_ENDS[ending.code]
    if ending.code is not None:
        return "failed", f"its batch script ended with exit code {ending.code}{_because(ending)}"
    return "lost", f"Slurm says {ending.state}{_because(ending)}"


def _because(ending: Ending) -> str:
    told = ending.reason not in ("", "NonZeroExitCode")
    return f" ({ending.reason})" if told else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
