"""Ranks meet by Gloo: on this host, and between two hosts that are pretended with namespaces; and
where the name of a host leads, since Horovod sends its data there."""

from __future__ import annotations

import os
import resource
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import config
from tests.pretend_hosts import Host, ended, ip, name_them, pretend_hosts, start_ranks
from train.distributed import interfaces, rendezvous
from train.distributed.launch import Launch
from train.distributed.rendezvous import RendezvousError, address_of, data_interface, meet
from train.errors import ConfigError, WorldError
from train.record.run import read_record


def launch(rank: int, size: int, file: Path, local: int = 1) -> Launch:
    own, nodes = rank % local, -(-size // local)
    return Launch("srun", rank, size, own, local, rendezvous=file, node=rank // local, nodes=nodes)


def test_rank_0_serves_on_one_address_and_the_others_find_it(tmp_path: Path) -> None:
    file = tmp_path / "meet"
    first, second = dict[str, str](), dict[str, str]()
    late = threading.Thread(target=meet, args=(launch(1, 2, file, local=2), second, 240.0))
    late.start()
    meet(launch(0, 2, file, local=2), first, 240.0)
    late.join()
    assert first["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1", "one node is enough"
    assert (first["HOROVOD_GLOO_IFACE"], first["HOROVOD_CROSS_SIZE"]) == ("lo", "1")
    assert dict(first.items() ^ second.items()).keys() == {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK"}
    ranks = [(e["HOROVOD_RANK"], e["HOROVOD_LOCAL_RANK"]) for e in (first, second)]
    assert ranks == [("0", "0"), ("1", "1")]
    url = f"http://127.0.0.1:{second['HOROVOD_GLOO_RENDEZVOUS_PORT']}/scope/key"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(urllib.request.Request(url, b"here", method="PUT"), timeout=60).close()
    with direct.open(url, timeout=60) as answer:
        assert answer.read() == b"here"


def test_unequal_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 ranks on 2 nodes"):
        meet(launch(0, 3, tmp_path / "meet", local=2), {})


def test_the_limit_of_open_files_is_raised_to_what_gloo_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near 500 ranks the usual soft limit of 1,024 ended ranks in native code."""
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    rendezvous.allow_files(128)
    assert limits == [(1024, 4096)], "enough"
    rendezvous.allow_files(512)
    assert limits[1:] == [(3 * 511 + rendezvous.OTHER_FILES, 4096)]
    with pytest.raises(WorldError, match=r"3000 ranks .* hard limit is 4,096: raise it"):
        meet(launch(1, 3000, tmp_path / "meet", local=3000), {})


def test_a_rank_0_that_never_comes_is_told(tmp_path: Path) -> None:
    with pytest.raises(RendezvousError, match=r"rank 0 published no address in .*meet"):
        meet(launch(1, 2, tmp_path / "meet", local=2), {}, patience_s=0.1)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    with pretend_hosts(tmp_path) as both:
        yield both


def train(hosts: list[Host], cell: Path, data: Path) -> list[tuple[int, str]]:
    """Exit code and error output of both ranks, one per host, under a supervisor elsewhere."""
    (cell / "logs").mkdir(exist_ok=True)
    (cell / "config.json").write_text(config(gpus=2).model_dump_json())
    running = start_ranks(
        hosts, cell / "meet", "-m", "train", str(cell / "config.json"), "--data", str(data),
        "--supervised", "--stall-s", "300",
    )  # fmt: skip
    return [(code, error) for code, _, error in ended(running, 1100)]


MEETS = """
import os
from train.distributed.launch import read_launch
from train.distributed.world import choose_transport
choose_transport(read_launch(os.environ, supervised=True), os.environ, 300)
"""
ADDS_UP = f"""{MEETS}
import horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
total = int(hvd.allreduce(tf.constant(hvd.rank() + 1), op=hvd.Sum))
print(total, os.environ["HOROVOD_GLOO_IFACE"])
"""


@pytest.mark.ranks2
def test_an_address_that_all_nodes_hold_is_named_and_not_waited_for(
    hosts: list[Host], tmp_path: Path
) -> None:
    """Of a bridge to containers."""
    for host in hosts:
        ip("-n", host[-1], "link", "add", "docker0", "type", "bridge")
        ip("-n", host[-1], "link", "set", "docker0", "up")
        ip("-n", host[-1], "address", "add", "172.17.0.1/16", "dev", "docker0")
    name_them(tmp_path, hosts, "172.17.0.1", "172.17.0.1")
    running = start_ranks(hosts, tmp_path / "meet", "-c", MEETS)
    code, _, said = ended(running[1:], 300)[0]
    running[0].kill()
    running[0].communicate()
    assert code == 1 and f"172.17.0.1 (docker0) is an address of {hosts[1][-1]}" in said


@pytest.mark.ranks2
def test_host_names_of_ipv6_addresses_lead_over_the_interface_that_holds_them(
    hosts: list[Host], tmp_path: Path
) -> None:
    name_them(tmp_path, hosts, "fd99::1", "fd99::2")
    running = start_ranks(hosts, tmp_path / "meet", "-c", ADDS_UP, HOROSCALE_INTERFACE="data0")
    both = ended(running, 300)
    assert [(code, out.split()) for code, out, _ in both] == [(0, ["3", "data0"])] * 2, both


@pytest.mark.ranks2
def test_two_hosts_train_over_the_link_between_them(
    hosts: list[Host], tmp_path: Path, data_root: Path
) -> None:
    """No interface is named: that of the hosts' names is found."""
    name_them(tmp_path, hosts, "10.99.7.1", "10.99.7.2")
    both = train(hosts, tmp_path, data_root)
    assert [code for code, _ in both] == [0, 0], both
    found = read_record(tmp_path / "record.json")
    assert found.world is not None and found.world.nodes == 2
    assert len(set(found.world.hostnames)) == 2 and found.world.interface == "data0"
    assert found.world.oversubscribed is (len(os.sched_getaffinity(0)) == 1), (
        "they share one machine"
    )
    steps = sum(epoch.steps for epoch in found.epochs)
    assert [link.interface for link in found.traffic] == ["data0", "data0"]
    assert {link.host for link in found.traffic} == set(found.world.hostnames)
    for link in found.traffic:  # a ring of two sends and receives all gradients once
        assert min(link.sent_bytes, link.received_bytes) > steps * 4 * 10_000


ETH0, NAMED = interfaces.Interface("eth0", "10.1.2.3"), {"HOROSCALE_INTERFACE": "eth0"}
N7 = interfaces.Host("n7", {
    "eth0": ("10.1.2.3", "10.1.2.4", "169.254.7.7", "2001:db8::3", "fe80::3"),
    "ib0": ("172.16.0.9", "fd00::9"),
})  # fmt: skip


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch):
    def choose(address: str | None, nodes: int = 2, **environment: str) -> str:
        monkeypatch.setattr(rendezvous, "this_host", lambda: N7)
        monkeypatch.setattr(rendezvous, "address_of", {"n7": address}.get)
        return data_interface(ETH0, nodes, environment)

    return choose


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::3", "10.1.2.4", "169.254.7.7"])
def test_any_address_of_the_interface_is_over_it(chosen, address: str) -> None:
    assert chosen(address) == chosen(address, **NAMED) == "eth0"


def test_other_interfaces_and_loopback_are_no_fault_if_nothing_needs_the_named_one(chosen) -> None:
    assert chosen("127.0.1.1", nodes=1) == chosen("192.168.1.5", nodes=1) == "eth0"
    assert chosen("172.16.0.9") == "ib0"


@pytest.mark.parametrize(
    ("address", "nodes", "words"),
    [
        (None, 1, r"n7, stands for no address.*10\.1\.2\.3 n7"),
        ("127.0.1.1", 2, "ranks of other nodes could not reach it"),
        ("fe80::3%eth0", 2, "fe80::3%eth0, where .* could not reach it"),
        ("172.16.0.9", 2, r"not over eth0 \(10\.1\.2\.3\) as asked"),
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
