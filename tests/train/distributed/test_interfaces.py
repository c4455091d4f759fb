"""The interface between ranks: named, or chosen by name or route; and the bytes that it carried."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from train.distributed import interfaces
from train.distributed.interfaces import (
    Counted,
    Host,
    Interface,
    moved,
    own_interface,
    read_counters,
    this_host,
)
from train.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
N7 = Host("n7", {
    "lo": ("127.0.0.1", "::1"), "eth0": ("10.1.2.3", "10.1.2.4", "2001:db8::3", "fe80::3"),
    "ib0": ("172.16.0.3",), "eth1": ("fe80::4",),
})  # fmt: skip


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch):
    """The interface of a host whose name stands for addresses, and whose default route has one."""

    def choose(addresses: list[str], source: str | None = None, host: Host = N7) -> str:
        monkeypatch.setattr(interfaces, "this_host", lambda: host)
        monkeypatch.setattr(interfaces, "addresses_of", lambda _: addresses)
        monkeypatch.setattr(interfaces, "_source_elsewhere", lambda: source)
        return own_interface({}, nodes=2).name

    return choose


@pytest.mark.parametrize(
    ("addresses", "source", "expected"),
    [
        (["172.16.0.3"], "10.1.2.3", "ib0"),
        (["127.0.1.1"], "10.1.2.3", "eth0"),  # Debian's way to write /etc/hosts
        ([], "10.1.2.3", "eth0"),
        (["10.9.9.9"], "172.16.0.3", "ib0"),  # a name that stands for a host elsewhere
        (["2001:db8::3", "172.16.0.3"], None, "eth0"),  # the first is where Gloo sends
        (["172.16.0.3", "2001:db8::3"], None, "ib0"),
        (["127.0.1.1", "10.1.2.4"], None, "eth0"),  # its second address
        (["::1", "fe80::3"], None, "eth0"),
    ],
)
def test_the_hosts_name_first_then_the_default_route(chosen, addresses, source, expected) -> None:
    assert chosen(addresses, source) == expected


def test_what_is_not_there_is_refused_with_what_is(chosen) -> None:
    there = r"lo \(127\.0\.0\.1\)"
    with pytest.raises(ConfigError, match=rf"no default route.*{there}. .*HOROSCALE_INTERFACE"):
        chosen(["127.0.1.1"])
    with pytest.raises(ConfigError, match="'eth1' has no IPv4 address on n7"):
        chosen(["2001:db8::4"], host=Host("n7", {"eth1": ("2001:db8::4",)}))
    for name, words in (("ib7", "is not there on n7"), ("eth1", "has no IPv4 address on n7")):
        listed = rf"eth0 \(10\.1\.2\.3\), eth1 \(no IPv4 address\), .*{there}"
        with pytest.raises(ConfigError, match=f"'{name}' {words}; there: {listed}"):
            N7.named(name)


def test_the_real_loopback_of_this_machine() -> None:
    loopback = Interface("lo", "127.0.0.1")
    assert this_host().interfaces["lo"][0] == "127.0.0.1"
    assert own_interface({}, nodes=1) == loopback
    assert own_interface({"HOROSCALE_INTERFACE": "lo"}, nodes=2) == loopback
    with pytest.raises(ConfigError, match="'no such' is not there on " + socket.gethostname()):
        own_interface({"HOROSCALE_INTERFACE": "no such"}, nodes=1)


@pytest.mark.parametrize(
    ("made", "name", "expected"),
    [
        ("ip address add 10.9.9.1/24 dev d0 label d0:1", "d0:1", "d0 10.9.9.1"),  # a label
        ("ip link property add dev d0 altname data; ip address add 10.9.9.1/24 dev d0", "data",
         "d0 10.9.9.1"),
        ("ip link add link d0 name d0.5 type vlan id 5; ip address add 10.9.9.1/24 dev d0.5",
         "d0.5@d0", "d0.5 10.9.9.1"),  # as `ip link` prints it
        ("ip address add 10.9.9.1/24 dev d0; ip address add 10.8.8.1/24 dev d0", "d0",
         "d0 10.9.9.1"),
    ],
)  # fmt: skip
def test_names_that_an_interface_goes_by(made: str, name: str, expected: str) -> None:
    script = (
        f"ip link set lo up; ip link add d0 type veth peer name d1; {made}; "
        'exec "$0" -c "from train.distributed.interfaces import *; '
        f'found = this_host().named({name!r}); print(found.name, found.address)"'
    )
    apart = ["unshare", "--net", "sh", "-c", script, sys.executable]
    probe = ["unshare", "--net", "ip", "link"]
    if not shutil.which("ip") or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("a network namespace needs root and ip (package iproute2)")
    done = subprocess.run(apart, capture_output=True, text=True, check=False, cwd=ROOT)
    if "Unknown device type" in done.stderr or "Operation not supported" in done.stderr:
        pytest.skip(f"this kernel cannot make it: {done.stderr.splitlines()[0]}")
    assert done.stdout == f"{expected}\n", done.stderr


def test_infiniband_ports_count_words_of_four_bytes(tmp_path: Path) -> None:
    counters = tmp_path / "mlx5_0/ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "port_rcv_data").write_text("1000\n")
    (counters / "port_xmit_data").write_text("3\n")
    broken = tmp_path / "mlx5_1/ports/1/counters"
    broken.mkdir(parents=True)
    (broken / "port_rcv_data").write_text("7\n")
    found = read_counters(tmp_path)
    assert {name: n for name, n in found.items() if ":" in name} == {"mlx5_0:1": Counted(4000, 12)}


def test_only_what_moved_and_was_not_set_back() -> None:
    before = {"lo": (5, 5), "eth0": (1, 2), "ib0": (9, 9), "gone": (1, 1)}
    after = {"lo": (5, 5), "eth0": (11, 4), "ib0": (3, 10), "new": (8, 8)}
    (found,) = moved("n", *({n: Counted(*c) for n, c in at.items()} for at in (before, after)))
    assert (found.interface, found.received_bytes, found.sent_bytes) == ("eth0", 10, 2)
