"""What the sysadmin asks for: nodes by number or name, phases, and requests that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.slurm.client.nodes import Wanted, check_in_use, read_nodes
from jobs.slurm.client.run import SlurmError
from jobs.slurm.interconnect import phases_named
from train.errors import ConfigError


def slurm(names: str = "node1 node3", states: str = "idle idle idle") -> Any:
    """Answers for Slurm, which has so many nodes; scontrol expands a list of them to ``names``."""

    def ask(argv: Any) -> str:
        if argv[0] == "sinfo":
            return "".join(f"node{n} {state}\n" for n, state in enumerate(states.split(), 1))
        assert tuple(argv[:3]) == ("scontrol", "show", "hostnames")
        if "]" not in argv[3] and "[" in argv[3]:
            raise SlurmError("scontrol show hostnames", "Invalid hostlist", passing=False)
        return names.replace(" ", "\n")

    return ask


def test_nodes_are_a_number_or_names() -> None:
    assert read_nodes("4", slurm()) == (4, None)
    assert read_nodes("node[1-2]", slurm("node1 node2")) == (2, "node1,node2")


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("nod1,node2", "nod1 node2", "unknown node 'nod1'; did you mean 'node1'?"),
        ("node[1", "", "expected a number, or names like node3,node[5-8]; scontrol says"),
        ("node1,node1", "node1 node1", "a node is named twice"),
        (" ", "", "expected a number, or names"),
        ("--4", "", "expected a number, or names"),
    ],
)
def test_a_node_list_with_a_typo(text: str, names: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_nodes(text, slurm(names))
    assert words in str(caught.value)


def test_nodes_out_of_use_are_refused_and_not_waited_for() -> None:
    two, named = Wanted(2), Wanted(2, "node1,node3")
    check_in_use(two, "p", slurm(states="idle allocated down*"))
    with pytest.raises(ConfigError, match=r"2 of 3 nodes are in use by Slurm.*node3 down\*"):
        check_in_use(Wanted(3), "p", slurm(states="idle mixed down*"))
    for state in ("drained", "maint", "reserved"):
        with pytest.raises(ConfigError, match=f"node3 is {state}; nothing was submitted"):
            check_in_use(named, None, slurm(states=f"idle idle {state}"))
    # reserved nodes serve who reserved them
    for state in ("maint", "reserved"):
        check_in_use(named, None, slurm(states=f"idle idle {state}"), "window7")


def test_phases_by_name() -> None:
    assert phases_named("all") == ("preflight", "collectives", "tournament")
    assert phases_named("tournament, preflight") == ("preflight", "tournament")
    with pytest.raises(ConfigError, match="did you mean 'tournament'"):
        phases_named("turnament")


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("local", "one machine has no interconnect: name a cluster with SITE="),
        ("nowhere", "nowhere"),
        ("site.yaml", "NODES=1: a network is measured between nodes"),
    ],
)
def test_requests_that_need_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text("ranks_per_node: 1\nimage: none\n")
    options = ["--site", site, "--nodes", "1", "--results", "results"]
    done = CliRunner().invoke(app, ["interconnect", *options])
    assert done.exit_code == 2 and words in done.output
    assert not Path("results").exists()
