"""The commands of the cluster as lists of words: spaces, links, mounts, daemons; nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.practice.daemons import database_argv, is_alive, munged_argv, slurmd_argv
from containers.practice.links import controller_commands, node_commands
from containers.practice.place import CONTROLLER, DEFAULT, NODES, Place, PracticeError, place_of
from containers.practice.rooms import room_commands
from containers.practice.shape import shape_of
from containers.practice.spaces import enter_argv, keep_argv, marked

PLACE = Place(DEFAULT)
SHAPE = shape_of("10.87.1.0/24", [0, 1], 16000)


def test_a_space_has_its_own_of_everything_and_dies_with_its_keeper() -> None:
    argv = keep_argv(None)
    assert argv[0] == "unshare"
    assert {"--mount", "--uts", "--net", "--pid", "--fork", "--kill-child=KILL"} <= set(argv)
    assert "--ignore-signal=CHLD" in argv  # else daemons that end stay as zombies


def test_a_nodes_space_lies_in_the_controllers() -> None:
    argv = keep_argv(42)
    assert argv[:5] == ["nsenter", "--target=42", "--mount", "--pid", "--"]
    assert argv[5:] == keep_argv(None)


def test_commands_enter_all_spaces_word_by_word() -> None:
    argv = enter_argv(7, ["echo", "a b; rm -rf /"], "/a folder")
    assert argv[-4:] == ["env", "--chdir=/a folder", "echo", "a b; rm -rf /"]


def test_links_have_predictable_names_and_the_usual_mtu() -> None:
    keepers = {CONTROLLER: 10, **{node: 11 + n for n, node in enumerate(NODES)}}
    words = [" ".join(command) for command in node_commands(SHAPE, "node3", keepers)]
    assert words[0] == (
        "nsenter --target=10 --net -- ip link add hsn3 mtu 1500 type veth "
        "peer name eth0 mtu 1500 netns 13"
    )
    assert "nsenter --target=13 --net -- ip address add 10.87.1.13/24 dev eth0" in words


def test_the_machine_itself_gets_one_link_and_no_bridge() -> None:
    commands = controller_commands(PLACE, SHAPE, 10)
    here = [" ".join(command) for command in commands if command[0] == "ip"]
    assert here == [
        "ip link add hslogin mtu 1500 type veth peer name hslogin mtu 1500 netns 10",
        "ip address add 10.87.1.2/24 dev hslogin",
        "ip link set hslogin up",
    ]


def test_a_node_has_its_own_tmp_and_shared_memory() -> None:
    commands = room_commands(PLACE, "node2", shared=(Path("/home/me/checkout"),))
    targets = [command[-1] for command in commands if command[0] == "mount"]
    assert targets == ["/etc/hosts", "/sys", "/tmp", "/dev/shm"]
    assert commands[0] == ["hostname", "node2"]


def test_a_checkout_in_tmp_is_seen_by_nodes_all_the_same() -> None:
    commands = room_commands(PLACE, "node2", shared=(Path("/tmp/x/checkout"),))
    own = f"{DEFAULT}/node2/tmp"
    assert ["mount", "--rbind", "/tmp/x/checkout", f"{own}/x/checkout"] in commands
    # before the node's /tmp covers it
    assert commands.index(["mount", "--rbind", own, "/tmp"]) > commands.index(
        ["mount", "--rbind", "/tmp/x/checkout", f"{own}/x/checkout"]
    )


def test_daemons_are_bound_private_and_not_root_where_they_need_not() -> None:
    assert slurmd_argv("node1", (0, 1))[:3] == ["taskset", "--cpu-list", "0,1"]
    assert "--reuid=munge" in munged_argv(PLACE)
    assert {"--skip-networking", "--no-defaults"} <= set(database_argv(PLACE))


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


def fake_process(proc: Path, pid: int, environ: bytes, nspid: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "environ").write_bytes(environ)
    (folder / "status").write_text(f"Name:\tsleep\nNSpid:\t{nspid}\n")


def test_keepers_are_found_by_their_mark_and_those_that_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = b"A=1\0HOROSCALE_KEEPER=/run/horoscale-practice:node1\0"
    fake_process(tmp_path, 5, mark, "5\t3\t1")
    fake_process(tmp_path, 6, mark, "6")
    fake_process(tmp_path, 7, b"HOROSCALE_KEEPER=/run/horoscale-practice2:node1\0", "7\t1")
    fake_process(tmp_path, 8, b"HOME=/root\0", "8\t1")
    (tmp_path / "self").mkdir()
    own = (tmp_path / "5").stat().st_uid
    found = {p.pid: p for p in marked(PLACE, tmp_path)} if own == 0 else {}
    if own != 0:
        assert not marked(PLACE, tmp_path)  # a user's process cannot pose as ours
        return
    assert set(found) == {5, 6}
    assert found[5].first and not found[6].first
    assert found[5].space == "node1"


def test_another_folder_must_be_a_plain_absolute_path() -> None:
    assert place_of({}).folder == DEFAULT
    assert place_of({"HOROSCALE_PRACTICE": "/run/other"}).folder == Path("/run/other")
    for bad in ("other", "/", "/run", "/run/a b", "/run/../etc", "/run/x\ny", "/run/" + "x" * 60):
        with pytest.raises(PracticeError, match="HOROSCALE_PRACTICE"):
            place_of({"HOROSCALE_PRACTICE": bad})
