"""Where the coordinator is: a private file in the run's folder, which all nodes see."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from pathlib import Path
from typing import NamedTuple

from train.interconnect.lines import Lines

MEETING_NAME = ".meeting"
_CONNECT_S = 10.0


class MeetingError(RuntimeError):
    """The coordinator cannot be found or reached."""


def allow_connections() -> None:
    """As many open sockets as this user may have: many nodes are more than the usual 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
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
        out.flush()
        os.fsync(out.fileno())
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
