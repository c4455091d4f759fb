"""The job that measures, before it runs: its time, its launch line, its requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.site import Site
from jobs.slurm import interconnect
from jobs.slurm.interconnect import InterconnectTask, launch_line, minutes_for, seconds_for
from train.interconnect import tournament
from train.interconnect.rounds import everyone, some_partners


def task(**changes: Any) -> InterconnectTask:
    told: dict[str, Any] = {
        "folder": "/data/my results/interconnect/r1", "site": Site(ranks_per_node=4), "nodes": 8,
        "image": "/images/cpu.sif", "image_digest": None, "root": "/home/ann/horoscale",
        "interface": None, "samples": 7, "sample_s": 0.25,
    }  # fmt: skip
    return InterconnectTask(**(told | changes))


def test_both_sides_agree_when_nodes_meet_only_some_others() -> None:
    """The login node has no business with NumPy, so the numbers stand twice."""
    assert interconnect.ALL_PAIRS == tournament.ALL_PAIRS
    assert interconnect.PARTNERS == tournament.PARTNERS


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 64, 128, 129, 1024])
def test_time_follows_the_rounds(nodes: int) -> None:
    rounds = everyone(nodes) if nodes <= 128 else some_partners(nodes, 8, 0)
    assert seconds_for(nodes, 7, 0.25) == pytest.approx((len(rounds) + 6) * 2.6)
    assert 60 * minutes_for(task(nodes=nodes)) > 2 * seconds_for(nodes, 7, 0.25)


def test_the_launch_line_is_one_task_per_node_that_survives_others() -> None:
    line, settings = launch_line(task(interface="ib0"))
    text = " ".join(line)
    for part in ("--mpi=none", "--nodes=8", "--ntasks=8", "--ntasks-per-node=1", "--no-kill",
                 "--kill-on-bad-exit=0"):  # fmt: skip
        assert part in line, text
    at = line.index("/images/cpu.sif")
    assert line[at - 4 : at] == [
        "--bind", "/home/ann/horoscale", "--bind", "/data/my results/interconnect/r1",
    ]  # fmt: skip
    assert line[at + 1 :] == [
        "python3", "-m", "train.interconnect", "--out", "/data/my results/interconnect/r1",
        "--samples", "7", "--sample-s", "0.25", "--interface", "ib0",
    ]  # fmt: skip
    assert settings["PYTHONPATH"] == "/home/ann/horoscale"


def test_without_an_image_the_checkouts_python_runs() -> None:
    line, _ = launch_line(task(image="none"))
    assert "apptainer" not in line and "--interface" not in line
    assert Path(line[line.index("-m") - 1]).name.startswith("python")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--site", "local"], "one machine has no interconnect: name a cluster with SITE="),
        (["--site", "nowhere"], "nowhere"),
    ],
)
def test_requests_that_need_a_cluster(options: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["interconnect", *options])
    assert done.exit_code == 2 and words in done.output


def test_one_node_has_no_network(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("ranks_per_node: 1\nimage: none\n")
    options = ["--site", str(site), "--nodes", "1", "--results", str(tmp_path / "results")]
    done = CliRunner().invoke(app, ["interconnect", *options])
    assert done.exit_code == 2 and "NODES=1: a network is measured between nodes" in done.output
    assert not (tmp_path / "results").exists()
