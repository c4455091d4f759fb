"""Faults under an array of three, for real: what one element does or suffers is its own.

Slurm gives the element that it starts last the array's id as SLURM_JOB_ID, and scontrol takes a
bare id of an array for all of its elements.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from subprocess import Popen

import pytest

from tests.jobs.slurm.sweeping import Sweeping, statuses, three
from train.record.run import read_record

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]


def element(sweeping: Sweeping, index: int) -> dict[str, str]:
    """What the controller knows of an element."""
    return sweeping.practice.job(f"{sweeping.job()}_{index}")


def three_run(sweeping: Sweeping, *epochs: int) -> Popen[str]:
    """Start three cells of so many epochs; return when all of them have trained for two."""
    sweeping.sweep = three(*epochs)
    process = sweeping.start("--no-preflight")
    sweeping.wait_until(
        lambda: len(sweeping.cells) == 3 and min(map(sweeping.epochs, sweeping.cells)) >= 2,
        "not all three run",
    )
    return process


def test_the_last_element_ends_and_its_siblings_keep_their_requeues(sweeping: Sweeping) -> None:
    """Seen: warned and completed, it switched the requeues of the whole array off; out of time, the
    others could not be requeued."""
    sweeping.sweep = three(8000, 8000, 10)
    sweeping.write(time_min=4, signal_s=60)  # warned a minute early: all three at once
    process = sweeping.start("--no-preflight")
    sweeping.wait_until(
        lambda: len(sweeping.cells) == 3
        and all((cell / "record.json").exists() for cell in sweeping.cells),
        "no records",
    )  # fmt: skip
    for index in (0, 1):
        assert element(sweeping, index).get("Requeue") == "1", sweeping.said()
    for cell in sweeping.cells[:2]:
        done = len(read_record(cell / "record.json").epochs)
        sweeping.wait_until(
            lambda cell=cell, done=done: sweeping.epochs(cell) > done, "not gone on"
        )
    # make cancel may meet an element while it asks for its next requeue, which then ends, too
    assert "cannot be requeued" not in sweeping.said()
    sweeping.succeeds(sweeping.start(command="cancel"))
    sweeping.end(process)
    *others, last = sweeping.records()
    for record in others:
        assert statuses(record)[0] == "timeout", sweeping.said()
        assert [epoch.epoch for epoch in record.epochs] == list(range(1, len(record.epochs) + 1))
        assert record.attempts[1].resumed_from_epoch > 0
    assert last.status == "completed"


def test_preemption_of_three(sweeping: Sweeping) -> None:
    process = three_run(sweeping, 200, 200, 200)
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--ntasks=8"]
    sweeping.practice.out(*urgent, "--output=/dev/null", "--wrap=sleep 3")
    sweeping.succeeds(process)
    for record in sweeping.records():
        assert statuses(record)[0] == "preempted", sweeping.said()
        assert set(statuses(record)[1:-1]) <= {"lost"} and record.status == "completed"
        job = sweeping.practice.job(record.provenance.slurm_job_id)
        assert int(job["Restarts"]) == len(record.attempts) - 1, "it started with nothing to do"


def test_a_node_that_loses_power_under_one_of_three(sweeping: Sweeping) -> None:
    process = three_run(sweeping, 200, 200, 200)
    nodes = [sweeping.node_of(0, cell) for cell in sweeping.cells]
    sweeping.practice.stop_node(nodes[-1], power=True)
    sweeping.succeeds(process)
    for node, record in zip(nodes, sweeping.records(), strict=True):
        assert record.status == "completed"
        assert (len(record.attempts) > 1) == (node == nodes[-1]), sweeping.said()


def test_a_renamed_array_is_neither_lost_nor_run_again(sweeping: Sweeping) -> None:
    """Seen: asked for by name, its six cells were recorded lost by make status, and ran twice. Nor
    does a login shell that dies take anything along."""
    process = three_run(sweeping, 8000, 8000, 8000)  # longer than the test
    for element in range(3):
        sweeping.practice.out(
            "scontrol", "update", f"JobId={sweeping.job()}_{element}", "JobName=the-sites-own"
        )
    process.send_signal(signal.SIGKILL)  # and nobody watches
    sweeping.end(process)
    assert "lost" not in sweeping.succeeds(sweeping.start(command="status"))
    assert not list(sweeping.results.glob("long/*/record.json"))
    out = sweeping.succeeds(sweeping.start("--no-preflight", "--no-wait"))
    assert "3 cells are in the queue already" in out
    assert not list(sweeping.results.glob("long/*/record.json"))
    assert len(list(sweeping.results.glob("long/.slurm/*.json"))) == 1
    out = sweeping.succeeds(sweeping.start(command="cancel"))
    assert "3 jobs were told to end" in out


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
