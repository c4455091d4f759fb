"""Packets between two pretend hosts arrive whole, and late by the delay of their link."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.bench.hosts import Link, two_hosts
from tests.pretend_hosts import address

SERVER = """
import socket, sys
listening = socket.create_server((sys.argv[1], 5555))
print("listens", flush=True)
connection, _ = listening.accept()
while text := connection.recv(1 << 16):
    connection.sendall(text)
"""
CLIENT = """
import json, socket, sys, time
connection = socket.create_connection((sys.argv[1], 5555))
took = []
for _ in range(5):
    begin = time.perf_counter()
    connection.sendall(b"there and back")
    connection.recv(100)
    took.append(time.perf_counter() - begin)
sent = bytes(range(256)) * 1000
connection.sendall(sent)
came = bytearray()
while len(came) < len(sent):
    came += connection.recv(1 << 16)
print(json.dumps([min(took), bytes(came) == sent]))
"""


def test_a_round_trip_takes_both_delays() -> None:
    if not shutil.which("tc"):
        pytest.skip("needs tc (package iproute2)")
    with two_hosts(Link("1gbit", 20.0)) as (hosts, _):
        server = subprocess.Popen(
            [*hosts[0], sys.executable, "-c", SERVER, address(1)], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout and server.stdout.readline()
            said = subprocess.check_output(
                [*hosts[1], sys.executable, "-c", CLIENT, address(1)], timeout=60
            )
        finally:
            server.kill()
            server.wait()
    round_trip_s, whole = json.loads(said)
    assert 0.040 <= round_trip_s < 0.060
    assert whole
