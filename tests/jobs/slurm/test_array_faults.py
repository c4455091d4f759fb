"""Faults under an array of three, for real: what one element does or suffers is its own.

Slurm gives the element that it starts last the array's id as SLURM_JOB_ID, and scontrol takes a
bare id of an array for all of its elements.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.jobs.slurm.sweeping import Sweeping, statuses, three
from train.record.run import read_record

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]


def restarts(sweeping: Sweeping) -> list[int]:
    """Of each element, as the controller counts them."""
    array = sweeping.job()
    return [int(sweeping.practice.job(f"{array}_{n}")["Restarts"]) for n in range(3)]


def all_run(sweeping: Sweeping, epochs: int = 2) -> None:
    sweeping.wait_until(
        lambda: len(sweeping.cells) == 3 and min(map(sweeping.epochs, sweeping.cells)) >= epochs,
        "not all three run",
    )


def test_the_last_element_ends_and_its_siblings_keep_their_requeues(sweeping: Sweeping) -> None:
    """Seen: warned and completed, it switched the requeues of the whole array off; out of time, the
    others could not be requeued."""
    sweeping.sweep = three(8000, 8000, 20)
    sweeping.write(time_min=2, signal_s=60)  # warned a minute early: all three at once
    process = sweeping.start("--no-preflight")
    sweeping.wait_until(
        lambda: len(sweeping.cells) == 3
        and all((cell / "record.json").exists() for cell in sweeping.cells),
        "no records", 300,
    )  # fmt: skip
    array = sweeping.job()
    requeue = [sweeping.practice.job(f"{array}_{n}").get("Requeue") for n in (0, 1)]
    assert requeue == ["1", "1"], sweeping.said()
    for cell in sweeping.cells[:2]:
        done = len(read_record(cell / "record.json").epochs)
        sweeping.wait_until(
            lambda cell=cell, done=done: sweeping.epochs(cell) > done, "not gone on", 240
        )
    code, out = sweeping.run(command="cancel")
    assert code == 0, out
    sweeping.end(process)
    first, second, last = sweeping.records()
    assert [statuses(one)[0] for one in (first, second)] == ["timeout"] * 2, sweeping.said()
    for record in (first, second):
        assert [epoch.epoch for epoch in record.epochs] == list(range(1, len(record.epochs) + 1))
        assert record.attempts[1].resumed_from_epoch > 0
    assert last.status == "completed"
    assert "cannot be requeued" not in sweeping.said()


def test_preemption_of_three(sweeping: Sweeping) -> None:
    sweeping.sweep = three(180, 180, 180)
    process = sweeping.start("--no-preflight")
    all_run(sweeping)
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--ntasks=8"]
    sweeping.practice.out(*urgent, "--output=/dev/null", "--wrap=sleep 3")
    code, out = sweeping.end(process, 600)
    assert code == 0, out + sweeping.said()
    for record in sweeping.records():
        assert statuses(record)[0] == "preempted", sweeping.said()
        assert set(statuses(record)[1:-1]) <= {"lost"} and record.status == "completed"
        job = sweeping.practice.job(record.provenance.slurm_job_id or "")  # type: ignore[union-attr]
        assert int(job["Restarts"]) == len(record.attempts) - 1, "it started with nothing to do"


def test_a_node_that_loses_power_under_one_of_three(sweeping: Sweeping) -> None:
    sweeping.sweep = three(200, 200, 200)
    process = sweeping.start("--no-preflight")
    all_run(sweeping)
    nodes = [
        json.loads((cell / "logs" / "start.json").read_text())["world"]["hostnames"][0]
        for cell in sweeping.cells
    ]
    dead = nodes[-1]
    sweeping.practice.stop_node(dead, power=True)
    code, out = sweeping.end(process, 600)
    assert code == 0, out + sweeping.said()
    for node, record in zip(nodes, sweeping.records(), strict=True):
        assert record.status == "completed"
        assert (len(record.attempts) > 1) == (node == dead), sweeping.said()


def test_one_of_three_is_requeued_and_no_other(sweeping: Sweeping) -> None:
    sweeping.sweep = three(200, 200, 200)
    process = sweeping.start("--no-preflight")
    all_run(sweeping)
    sweeping.practice.out("scontrol", "requeue", f"{sweeping.job()}_2")
    code, out = sweeping.end(process)
    assert code == 0, out + sweeping.said()
    assert [len(record.attempts) for record in sweeping.records()] == [1, 1, 2], sweeping.said()
    assert restarts(sweeping) == [0, 0, 1]


def test_a_renamed_array_is_neither_lost_nor_run_again(sweeping: Sweeping) -> None:
    """Seen: asked for by name, its six cells were recorded lost by make status, and ran twice."""
    sweeping.sweep = three(150, 150, 150)
    process = sweeping.start("--no-preflight")
    all_run(sweeping)
    for element in range(3):
        sweeping.practice.out(
            "scontrol", "update", f"JobId={sweeping.job()}_{element}", "JobName=the-sites-own"
        )
    process.send_signal(signal.SIGKILL)  # and nobody watches
    sweeping.end(process)
    code, out = sweeping.run(command="status")
    assert code == 0 and "lost" not in out, out
    assert not list(sweeping.results.glob("long/*/record.json"))
    code, out = sweeping.run("--no-preflight")
    assert code == 0 and "3 cells are in the queue already" in out, out
    assert [statuses(record) for record in sweeping.records()] == [["completed"]] * 3
    assert len(list(sweeping.results.glob("long/.slurm/*.json"))) == 1


def test_results_that_nodes_do_not_see_are_named(sweeping: Sweeping) -> None:
    """Seen: "ended by signal 53". Nodes have a /tmp of their own."""
    sweeping.sweep = three(1, 1, 1)
    sweeping.write()
    folder = Path(f"/tmp/horoscale-{os.getpid()}-{time.monotonic_ns()}")
    try:
        folder.mkdir()
        code, out = sweeping.run("--no-preflight", "--results", str(folder))
        assert code == 1, out
        assert "the node does not see the results folder" in out and "signal 53" not in out
        assert "RESULTS=DIR" in out
    finally:
        sweeping.practice.heal()
        shutil.rmtree(folder, ignore_errors=True)
