"""A cluster on paper: its shape and files, and what is its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from locks import SetupError

from containers.practice import files
from containers.practice.place import DEFAULT, Place, free_subnet, place_of, shape_of
from containers.practice.spaces import Process, marked

SUBNET = "10.87.1.0/24"
PLACE = Place(DEFAULT)
SHAPE = shape_of(SUBNET, [0, 1], 16000)
FILES = {
    "slurm.conf": files.slurm_conf(PLACE, SHAPE),
    "gres.conf": files.gres_conf(PLACE),
    "hosts": files.hosts(SHAPE, "laptop"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_use_nothing_of_the_machines_slurm(name) -> None:
    paths = set(re.findall(r"=(/[^\s,]+)", FILES[name])) - {"/bin/true"}
    assert all(path.startswith(str(DEFAULT)) for path in paths)
    assert not re.search(r"Port=68\d\d", FILES[name])


def test_a_second_cluster_shares_no_path_with_the_first() -> None:
    other = Place(Path("/run/other"))
    assert str(DEFAULT) not in files.slurm_conf(other, SHAPE)
    assert other.login_link != PLACE.login_link
    assert len(other.login_link) <= 15  # what the kernel allows


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
    keepers = sorted(marked(PLACE, tmp_path), key=lambda process: process.pid)
    assert keepers == [Process(5, "node1", first=True), Process(6, "node1", first=False)]


def test_another_folder_must_be_a_plain_absolute_path() -> None:
    assert place_of({}).folder == DEFAULT
    assert place_of({"HOROSCALE_PRACTICE": "/run/other"}).folder == Path("/run/other")
    for bad in ("other", "/", "/run", "/run/a b", "/run/../etc", "/run/x\ny", "/run/" + "x" * 60):
        with pytest.raises(SetupError, match="HOROSCALE_PRACTICE"):
            place_of({"HOROSCALE_PRACTICE": bad})


@pytest.mark.parametrize(
    ("cores", "groups"),
    [
        ([0, 1], [(0,), (1,), (0,), (1,)]),
        ([2, 3, 4, 5, 6, 7, 8], [(2,), (3,), (4,), (5,)]),
        (list(range(18)), [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]),
    ],
)
def test_cores_and_memory_of_nodes(cores: list[int], groups: list[tuple[int, ...]]) -> None:
    assert [node.cores for node in shape_of(SUBNET, cores, 16000).nodes] == groups
    # a small machine advertises more memory than it has
    for machine_mb, node_mb in ((4000, 2048), (64000, 12800)):
        assert {node.memory_mb for node in shape_of(SUBNET, cores, machine_mb).nodes} == {node_mb}


def test_the_first_subnet_that_no_route_names() -> None:
    assert free_subnet("default via 10.87.0.1 dev eth0") == SUBNET
    routes = "10.87.1.128/25 dev eth0\n10.87.2.7 dev eth1\nlocal 10.87.11.2 dev lo"
    assert free_subnet(routes) == "10.87.3.0/24"
    with pytest.raises(SetupError, match="routes into all of"):
        free_subnet("".join(f"10.87.{third}.0/24 dev eth0\n" for third in range(256)))
