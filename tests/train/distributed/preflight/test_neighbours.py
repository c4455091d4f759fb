"""What nodes find out about each other, by real sockets between pretended hosts and by values."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pretend_hosts import Host, ended, ip, name_them, pretend_hosts, start_ranks, switch_of
from train.distributed.interfaces import Interface
from train.distributed.launch import Launch
from train.distributed.preflight import __main__ as preflight
from train.distributed.preflight import neighbours, paths
from train.distributed.preflight.checks import Hopeless
from train.distributed.preflight.neighbours import (
    Neighbour,
    NodeProblem,
    Seen,
    Way,
    look_on,
    meeting_folder,
    troubles,
)
from train.distributed.preflight.paths import Broken, Echo, probe
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
@pytest.mark.parametrize(
    ("names", "mtu", "check", "words"),
    [
        (("10.99.7.1", "10.99.7.2"), 9000, "MTU", "packets of 1,500 do"),
        # as Debian writes /etc/hosts: no address that nodes share
        (("127.0.1.1", "127.0.1.1"), 1500, "meeting the others", "stands for 127.0.1.1"),
    ],
)
def test_a_preflight_names_the_cause(
    tmp_path: Path, names: tuple[str, str], mtu: int, check: str, words: str
) -> None:
    with pretend_hosts(tmp_path) as hosts:
        name_them(tmp_path, hosts, *names)
        for host in hosts:
            set_mtu(host, mtu)
        out = tmp_path / "out"
        running = start_ranks(
            hosts, tmp_path / "meet", "-m", "train.distributed.preflight", "--out", str(out),
            "--world", "2", "--interface", "data0", "--limit-s", "60",
        )  # fmt: skip
        both = ended(running, 300)
    assert both[0][0] == 1, both
    found = problems(read_reports(out), 2)
    assert {finding.check for _, finding in found} == {check}
    assert (hosts[0][-1], True) in {(node, words in finding.found) for node, finding in found}
    assert check != "MTU" or all(host[-1] in found[0][1].found for host in hosts), "both named"


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


def found(*nodes: Neighbour, ways: tuple[Way, ...] = (), by_gloo: bool = True) -> list[NodeProblem]:
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
        ({"host": "n1"}, "host name", "nodes 1, 2 (n1, n2) are all called n1"),
    ],
)
def test_what_two_nodes_may_not_have(changes, what: str, words: str) -> None:
    (trouble,) = found(neighbour(1), neighbour(2, **changes))
    assert trouble.what == what and trouble.hosts == ("n1", "n2") and words in trouble.found
    assert found(neighbour(1), neighbour(2, **changes, network="kernel-1")) == [], "one machine"
    under_mpi = [one.what for one in found(neighbour(1), neighbour(2, **changes), by_gloo=False)]
    assert under_mpi == (["shared address"] if "address" in changes else [])


@pytest.mark.parametrize(("waited_for", "broken"), [([1], 0), ([1, 2], 1)])
def test_a_node_that_did_not_wait_for_a_late_one_breaks_no_path(
    tmp_path: Path, waited_for: list[int], broken: int
) -> None:
    """It may have ended, or its echo be kept from answering by a library that it loads."""
    for one in (neighbour(1), neighbour(2)):
        (tmp_path / f"node-{one.node}.json").write_text(json.dumps(asdict(one)))
    for node, seen, lost in ((1, waited_for, []), (2, [1, 2], [[1, ["nothing arrives", False]]])):
        told = json.dumps({"seen": seen, "broken": lost})
        (tmp_path / f"paths-{node}.json").write_text(told)
    assert len(look_on(tmp_path, 2, 60).paths) == broken


def test_a_probe_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "ANSWER_S", 0.2)
    assert probe("127.0.0.1", "127.0.0.1", Echo("127.0.0.1").port, 65536) is None
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel alone opens connections
        port = silent.getsockname()[1]
        told = probe("127.0.0.1", "127.0.0.1", port, 65536)
    assert told == Broken("a connection opens, but nothing arrives")
    assert probe("127.0.0.1", "127.0.0.1", port, 65536) == Broken("connection refused")


def test_under_mpi_it_is_a_suspicion_also_over_a_named_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPI may go by InfiniBand, whatever a firewall does to TCP."""
    seen = Seen((neighbour(0), neighbour(1)), (Way(0, 1, Broken("connection refused")),))
    monkeypatch.setattr(neighbours, "look_around", lambda *_: seen)
    told = ["--out", str(tmp_path), "--world", "2", "--interface", "ib0"]
    launch = Launch("srun", 0, 2, 0, 1, None, None, None, nodes=2)
    report = SimpleNamespace(found=[], enter=lambda _: None)
    report.add = lambda *findings: report.found.extend(findings)
    assert preflight._look_around(
        report, launch, Interface("ib0", "10.0.0.1"), preflight.parse(told)
    )
    assert [(one["check"], one["ok"]) for one in report.found] == [("path", None)]
    gloo = replace(launch, rendezvous=tmp_path / "meet")
    with pytest.raises(Hopeless):
        preflight._look_around(report, gloo, Interface("ib0", "10.0.0.1"), preflight.parse(told))


def test_each_start_of_a_job_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    folders = {meeting_folder(tmp_path, first | {"SLURM_RESTART_COUNT": count}) for count in "01"}
    assert len(folders) == 2
