"""What the commands of `python -m jobs` share: exit codes, how a refusal is reported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path

import typer

from train.errors import ConfigError, remedy

ROOT = Path(__file__).resolve().parent.parent
EXIT_CELL_FAILED, EXIT_REQUEST, EXIT_UNDECIDED, EXIT_INTERRUPTED = 1, 2, 3, 130


class Interrupted(Exception):
    """The sweep was asked to end, and all ranks were ended."""


class NoAnswer(Exception):
    """What has to be known cannot be had now (Slurm does not answer): nothing can be decided."""


def say(text: str) -> None:
    with suppress(OSError):  # a reader that is gone must not end a sweep
        print(f"[sweep] {text}", file=sys.stderr, flush=True)


@contextmanager
def refusals() -> Iterator[None]:
    """Wrong requests and a refusing file system end with a message and exit code 2."""
    try:
        yield
    except (ConfigError, NoAnswer) as error:
        say(f"error: {error}")
        code = EXIT_UNDECIDED if isinstance(error, NoAnswer) else EXIT_REQUEST
        raise typer.Exit(code) from error
    except OSError as error:
        todo = remedy(error)
        say(f"error: {error}" + (f": {todo}, then make the same again" if todo else ""))
        raise typer.Exit(EXIT_REQUEST) from error
    except Interrupted as error:
        say(f"interrupted ({error}): all ranks were ended; make sweep goes on from here")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except KeyboardInterrupt:
        say("interrupted; what was submitted goes on, and the same command goes on from here")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def without_links(path: Path) -> Path:
    """The path that it leads to; one in a circle stays, and is refused where it is opened (as an
    OSError, which Path.resolve does not raise)."""
    return Path(os.path.realpath(path))


def clock(seconds: float | None) -> str:
    """h:mm:ss, or m:ss below an hour; nothing for a time that is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def seconds_of(text: str) -> float | None:
    """From one of the forms of Slurm's times: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None for anything
    else."""
    parts = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,5}))?(?::(\d{1,5}))?", text)
    if parts is None:
        return None
    days, *rest = parts.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is None and len(numbers) < 3:
        numbers = [0, *numbers]  # minutes come first
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def columns(head: Sequence[str], body: Iterable[Sequence[str]], *, left: int = 0) -> list[str]:
    """Lines of aligned columns, the first ``left`` of them to the left, the others to the right.

    Heads may have several lines. Plain text, because a rich table of 2,000 rows takes seconds.
    """
    from_below = zip_longest(*(reversed(name.split("\n")) for name in head), fillvalue="")
    lines = [*reversed(list(from_below)), *body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = "<" * left + ">" * (len(widths) - left)
    line = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [line.format(*cells).rstrip() for cells in lines]
