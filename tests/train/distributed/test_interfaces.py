"""The interface between ranks: named, found by name or route, and told when it is not there."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from train.distributed.interfaces import (
    Interface,
    _by_name_or_route,
    default_route,
    interfaces_here,
    named,
    own_interface,
    towards,
)
from train.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
HERE = {
    "lo": ("127.0.0.1", "::1"), "eth0": ("10.1.2.3", "10.1.2.4", "2001:db8::3", "fe80::3"),
    "ib0": ("172.16.0.3",), "eth1": ("fe80::4",),
}  # fmt: skip
# as /proc/net/route says it: addresses in hexadecimal, back to front
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
ib0\t00000000\t010010AC\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t00000000\t0102010A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t00000000\t0102010A\t0002\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0002010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


def test_the_default_route_with_the_smallest_metric_that_is_up() -> None:
    assert default_route(ROUTES) == "eth0"
    assert default_route("\n".join(ROUTES.splitlines()[:1])) is None
    assert default_route("") is None


@pytest.mark.parametrize(
    ("addresses", "routes", "expected"),
    [
        (["172.16.0.3"], ROUTES, "ib0"),
        (["127.0.1.1"], ROUTES, "eth0"),  # Debian's way to write /etc/hosts
        (["127.0.0.1"], ROUTES, "eth0"),
        ([], ROUTES, "eth0"),
        (["10.9.9.9"], ROUTES, "eth0"),  # a name that stands for a host elsewhere
        (["2001:db8::3", "172.16.0.3"], "", "eth0"),  # the first is where Gloo sends
        (["172.16.0.3", "2001:db8::3"], "", "ib0"),
        (["127.0.1.1", "10.1.2.4"], "", "eth0"),  # its second address
        (["::1", "fe80::3"], "", "eth0"),
    ],
)
def test_the_hosts_name_first_then_the_default_route(addresses, routes, expected) -> None:
    assert _by_name_or_route(HERE, addresses, routes, "n").name == expected


def test_without_a_name_and_a_route_the_text_lists_what_is_there() -> None:
    with pytest.raises(ConfigError, match=r"eth0 \(10\.1\.2\.3\), eth1 .*HOROSCALE_INTERFACE"):
        _by_name_or_route(HERE, ["127.0.1.1"], "", "n")


def test_a_host_that_has_ipv6_alone_is_told_so() -> None:
    with pytest.raises(ConfigError, match="'eth1' has no IPv4 address on n"):
        _by_name_or_route({"eth1": ("2001:db8::4",)}, ["2001:db8::4"], "", "n")


@pytest.mark.parametrize(
    ("name", "words"), [("ib7", "'ib7' is not there on n7"), ("eth1", "'eth1' has no IPv4 address")]
)
def test_a_wrong_name_is_told_with_those_that_are_there(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as told:
        named(name, HERE, "n7")
    assert words in str(told.value)
    for there in ("lo (127.0.0.1)", "eth0 (10.1.2.3)", "eth1 (no IPv4 address)"):
        assert there in str(told.value)


def test_the_real_loopback_of_this_machine() -> None:
    loopback = Interface("lo", "127.0.0.1")
    assert interfaces_here()["lo"][0] == "127.0.0.1"
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
        f"found = named({name!r}, interfaces_here(), 'n'); print(found.name, found.address)\""
    )
    apart = ["unshare", "--net", "sh", "-c", script, sys.executable]
    probe = ["unshare", "--net", "ip", "link"]
    if not shutil.which("ip") or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("a network namespace needs root and ip (package iproute2)")
    done = subprocess.run(apart, capture_output=True, text=True, check=False, cwd=ROOT)
    if "Unknown device type" in done.stderr or "Operation not supported" in done.stderr:
        pytest.skip(f"this kernel cannot make it: {done.stderr.splitlines()[0]}")
    assert done.stdout == f"{expected}\n", done.stderr


def test_a_rank_goes_where_rank_0_is() -> None:
    loopback = Interface("lo", "127.0.0.1")
    assert towards("127.0.0.1", "lo", {}) == loopback
    assert towards("127.0.0.1", "named otherwise there", {}) == loopback  # by the kernel's route
    with pytest.raises(ConfigError, match="'ib9' is not there"):
        towards("127.0.0.1", "lo", {"HOROSCALE_INTERFACE": "ib9"})
