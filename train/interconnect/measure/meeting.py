"""How the coordinator and its agents meet and talk.

The address of the coordinator is a private file in the run's folder, which all nodes see. Messages
are JSON objects, one per line, over TCP.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

from train.record.atomic import flush_to_disk

MEETING_NAME = ".meeting"
_CONNECT_S = 10.0
_LONGEST = 1 << 20  # bytes of a line


class MeetingError(RuntimeError):
    """The coordinator cannot be found or reached."""


def allow_connections() -> None:
    """As many open sockets as this user may have: many nodes are more than the usual 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # what is refused may not be needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Meeting(NamedTuple):
    address: str
    port: int
    token: str  # who knows it may command the agents' bandwidth


def publish(folder: Path, meeting: Meeting) -> None:
    """Readable by this user only; complete as soon as it is there."""
    temporary = folder / f"{MEETING_NAME}.new"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(meeting._asdict(), out)
        flush_to_disk(out)
    temporary.replace(folder / MEETING_NAME)


def look_up(folder: Path, patience_s: float) -> Meeting:
    """
    Raises:
        MeetingError: nobody published within ``patience_s`` seconds.
    """
    file, deadline = folder / MEETING_NAME, time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            return Meeting(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            os.scandir(folder).close()  # makes NFS look again
            time.sleep(0.1)
    raise MeetingError(f"no coordinator in {file} after {patience_s:.0f} s: see the log of task 0")


def join(meeting: Meeting, own_address: str) -> Lines:
    """
    Raises:
        MeetingError: the coordinator does not answer on its address.
    """
    try:
        connection = socket.create_connection(
            (meeting.address, meeting.port), _CONNECT_S, source_address=(own_address, 0)
        )
    except OSError as error:
        raise MeetingError(
            f"{own_address} cannot reach the coordinator at {meeting.address}:{meeting.port}: "
            f"{error.strerror or error}"
        ) from error
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Lines(connection)


class Lines:
    """One end of a connection; blocking."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")

    def say(self, message: dict[str, Any]) -> None:
        self._connection.sendall(encode(message))

    def hear(self) -> dict[str, Any] | None:
        """The next message; None: the other end is gone."""
        try:
            line = self._reader.readline(_LONGEST)
        except OSError:
            return None
        return decode(line)


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """None for the end of a connection and for what is no message of ours."""
    if not line.endswith(b"\n"):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
