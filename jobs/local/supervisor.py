"""One cell on this machine: its ranks are processes, attended in a thread of the sweep.

Signals are heard in the main thread alone. Where this process is killed, its ranks end themselves,
and the next look at the cell gives it its record.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from jobs.cell.attempt import attend
from jobs.cell.container import (
    IMAGE_PYTHON,
    Container,
    Image,
    container_argv,
    facts_inside,
    image_now,
)
from jobs.cell.launch import Groups, rank_argv, rank_environment
from jobs.cell.ranks import Ended, RankSet, end_leftovers
from jobs.cell.state import FORCED, OTHERS, UNREADABLE, CellState, left_alone, ready
from jobs.cell.stop import Stop
from jobs.messages import ROOT
from train.distributed.awake import Awake
from train.program.environment import environment_of
from train.record.cell_folder import rank_file
from train.record.lock import hold
from train.run.provenance import git_state

#: Between two tries to get the lock of a cell that another process holds.
HELD_S = 1.0


@dataclass(frozen=True)
class Machine:
    """What the cells run on."""

    cores: tuple[int, ...]  # as many as may be used at once
    per_rank: int
    data: Path
    store: Path
    stall_s: float
    at_once: int
    container: Container | None = None  # None: ranks run in the host's environment
    gpus: int = 0  # seen here, used or not
    tmpdir: str | None = None  # of the ranks; None: the system's own
    more_cores: tuple[int, ...] = ()  # in place of such that other runs hold


@dataclass
class Ranks(RankSet):
    """Each rank leads a process group of its own, so that its helpers end with it."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    asked_at: float | None = None

    def start(self, argv: Sequence[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as out:
            self.processes.append(
                subprocess.Popen(
                    list(argv), env=environment, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip

    @property
    def size(self) -> int:
        return len(self.processes)

    def place(self, rank: int) -> str:
        return f"process {self.processes[rank].pid}"

    def poll(self) -> None:
        for rank in self.unended:
            process = self.processes[rank]
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            # its helpers first: until it is waited for, nobody else can be given its number
            _signal_group(process.pid, signal.SIGKILL)
            self.ended[rank] = Ended(process.wait(), time.time(), self.asked_at is not None)

    def signal(self, number: signal.Signals) -> None:
        for rank in self.unended:
            _signal_group(self.processes[rank].pid, number)
            # a stopped process hears it only when it goes on
            _signal_group(self.processes[rank].pid, signal.SIGCONT)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def run_cell(
    cell: CellState, cores: Groups, machine: Machine, stop: Stop, awake: Awake
) -> tuple[str, str]:
    """Run the cell to its end, once nobody else does; returns its status and why."""
    try:
        while not stop.reason:
            with hold(cell.folder) as ours:
                if ours:
                    return _run(cell, cores, machine, stop, awake)
            stop.wait(HELD_S)
        return "cancelled", "before it had started"
    except OSError as error:
        left = left_alone(cell.config, cell.folder, error)
        return left.status, left.why
    except ValueError as error:
        return "lost", f"it has no record, and none can be written: {error}"
    except Exception as error:  # noqa: BLE001  (a fault of our own ends no other cell)
        traceback.print_exc()
        return "lost", f"a fault of the suite, please report it: {type(error).__name__}: {error}"


def _run(
    cell: CellState, cores: Groups, machine: Machine, stop: Stop, awake: Awake
) -> tuple[str, str]:
    """Only for the holder of the cell's lock."""
    folder, config, ranks = cell.folder, cell.config, Ranks()
    end_leftovers(folder)
    now = ready(config, folder, lambda: cell.status == FORCED)
    if now.done or now.status in (OTHERS, UNREADABLE):
        return now.status, now.why

    def begin(attempt: int) -> None:
        base = environment_of("ranks", os.environ)
        if machine.container is not None:
            image = image_now(Image(machine.container.image, None))
            base |= facts_inside(image, *git_state(ROOT))
        argv, settings = launch_line(folder, cores, machine, attempt, now.resume)
        for rank, own in enumerate(settings):
            ranks.start(argv, base | own, rank_file(folder, rank, "log"))

    record = attend(
        folder, config, ranks, begin=begin, stop=lambda: stop.reason, resume=now.resume,
        stall_s=machine.stall_s, awake=awake,
    )  # fmt: skip
    error = record.error
    return record.status, f"{error.what} -> {error.what_to_do}" if error else ""


def launch_line(
    folder: Path, cores: Groups, machine: Machine, attempt: int, resume: bool
) -> tuple[list[str], list[dict[str, str]]]:
    """The command of all ranks, and what each gets on top of this process's environment."""
    python = [sys.executable]
    if machine.container is not None:
        python = [*container_argv(machine.container), IMAGE_PYTHON]
    argv = rank_argv(
        folder, data=str(machine.data), store=str(machine.store), attempt=attempt,
        stall_s=machine.stall_s, resume=resume,
    )  # fmt: skip
    shared = {"HOROSCALE_GPUS_HERE": str(machine.gpus)} if machine.gpus else {}
    shared |= {"TMPDIR": machine.tmpdir} if machine.tmpdir else {}
    taken = set(chain.from_iterable(cores))
    spare = (core for core in (*machine.cores, *machine.more_cores) if core not in taken)
    shared |= {"HOROSCALE_SPARE": ",".join(map(str, spare))}
    return [*python, *argv], [
        shared
        | rank_environment(folder, cores, rank, attempt=attempt, supervisor=os.getpid(), root=ROOT)
        for rank in range(len(cores))
    ]
