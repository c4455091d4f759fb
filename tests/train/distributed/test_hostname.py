"""Where the name of a host leads, since Horovod sends its data there."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from train.distributed.interfaces import Interface
from train.distributed.rendezvous import address_of, data_interface
from train.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
ETH0 = Interface("eth0", "10.1.2.3")
HERE = {
    "eth0": ("10.1.2.3", "10.1.2.4", "169.254.7.7", "2001:db8::3", "fe80::3"),
    "ib0": ("172.16.0.9", "fd00::9"),
}


def chosen(address: str | None, *, nodes: int = 2, **environment: str) -> Interface:
    return data_interface(
        ETH0, nodes=nodes, environment=environment, host="n7", address=address, here=HERE
    )  # fmt: skip


def test_a_name_that_leads_to_the_interface_is_fine() -> None:
    assert chosen("10.1.2.3") == chosen("10.1.2.3", HOROSCALE_INTERFACE="eth0") == ETH0


@pytest.mark.parametrize("address", ["2001:db8::3", "10.1.2.4", "169.254.7.7"])
def test_any_address_of_the_interface_is_over_it(address: str) -> None:
    assert chosen(address) == chosen(address, HOROSCALE_INTERFACE="eth0") == ETH0


def test_a_link_local_address_of_ipv6_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fe80::3%eth0, and .* could not reach it"):
        chosen("fe80::3%eth0", HOROSCALE_INTERFACE="eth0")


def test_on_one_node_any_address_of_its_own_will_do() -> None:
    assert chosen("127.0.1.1", nodes=1) == chosen("192.168.1.5", nodes=1) == ETH0


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_name_that_leads_nowhere_is_told_with_the_line_that_cures_it(nodes: int) -> None:
    with pytest.raises(ConfigError, match=r"n7, stands for no address.*10\.1\.2\.3 n7"):
        chosen(None, nodes=nodes)


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.1", "::1"])
def test_a_name_that_leads_to_loopback_is_refused_on_several_nodes(address: str) -> None:
    with pytest.raises(ConfigError, match="ranks of other nodes could not reach it"):
        chosen(address)


def test_an_interface_that_data_would_not_take_is_refused_only_where_it_was_named() -> None:
    with pytest.raises(ConfigError, match=r"not over eth0 \(10\.1\.2\.3\) as asked"):
        chosen("172.16.0.9", HOROSCALE_INTERFACE="eth0")
    assert chosen("172.16.0.9") == Interface("ib0", "172.16.0.9")
    with pytest.raises(ConfigError, match=r"not over eth0 \(10\.1\.2\.3\) as asked"):
        chosen("fd00::9", HOROSCALE_INTERFACE="eth0")


def test_real_names() -> None:
    assert address_of("localhost") in ("127.0.0.1", "::1")
    assert address_of("no-such-host.invalid") is None
    assert address_of("192.0.2.200") is None, "an address of another host"


def test_a_name_of_ipv6_on_a_kernel_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = (250, socket.SOCK_STREAM, 0, "", ("2001:db8::3", 0, 0, 0))
    known = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, known])
    assert address_of("n7") == "127.0.0.1"


@pytest.mark.tf
def test_a_world_of_one_on_a_host_whose_name_is_unknown_is_told_and_does_not_crash(
    tmp_path: Path,
) -> None:
    """The real thing: hvd.init() ends such a process with SIGABRT or SIGSEGV."""
    code = (
        "import os\nfrom train.distributed.launch import read_launch\n"
        "from train.distributed.world import choose_transport\n"
        "choose_transport(read_launch({}), os.environ)\n"
        "import horovod.tensorflow as hvd; hvd.init(); print('size', hvd.size())"
    )
    done = subprocess.run(
        ["unshare", "--uts", "sh", "-c", 'hostname no-such-host && exec "$@"', "sh",
         sys.executable, "-c", code],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip(f"no host name of its own can be given here: {done.stderr.strip()}")
    if done.returncode == 0:
        assert done.stdout.strip() == "size 1"  # a Horovod that keeps to the interface
    else:
        assert "no-such-host, stands for no address" in done.stderr and done.returncode == 1
