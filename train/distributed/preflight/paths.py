"""Whether bytes pass between two nodes: a few, and as many as fill packets of full size.

Where a switch passes smaller packets than the interfaces send, a connection opens, small messages
arrive, and the first large one is sent again and again for ever: nobody says so, since the switch
drops it without a word. The proof is a second connection whose packets are small.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import NamedTuple

CONNECT_S = 5.0
#: In which a few packets, sent again three or four times, arrive on a busy machine, too.
ANSWER_S = 6.0
#: Bytes of the two messages of a connection; the second fills some packets of any size.
_FEW, _MANY = 8, 1 << 16
#: Of IPv4 and TCP without options.
_HEADERS = 40
#: Packets that some network passes where it does not pass larger ones: Ethernet, tunnels, the
#: least of IPv6.
_USUAL = (1500, 1400, 1280)


class Broken(NamedTuple):
    """is_mtu: smaller packets pass."""

    why: str
    is_mtu: bool = False


class Echo:
    """Answers each message on ``address`` by one byte, in threads of its own, while this process
    lives: others may come late.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="echo", daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    connection.settimeout(CONNECT_S + 2 * ANSWER_S)
    with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
        for size in (_FEW, _MANY):
            if len(stream.read(size)) == size:
                connection.sendall(b"k")


def probe(own: str, address: str, port: int, mtu: int) -> Broken | None:
    """From the interface with the address ``own`` to an :class:`Echo`; None: all of it passes.

    Args:
        mtu: bytes of the largest packet of that interface.
    """
    opens = False
    try:
        with _open(own, address, port) as connection:
            opens = True
            _say(connection, _FEW)
            with contextlib.suppress(TimeoutError):
                _say(connection, _MANY)
                return None
    except OSError as error:
        return Broken(_words(error, opens=opens))
    for size in (size for size in _USUAL if size < mtu):
        with contextlib.suppress(OSError), _open(own, address, port, size) as connection:
            _say(connection, _FEW)
            _say(connection, _MANY)
            why = f"packets of {mtu:,} bytes do not arrive, packets of {size:,} do"
            return Broken(why, is_mtu=True)
    return Broken(f"{_FEW} bytes arrive, {_MANY:,} bytes do not, in packets of any size")


def _open(own: str, address: str, port: int, packet: int | None = None) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_S)
        if packet is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, packet - _HEADERS)
        connection.bind((own, 0))
        connection.connect((address, port))
        connection.settimeout(ANSWER_S)
    except OSError:
        connection.close()
        raise
    return connection


def _say(connection: socket.socket, size: int) -> None:
    connection.sendall(bytes(size))
    if not connection.recv(1):
        raise ConnectionError("the other end closed the connection")


def _words(error: OSError, *, opens: bool) -> str:
    if isinstance(error, TimeoutError):
        return "a connection opens, but nothing arrives" if opens else (
            "no connection opens, and nothing refuses it"
        )  # fmt: skip
    return (error.strerror or str(error)).lower()
