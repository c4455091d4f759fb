"""Faults of the network, for real, on the practice cluster: what is found, and what is not.

Each prints a row of the table: fault, verdict, what was named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest
import yaml

from tests.jobs.slurm.sweeping import BARE, ROOT
from tests.practice import Practice, answers
from train.interconnect.record import Tournament

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]
LINK = "200mbit"
#: 200 Mbit/s of packets of 1514 bytes that carry 1448.
CEILING = 200e6 * 1448 / 1514


@dataclass
class Measuring:
    practice: Practice
    folder: Path

    def command(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *options], cwd=ROOT, capture_output=True, text=True,
            env={**os.environ, "HOROSCALE_PRACTICE": str(self.practice.place.folder)}, check=False,
            timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def measure(
        self, *options: str, nodes: str = "4", phases: str = "tournament"
    ) -> subprocess.CompletedProcess[str]:
        site = self.folder / "site.yaml"
        told = {"slurm_conf": str(self.practice.place.slurm_conf), "user": "practice"}
        site.write_text(yaml.safe_dump({**BARE, **told}))
        return self.command(
            "jobs", "interconnect", "--site", str(site), "--results", str(self.folder / "results"),
            "--nodes", nodes, "--samples", "3", "--sample-s", "0.15", "--phases", phases, *options,
        )  # fmt: skip

    def verdict(
        self, fault: str, nodes: str = "4", phases: str = "tournament"
    ) -> tuple[int, dict, Tournament]:
        done = self.measure(nodes=nodes, phases=phases)
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.strip())
        judged = self.command("analysis", "interconnect", str(folder))
        verdict = json.loads((folder / "verdict.json").read_text())
        named = [f"{f['what']} {' -> '.join(f['nodes'])}" for f in verdict["findings"]]
        print(f"\nLINK FAULT | {fault} | {verdict['status']} | {'; '.join(named)}")
        text = (folder / "tournament.json").read_text()
        return judged.returncode, verdict, Tournament.model_validate_json(text)

    def decided(self, fault: str) -> tuple[int, dict, Tournament]:
        """Measured anew, twice at most, where what else these cores did left it open."""
        for _ in range(3):
            found = self.verdict(fault)
            if found[1]["status"] != "UNDECIDED":
                break
        return found


@pytest.fixture
def measuring(cluster: Practice, shared_folder: Path) -> Iterator[Measuring]:
    cluster.heal()
    cluster.limit("all", LINK)
    try:
        yield Measuring(cluster, shared_folder)
    finally:
        cluster.limit("all", "off")
        cluster.heal()


def test_a_healthy_network_passes_at_its_ceiling(measuring: Measuring) -> None:
    code, verdict, found = measuring.decided("none")
    assert (code, verdict["status"]) == (0, "PASS"), verdict
    assert 0.95 * CEILING < verdict["middle"] < 1.02 * CEILING
    for m in found.measurements:
        assert m.wrong_bytes == 0
        # the proof of the interface: what it counted is what was sent, and the headers
        assert 1.0 < m.at_receiver.received_bytes / m.bytes < 1.15
        assert 1.0 < m.at_sender.sent_bytes / m.bytes < 1.15


@pytest.mark.parametrize(
    ("fault", "make", "named"),
    [
        ("node3 at 50 %", lambda p: p.limit("node3", "100mbit"), [("node", ["node3"])]),
        (
            "node4 sends at 50 %",
            lambda p: p.limit("node4", "100mbit", way="send"),
            [("send", ["node4"])],
        ),
        (
            "node1 receives at 50 %",
            lambda p: p.limit("node1", "100mbit", way="receive"),
            [("receive", ["node1"])],
        ),
        (
            "node1 to node3 at 25 %",
            lambda p: p.limit("node1", "50mbit", to="node3", rest=LINK),
            [("link", ["node1", "node3"])],
        ),
    ],
)
def test_one_fault_is_named(
    measuring: Measuring, fault: str, make: Callable[[Practice], None], named: list
) -> None:
    make(measuring.practice)
    code, verdict, _ = measuring.decided(fault)
    assert (code, verdict["status"]) == (1, "FAIL"), verdict
    faults = [f for f in verdict["findings"] if f["weight"] == "fault"]
    assert [(f["what"], f["nodes"]) for f in faults] == named


def test_two_of_four_slow_nodes_are_left_open(measuring: Measuring) -> None:
    measuring.practice.limit("node1", "50mbit")
    measuring.practice.limit("node2", "50mbit")
    code, verdict, _ = measuring.verdict("node1, node2 at 25 %")
    assert (code, verdict["status"]) == (3, "UNDECIDED"), verdict
    assert not [f for f in verdict["findings"] if f["weight"] == "fault"]
    # what else runs on these two cores may be found, too
    others = ("contention", "cpu-limited", "noise")
    assert [f["what"] for f in verdict["findings"] if f["what"] not in others] == ["peers"]


def test_two_nodes_alone_are_left_open(measuring: Measuring) -> None:
    code, verdict, _ = measuring.verdict("none, two nodes", nodes="node[2,4]")
    assert (code, verdict["status"]) == (3, "UNDECIDED"), verdict
    assert any("only a baseline can tell" in f["evidence"] for f in verdict["findings"])


def test_an_interface_that_is_not_there(measuring: Measuring) -> None:
    done = measuring.measure("--interface", "ib7")
    assert done.returncode == 0
    folder = Path(done.stdout.strip())
    log = (folder / "logs" / "tournament" / "rank-0.log").read_text()
    assert "network interface 'ib7' is not there on node" in log
    judged = measuring.command("analysis", "interconnect", str(folder))
    assert judged.returncode == 3 and "UNDECIDED" in judged.stdout


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("1", "so there must be two or more"), ("9", "nothing was submitted"),
        ("node[3-5]", "unknown node 'node5'; did you mean 'node4'?"),
    ],
)  # fmt: skip
def test_requests_that_cannot_be(measuring: Measuring, nodes: str, words: str) -> None:
    done = measuring.measure(nodes=nodes)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not list((measuring.folder / "results" / "interconnect").glob("2*"))


def test_a_node_with_another_mtu_is_named_by_what_it_says(measuring: Measuring) -> None:
    """TCP finds a size that passes, so no rate tells."""
    mtu = ["ip", "link", "set", "eth0", "mtu"]
    assert measuring.practice.inside("node2", *mtu, "1400").returncode == 0
    try:
        code, verdict, _ = measuring.verdict("node2 with MTU 1400", phases="preflight,tournament")
    finally:
        measuring.practice.inside("node2", *mtu, "1500")
    assert (code, verdict["status"]) == (1, "FAIL"), verdict
    faults = [f for f in verdict["findings"] if f["weight"] == "fault"]
    assert [(f["what"], f["nodes"]) for f in faults] == [("MTU", ["node2"])]
    assert faults[0]["evidence"] == "MTU: 1400; elsewhere 1500"


def test_a_node_without_the_interface_is_named_and_the_rest_is_measured(
    measuring: Measuring,
) -> None:
    def inside(node: str, *command: str) -> None:
        done = measuring.practice.inside(node, "ip", *command)
        assert done.returncode == 0, done.stderr

    nodes = [f"node{n}" for n in (1, 2, 3)]
    for number, node in enumerate(nodes, 1):
        inside(node, "link", "add", "link", "eth0", "data0", "type", "macvlan", "mode", "bridge")
        inside(node, "address", "add", f"10.99.1.{number}/24", "dev", "data0")
        inside(node, "link", "set", "data0", "up")
    try:
        done = measuring.measure("--interface", "data0")
    finally:
        for node in nodes:
            inside(node, "link", "delete", "data0")
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    judged = measuring.command("analysis", "interconnect", str(folder))
    assert judged.returncode == 1, judged.stdout
    assert "absent node4: it took no part in the tournament: " in judged.stdout
    assert "network interface 'data0' is not there on node4" in judged.stdout
    assert "NodeName=node4 State=DRAIN" in judged.stdout
    found = Tournament.model_validate_json((folder / "tournament.json").read_text())
    good = {(m.sender, m.receiver) for m in found.measurements if m.rates}
    assert set(permutations(nodes, 2)) <= good


def test_a_busy_processor_is_no_fault_of_the_network(measuring: Measuring) -> None:
    hog = "timeout 300 sh -c 'while :; do :; done' > /dev/null 2>&1 &"
    spin = f"for i in 1 2 3 4; do {hog} done"
    assert measuring.practice.inside("node2", "sh", "-c", spin).returncode == 0
    try:
        code, verdict, _ = measuring.verdict("processors of node2 busy, links healthy")
    finally:
        measuring.practice.inside("node2", "pkill", "-f", "while :; do [:]; done")
    assert (code, verdict["status"]) in ((0, "PASS"), (3, "UNDECIDED")), verdict
    assert not [f for f in verdict["findings"] if f["weight"] == "fault"], verdict


def test_a_node_whose_daemon_is_gone_is_not_asked_for(measuring: Measuring) -> None:
    measuring.practice.stop_node("node3")
    deadline = time.monotonic() + 120
    while "down" not in answers.node_states(measuring.practice.place).get("node3", ""):
        assert time.monotonic() < deadline, answers.node_states(measuring.practice.place)
        time.sleep(1)
    done = measuring.measure()
    assert done.returncode == 2, done.stderr
    assert "out of use (node3 down*)" in done.stderr and "nothing was submitted" in done.stderr
    done = measuring.measure(nodes="node[2-3]")
    assert done.returncode == 2 and "node3 is down*" in done.stderr, done.stderr


def test_a_node_that_dies_is_named_and_the_rest_is_measured(measuring: Measuring) -> None:
    results = measuring.folder / "results" / "interconnect"
    command = threading.Thread(target=lambda: said.append(measuring.measure("--samples", "7")))
    said: list[subprocess.CompletedProcess[str]] = []
    command.start()
    deadline = time.monotonic() + 60
    while not any(
        "round 2 of" in log.read_text() for log in results.glob("*/logs/tournament/rank-0.log")
    ):
        assert time.monotonic() < deadline, "no measurement began"
        time.sleep(0.2)
    measuring.practice.stop_node("node3", power=True)
    command.join(240)
    (done,) = said
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    judged = measuring.command("analysis", "interconnect", str(folder))
    assert judged.returncode == 1 and "lost node3" in judged.stdout, judged.stdout
    found = Tournament.model_validate_json((folder / "tournament.json").read_text())
    assert set(found.lost) == {"node3"}
    good = {(m.sender, m.receiver) for m in found.measurements if m.rates}
    rest = [f"node{n}" for n in (1, 2, 4)]
    assert set(permutations(rest, 2)) <= good
    assert "NodeName=node3 State=DRAIN" in judged.stdout
