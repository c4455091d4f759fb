"""The edges of a program: what is typed on its command line, what it prints to, how it ends.

A terminal that knows few characters, a reader that is gone, a full disk under the output or a
closed descriptor is no reason to stop in the middle. The exit code says what the program found.
"""

from __future__ import annotations

import argparse
import codecs
import io
import math
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from train.errors import ConfigError, expanded, remedy

EXIT_FAILED, EXIT_REQUEST, EXIT_UNDECIDED, EXIT_INTERRUPTED = 1, 2, 3, 130
DEFAULT_DATA = Path(__file__).resolve().parents[2] / ".data"
#: How a stream writes what its encoding lacks.
_SHOWN = "horoscale"


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    """For argparse's ``type``: a finite number above zero, else its message names the kind."""

    def read(text: str) -> float:
        value = kind(text)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(text)
        return value

    read.__name__ = f"positive {kind.__name__}"  # what argparse calls it in its message
    return read


class PlaceError(ConfigError, argparse.ArgumentTypeError):
    """Argparse shows its text."""


def place(written: str | Path) -> Path:
    """For options of argparse and typer: nobody expands the ~ of ``RESULTS='~/r'``.

    Raises:
        PlaceError: the home folder of a user who is not known.
    """
    path = expanded(written)
    if str(written).startswith("~") and str(path).startswith("~"):
        user = str(path).partition("/")[0]
        raise PlaceError(f"{written}: no user {user} is known; a folder of that name is ./{path}")
    return path


place.__name__ = "path"  # what argparse and typer call it


def write_all(descriptor: int, content: memoryview | bytes) -> None:
    """Write all of it, also to a terminal that another program made non-blocking."""
    while content:
        try:
            content = content[os.write(descriptor, content) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class _Output(io.FileIO):
    """Takes everything; what it could not write is lost, and ``failure`` shows why."""

    failure: OSError | None = None

    def write(self, content: Any, /) -> int:
        octets = memoryview(content).cast("B")
        if self.failure is None:
            try:
                write_all(self.fileno(), octets)
            except OSError as error:
                self.failure = error
        return len(octets)


def open_streams() -> _Output:
    """Make stdout and stderr fit for any terminal; returns what stdout writes to.

    For the first line of a program, before it opens a file: one that got the number of a closed
    stdout would be written to by whatever prints.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest number that is free; a program that we start needs it as much
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    codecs.register_error(_SHOWN, _as_shown)
    output, errors = (_Output(descriptor, "w", closefd=False) for descriptor in (1, 2))
    sys.stdout, sys.stderr = _text(output, sys.stdout), _text(errors, sys.stderr)
    return output


def _text(raw: _Output, before: TextIO | None) -> io.TextIOWrapper:
    known = before if isinstance(before, io.TextIOWrapper) else None
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=known.encoding if known else "utf-8",
        errors=_SHOWN,
        line_buffering=not known or known.line_buffering or known.write_through,
    )


def _as_shown(error: UnicodeError) -> tuple[bytes, int]:
    """Names of files that are no text as the bytes that they are; what else the encoding lacks as
    an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    shown = (
        bytes([ord(sign) - 0xDC00])
        if "\udc80" <= sign <= "\udcff"
        else sign.encode("ascii", "backslashreplace")
        for sign in signs
    )
    return b"".join(shown), error.end


def _interrupt_on_signals() -> None:
    """From now on SIGTERM and SIGHUP end a program as Ctrl-C does: with its clean-up, its words and
    its exit code. One that is ignored stays so, as nohup asks; another one changes nothing, since
    the kernel and the shell both tell of a terminal that is gone."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    both = (signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in both if signal.getsignal(number) != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)


def run(main: Callable[[], object]) -> NoReturn:
    """Run a program to its exit code: what ``main`` returns (None: 0), or ends with.

    2 also if the system refuses something or the output could not be written, and 3 after a
    fault of our own: a traceback would end with 1, which means a failed cell.
    """
    output, code = open_streams(), EXIT_REQUEST
    try:
        os.getcwd()  # noqa: PTH109  (here, not in the middle of an import)
    except OSError as error:
        print(f"error: the working folder: {error.strerror}: cd to another one", file=sys.stderr)
        sys.exit(code)
    try:
        _interrupt_on_signals()
        result = main()
        code = result if isinstance(result, int) else 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except OSError as error:
        todo = remedy(error)
        print(f"error: {error}" + (f": {todo}" if todo else ""), file=sys.stderr)
    except Exception:  # noqa: BLE001  (the last place that can give it an exit code)
        traceback.print_exc()
        print("error: this is a fault of the suite, please report the lines above", file=sys.stderr)
        code = EXIT_UNDECIDED
    sys.stdout.flush()
    if output.failure and not isinstance(output.failure, BrokenPipeError):
        print(f"error: cannot print: {output.failure.strerror}", file=sys.stderr)
        code = code or EXIT_REQUEST
    sys.exit(code)
