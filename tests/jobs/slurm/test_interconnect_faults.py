"""Faults of the network, for real, on the practice cluster: what is found, and what is not.

Each prints a row of the table: fault, verdict, what was named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest
import yaml

from tests.jobs.slurm.sweeping import BARE
from tests.practice import Practice
from tests.sweeps import ROOT, ran, wait_until
from train.interconnect.record import Tournament

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]
LINK = "200mbit"
#: 200 Mbit/s of packets of 1514 bytes that carry 1448.
CEILING = 200e6 * 1448 / 1514


@dataclass(frozen=True)
class Judged:
    """A measurement, and the exit code and words of `analysis interconnect` on it."""

    folder: Path
    code: int
    text: str

    @property
    def verdict(self) -> dict:
        return json.loads((self.folder / "verdict.json").read_text())

    @property
    def tournament(self) -> Tournament:
        return Tournament.model_validate_json((self.folder / "tournament.json").read_text())


@dataclass
class Measuring:
    practice: Practice
    folder: Path

    def command(self, *options: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOROSCALE_PRACTICE": str(self.practice.place.folder)}
        return ran([sys.executable, "-m", *options], cwd=ROOT, env=environment, timeout=1200)

    def measure(self, *options: str) -> subprocess.CompletedProcess[str]:
        site = self.folder / "site.yaml"
        cluster = {"slurm_conf": str(self.practice.place.slurm_conf), "user": "practice"}
        site.write_text(yaml.safe_dump({**BARE, **cluster}))
        return self.command(
            "jobs", "interconnect", "--site", str(site), "--results", str(self.folder / "results"),
            "--nodes", "4", "--samples", "3", "--sample-s", "0.15", "--phases", "tournament",
            *options,
        )  # fmt: skip

    def judge(self, measured: subprocess.CompletedProcess[str]) -> Judged:
        assert measured.returncode == 0, measured.stderr
        folder = Path(measured.stdout.strip())
        done = self.command("analysis", "interconnect", str(folder))
        return Judged(folder, done.returncode, done.stdout)

    def decided(self, fault: str) -> Judged:
        """Measured again where what else these cores did left it open, or kept an agent waiting."""
        for _ in range(6):
            judged = self.judge(self.measure())
            failed = any(m.error for m in judged.tournament.measurements)
            if not failed and judged.verdict["status"] != "UNDECIDED":
                break
        named = [f"{one['what']} {' -> '.join(one['nodes'])}" for one in judged.verdict["findings"]]
        print(f"\nLINK FAULT | {fault} | {judged.verdict['status']} | {'; '.join(named)}")
        return judged


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
    judged = measuring.decided("none")
    assert (judged.code, judged.verdict["status"]) == (0, "PASS"), judged.verdict
    assert 0.95 * CEILING < judged.verdict["middle"] < 1.02 * CEILING
    for m in judged.tournament.measurements:
        assert m.wrong_bytes == 0
        # the proof of the interface: what it counted is what was sent, and the headers
        assert 1.0 < m.at_receiver.received_bytes / m.bytes < 1.15
        assert 1.0 < m.at_sender.sent_bytes / m.bytes < 1.15


@pytest.mark.parametrize(
    ("node", "limit", "named"),
    [
        ("node3", {"rate": "100mbit"}, ("node", ["node3"])),
        ("node1", {"rate": "50mbit", "to": "node3", "rest": LINK}, ("link", ["node1", "node3"])),
    ],
)
def test_one_fault_is_named(measuring, node, limit, named) -> None:
    measuring.practice.limit(node, **limit)
    judged = measuring.decided(f"{node}: {limit}")
    assert (judged.code, judged.verdict["status"]) == (1, "FAIL"), judged.verdict
    findings = judged.verdict["findings"]
    assert [(f["what"], f["nodes"]) for f in findings if f["weight"] == "fault"] == [named]


def test_a_node_that_dies_is_named_and_the_rest_is_measured(measuring: Measuring) -> None:
    results = measuring.folder / "results" / "interconnect"
    command = threading.Thread(target=lambda: said.append(measuring.measure("--samples", "15")))
    said: list[subprocess.CompletedProcess[str]] = []
    command.start()
    logs = "*/logs/tournament/rank-0.log"
    wait_until(
        lambda: any("round 2 of" in log.read_text() for log in results.glob(logs)), "round 2", 600
    )
    measuring.practice.stop_node("node3", power=True)
    command.join(1200)
    (done,) = said
    judged = measuring.judge(done)
    assert judged.code == 1 and "lost node3" in judged.text, judged.text
    assert set(judged.tournament.lost) == {"node3"}
    sent = {(m.sender, m.receiver) for m in judged.tournament.measurements if m.rates}
    assert set(permutations(["node1", "node2", "node4"], 2)) <= sent
    assert "NodeName=node3 State=DRAIN" in judged.text
