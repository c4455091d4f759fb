"""One node's part of a tournament: do what the coordinator says, one measurement at a time."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

from train.distributed.interfaces import Counted, Interface
from train.interconnect.measure.evidence import TcpInfo, Watch
from train.interconnect.measure.meeting import Lines
from train.interconnect.measure.stream import Plan, exactly
from train.interconnect.measure.streams import receive_all, send_all

#: A sender knocks for this long at a receiver that may not listen yet.
CONNECT_S = 5.0
_ID = 8  # bytes that a sender says first


def run_agent(control: Lines, name: str, interface: Interface, token: str) -> bool:
    """Serve until the coordinator says ``end``; False: it is gone without a word.

    Raises:
        OSError: there is no listening on the interface's address.
    """
    with socket.create_server((interface.address, 0), backlog=4) as listener:
        port = listener.getsockname()[1]
        control.say(
            {
                "hello": name, "token": token, "interface": interface.name,
                "address": interface.address, "port": port,
            }
        )  # fmt: skip
        while (order := control.hear()) is not None and order["do"] != "end":
            clock = order["do"] == "clock"
            told = {"now": time.time()} if clock else _obey(order, listener, interface)
            control.say({"id": order["id"], **told})
        return order is not None


def _obey(order: dict[str, Any], listener: socket.socket, interface: Interface) -> dict[str, Any]:
    do: dict[str, Callable[..., dict[str, Any]]] = {"send": _send, "receive": _receive}
    try:
        with Watch(interface.name) as watch:
            told = do[order["do"]](order, listener, interface)
    except OSError as error:
        return {"error": _words(error)}
    return {**told, "end": _end(told.pop("effort"), watch.counted)}


def _send(order: dict[str, Any], listener: socket.socket, interface: Interface) -> dict[str, Any]:
    plan, here = Plan(**order["plan"]), (interface.address, 0)
    with contextlib.ExitStack() as opened:
        connections = []
        for _ in range(plan.streams):
            one = opened.enter_context(
                socket.create_connection(
                    (order["address"], order["port"]), CONNECT_S, source_address=here
                )
            )
            one.settimeout(order["silence_s"])
            one.sendall(bytes.fromhex(order["id"]))
            connections.append(one)
        sent, effort = send_all(connections, plan, order["seed"])
    return {"latency_s": sent.latency_s, "latency_min_s": sent.latency_min_s,
            "tcp": _tcp(sent.tcp), "effort": effort._asdict()}  # fmt: skip


def _receive(
    order: dict[str, Any], listener: socket.socket, interface: Interface
) -> dict[str, Any]:
    plan = Plan(**order["plan"])
    listener.settimeout(CONNECT_S + 1)
    with contextlib.ExitStack() as opened:
        connections: list[socket.socket] = []
        while len(connections) < plan.streams:
            one, _ = listener.accept()
            opened.enter_context(one)
            one.settimeout(order["silence_s"])
            if _said(one) == order["id"]:
                connections.append(one)
            else:
                one.close()
        got, effort = receive_all(connections, plan, order["seed"])
    return {"rates": got.rates, "bytes": got.bytes, "wrong_bytes": got.wrong,
            "effort": effort._asdict()}  # fmt: skip


def _said(connection: socket.socket) -> str | None:
    """Who calls; it may be of a measurement that was given up, or no agent at all."""
    try:
        return exactly(connection, _ID).hex()
    except OSError:
        return None


def _tcp(told: TcpInfo | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        "path_mtu": told.path_mtu, "rtt_s": told.rtt, "min_rtt_s": told.min_rtt,
        "retransmitted": told.retransmitted, "busy_s": told.busy,
        "rwnd_limited_s": told.rwnd_limited, "sndbuf_limited_s": told.sndbuf_limited,
    }  # fmt: skip


def _end(effort: dict[str, float | None], counted: Counted | None) -> dict[str, Any]:
    return {
        **effort,
        "received_bytes": counted.received if counted else None,
        "sent_bytes": counted.sent if counted else None,
    }


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError) and str(error) in ("", "timed out"):  # a socket's own
        return "no progress within the time limit"
    return (error.strerror or str(error) or type(error).__name__).lower()
