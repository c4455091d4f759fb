"""A delay line between two Ethernet ports of this network namespace: every packet that comes in at
one leaves by the other a fixed time later. For kernels without tc's netem. Needs root.

Usage: delay_line.py PORT PORT SECONDS, until it is ended; prints a line when it carries packets.

Packets keep the kernel's header of offloads (PACKET_VNET_HDR): up to 64 KiB cross at once, so a
gigabit a second is some thousand system calls. It runs before other programs (SCHED_FIFO), because
ranks keep all cores busy, and on whichever core the kernel chooses.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress

SOL_PACKET, VNET_HDR, IGNORE_OUTGOING, ALL_PROTOCOLS = 263, 15, 23, 0x0003  # linux/if_packet.h
FORCED_RECEIVE, FORCED_SEND = 33, 32  # SO_RCVBUFFORCE, SO_SNDBUFFORCE
LARGEST, BUFFER = 66_000, 1 << 25  # bytes


def port(name: str) -> socket.socket:
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    for option in (VNET_HDR, IGNORE_OUTGOING):
        own.setsockopt(SOL_PACKET, option, 1)
    for option in (FORCED_RECEIVE, FORCED_SEND):
        own.setsockopt(socket.SOL_SOCKET, option, BUFFER)
    own.bind((name, ALL_PROTOCOLS))
    return own


def carry(first: socket.socket, second: socket.socket, delay_s: float) -> None:
    other = {first: second, second: first}
    under_way: deque[tuple[float, socket.socket, bytes]] = deque()  # in the order of their times
    while True:
        left = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for here in select.select([first, second], [], [], left)[0]:
            with suppress(BlockingIOError):
                while True:
                    packet = here.recv(LARGEST)
                    under_way.append((time.monotonic() + delay_s, other[here], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, there, packet = under_way.popleft()
            with suppress(BlockingIOError):  # a full link drops packets
                there.send(packet)


def main() -> None:
    first, second, delay_s = sys.argv[1:]
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ports = port(first), port(second)
    print("carries", flush=True)
    carry(*ports, float(delay_s))


if __name__ == "__main__":
    main()
