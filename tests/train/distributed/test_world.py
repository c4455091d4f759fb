"""Whether ranks share cores, and that no rank trains in a world that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jobs.cell.launch import core_groups
from tests.sweeps import ROOT
from train.distributed.launch import Launch, read_launch
from train.distributed.world import EXCHANGE_S, check_size, choose_transport, share_cores
from train.environment import environment_of
from train.errors import ConfigError, WorldError


@pytest.mark.parametrize(
    ("hosts", "cores", "shared"),
    [
        (("a", "a"), ((0,), (1,)), False),
        (("a", "b"), ((0,), (0,)), False),
        (("a", "a"), ((0, 1), (1, 2)), True),
        (("a", "a"), ((0,), (0,)), True),
        (("a",), ((0, 1),), False),
    ],
)
def test_cores_are_compared_per_machine(hosts, cores, shared) -> None:
    assert share_cores(hosts, cores) is shared


@pytest.mark.parametrize(("ranks", "cores", "shared"), [(2, 2, False), (4, 2, True), (2, 1, True)])
def test_more_ranks_than_cores_are_marked(ranks, cores, shared) -> None:
    assert share_cores(("host",) * ranks, core_groups(ranks, 1, range(cores))) is shared


def step(size: int, **changes: object) -> Launch:
    values = {"rendezvous": None, "supervisor": None, "cores": None, "remote": True} | changes
    return Launch("srun", 0, size, 0, size, **values)


def test_a_dropped_environment_is_named_as_the_likely_cause() -> None:
    with pytest.raises(WorldError) as told:
        check_size(4, 1, read_launch({}, supervised=True))
    for word in ("world of 1 rank ", "expected 4", "--cleanenv", "--containall", "PMIX_"):
        assert word in str(told.value)


def test_pmix_that_made_a_world_of_one_of_each_is_named_too() -> None:
    with pytest.raises(WorldError, match="--cleanenv"):
        check_size(4, 1, step(4))


def test_another_wrong_size_is_told_plainly() -> None:
    with pytest.raises(WorldError, match=r"found a world of 2 ranks .*horovodrun -np 4") as told:
        check_size(4, 2, step(2))
    assert "--cleanenv" not in str(told.value)
    with pytest.raises(WorldError) as told:
        check_size(2, 1, read_launch({}))
    assert "--cleanenv" not in str(told.value)
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


@pytest.mark.tf
@pytest.mark.parametrize("wanted", [True, False])
def test_operations_are_deterministic_where_the_config_says_so(wanted: bool) -> None:
    script = f"""
import os
from tests.builders import config
from train.distributed.launch import read_launch
from train.distributed.world import start

start(config(gpus=1, deterministic={wanted}), read_launch(os.environ))
from tensorflow.python.framework.config import is_op_determinism_enabled
print(is_op_determinism_enabled())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment_of("ranks", os.environ),
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == str(wanted)
