"""The commands of the cluster as lists of words, none of which is run; and whose processes are its
own."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from containers.practice.daemons import database_argv, is_alive, munged_argv, slurmd_argv
from containers.practice.limits import check_rate, limit_commands, nodes_named
from containers.practice.links import controller_commands, node_commands
from containers.practice.place import CONTROLLER, DEFAULT, NODES, Place, PracticeError, place_of
from containers.practice.rooms import room_commands
from containers.practice.shape import shape_of
from containers.practice.spaces import Process, enter_argv, keep_argv, marked

PLACE = Place(DEFAULT)
SHAPE = shape_of("10.87.1.0/24", [0, 1], 16000)
KEEPERS = {CONTROLLER: 10, **{node: 11 + n for n, node in enumerate(NODES)}}


def limit(rate: str, **how: str) -> list[list[str]]:
    return limit_commands(SHAPE, "node3", rate, KEEPERS, **how)


COMMANDS = {
    "space: dies with its keeper, which leaves no zombies of daemons": [keep_argv(None)],
    "space of a node: lies in the controller's": [keep_argv(10)],
    "command in a space: word by word": [enter_argv(7, ["echo", "a b; rm -rf /"], "/a folder")],
    "links of node3": node_commands(SHAPE, "node3", KEEPERS),
    "links of the controller: one to the machine itself": controller_commands(PLACE, SHAPE, 10),
    "mounts of node2": room_commands(PLACE, "node2", shared=(Path("/home/me/checkout"),)),
    "mounts of node2, checkout in /tmp: bound before the node's own /tmp covers it": (
        room_commands(PLACE, "node2", shared=(Path("/tmp/x/checkout"),))
    ),
    "daemons": [munged_argv(PLACE), slurmd_argv("node1", (0, 1)), database_argv(PLACE)],
    "limit of node3: where its packets leave": limit("50mbit"),
    "limit of what node3 sends": limit("50mbit", way="send"),
    "limit of what node3 receives": limit("50mbit", way="receive"),
    "limit of node3 off: nothing is added": limit("off"),
    "limit from node3 to node1": limit("50mbit", to="node1", rest="200mbit"),
}


def test_commands_are_the_ones_that_were_tried() -> None:
    lines = []
    for name, commands in COMMANDS.items():
        lines += [f"# {name}", *map(shlex.join, commands), ""]
    golden = Path(__file__).parent / "golden" / "commands.txt"
    assert lines == golden.read_text().split("\n")


@pytest.mark.parametrize("rate", ["1foo", "0mbit", "-1mbit", "5", "1e3mbit", "5mbit; reboot", ""])
def test_rates_that_are_none(rate: str) -> None:
    with pytest.raises(PracticeError, match="expected one like 200mbit, or off"):
        check_rate(rate)


def test_names() -> None:
    assert nodes_named("all") == NODES and nodes_named("node2") == ("node2",)


@pytest.mark.parametrize(
    ("status", "alive"),
    [
        ("Name:\tslurmd\nState:\tS (sleeping)\n", True),
        ("Name:\tslurmd\nState:\tZ (zombie)\n", False),
        ("Name:\tsshd\nState:\tS (sleeping)\n", False),  # its id was given to another
        ("", False),
    ],
)
def test_a_pid_file_is_believed_only_with_its_living_program(status: str, alive: bool) -> None:
    assert is_alive(status, "slurmd") is alive


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's processes are keepers")
def test_keepers_are_found_by_their_mark_and_those_that_wait_for_them(tmp_path) -> None:
    mark = "A=1\0HOROSCALE_KEEPER=/run/horoscale-practice:node1\0"
    for pid, environ, nspid in (
        (5, mark, "5\t3\t1"),
        (6, mark, "6"),
        (7, mark.replace("practice", "practice2"), "7\t1"),
        (8, "HOME=/root\0", "8\t1"),
        (9, mark, "9\t1"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_text(environ)
        (tmp_path / str(pid) / "status").write_text(f"Name:\tsleep\nNSpid:\t{nspid}\n")
    os.chown(tmp_path / "9", 1000, 1000)  # a user's process cannot pose as ours
    (tmp_path / "self").mkdir()
    found = sorted(marked(PLACE, tmp_path), key=lambda process: process.pid)
    assert found == [Process(5, "node1", first=True), Process(6, "node1", first=False)]


def test_another_folder_must_be_a_plain_absolute_path() -> None:
    assert place_of({}).folder == DEFAULT
    assert place_of({"HOROSCALE_PRACTICE": "/run/other"}).folder == Path("/run/other")
    for bad in ("other", "/", "/run", "/run/a b", "/run/../etc", "/run/x\ny", "/run/" + "x" * 60):
        with pytest.raises(PracticeError, match="HOROSCALE_PRACTICE"):
            place_of({"HOROSCALE_PRACTICE": bad})
