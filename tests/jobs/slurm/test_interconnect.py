"""What the sysadmin asks for: nodes by number or name, phases, and requests that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.slurm.client.nodes import STATES, Wanted, check_in_use, read_nodes
from jobs.slurm.client.run import SlurmError
from jobs.slurm.interconnect import phases_named
from train.errors import ConfigError


def answers(names: str) -> Any:
    def ask(argv: Any) -> str:
        if tuple(argv[:-1]) == STATES:
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
