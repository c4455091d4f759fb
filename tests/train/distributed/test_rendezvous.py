"""Ranks meet by Gloo: on this host, and between two hosts that are pretended with namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import config
from train.distributed.launch import Launch
from train.distributed.rendezvous import RendezvousError, meet
from train.environment import environment_of
from train.errors import ConfigError
from train.record.run import read_record

ROOT = Path(__file__).resolve().parents[3]


def launch(rank: int, size: int, file: Path, *, local_size: int = 1) -> Launch:
    return Launch(
        "srun", rank, size, rank % local_size, local_size, None, file, None,
        node=rank // local_size, nodes=-(-size // local_size),
    )  # fmt: skip


def test_rank_0_serves_on_one_address_and_the_others_find_it(tmp_path: Path) -> None:
    file = tmp_path / "meet"
    first, second = ({"HOROSCALE_INTERFACE": "lo"} for _ in range(2))
    late = threading.Thread(target=meet, args=(launch(1, 2, file, local_size=2), second, 20.0))
    late.start()
    meet(launch(0, 2, file, local_size=2), first, 20.0)
    late.join()
    assert first["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
    own = {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK"}
    assert {n: v for n, v in first.items() if n not in own} == {
        n: v for n, v in second.items() if n not in own
    }
    assert [(e["HOROVOD_RANK"], e["HOROVOD_LOCAL_RANK"]) for e in (first, second)] == [
        ("0", "0"), ("1", "1"),
    ]  # fmt: skip
    url = f"http://127.0.0.1:{second['HOROVOD_GLOO_RENDEZVOUS_PORT']}/scope/key"
    urllib.request.urlopen(urllib.request.Request(url, b"here", method="PUT"), timeout=5).close()
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert answer.read() == b"here"


def test_ranks_of_one_node_stay_on_loopback(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    found = meet(launch(0, 2, tmp_path / "meet", local_size=2), environment)
    assert found.name == environment["HOROVOD_GLOO_IFACE"] == "lo"
    assert environment["HOROVOD_CROSS_SIZE"] == "1"


def test_unequal_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 ranks on 2 nodes"):
        meet(launch(0, 3, tmp_path / "meet", local_size=2), {})


def test_a_rank_0_that_never_comes_is_told(tmp_path: Path) -> None:
    with pytest.raises(RendezvousError, match=r"rank 0 published no address in .*meet"):
        meet(launch(1, 2, tmp_path / "meet"), {}, patience_s=0.1)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[list[str]]]:
    """Two pretend hosts with a link between them: commands that run something there, under host
    names of their own (the last words) and with the file ``hosts`` as /etc/hosts."""
    names = [f"hs{os.getpid()}{side}" for side in "ab"]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)

    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "data0", "netns", names[0], "type", "veth", "peer", "data0", "netns",
           names[1])  # fmt: skip
        for number, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"10.99.7.{number}/24", "dev", "data0")
            ip("-n", name, "link", "set", "data0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        for name in names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                ip("netns", "del", name)
        pytest.skip(f"no network namespaces here: {error}")
    hosts_file = tmp_path / "hosts"
    hosts_file.touch()
    inside = f'mount --bind "{hosts_file}" /etc/hosts && hostname "$1" && shift && exec "$@"'
    yield [
        ["nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "--mount", "sh", "-c", inside,
         "sh", name]
        for name in names
    ]  # fmt: skip
    for name in names:
        ip("netns", "del", name)


def name_them(tmp_path: Path, hosts: list[list[str]], *addresses: str) -> None:
    lines = [f"{address} {host[-1]}" for address, host in zip(addresses, hosts, strict=True)]
    (tmp_path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))


def train(hosts: list[list[str]], cell: Path, data: Path, **more: str) -> list[tuple[int, str]]:
    """Exit code and error output of both ranks, one per host, under a supervisor elsewhere."""
    (cell / "logs").mkdir(exist_ok=True)
    (cell / "config.json").write_text(config(gpus=2).model_dump_json())
    cores = sorted(os.sched_getaffinity(0))
    running = [
        subprocess.Popen(
            [*enter, sys.executable, "-m", "train", str(cell / "config.json"), "--data",
             str(data), "--supervised", "--stall-s", "60"],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environment_of("ranks", os.environ) | {
                "HOROSCALE_RANK": str(rank), "HOROSCALE_SIZE": "2", "HOROSCALE_LOCAL_RANK": "0",
                "HOROSCALE_LOCAL_SIZE": "1", "HOROSCALE_NODE": str(rank), "HOROSCALE_NODES": "2",
                "HOROSCALE_CORES": str(cores[rank % len(cores)]),
                "HOROSCALE_RENDEZVOUS": str(cell / "meet"),
            } | more,
        )
        for rank, enter in enumerate(hosts)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=180)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, text) for process, text in zip(running, said, strict=True)]


@pytest.mark.ranks2
def test_two_hosts_train_over_the_link_between_them(
    hosts: list[list[str]], tmp_path: Path, data_root: Path
) -> None:
    """No interface is named: that of the hosts' names is found."""
    name_them(tmp_path, hosts, "10.99.7.1", "10.99.7.2")
    ended = train(hosts, tmp_path, data_root)
    assert [code for code, _ in ended] == [0, 0], ended
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


@pytest.mark.ranks2
def test_host_names_that_lead_to_loopback_are_refused_and_not_waited_for(
    hosts: list[list[str]], tmp_path: Path, data_root: Path
) -> None:
    """As Debian writes /etc/hosts; without the check, ranks abort or wait for ever."""
    name_them(tmp_path, hosts, "127.0.1.1", "127.0.1.1")
    ended = train(hosts, tmp_path, data_root, HOROSCALE_INTERFACE="data0")
    assert [code for code, _ in ended] == [2, 2], ended
    assert all("stands for 127.0.1.1" in text and "Traceback" not in text for _, text in ended)


@pytest.mark.ranks2
def test_a_host_without_a_name_of_its_own_is_refused_and_does_not_crash(
    hosts: list[list[str]], tmp_path: Path, data_root: Path
) -> None:
    name_them(tmp_path, hosts, "10.99.7.9", "10.99.7.9")  # of some other host
    ended = train(hosts, tmp_path, data_root, HOROSCALE_INTERFACE="data0")
    assert [code for code, _ in ended] == [2, 2], ended
    assert all("stands for no address of its own" in text for _, text in ended)
