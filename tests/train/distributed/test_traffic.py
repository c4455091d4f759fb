"""Byte counters of network interfaces and InfiniBand ports."""

from __future__ import annotations

from pathlib import Path

from train.distributed.interfaces import (
    Counted,
    carriers,
    moved,
    outside,
    port_counters,
    read_counters,
)


def test_infiniband_ports_count_words_of_four_bytes(tmp_path: Path) -> None:
    counters = tmp_path / "mlx5_0/ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "port_rcv_data").write_text("1000\n")
    (counters / "port_xmit_data").write_text("3\n")
    broken = tmp_path / "mlx5_1/ports/1/counters"
    broken.mkdir(parents=True)
    (broken / "port_rcv_data").write_text("7\n")
    assert port_counters(tmp_path) == {"mlx5_0:1": Counted(4000, 12)}


def test_this_machine_has_a_loopback_that_counts() -> None:
    import socket

    before = read_counters()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as peer,
    ):
        client.sendall(bytes(100_000))
        left = 100_000
        while left:
            left -= len(peer.recv(left))
    (link,) = [found for found in moved("here", before, read_counters()) if found.interface == "lo"]
    assert link.sent_bytes >= 100_000 and link.received_bytes >= 100_000 and link.host == "here"


def test_only_what_moved_and_was_not_set_back() -> None:
    before = {
        "lo": Counted(5, 5),
        "eth0": Counted(1, 2),
        "ib0": Counted(9, 9),
        "gone": Counted(1, 1),
    }
    after = {
        "lo": Counted(5, 5),
        "eth0": Counted(11, 4),
        "ib0": Counted(3, 10),
        "new": Counted(8, 8),
    }
    (found,) = moved("n", before, after)
    assert (found.interface, found.received_bytes, found.sent_bytes) == ("eth0", 10, 2)


def test_what_carries_a_payload_leads_outside_and_carries_it_both_ways() -> None:
    start = dict.fromkeys(("lo", "eth0", "ib0"), Counted(0, 0))
    here = moved("a", start, {"lo": Counted(99, 99), "eth0": Counted(90, 3), "ib0": Counted(4, 4)})
    there = moved("b", start, {"eth0": Counted(50, 50)})
    assert carriers(outside(here + there, "a"), 4) == ["ib0"]
    assert carriers(outside(here + there, "a"), 3) == ["eth0", "ib0"]
    assert carriers(outside(here + there, "b"), 4) == ["eth0"]
    assert carriers(outside(here, "c"), 4) == []
