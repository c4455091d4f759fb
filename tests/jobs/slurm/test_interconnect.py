"""What the sysadmin asks for: nodes by number or name, phases, and requests that are refused."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.config.site import Site
from jobs.slurm.client.nodes import STATES, Wanted, check_in_use, read_nodes
from jobs.slurm.client.run import SlurmError
from jobs.slurm.interconnect import phases_named
from train.errors import ConfigError

SITE = Site(ranks_per_node=1)


def answers(names: str = "", states: str = "idle idle idle") -> Any:
    def ask(argv: Any) -> str:
        if tuple(argv[:-1]) == STATES:
            found = enumerate(states.split(), 1)
            return "".join(f"node{number}|{state}\n" for number, state in found)
        assert tuple(argv[:3]) == ("scontrol", "show", "hostnames")
        if "]" not in argv[3] and "[" in argv[3]:
            raise SlurmError("scontrol show hostnames", "Invalid hostlist", passing=False)
        return names.replace(" ", "\n")

    return ask


def test_nodes_are_a_number_or_names() -> None:
    assert read_nodes("4", answers()) == (4, ())
    twice = answers("node1\nnode2\nnode2\n")
    assert read_nodes("node[1-2],node2", twice) == (2, ("node1", "node2"))
    assert read_nodes(" ", answers()) == (0, ())
    with pytest.raises(ConfigError, match="expected a number, or names like"):
        read_nodes("node[1", answers())


@pytest.mark.parametrize(
    ("wanted", "states", "words"),
    [
        (Wanted(2), "idle allocated down*", None),
        (Wanted(3), "idle mixed down*", r"2 nodes take jobs.*\(node3 is down\*\)"),
        (Wanted(2, ("node1", "node3")), "idle drained idle", None),
        (Wanted(2, ("node1", "node3")), "idle idle drained", r"\(node3 is drained\); nothing was"),
        (Wanted(2, ("node1", "nod3")), "idle idle idle", r"\(nod3 is unknown\); nothing was"),
        (Wanted(2, ("node1", "node3")), "idle idle maint", r"\(node3 is maint\)"),
        (Wanted(2, ("node1", "node3")), "idle idle reserved", r"\(node3 is reserved\)"),
    ],
)
def test_nodes_out_of_use_are_refused_and_not_waited_for(wanted, states, words) -> None:
    """Reserved ones serve who reserved them."""
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        check_in_use(wanted, SITE, answers(states=states))
    if states.endswith(("maint", "reserved")):
        site = SITE.model_copy(update={"reservation": "window7"})
        check_in_use(wanted, site, answers(states=states))


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
def test_requests_that_need_a_cluster(tmp_path, monkeypatch, site, words) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text("ranks_per_node: 1\nimage: none\n")
    options = ["--site", site, "--nodes", "1", "--results", "results"]
    done = CliRunner().invoke(app, ["interconnect", *options])
    assert done.exit_code == 2 and words in done.output
    assert not Path("results").exists()
