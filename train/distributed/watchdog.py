"""Two threads in every rank: one ends a hang, the other reports life; and whether the supervisor
that started this process is gone.

Horovod's own stall inspector never fires under Gloo: a rank that stops leaves its peers waiting
for ever. Each rank therefore ends itself, with all stacks in its log, when what it is doing has not
changed for too long. The file system may hang, too, so the thread that ends the process reads and
writes nothing by itself. The supervisor ends native code that keeps Python's lock for ever.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from train.distributed.awake import PERIOD_S, Awake

#: A rank that hangs ends itself with this code.
EXIT_STALLED = 75
#: Seconds without progress that end a rank, unless somebody asks for others.
STALL_S = 300.0
#: Last words get this long, no longer: they may be written to what hangs.
REPORT_S = 10.0
#: Seconds between two life signs of a rank; a quarter of the limit of a stall if that is shorter.
#: The first one comes at the start, the last one at the end or at a stall.
BEAT_S = 15.0
#: How the phase of a rank ends that waits for others.
WAITING = ", waiting for other ranks"
#: A life sign is a line of JSON, filled with blanks, so that the size of its file stays the same.
SIGN_BYTES = 512


class _Doing(NamedTuple):
    """What goes on in this process; replaced as one, so that the other threads see no half."""

    phase: str
    limit_s: float
    since: float  # of the process's clock
    suspended_s: float  # until then


@dataclass(eq=False)
class Watchdog:
    """Call :meth:`beat` at every sign of progress; use as a context manager. ``file``: for life
    signs; None: for none yet. ``awake``: the clock of this process, which it keeps going."""

    file: Path | None
    stall_s: float
    supervisor: int | None
    on_stall: Callable[[str], None]

    def __post_init__(self) -> None:
        self.awake = Awake()
        self._beat_s = min(BEAT_S, self.stall_s / 4)
        self._descriptor: int | None = None  # of the file, once it is open
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._reporter = threading.Thread(target=self._report, name="life signs", daemon=True)
        self._doing = _Doing("starting", self.stall_s, *self.awake.read())
        self._replacing, self._writing = threading.Lock(), threading.Lock()
        self._ask: Callable[[], str] | None = None
        self._answer = ""

    def __enter__(self) -> Watchdog:
        self.awake.look()
        self._watcher.start()
        self._reporter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._watcher.join(REPORT_S)
        self._reporter.join(REPORT_S)

    def beat(self, phase: str, patience_s: float = 0.0) -> None:
        """Progress: what this rank does from now on, and how long that may take without another
        sign, if that is longer than ``stall_s``."""
        with self._replacing:
            self._doing = _Doing(phase, max(self.stall_s, patience_s), *self.awake.read())

    @contextlib.contextmanager
    def waiting(self, patience_s: float) -> Iterator[None]:
        """For that long this rank may wait for others within what it does."""
        before = self._doing
        self.beat(before.phase.removesuffix(WAITING) + WAITING, patience_s)
        yield
        self.beat(before.phase, before.limit_s)

    def watch(self, ask: Callable[[], str] | None) -> None:
        """From now on a graph makes progress, too: ``ask`` returns its phase, at once. None: no
        graph does."""
        with self._replacing:
            self._ask, self._answer = ask, ask() if ask else ""

    def _poll(self) -> None:
        # this thread must live on, whatever becomes of what it asks
        with self._replacing, contextlib.suppress(Exception):
            if self._ask and (answer := self._ask()) != self._answer:
                self._answer = answer
                self._doing = _Doing(answer, self._doing.limit_s, *self.awake.read())

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._poll()
            doing = self._doing
            idle = self.awake.look() - doing.since
            if self.supervisor is not None and is_orphan(self.supervisor):
                os._exit(EXIT_STALLED)  # nobody is left to end us or to use our result
            if idle > doing.limit_s:
                what = f"no progress for {idle:.0f} s while: {doing.phase}"
                end_process(EXIT_STALLED, _dump_stacks, partial(self.on_stall, what), self._write)

    def _report(self) -> None:
        self._write()
        while not self._stop.wait(self._beat_s):
            self._write()
        self._write()
        self._close()

    def _write(self) -> None:
        if self.file is None:
            return
        doing = self._doing
        now, suspended_s = self.awake.read()
        sign = {
            "phase": doing.phase,
            "idle_s": round(now - doing.since, 1),
            # a rank that was stopped is woken to be ended, and would look as lively as its peers
            "asleep_s": round(suspended_s - doing.suspended_s, 1),
            "beat_s": self._beat_s,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        line = json.dumps(sign).ljust(SIGN_BYTES - 1) + "\n"
        with self._writing:
            try:
                if self._descriptor is None:
                    self._descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o666)
                os.pwrite(self._descriptor, line.encode(), 0)
                # else a network file system may keep it from its server for half a minute
                os.fdatasync(self._descriptor)
            except OSError:
                # life signs are a courtesy: a full disk must not end the run. A server that
                # started again may have forgotten the open file
                self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def end_process(code: int, *last_words: Callable[[], object]) -> NoReturn:
    """Exit with ``code``, after at most ``REPORT_S`` seconds, whatever becomes of the last words:
    each is said in a thread of its own."""
    try:
        threads = [threading.Thread(target=words, daemon=True) for words in last_words]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + REPORT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    finally:
        os._exit(code)


def _dump_stacks() -> None:
    """Through memory: faulthandler keeps Python's lock while it writes, and a write may hang."""
    stacks = os.memfd_create("stacks")
    faulthandler.dump_traceback(file=stacks, all_threads=True)
    # the descriptor, not sys.stderr, which may be gone or no file
    os.write(2, os.pread(stacks, os.fstat(stacks).st_size, 0))


def is_orphan(supervisor: int) -> bool:
    """Whether the process ``supervisor`` is no ancestor of this one any more; it need not be the
    parent: a container's starter stands between. What cannot be read is taken for alive."""
    pid = os.getppid()
    while pid not in (0, 1, supervisor):
        try:
            # without psutil: the preflight needs this file where no package is;
            # the name, in brackets, may hold anything
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            pid = int(fields[1])
        except (OSError, ValueError, IndexError):
            return os.getppid() == 1
    return pid != supervisor
