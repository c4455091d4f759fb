"""The cluster for real: it comes up, behaves like a site, fails on purpose, and leaves nothing.

What tests in tests/jobs/slurm need of it for real is tested there: links that count and can be
slow, PMIx, preemption, lost nodes, jobs killed for their memory, files that one node sees broken.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from locks import SetupError

from containers.practice import cluster as real
from containers.practice import daemons
from containers.practice.place import NODES, Place
from containers.practice.spaces import keepers, marked
from tests.practice import ROOT, Practice, skip_where_it_cannot_run, started
from tests.sweeps import ran

pytestmark = pytest.mark.slurm

#: Beside the usual cluster, so that nobody's jobs there are disturbed.
PLACE = Place(Path("/run/horoscale-tests"))
OTHER = Place(Path("/run/horoscale-tests-2"))


@pytest.fixture(scope="module")
def running() -> Iterator[Practice]:
    yield from started(PLACE)


@pytest.fixture
def healed(running: Practice) -> Iterator[Practice]:
    """The cluster for a test that breaks it."""
    yield running
    running.heal()


def practice_command(*words: str, place: Place, code: int = 0) -> str:
    """What the command says on its way to this exit code."""
    env = os.environ | {"HOROSCALE_PRACTICE": str(place.folder)}
    argv = [sys.executable, ROOT / "containers" / "practice", *words]
    done = ran(argv, env=env, timeout=300, cwd=ROOT)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def srun(practice: Practice, script: str, *options: str) -> list[str]:
    """What each task of a job step said."""
    return practice.out("srun", *options, "bash", "-c", script).splitlines()


def test_four_nodes_with_own_name_address_and_tmp(running: Practice) -> None:
    lines = srun(running, "echo $(hostname) $(hostname -I)", "-N4")
    addresses = dict(line.split()[:2] for line in lines)
    assert sorted(addresses) == list(NODES)
    assert len(set(addresses.values())) == 4
    name = f"mine-{os.getpid()}-{time.time_ns()}"  # a name that nobody on this machine has used
    for file in (f"/tmp/{name}", f"/dev/shm/{name}"):
        running.inside("node1", "touch", file)
        seen = [running.inside(node, "test", "-e", file).returncode == 0 for node in NODES]
        assert seen == [True, False, False, False]
        assert not Path(file).exists()


def test_gpus_are_handed_out_and_never_twice(running: Practice) -> None:
    script = "echo $(hostname) $CUDA_VISIBLE_DEVICES"
    assert len(set(srun(running, script, "-N2", "-n4", "--gpus-per-task=1"))) == 4
    refused = running.run(["srun", "--gres=gpu:3", "hostname"])
    assert refused.returncode and "node configuration is not available" in refused.stderr


def test_keys_and_states_are_closed_to_users(running: Practice) -> None:
    for program, path in (("cat", "munge/private/key"), ("cat", "state/node_state"),
                          ("ls", "munge/private")):  # fmt: skip
        refused = running.run([program, f"{running.place.folder}/{path}"])
        assert "Permission denied" in refused.stderr


def test_a_second_up_says_so(running: Practice) -> None:
    assert "it runs already" in practice_command("up", place=PLACE)


def test_commands_in_a_node_keep_their_exit_code(running: Practice) -> None:
    script = ("sh", "-c", "hostname; exit 7")
    assert "node2\n" in practice_command("exec", "node2", "--", *script, place=PLACE, code=7)


def test_limits_end_and_a_node_that_is_off_has_none(healed: Practice) -> None:
    healed.limit("node1", "50mbit")
    healed.stop_node("node4", power=True)
    with pytest.raises(SetupError, match="node4 does not run"):
        healed.limit("node4", "20mbit")
    healed.limit("node4", "off")
    with pytest.raises(SetupError, match=r"1foo \(expected like 200mbit, or off\)"):
        healed.limit("node1", "1foo")
    healed.limit("all", "off")
    left = healed.inside("node1", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "noqueue" in left and "tbf" not in left


def leftovers(place: Place) -> list[str]:
    """Whatever could be left of a cluster on this machine."""
    left = [f"process {p.pid} keeps {p.space}" for p in marked(place)]
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(place.folder) + b"/" in words:
            left.append(f"process {entry.name}: {words[:200]!r}")
    left += [
        line for line in Path("/proc/mounts").read_text().splitlines() if f"{place.folder} " in line
    ]
    if Path("/sys/class/net", place.login_link).exists():
        left.append(place.login_link)
    if place.folder.exists():
        left.append(str(place.folder))
    return left


@pytest.fixture
def spare() -> Iterator[Place]:
    """A place for a cluster that a test starts and ends itself."""
    skip_where_it_cannot_run()
    yield OTHER
    real.down(OTHER)
    assert not leftovers(OTHER)


def networks() -> set[Path]:
    """The network namespaces of all processes."""
    names = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # no process, or one that ended meanwhile
            names.add((entry / "ns" / "net").readlink())
    return names


def test_down_leaves_nothing_though_jobs_run_and_files_are_gone(spare: Place) -> None:
    practice_command("up", place=spare)
    Practice(spare).out("sbatch", "--output=/dev/null", "-N4", "--wrap=srun sleep 1000")
    assert leftovers(spare)
    network = Path(f"/proc/{keepers(spare)['controller']}/ns/net").readlink()
    assert network in networks()
    spare.state.write_text("not json")
    for file in spare.pids.iterdir():
        file.write_text("1\n")
    practice_command("down", place=spare)
    assert leftovers(spare) == []
    assert network not in networks()
    assert "nothing to end" in practice_command("down", place=spare)


def test_half_a_cluster_is_made_anew(spare: Place) -> None:
    real.up(spare)
    os.kill(keepers(spare)["node2"], 9)
    assert "missing: node2" in practice_command("status", place=spare, code=1)
    message = "half of a cluster found (missing: node2)"
    assert message in practice_command("up", place=spare)
    assert real.health(spare).good


def test_a_cluster_that_cannot_start_leaves_nothing(spare: Place, monkeypatch) -> None:
    wrong = ["slurmd", "--no-such-option"]
    monkeypatch.setattr(daemons, "slurmd_argv", lambda node, cores: wrong)
    with pytest.raises(SetupError, match=r"slurmd --no-such-option failed[\s\S]*slurmctld.log"):
        real.up(spare)
    assert leftovers(spare) == []


def test_files_of_others_are_not_covered(spare: Place) -> None:
    spare.folder.mkdir()
    (spare.folder / "precious").write_text("x")
    with pytest.raises(SetupError, match="holds files that are not this cluster's"):
        real.up(spare)
    assert (spare.folder / "precious").read_text() == "x"
    (spare.folder / "precious").unlink()
