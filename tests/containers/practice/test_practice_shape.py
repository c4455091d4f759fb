"""How the machine is divided, and an address range that nobody else uses."""

from __future__ import annotations

import pytest

from containers.practice.links import subnets_of
from containers.practice.place import PracticeError
from containers.practice.shape import addresses, free_subnet, shape_from_json, shape_of

SUBNET = "10.87.1.0/24"


@pytest.mark.parametrize(
    ("cores", "groups"),
    [
        ([0], [(0,), (0,), (0,), (0,)]),
        ([0, 1], [(0,), (1,), (0,), (1,)]),
        ([4, 5, 6, 7], [(4,), (5,), (6,), (7,)]),
        ([0, 1, 2, 3, 4, 5, 6], [(0,), (1,), (2,), (3,)]),
        (list(range(18)), [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]),
    ],
)
def test_cores_of_nodes(cores: list[int], groups: list[tuple[int, ...]]) -> None:
    assert [node.cores for node in shape_of(SUBNET, cores, 16000).nodes] == groups


@pytest.mark.parametrize(("machine_mb", "node_mb"), [(4000, 2048), (64000, 12800)])
def test_a_small_machine_advertises_more_memory_than_it_has(machine_mb: int, node_mb: int) -> None:
    assert {node.memory_mb for node in shape_of(SUBNET, [0], machine_mb).nodes} == {node_mb}


def test_the_first_subnet_that_overlaps_nothing() -> None:
    assert free_subnet([]) == SUBNET
    assert free_subnet(["10.87.1.128/25", "10.87.2.7", "192.168.0.0/16"]) == "10.87.3.0/24"
    with pytest.raises(PracticeError, match="no free subnet"):
        free_subnet(["10.0.0.0/8"])


def test_routes_of_the_machine_are_read_but_the_default_route_is_none() -> None:
    text = '[{"dst":"default"},{"dst":"10.87.1.0/24"},{"dst":"172.17.0.1"},{"dst":"0.0.0.0/0"}]'
    assert subnets_of(text) == ["10.87.1.0/24", "172.17.0.1"]


def test_all_addresses_differ_and_the_shape_survives_its_file() -> None:
    shape = shape_of("10.87.9.0/24", [0, 1], 16000, accounting=True)
    assert len({*addresses(shape).values(), shape.login}) == 6
    assert shape_from_json(shape.as_json()) == shape
