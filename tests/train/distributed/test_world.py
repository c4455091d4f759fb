"""No rank trains in a world that nobody asked for; and what the ranks find in theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.distributed.launch import Launch, read_launch
from train.distributed.world import EXCHANGE_S, check_size, choose_transport, unequal
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


def test_facts_that_differ_between_ranks() -> None:
    ranks = [{"gpu": gpu, "driver": "535"} for gpu in ("A100", "V100", "A100")]
    assert unequal(ranks) == {"gpu": {"A100": (0, 2), "V100": (1,)}}
    del ranks[1]["driver"]
    assert unequal(ranks)["driver"] == {"535": (0, 2), "none": (1,)}
    assert unequal(ranks[:1]) == {}


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


#: Rank 1 pretends another GPU and another driver.
MIXED = """
import os
from dataclasses import replace
from tests.builders import config, record
from train.distributed.launch import read_launch
from train.distributed.world import describe_world, start

launch = read_launch(os.environ)
runtime = replace(start(config(gpus=2), launch), gpus=(("V100", "A100")[launch.rank],))
from tensorflow.python.framework.config import is_op_determinism_enabled
own = record(config()).provenance.model_copy(update={"driver": ("535", "525")[launch.rank]})
world, provenance = describe_world(runtime, own)
print(world.device_kind, world.device, provenance.driver, provenance.unequal, sep="; ")
assert is_op_determinism_enabled(), "as the config asks"
"""


@pytest.mark.ranks2
def test_ranks_on_different_gpus_are_in_the_record_of_all(start_ranks, tmp_path: Path) -> None:
    """Seen: the record held rank 0's GPU alone; the same nodes in another order were a change."""
    (program := tmp_path / "mixed.py").write_text(MIXED)
    differing = {"driver": {"535": (0,), "525": (1,)}, "gpu": {"V100": (0,), "A100": (1,)}}
    for out in start_ranks([program], 2):
        assert out.splitlines()[-1] == f"gpu; 1 x A100, 1 x V100; 535; {differing}"
