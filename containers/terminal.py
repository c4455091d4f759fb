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
import signal
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress


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
    process = subprocess.Popen(
        command, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL if 0 in terminals else None,
        stdout=own if 1 in terminals else None, stderr=own if 2 in terminals else None,
    )  # fmt: skip

    def pass_on(number: int, _: object) -> None:
        if number == signal.SIGWINCH and terminals:
            _copy_size(terminals[-1], master)
        with suppress(ProcessLookupError):
            # a terminal signals the whole group, `kill` the program alone
            (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup asks
            signal.signal(number, pass_on)
    if terminals:
        os.close(own)
        copier = threading.Thread(target=_copy, args=(master, terminals[-1]), daemon=True)
        copier.start()
        process.wait()
        copier.join(1)  # longer only if what the program left behind still has the terminal
    code = process.wait()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _copy_size(terminal: int, master: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(master, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))


def _copy(master: int, terminal: int) -> None:
    """Until the program has closed its terminal, or root's is gone, which the program then sees."""
    with suppress(OSError):
        while data := os.read(master, 65536):
            while data:
                data = data[os.write(terminal, data) :]
    os.close(master)
