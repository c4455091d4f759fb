"""What nodes find out about each other, by real sockets between pretended hosts and by values."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pretend_hosts import Host, ended, ip, name_them, pretend_hosts, start_ranks, switch_of
from train.distributed.preflight.neighbours import (
    Neighbour,
    Seen,
    Trouble,
    Way,
    meeting_folder,
    troubles,
)
from train.distributed.preflight.paths import Broken
from train.distributed.preflight.report import problems, read_reports
from train.interconnect.facts.record import NodeFacts, file_name

LOOKS = """
import json, os, sys
from pathlib import Path
from train.distributed.interfaces import own_interface
from train.distributed.launch import read_launch
from train.distributed.preflight.neighbours import look_around, troubles
launch = read_launch(os.environ, supervised=True)
interface = own_interface(os.environ, nodes=launch.nodes)
seen = look_around(Path(sys.argv[1]), interface, launch.node, launch.nodes, 120)
print(json.dumps([[t.what, t.hosts, t.found] for t in troubles(seen, by_gloo=True)]))
"""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Host]]:
    with pretend_hosts(tmp_path, 3) as hosts:
        name_them(tmp_path, hosts, "10.99.7.1", "10.99.7.2", "10.99.7.3")
        yield hosts


def look(hosts: list[Host], folder: Path, **more: str) -> list[tuple[str, list[str], str]]:
    """What the nodes say, which is the same."""
    running = start_ranks(
        hosts, folder / "meet", "-c", LOOKS, str(folder / "look"),
        **{"HOROSCALE_INTERFACE": "data0"} | more,
    )  # fmt: skip
    both = ended(running, 300)
    assert {code for code, _, _ in both} == {0}, both
    first, *others = (json.loads(out) for _, out, _ in both)
    assert all(other == first for other in others)
    return [tuple(one) for one in first]


def set_mtu(host: Host, mtu: int) -> None:
    # packets of full size go to the wire one by one: a virtual switch passes bundles of any size
    ip("-n", host[-1], "link", "set", "data0", "mtu", str(mtu), "gso_max_segs", "1")


def set_port(hosts: list[Host], number: int, mtu: int) -> None:
    ip("-n", switch_of(hosts[0][-1]), "link", "set", f"p{number}", "mtu", str(mtu))


@pytest.mark.ranks2
def test_healthy_nodes_find_nothing(three: list[Host], tmp_path: Path) -> None:
    assert look(three, tmp_path) == []


@pytest.mark.ranks2
@pytest.mark.parametrize(
    ("ports", "passed"), [((1500, 1500, 1500), 1500), ((9000, 9000, 1400), 1400)]
)
def test_a_switch_that_passes_smaller_packets(
    three: list[Host], tmp_path: Path, ports: tuple[int, ...], passed: int
) -> None:
    """All of its ports, or those of one link only."""
    for number, (host, mtu) in enumerate(zip(three, ports, strict=True), 1):
        set_mtu(host, 9000)
        set_port(three, number, mtu)
    ((what, nodes, found),) = look(three, tmp_path)
    assert what == "MTU" and nodes == [host[-1] for host in three]
    assert f"packets of 9,000 bytes do not arrive, packets of {passed:,} do" in found
    paths = 6 if passed == 1500 else 4  # to and from the third
    assert found.count(" -> ") == 3 and f"and {paths - 3} more" in found


@pytest.mark.ranks2
def test_interfaces_that_differ_agree_on_what_both_send(three: list[Host], tmp_path: Path) -> None:
    """TCP does so at its beginning; the diagnosis of the interconnect names the difference."""
    for number, host in enumerate(three, 1):
        set_mtu(host, 9000 if number < 3 else 1500)
        set_port(three, number, 9000)
    assert look(three, tmp_path) == []


@pytest.mark.ranks2
def test_a_port_that_is_dropped_between_two_nodes(three: list[Host], tmp_path: Path) -> None:
    """By a route into nothing, one way."""
    try:
        ip("-n", three[0][-1], "route", "add", "blackhole", "10.99.7.3/32")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no such route here: {error}")
    found = look(three, tmp_path)
    a, c = three[0][-1], three[2][-1]
    assert {what for what, _, _ in found} == {"path"}
    assert {tuple(nodes) for _, nodes, _ in found} == {(a, c)}
    assert any(f"{a} -> {c}" in text for _, _, text in found)


@pytest.mark.ranks2
def test_a_bridge_that_all_nodes_have(three: list[Host], tmp_path: Path) -> None:
    for host in three:
        ip("-n", host[-1], "link", "add", "virbr0", "type", "bridge")
        ip("-n", host[-1], "address", "add", "192.168.122.1/24", "dev", "virbr0")
        ip("-n", host[-1], "link", "set", "virbr0", "up")
    ((what, nodes, found),) = look(three, tmp_path, HOROSCALE_INTERFACE="virbr0")
    assert what == "shared address" and len(nodes) == 3
    assert "192.168.122.1 (virbr0) is an address of" in found


@pytest.mark.ranks2
@pytest.mark.parametrize("interface", [[], ["--interface", "data0"]])
def test_a_preflight_names_the_mtu_and_both_nodes(tmp_path: Path, interface: list[str]) -> None:
    with pretend_hosts(tmp_path) as hosts:
        name_them(tmp_path, hosts, "10.99.7.1", "10.99.7.2")
        for number, host in enumerate(hosts, 1):
            set_mtu(host, 9000)
            set_port(hosts, number, 1500)
        out = tmp_path / "out"
        running = start_ranks(
            hosts, tmp_path / "meet", "-m", "train.distributed.preflight", "--out", str(out),
            "--world", "2", *interface,
        )  # fmt: skip
        both = ended(running, 300)
    assert all(code for code, _, _ in both) or [code for code, _, _ in both] == [1, 0], both
    reports = read_reports(out)
    ((node, finding),) = problems(reports, 2)
    assert (node, finding.check) == (hosts[0][-1], "MTU")
    assert all(host[-1] in finding.found for host in hosts) and "1,500" in finding.found
    assert all(report.duration_s < 60 for report in reports)


@pytest.mark.ranks2
def test_the_facts_of_an_interconnect_run_hold_the_mtu(tmp_path: Path) -> None:
    with pretend_hosts(tmp_path) as hosts:
        name_them(tmp_path, hosts, "10.99.7.1", "10.99.7.2")
        set_mtu(hosts[0], 9000)
        set_mtu(hosts[1], 9000)
        words = ["-m", "train.interconnect.facts", "--out", str(tmp_path), "--when", "before"]
        both = ended(start_ranks(hosts, tmp_path / "meet", *words), 300)
    assert [code for code, _, _ in both] == [0, 0], both
    first, second = (
        NodeFacts.model_validate_json((tmp_path / file_name(host[-1], "before")).read_text())
        for host in hosts
    )
    ((fault,), others) = first.faults, second.faults
    assert others == () and fault.what == "MTU"
    assert fault.nodes == tuple(host[-1] for host in hosts)
    assert fault.found in both[0][2], "said at once, too"


def neighbour(node: int, **changes: object) -> Neighbour:
    own = Neighbour(
        node, f"n{node}", f"n{node}", f"kernel-{node}", "eth0", f"10.0.0.{node}", f"10.0.0.{node}",
        1500, 4000 + node,
    )  # fmt: skip
    return replace(own, **changes)


def found(*nodes: Neighbour, ways: tuple[Way, ...] = (), by_gloo: bool = True) -> list[Trouble]:
    return list(troubles(Seen(nodes, ways), by_gloo=by_gloo))


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        (
            {"address": "10.0.0.1"},
            "shared address",
            "10.0.0.1 (eth0) is an address of n1 and of n2",
        ),
        ({"data": "10.0.0.1"}, "shared address", "10.0.0.1 (eth0)"),  # its name's alone
        ({"host": "n1"}, "host name", "nodes 1 and 2 (n1, n2) are both called n1"),
        ({"data": "2001:db8::2"}, "address family", "n1 stands for 10.0.0.1, n2 for 2001:db8::2"),
    ],
)
def test_what_two_nodes_may_not_have(changes, what: str, words: str) -> None:
    (trouble,) = found(neighbour(1), neighbour(2, **changes))
    assert trouble.what == what and trouble.hosts == ("n1", "n2") and words in trouble.found
    assert found(neighbour(1), neighbour(2, **changes, network="kernel-1")) == [], "one machine"
    under_mpi = [one.what for one in found(neighbour(1), neighbour(2, **changes), by_gloo=False)]
    assert under_mpi == (["shared address"] if "address" in changes else [])


def test_one_cause_of_many_paths_is_told_once() -> None:
    lost = Broken("packets of 9,000 bytes do not arrive, packets of 1,500 do", 9000, 1500)
    ways = tuple(Way(a, b, lost) for a in range(1, 6) for b in range(1, 6) if a != b)
    (trouble,) = found(*(neighbour(number) for number in range(1, 6)), ways=ways)
    assert trouble.hosts == ("n1", "n2", "n3", "n4", "n5") and "and 17 more" in trouble.found


def test_each_start_of_a_job_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    folders = {meeting_folder(tmp_path, first | {"SLURM_RESTART_COUNT": count}) for count in "01"}
    assert len(folders) == 2
