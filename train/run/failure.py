"""What a rank leaves behind when it fails: its error in a file. Loads no TensorFlow."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime, timezone
from pathlib import Path

from train.distributed.launch import Launch
from train.record.atomic import write_atomically
from train.record.cell_folder import RankFailure, rank_file
from train.record.run import RunError

#: Horovod's and tf.distribute's words on a rank whose peer is gone: a consequence, never the cause.
CONSEQUENCES = ("Horovod has been shut down", "HorovodInternalError", "Connection reset by peer",
                "Connection closed by peer", "Broken pipe", "Collective ops is aborted by",
                "rank 0 failed",
                )  # fmt: skip
#: How lines of a graph error begin that do not say what happened.
_NO_CAUSE = ("[[", "[Op:", "File ", "Hint: ", "0 successful operations", "0 derived errors",
             "in user code:")  # fmt: skip


def headline(error: Exception) -> str:
    """One line that says what happened.

    TensorFlow's graph errors begin with a trace of the graph and end with the finding, followed by
    the name of a node and, if memory is used up, by a hint for programmers.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_NO_CAUSE)]
    if "in user code:" in str(error):  # followed by a trace with lines of the code
        telling = [line for line in telling if re.match(r"\w*Error: ", line)][-1:] or telling
    gone = [line for line in telling if any(words in line for words in CONSEQUENCES)]
    chosen = gone or (telling[-1:] if "Graph execution error" in str(error) else telling[:1])
    kind = f"{type(error).__name__}: "
    return kind + (chosen[-1].removeprefix(kind) if chosen else "no message")


def write_error_file(what: str, launch: Launch, cell: Path, tail: str = "") -> None:
    """Write this rank's error for the supervisor, which looks for the cause among all ranks."""
    log = rank_file(cell, launch.rank, "log")  # which the supervisor makes
    todo = _printable(f"read {log}") if launch.supervised else "read what the rank printed"
    if "OOM when allocating" in what:
        todo = "use a smaller batch_per_rank; accumulation keeps the global batch"
    error = RunError(
        what=_printable(what),
        where=f"rank {launch.rank} of {launch.size} on {os.uname().nodename}",
        what_to_do=todo,
        rank=launch.rank,
        log_tail=tuple(_printable(line) for line in tail.splitlines()[-20:]),
    )
    consequence = any(words in what for words in CONSEQUENCES)
    failure = RankFailure(at=datetime.now(timezone.utc), consequence=consequence, error=error)
    # the log has it, too; a full disk must not hide the first error behind a second
    with contextlib.suppress(OSError):
        write_atomically(rank_file(cell, launch.rank, "error.json"), failure.model_dump_json())


def _printable(text: str) -> str:
    """File names that are no UTF-8 reach us as lone surrogates, which no JSON can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
