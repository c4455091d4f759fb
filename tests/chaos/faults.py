"""The faults. Each is a function that strikes and says what it did, or None where it cannot now."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from tests.chaos.stage import Stage

Fault = Callable[[Stage], str | None]
CONTROLLER, DISK, SLOW, ASKED = "slurmctld", "disk", "slow sbatch", "a cell to submit"


def node_lost(stage: Stage) -> str | None:
    """Its power, for a time shorter or longer than Slurm's patience (15 s)."""
    found = stage.running_job()
    if found is None:
        return None
    (job, node), seconds = found, stage.rng.uniform(4, 40)
    stage.cluster.lose_node(node)
    stage.hold_down(node, seconds, lambda: stage.cluster.start_node(node))
    return f"{node} with job {job} for {seconds:.0f} s"


def _controller(number: signal.Signals, stage: Stage) -> str | None:
    if CONTROLLER in stage.down or SLOW in stage.down:
        return None
    seconds = stage.rng.choice((0.0, stage.rng.uniform(2, 15)))
    stage.cluster.stop_controller(number)
    stage.down.add(CONTROLLER)

    def ready() -> None:
        if stage.cluster.answers():
            stage.down.discard(CONTROLLER)
        else:
            stage.after(0.5, ready)

    stage.after(seconds, stage.cluster.start_controller)
    stage.after(seconds + 0.5, ready)
    return f"started again after {seconds:.0f} s"


def _running(argv: Sequence[str], stage: Stage) -> str | None:
    found = stage.running_job()
    if found is None or stage.cluster.ask(*argv, found[0]) is None:
        return None
    return f"job {found[0]} on {found[1]}"


_cancel = partial(_running, ("scancel",))


def watcher_killed(stage: Stage) -> str | None:
    if stage.watcher is None or SLOW in stage.down:
        return None
    stage.end_watcher(signal.SIGKILL)
    return "SIGKILL"


def watcher_hung_up(stage: Stage) -> str | None:
    """SIGHUP to its process group while sbatch runs, so something must be left to submit."""
    if {SLOW, CONTROLLER, DISK} & stage.down:
        return None
    if not stage.records.to_submit(stage.cells):
        if ASKED not in stage.down and _cancel(stage):  # the next try finds its record
            stage.hold_down(ASKED, 10)
        return None
    if stage.watcher is not None:
        stage.end_watcher(signal.SIGTERM)
    stage.slow_mark.unlink(missing_ok=True)
    stage.down.add(SLOW)
    stage.watch(slow=True)
    stage.after(1, lambda: _hang_up(stage, 40))
    return f"watcher {stage.starts}, at its first sbatch"


def _hang_up(stage: Stage, tries: int) -> None:
    if stage.slow_mark.exists():
        # one moment of the slow sbatch: it may have begun, be in Slurm's hands, or wait to answer
        stage.after(stage.rng.uniform(0, 1.8), lambda: _hang_up_now(stage))
    elif tries and stage.watcher is not None and stage.watcher.poll() is None:
        stage.after(0.5, lambda: _hang_up(stage, tries - 1))
    else:
        print("           (watcher_hung_up: that watcher submitted nothing)", flush=True)
        stage.down.discard(SLOW)


def _hang_up_now(stage: Stage) -> None:
    code = stage.end_watcher(signal.SIGHUP)
    stage.down.discard(SLOW)
    print(f"           (watcher_hung_up: it ended with code {code})", flush=True)


def disk_full(stage: Stage) -> str | None:
    if DISK in stage.down or SLOW in stage.down:
        return None
    file, seconds = stage.results / ".filled", stage.rng.uniform(3, 10)
    stage.hold_down(DISK, seconds, lambda: file.unlink(missing_ok=True))
    _fill(stage, file)
    return f"for {seconds:.0f} s"


def _fill(stage: Stage, file: Path) -> None:
    """To the last page, and again and again, as long as the disk is to be full."""
    if DISK not in stage.down:
        return
    with contextlib.suppress(OSError), file.open("ab") as out:
        if free := shutil.disk_usage(stage.results).free:
            os.posix_fallocate(out.fileno(), out.tell(), free)
    stage.after(0.2, lambda: _fill(stage, file))


FAULTS: dict[str, Fault] = {
    "node_lost": node_lost,
    "controller_killed": partial(_controller, signal.SIGKILL),
    "controller_restarted": partial(_controller, signal.SIGTERM),
    "requeued": partial(_running, ("scontrol", "requeue")),
    "cancelled": _cancel,
    "watcher_killed": watcher_killed,
    "watcher_hung_up": watcher_hung_up,
    "disk_full": disk_full,
}


def drawn(count: int, rng: random.Random, among: Collection[str]) -> list[tuple[float, str]]:
    """Share of the sweep at which each is due, and its name: every kind once, then any."""
    kinds = [name for name in FAULTS if name in among]
    names = [*kinds, *rng.choices(kinds, k=max(0, count - len(kinds)))][:count]
    rng.shuffle(names)
    return list(zip(sorted(rng.uniform(0.02, 0.85) for _ in names), names, strict=True))
