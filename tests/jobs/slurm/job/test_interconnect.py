"""The job that measures, before it runs: its time, its launch line, its requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.config.site import Site
from jobs.slurm.client.nodes import STATES, Wanted, check_in_use, read_nodes
from jobs.slurm.client.run import SlurmError
from jobs.slurm.interconnect import phases_named
from jobs.slurm.job import interconnect
from jobs.slurm.job.interconnect import (
    SERIES_S,
    InterconnectTask,
    collectives_s,
    launch_line,
    minutes_for,
    tournament_limit_s,
    tournament_s,
)
from train.errors import ConfigError
from train.interconnect import record, tournament
from train.interconnect.collectives.plan import fewer, plan
from train.interconnect.measure import rounds, stream
from train.interconnect.measure.rounds import both_ways, circle, some_partners


def task(**changes: Any) -> InterconnectTask:
    told: dict[str, Any] = {
        "folder": "/data/my results/interconnect/r1", "site": Site(ranks_per_node=4), "nodes": 8,
        "image": "/images/cpu.sif", "image_digest": None, "root": "/home/ann/horoscale",
        "interface": None, "samples": 7, "sample_s": 0.25,
    }  # fmt: skip
    return InterconnectTask(**(told | changes))


def test_both_sides_agree_when_nodes_meet_only_some_others() -> None:
    """The login node has no business with NumPy, so the numbers stand twice."""
    assert interconnect.ALL_PAIRS == record.ALL_PAIRS
    assert interconnect.PARTNERS == rounds.PARTNERS
    assert stream.Plan().give_up_s < interconnect.PAIR_GIVEN_UP_S
    assert interconnect.RETESTS == (6 + 3) * tournament.RETESTED


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 64, 128, 129, 1024])
def test_time_follows_the_rounds(nodes: int) -> None:
    plans = both_ways(circle(nodes)) if nodes <= 128 else some_partners(nodes, 8, 0)
    assert tournament_s(nodes, 7, 0.25) == pytest.approx((len(plans) + 6) * 2.6)
    alone = task(nodes=nodes, phases=("tournament",))
    assert 60 * minutes_for(alone) > tournament_limit_s(alone) > 2 * tournament_s(nodes, 7, 0.25)
    # where a fabric bears no company, all pairs of few nodes still fit
    assert nodes > 16 or tournament_limit_s(alone) > nodes * (nodes - 1) * 2.6 + 100
    assert minutes_for(task(nodes=nodes)) > minutes_for(alone)
    # as many series as there will be, and no fewer
    assert collectives_s(nodes) >= SERIES_S * len(list(plan(nodes)))
    assert set(fewer(nodes)) <= set(range(2, nodes))


def test_the_launch_line_is_one_task_per_node_that_survives_others() -> None:
    line, settings = launch_line(task(interface="ib0"), "tournament")
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
        "--interface", "ib0", "--samples", "7", "--sample-s", "0.25", "--limit-s", "489",
        "--patience-s", "61",
    ]  # fmt: skip
    assert settings["PYTHONPATH"] == "/home/ann/horoscale"


def test_without_an_image_the_checkouts_python_runs() -> None:
    line, _ = launch_line(task(image="none"), "tournament")
    assert "apptainer" not in line and "--interface" not in line
    assert Path(line[line.index("-m") - 1]).name.startswith("python")


def test_the_nodes_own_facts_need_no_container() -> None:
    line, _ = launch_line(task(interface="ib0"), "preflight", "after")
    assert "apptainer" not in line and "--mpi=none" in line and "--ntasks=8" in line
    assert line[-8:] == [
        "-m", "train.interconnect.facts", "--out", "/data/my results/interconnect/r1",
        "--interface", "ib0",
        "--when", "after",
    ]  # fmt: skip


def test_collectives_are_launched_as_training_is() -> None:
    line, settings = launch_line(task(ranks_per_node=4), "collectives")
    assert {"--mpi=pmix", "--ntasks=32", "--kill-on-bad-exit=1"} <= set(line)
    assert "--no-kill" not in line and settings["HOROVOD_CONTROLLER"] == "mpi"
    _, settings = launch_line(task(interface="ib0"), "collectives")
    assert settings["OMPI_MCA_btl_tcp_if_include"] == "ib0", "the one that is measured"
    gloo = task(site=Site(ranks_per_node=1, mpi="gloo"))
    line, settings = launch_line(gloo, "collectives", meeting=Path("/data/meet"))
    assert "--mpi=none" in line and settings["HOROSCALE_RENDEZVOUS"] == "/data/meet"


def answers(names: str) -> Any:
    def ask(argv: Any) -> str:
        if tuple(argv) == STATES:
            return "node1 idle\nnode2 idle\nnode3 idle\nnode10 idle\n"
        assert tuple(argv[:3]) == ("scontrol", "show", "hostnames")
        if "]" not in argv[3] and "[" in argv[3]:
            raise SlurmError("scontrol show hostnames", "Invalid hostlist", passing=False)
        return names

    return ask


def test_nodes_are_a_number_or_names() -> None:
    assert read_nodes("4", answers("")) == (4, None)
    assert read_nodes("node[1-2]", answers("node1\nnode2\n")) == (2, "node1,node2")


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("nod1,node2", "nod1\nnode2\n", "unknown node 'nod1'; did you mean 'node1'?"),
        ("node[1", "", "expected a number, or names like node3,node[5-8]; scontrol says"),
        ("node1,node1", "node1\nnode1\n", "a node is named twice"),
        (" ", "", "expected a number, or names"),
        ("--4", "", "expected a number, or names"),
    ],
)
def test_a_node_list_with_a_typo(text: str, names: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_nodes(text, answers(names))
    assert words in str(caught.value)


def states(*told: str) -> Any:
    def ask(argv: Any) -> str:
        if argv[0] == "scontrol":
            return "node1\nnode3\n"
        return "".join(f"node{number} {state}\n" for number, state in enumerate(told, 1))

    return ask


def test_nodes_out_of_use_are_refused_and_not_waited_for() -> None:
    check_in_use(Wanted(2), "p", states("idle", "allocated", "down*"))
    with pytest.raises(ConfigError, match=r"2 of 3 nodes are in use by Slurm.*node3 down\*"):
        check_in_use(Wanted(3), "p", states("idle", "mixed", "down*"))
    with pytest.raises(ConfigError, match="node3 is drained; nothing was submitted"):
        check_in_use(Wanted(2, "node1,node3"), None, states("idle", "idle", "drained"))


def test_reserved_nodes_serve_only_who_reserved_them() -> None:
    for state in ("maint", "reserved"):
        with pytest.raises(ConfigError, match=f"node3 is {state}; nothing was submitted"):
            check_in_use(Wanted(2, "node1,node3"), None, states("idle", "idle", state))
        check_in_use(Wanted(2, "node1,node3"), None, states("idle", "idle", state), "window7")


def test_phases_by_name() -> None:
    assert phases_named("all") == ("preflight", "collectives", "tournament")
    assert phases_named("tournament, preflight") == ("preflight", "tournament")
    with pytest.raises(ConfigError, match="did you mean 'tournament'"):
        phases_named("turnament")


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
