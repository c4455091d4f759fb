"""What Slurm is told: the keys that the tests of faults and the documentation rely on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from containers.practice import conf
from containers.practice.place import DEFAULT, Place
from containers.practice.shape import shape_of

GOLDEN = Path(__file__).parent / "golden"
PLACE = Place(DEFAULT)


def shape(*, accounting: bool = False):
    return shape_of("10.87.1.0/24", [0, 1], 16000, accounting=accounting)


def keys(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("accounting", [False, True])
def test_slurm_conf_is_the_one_that_was_tried(accounting: bool) -> None:
    text = conf.slurm_conf(PLACE, shape(accounting=accounting))
    golden = GOLDEN / f"slurm_{'with' if accounting else 'without'}_accounting.conf"
    assert text == golden.read_text()


def test_nothing_of_the_machines_own_slurm_is_used() -> None:
    for text in (
        conf.slurm_conf(PLACE, shape(accounting=True)),
        conf.slurmdbd_conf(PLACE, shape(accounting=True)),
        conf.gres_conf(PLACE),
    ):
        for path in re.findall(r"=(/[^\s,]+)", text):
            assert path.startswith(str(DEFAULT)) or path == "/bin/true"
        assert not re.search(r"Port=68\d\d", text)


def test_a_second_cluster_shares_no_path_with_the_first() -> None:
    other = Place(Path("/run/other"))
    text = conf.slurm_conf(other, shape(accounting=True))
    assert str(DEFAULT) not in text
    assert other.login_link != PLACE.login_link
    assert len(other.login_link) <= 15  # what the kernel allows


def test_every_gpu_that_nodes_advertise_is_a_file() -> None:
    assert f"{DEFAULT}/dev/gpu[0-1]" in conf.gres_conf(PLACE)
    nodes = [
        line for line in conf.slurm_conf(PLACE, shape()).splitlines() if line.startswith("NodeName")
    ]
    assert len(nodes) == 4
    assert all("Gres=gpu:pretend:2" in line for line in nodes)


def test_memory_of_all_ranks_fits_into_a_node() -> None:
    text = conf.slurm_conf(PLACE, shape())
    per_cpu = int(keys(text)["DefMemPerCPU"])
    assert all(2 * per_cpu <= int(m) for m in re.findall(r"RealMemory=(\d+)", text))


def test_hosts_name_every_node_by_the_address_that_others_reach() -> None:
    lines = dict(line.split("\t") for line in conf.hosts(shape(), "laptop").splitlines())
    assert lines["10.87.1.11"] == "node1"
    assert lines["10.87.1.1"] == "controller"
    assert lines["10.87.1.2"] == "laptop"
    assert not any(address.startswith("127.") for address in lines if lines[address] != "localhost")


def test_the_database_needs_no_password_and_knows_only_slurm() -> None:
    assert "StoragePass" not in conf.slurmdbd_conf(PLACE, shape(accounting=True))
    assert "slurm@localhost IDENTIFIED VIA unix_socket" in conf.database_sql()
