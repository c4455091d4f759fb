"""Root's terminal stays root's: another user's program gets a session and a terminal of its own.

A program that holds root's terminal can push characters into it (TIOCSTI), read what root types,
and change its settings. Here it holds another one, whose output is copied to root's terminal. It
reads nothing from there, and signals are passed on. `runuser --pty` (2.38.1) was tried: it mixes
errors into the output that make captures, takes the keys that a pager of the same pipeline waits
for, and kills the program two seconds after SIGTERM.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from locks import write_all

PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)
#: So long a terminal shows nothing when all is copied; so many reads empty the kernel's 12 KiB.
QUIET_S, READS_AFTER_END = 0.1, 64


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end; returns its exit code, or ends as it did if a signal ended it.

    Descriptors 0 to 2 that are no terminal reach the program as they are; others never do.
    """
    terminals = [number for number in range(3) if os.isatty(number)]
    master, own = os.openpty() if terminals else (-1, subprocess.DEVNULL)
    if terminals:
        mode = termios.tcgetattr(own)
        mode[1] &= ~termios.OPOST  # root's terminal does that
        termios.tcsetattr(own, termios.TCSANOW, mode)
        _copy_size(terminals[-1], master)
    early: list[int] = []  # signals that came before there was a program
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: object = None) -> None:
        if process is None:
            early.append(number)
            return
        if number == signal.SIGWINCH and terminals:
            _copy_size(terminals[-1], master)
        with suppress(ProcessLookupError):
            # a terminal signals the whole group, `kill` the program alone
            (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)

    heard = [n for n in PASSED_ON if signal.getsignal(n) != signal.SIG_IGN]  # as nohup asks
    for number in heard:
        signal.signal(number, pass_on)
    process = subprocess.Popen(
        command, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL if 0 in terminals else None,
        stdout=own if 1 in terminals else None, stderr=own if 2 in terminals else None,
    )  # fmt: skip
    for one in early:
        pass_on(one)
    if terminals:
        os.close(own)
        copier = threading.Thread(target=_copy, args=(master, terminals[-1], process), daemon=True)
        copier.start()
    code = process.wait()
    for number in heard:  # from now on they end the wait for a slow reader
        signal.signal(number, signal.SIG_DFL)
    if terminals:
        copier.join()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _copy_size(terminal: int, master: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(master, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))


def _copy(master: int, terminal: int, process: subprocess.Popen[bytes]) -> None:
    """Until the program has closed its terminal, or root's is gone, which the program then sees.

    What it left behind may write for ever: once it has ended, what its terminal holds is copied.
    """
    left = READS_AFTER_END
    with suppress(OSError):
        while left:
            over = process.returncode is not None
            if select.select([master], [], [], QUIET_S)[0]:
                write_all(terminal, os.read(master, 65536))
                left -= over
            elif over:
                break
    os.close(master)
