"""No rank trains in a world that nobody asked for."""

from __future__ import annotations

import pytest

from train.distributed.launch import Launch, read_launch
from train.distributed.world import EXCHANGE_S, check_size, choose_transport
from train.errors import ConfigError, WorldError


def step(size: int, *, wired: bool = True) -> Launch:
    return Launch("srun", 0, size, 0, size, supervised=True, wired=wired)


@pytest.mark.parametrize("launch", [read_launch({}, supervised=True), step(4)])
def test_a_dropped_environment_is_named_as_the_likely_cause(launch: Launch) -> None:
    """Also of PMIx, which then makes a world of one of each task."""
    words = "world of 1 rank .*expected 4.*PMIX_.*--cleanenv, --containall"
    with pytest.raises(WorldError, match=words):
        check_size(4, 1, launch)


def test_another_wrong_size_is_refused_plainly() -> None:
    for size, found, launch in ((4, 2, step(2)), (2, 1, read_launch({})), (1, 2, step(2))):
        words = rf"found a world of {found} ranks? \(.*as the config says. Start it .*-np {size}"
        with pytest.raises(WorldError, match=words):
            check_size(size, found, launch)
    check_size(2, 2, step(2))


def test_mpi_without_its_variables_is_refused_before_it_aborts() -> None:
    with pytest.raises(WorldError, match=r"no PMIx variables.*--mpi=pmix"):
        choose_transport(step(4, wired=False), {})


@pytest.mark.parametrize("launch", [read_launch({}), step(1, wired=False)])
def test_a_world_of_one_needs_no_mpi(launch: Launch) -> None:
    environment: dict[str, str] = {}
    choose_transport(launch, environment)
    assert environment["HOROVOD_CONTROLLER"] == environment["HOROVOD_CPU_OPERATIONS"] == "gloo"


def test_under_mpi_the_sites_interface_must_be_there() -> None:
    with pytest.raises(ConfigError, match="'ib77' is not there"):
        choose_transport(step(4), {"HOROSCALE_INTERFACE": "ib77"})
    environment = {"HOROSCALE_INTERFACE": "lo"}
    choose_transport(step(4), environment)
    assert environment["HOROSCALE_INTERFACE"] == "lo"


def test_gloo_ends_no_exchange_that_a_suspended_job_is_in_the_middle_of() -> None:
    """Its default is 30 s."""
    for given, told in (({}, "604800"), ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "90"}, "90")):
        environment = dict(given)
        choose_transport(step(4), environment, exchange_s=EXCHANGE_S)
        assert environment["HOROVOD_GLOO_TIMEOUT_SECONDS"] == told
