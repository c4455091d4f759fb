"""How the strategies of tf.distribute are opened: addresses, devices, what stands in their way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import config
from tests.sweeps import ROOT
from tests.train.step.test_train_step import PROGRAMS, alone
from train.distributed.launch import read_launch
from train.errors import ConfigError

pytestmark = pytest.mark.tf

#: A proxy that nobody serves: who asks it for the way waits for ever.
NO_WAY = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
OPENED = """
import json, os
from tests.builders import config, record
from train.distributed.launch import read_launch
from train.distributed.world import start
from train.run.provenance import describe_world

told = config(gpus=GPUS, framework="FRAMEWORK")
runtime = start(told, read_launch(os.environ))
world, _ = describe_world(runtime, record(told).provenance)
print(json.dumps([runtime.strategy.num_replicas_in_sync, runtime.replicas, world.model_dump()]))
"""


def opened(framework: str, gpus: int, cores: str) -> tuple[int, int, dict]:
    script = OPENED.replace("FRAMEWORK", framework).replace("GPUS", str(gpus))
    given = {
        "HOROSCALE_RANK": "0", "HOROSCALE_SIZE": "1", "HOROSCALE_LOCAL_RANK": "0",
        "HOROSCALE_LOCAL_SIZE": "1", "HOROSCALE_CORES": cores,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | given, cwd=ROOT, capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def test_replicas_of_one_process_are_told_as_ranks() -> None:
    core = min(os.sched_getaffinity(0))
    in_sync, local, world = opened("mirrored", 3, str(core))
    assert in_sync == local == world["size"] == 3
    assert world["hostnames"] == [socket.gethostname()] * 3 and world["nodes"] == 1
    assert world["cores_per_rank"] == 1 and world["oversubscribed"] is True
    assert world["interface"] is None and world["data_plane"] == "tf.distribute"


def test_a_single_worker_is_a_world_of_its_own() -> None:
    core = min(os.sched_getaffinity(0))
    in_sync, local, world = opened("multi_worker_mirrored", 1, str(core))
    assert in_sync == local == world["size"] == 1
    assert world["oversubscribed"] is False and world["interface"] is None


def test_nobody_takes_the_port_of_a_worker_before_its_server_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from train.distributed import strategy

    def opened_late(workers: list[str], rank: int) -> None:
        host, port = workers[rank].rsplit(":", 1)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))

    monkeypatch.setattr(strategy, "_multi_worker", opened_late)
    monkeypatch.setattr(strategy, "_addresses", lambda own, size: [own])
    launch, asked = read_launch({}), config(gpus=1, framework="multi_worker_mirrored")
    strategy.open_strategy(asked, launch, 1)
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "ib77")
    with pytest.raises(ConfigError, match="'ib77' is not there"):
        strategy.open_strategy(asked, launch, 1)


@pytest.mark.ranks2
@pytest.mark.slow
def test_workers_do_not_ask_a_web_proxy_for_the_way(
    start_ranks, monkeypatch: pytest.MonkeyPatch, data_root, tmp_path: Path
) -> None:
    for name, value in NO_WAY.items():
        monkeypatch.setenv(name, value)
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    program = tmp_path / "meet.py"
    script = OPENED.replace("FRAMEWORK", "multi_worker_mirrored").replace("GPUS", "2")
    # the first operation that needs the other worker
    program.write_text(
        script + "with runtime.strategy.scope():\n    __import__('tensorflow').Variable(1.)"
    )
    for out in start_ranks([program], 2, timeout_s=240):
        in_sync, local, world = json.loads(out.splitlines()[-1])
        assert (in_sync, local, world["interface"]) == (2, 1, "lo")


def test_evaluation_model_pools_the_statistics_of_the_replicas() -> None:
    """Against the moments of all images together; and what differs between replicas is found."""
    found = alone([PROGRAMS / "evaluation_model.py"])
    assert found["mean"] < 1e-6 and found["variance"] < 1e-5
    assert found["adopted"] == 0 and found["restored"] == 0
    assert "replicas' weights" in found["unequal"]
