"""Messages between the coordinator and its agents: one JSON object per line over TCP."""

from __future__ import annotations

import json
import socket
from typing import Any

_LONGEST = 1 << 20  # bytes of a line


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
