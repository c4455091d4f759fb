"""The job that measures: its time, its launch lines, and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.cell.needs import Need
from jobs.config.site import Site
from jobs.slurm.job import interconnect
from jobs.slurm.job.interconnect import (
    SERIES_S,
    InterconnectTask,
    collectives_s,
    launch_line,
    minutes_for,
    tournament_limit_s,
)
from train.interconnect.collectives.plan import plan
from train.interconnect.measure import stream
from train.interconnect.measure.rounds import both_ways, circle, some_partners
from train.interconnect.record import GAVE_UP, JOB_NAME, JobNote, Trouble

FOLDER = "/data/my results/interconnect/r1"


def task(**changes: Any) -> InterconnectTask:
    values: dict[str, Any] = {
        "folder": FOLDER, "site": Site(ranks_per_node=4), "nodes": 8,
        "image": "/images/cpu.sif", "root": "/home/ann/horoscale",
        "interface": None, "samples": 7, "sample_s": 0.25, "ranks_per_node": 1,
    }  # fmt: skip
    return InterconnectTask(**(values | changes))


def test_a_measurement_is_given_up_before_its_phase_is() -> None:
    assert stream.Plan().give_up_s < interconnect.PAIR_GIVEN_UP_S


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 64, 128, 129, 1024])
def test_time_follows_the_rounds(nodes: int) -> None:
    plans = both_ways(circle(nodes)) if nodes <= 128 else some_partners(nodes, 8, 0)
    alone = task(nodes=nodes, phases=("tournament",))
    one_by_one_s = min(nodes * (nodes - 1) * 2.6, 900)
    wanted_s = 3 * (len(plans) + 6) * 2.6 + one_by_one_s + interconnect.RETESTS * 2.6
    assert tournament_limit_s(alone) == pytest.approx(wanted_s)
    assert 60 * minutes_for(alone) > wanted_s
    assert minutes_for(task(nodes=nodes)) > minutes_for(alone)
    # as many series as there will be, and no fewer
    assert collectives_s(nodes) >= SERIES_S * len(list(plan(nodes)))


def test_the_tournament_is_one_task_per_node_that_survives_others() -> None:
    needs = (Need(what="the results folder", path=str(Path(FOLDER).parent), use="write"),)
    line, settings = launch_line(task(interface="ib0", needs=needs), "tournament")
    wanted = {"--mpi=none", "--nodes=8", "--ntasks=8", "--ntasks-per-node=1", "--no-kill",
              "--kill-on-bad-exit=0"}  # fmt: skip
    assert wanted <= set(line)
    at = line.index("/images/cpu.sif")
    assert line[at - 4 : at] == ["--bind", "/home/ann/horoscale", "--bind", needs[0].path]
    assert line[at + 1 :] == [
        "python3", "-m", "train.interconnect", "--out", FOLDER, "--interface", "ib0",
        "--samples", "7", "--sample-s", "0.25", "--limit-s", "489", "--patience-s", "61",
    ]  # fmt: skip
    assert settings["PYTHONPATH"] == "/home/ann/horoscale"
    assert not [name for name in settings if name.startswith(("OMPI_", "PMIX_"))]
    assert "--interface" not in launch_line(task(), "tournament")[0]


def test_the_nodes_own_facts_need_no_container() -> None:
    line, _ = launch_line(task(interface="ib0"), "preflight", "after")
    assert "apptainer" not in line and {"--mpi=none", "--ntasks=8"} <= set(line)
    at = line.index("-m")
    assert Path(line[at - 1]).name.startswith("python")
    assert line[at:] == [
        "-m", "train.interconnect.facts", "--out", FOLDER, "--interface", "ib0", "--when", "after",
    ]  # fmt: skip


def test_collectives_are_launched_as_training_is() -> None:
    line, settings = launch_line(task(interface="ib0", ranks_per_node=4), "collectives")
    assert {"--mpi=pmix", "--ntasks=32", "--kill-on-bad-exit=1"} <= set(line)
    assert "--no-kill" not in line and settings["HOROVOD_CONTROLLER"] == "mpi"
    assert settings["OMPI_MCA_btl_tcp_if_include"] == "ib0", "the one that is measured"
    gloo = task(site=Site(ranks_per_node=1, mpi="gloo"))
    line, settings = launch_line(gloo, "collectives", attempt="7-1")
    assert "--mpi=none" in line
    assert settings["HOROSCALE_RENDEZVOUS"] == f"{FOLDER}/.rendezvous-7-1"


def test_each_phase_is_evidence_though_another_failed(fake, tmp_path, monkeypatch) -> None:
    """And a job that is lost with its first node has left what it began."""
    end = "srun: error: n2: task 1: Exited with exit code 3"
    fake.put(
        "srun",
        f"case $* in *facts*) exit 0 ;; esac; cp {tmp_path}/job.json {tmp_path}/begun\n"
        f"echo 'no route' > {tmp_path}/logs/tournament/rank-1.log; echo '{end}' >&2; exit 3",
    )
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    told = task(folder=str(tmp_path), image="none", nodes=2, phases=("preflight", "tournament"))
    with pytest.raises(SystemExit, match="1"):
        interconnect.run_interconnect(told.model_dump(mode="json"))
    begun, note = (
        JobNote.model_validate_json((tmp_path / name).read_text()) for name in ("begun", JOB_NAME)
    )
    assert [len(begun.steps), begun.ended, note.ended] == [1, False, True]
    assert [(step.phase, step.exit_code) for step in note.steps] == [
        ("preflight", 0), ("tournament", 3), ("preflight", 0),
    ]  # fmt: skip
    assert note.steps[1].troubles == (Trouble(node="n2", what=GAVE_UP, found="no route"),)
