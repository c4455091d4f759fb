"""Where the name of a host leads, since Horovod sends its data there."""

from __future__ import annotations

import socket

import pytest

from train.distributed import rendezvous
from train.distributed.interfaces import Host, Interface
from train.distributed.rendezvous import address_of, data_interface
from train.errors import ConfigError

ETH0, NAMED = Interface("eth0", "10.1.2.3"), {"HOROSCALE_INTERFACE": "eth0"}
N7 = Host("n7", {
    "eth0": ("10.1.2.3", "10.1.2.4", "169.254.7.7", "2001:db8::3", "fe80::3"),
    "ib0": ("172.16.0.9", "fd00::9"),
})  # fmt: skip


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch):
    def choose(address: str | None, nodes: int = 2, **environment: str) -> Interface:
        monkeypatch.setattr(rendezvous, "this_host", lambda: N7)
        monkeypatch.setattr(rendezvous, "address_of", {"n7": address}.get)
        return data_interface(ETH0, nodes, environment)

    return choose


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::3", "10.1.2.4", "169.254.7.7"])
def test_any_address_of_the_interface_is_over_it(chosen, address: str) -> None:
    assert chosen(address) == chosen(address, **NAMED) == ETH0


def test_other_interfaces_and_loopback_are_no_fault_if_nothing_needs_the_named_one(chosen) -> None:
    assert chosen("127.0.1.1", nodes=1) == chosen("192.168.1.5", nodes=1) == ETH0
    assert chosen("172.16.0.9") == Interface("ib0", "172.16.0.9")


@pytest.mark.parametrize(
    ("address", "nodes", "words"),
    [
        (None, 1, r"n7, stands for no address.*10\.1\.2\.3 n7"),
        (None, 2, r"n7, stands for no address.*10\.1\.2\.3 n7"),
        ("127.0.1.1", 2, "ranks of other nodes could not reach it"),
        ("::1", 2, "ranks of other nodes could not reach it"),
        ("fe80::3%eth0", 2, "fe80::3%eth0, where .* could not reach it"),
        ("172.16.0.9", 2, r"not over eth0 \(10\.1\.2\.3\) as asked"),
        ("fd00::9", 2, r"not over eth0 \(10\.1\.2\.3\) as asked"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(chosen, address, nodes: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        chosen(address, nodes, **NAMED)


def test_real_names() -> None:
    assert address_of("localhost") in ("127.0.0.1", "::1")
    assert address_of("no-such-host.invalid") is None
    assert address_of("192.0.2.200") is None, "an address of another host"


def test_a_name_of_ipv6_on_a_kernel_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = (250, socket.SOCK_STREAM, 0, "", ("2001:db8::3", 0, 0, 0))
    known = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, known])
    assert address_of("n7") == "127.0.0.1"
