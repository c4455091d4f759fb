"""The cluster for real: it comes up, behaves like a site, fails on purpose, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from containers.practice import cluster as real
from containers.practice import daemons
from containers.practice.place import NODES, Place, PracticeError
from containers.practice.spaces import keepers, marked
from tests.practice import ROOT, Practice, skip_where_it_cannot_run, started
from tests.sweeps import wait_until

pytestmark = pytest.mark.slurm

#: Beside the usual cluster, so that nobody's jobs there are disturbed.
PLACE = Place(Path("/run/horoscale-tests"))
OTHER = Place(Path("/run/horoscale-tests-2"))


@pytest.fixture(scope="module")
def own() -> Iterator[Practice]:
    yield from started(PLACE)


@pytest.fixture
def healed(own: Practice) -> Iterator[Practice]:
    """The cluster for a test that breaks it."""
    yield own
    own.heal()


def practice_command(*words: str, place: Place, code: int = 0, **variables: str) -> str:
    """What the command says on its way to this exit code."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "containers" / "practice"), *words],
        env=os.environ | {"HOROSCALE_PRACTICE": str(place.folder)} | variables,
        capture_output=True, text=True, check=False, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def srun(practice: Practice, script: str, *options: str) -> list[str]:
    """What each task of a job step said."""
    return practice.out("srun", *options, "bash", "-c", script).splitlines()


def test_four_nodes_with_own_name_address_and_tmp(own: Practice) -> None:
    said = srun(own, "echo $(hostname) $(hostname -I)", "-N4")
    seen = dict(line.split()[:2] for line in said)
    assert sorted(seen) == list(NODES)
    assert len(set(seen.values())) == 4
    for file in ("/tmp/mine", "/dev/shm/mine"):
        own.inside("node1", "touch", file)
        found = [own.inside(node, "test", "-e", file).returncode == 0 for node in NODES]
        assert found == [True, False, False, False]
        assert not Path(file).exists()


def received(own: Practice, node: str) -> tuple[int, int]:
    """Bytes that a node's eth0 received, as /proc and as /sys tell it."""
    table = own.inside(node, "grep", "eth0", "/proc/net/dev").stdout
    file = own.inside(node, "cat", "/sys/class/net/eth0/statistics/rx_bytes").stdout
    return int(table.split(":")[1].split()[0]), int(file)


def test_nodes_reach_each_other_over_their_links_which_count(own: Practice) -> None:
    assert "mtu 1500" in own.inside("node1", "ip", "-o", "link", "show", "eth0").stdout
    before = received(own, "node4")
    serve = (
        "import socket\n"
        "connection, _ = socket.create_server(('node4', 7777)).accept()\n"
        "while connection.recv(1 << 16): pass\n"
    )
    send = (
        "import socket, time\n"
        "for _ in range(600):\n"
        "  try: link = socket.create_connection(('node4', 7777)); break\n"
        "  except ConnectionRefusedError: time.sleep(.1)\n"
        "link.sendall(bytes(10_000_000))\n"
    )
    with subprocess.Popen(real.inside_argv(own.place, "node4", ["python3", "-c", serve])) as server:
        assert own.inside("node1", "python3", "-c", send).returncode == 0
        assert server.wait(120) == 0
    after = received(own, "node4")
    for source in (0, 1):
        assert 10_000_000 < after[source] - before[source] < 12_000_000


def test_gpus_are_handed_out_and_never_twice(own: Practice) -> None:
    script = "echo $(hostname) $CUDA_VISIBLE_DEVICES"
    assert len(set(srun(own, script, "-N2", "-n4", "--gpus-per-task=1"))) == 4
    refused = own.run(["srun", "--gres=gpu:3", "hostname"])
    assert refused.returncode and "node configuration is not available" in refused.stderr


def test_ranks_find_each_other_by_pmix(own: Practice) -> None:
    ranks = srun(own, "echo $PMIX_RANK", "--mpi=pmix", "-N4", "-n8")
    assert sorted(map(int, ranks)) == list(range(8))


def test_keys_and_states_are_closed_to_users(own: Practice) -> None:
    for program, path in (("cat", "munge/private/key"), ("cat", "state/node_state"),
                          ("ls", "munge/private")):  # fmt: skip
        assert "Permission denied" in own.run([program, f"{own.place.folder}/{path}"]).stderr


def test_a_script_runs_and_what_uses_too_much_memory_is_killed(
    own: Practice, shared_folder: Path
) -> None:
    eat = "import time; x = []\nfor i in range(40): x.append(bytearray(50 << 20)); time.sleep(.2)"
    (shared_folder / "eat.py").write_text(eat)
    script = f"srun --mem=300 python3 {shared_folder}/eat.py; echo code $?"
    number = own.sbatch(shared_folder, script, "--mem=300", "-N1")
    own.wait_for(number, "COMPLETED", "FAILED", "OUT_OF_MEMORY", "CANCELLED")
    said = (shared_folder / f"{number}.out").read_text()
    assert "exceeded memory limit" in said and "code 137" in said


def test_an_urgent_job_warns_and_requeues_another_which_starts_again(
    own: Practice, shared_folder: Path
) -> None:
    script = (
        "trap 'echo warned' USR2\n"
        'echo start ${SLURM_RESTART_COUNT:-0}; [ "$SLURM_RESTART_COUNT" ] && exit 0\n'
        "for i in $(seq 90); do sleep 1; done"
    )
    options = ("-N4", "--exclusive", "--requeue", "--signal=B:USR2@60", "--time=5")
    number = own.sbatch(shared_folder, script, *options)
    out = shared_folder / f"{number}.out"
    wait_until(lambda: out.exists() and "start 0" in out.read_text(), "the script")
    # -n8: Slurm 22.05 does not always preempt for nodes alone
    urgent = ("-N4", "-n8", "--exclusive", "--partition=urgent")
    own.wait_for(own.sbatch(shared_folder, "hostname", *urgent), "COMPLETED")
    job = own.wait_for(number, "COMPLETED")
    # Slurm 24.05 and later start it once more when it has ended by itself (job/requeue.py)
    assert job["Restarts"] in ("1", "2")
    said = out.read_text()
    assert said.index("start 0") < said.index("warned") < said.index("start 1")


@pytest.mark.parametrize("power", [False, True])
def test_a_lost_node_fails_its_job_and_comes_back(
    healed: Practice, shared_folder: Path, power: bool
) -> None:
    number = healed.sbatch(shared_folder, "srun sleep 300", "-N4", "--no-requeue")
    healed.wait_for(number, "RUNNING")
    time.sleep(1)
    with ThreadPoolExecutor(1) as aside:  # a busy machine may stop it for longer than MinJobAge
        failed = aside.submit(healed.wait_for, number, "NODE_FAIL")
        healed.stop_node("node3", power=power)
        assert ("node3" in keepers(PLACE)) is not power
        failed.result()
    healed.start_node("node3")
    real.wait_until_idle(PLACE)
    assert sorted(srun(healed, "hostname", "-N4")) == list(NODES)


def test_jobs_outlive_the_controller_and_submission_without_it_fails(
    healed: Practice, shared_folder: Path
) -> None:
    number = healed.sbatch(shared_folder, "srun sh -c 'echo on; sleep 8'; echo end $?", "-N2")
    healed.wait_for(number, "RUNNING")
    out = shared_folder / f"{number}.out"  # a step cannot start without the controller
    wait_until(lambda: out.exists() and "on" in out.read_text(), "the step", 60)
    healed.stop_controller()
    refused = healed.run(["sbatch", "--wrap=hostname"])
    assert "Unable to contact slurm controller" in refused.stderr
    assert "slurmctld" in real.health(PLACE).missing
    healed.start_controller()
    healed.wait_for(number, "COMPLETED")
    assert "end 0" in out.read_text()


def test_without_accounting_sacct_says_so(own: Practice) -> None:
    assert "accounting storage is disabled" in own.run(["sacct"]).stderr


def test_a_second_up_says_so_and_other_accounting_is_refused(own: Practice) -> None:
    assert "it runs already" in practice_command("up", place=PLACE)
    refused = practice_command("up", place=PLACE, code=2, ACCOUNTING="1")
    assert "runs without accounting" in refused


def test_commands_in_a_node_keep_their_exit_code(own: Practice) -> None:
    script = ("sh", "-c", "hostname; exit 7")
    assert "node2\n" in practice_command("exec", "node2", "--", *script, place=PLACE, code=7)


def test_a_fault_of_one_nodes_files_is_not_seen_by_others(
    healed: Practice, shared_folder: Path
) -> None:
    image = shared_folder / "image"
    image.write_text("good")
    (shared_folder / "broken").write_text("")
    healed.inside("node2", "mount", "--bind", str(shared_folder / "broken"), str(image))
    said = srun(healed, f"echo $(hostname) $(cat {image})", "-N2", "-w", "node[1-2]")
    assert sorted(said) == ["node1 good", "node2"]
    assert healed.inside("node2", "umount", str(image)).returncode == 0


def test_slow_links(healed: Practice) -> None:
    def shown(space: str, *words: str) -> str:
        return healed.inside(space, "tc", *words).stdout

    on_node1 = ("show", "dev", "eth0")
    try:
        healed.limit("node1", "50mbit")
        assert "rate 50Mbit" in shown("node1", "qdisc", *on_node1)
        assert "rate 50Mbit" in shown("controller", "qdisc", "show")
        healed.limit("node1", "20mbit", to="node2")
        assert "20Mbit" in shown("node1", "class", *on_node1)
        healed.stop_node("node4", power=True)
        with pytest.raises(PracticeError, match="node4 is off"):
            healed.limit("node4", "20mbit")
        healed.limit("node4", "off")
        with pytest.raises(PracticeError, match="expected one node, another one as its target"):
            healed.limit("node1", "20mbit", to="node1")
    finally:
        healed.limit("all", "off")
    left = shown("node1", "qdisc", *on_node1)
    assert "noqueue" in left and "tbf" not in left


def leftovers(place: Place) -> list[str]:
    """Whatever could be left of a cluster on this machine."""
    found = [f"process {p.pid} keeps {p.space}" for p in marked(place)]
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(place.folder) + b"/" in words:
            found.append(f"process {entry.name}: {words[:200]!r}")
    found += [
        line for line in Path("/proc/mounts").read_text().splitlines() if f"{place.folder} " in line
    ]
    if Path("/sys/class/net", place.login_link).exists():
        found.append(place.login_link)
    if place.folder.exists():
        found.append(str(place.folder))
    return found


@pytest.fixture
def spare() -> Iterator[Place]:
    """A place for a cluster that a test starts and ends itself."""
    skip_where_it_cannot_run()
    yield OTHER
    real.down(OTHER)
    assert not leftovers(OTHER)


def networks() -> set[Path]:
    """The network namespaces of all processes."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # no process, or one that ended meanwhile
            found.add((entry / "ns" / "net").readlink())
    return found


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
    said = practice_command("up", place=spare)
    assert "half of a cluster found (missing: node2)" in said
    assert real.health(spare).good


def test_a_cluster_that_cannot_start_leaves_nothing(spare: Place, monkeypatch) -> None:
    wrong = ["slurmd", "--no-such-option"]
    monkeypatch.setattr(daemons, "slurmd_argv", lambda node, cores: wrong)
    with pytest.raises(PracticeError, match=r"slurmd --no-such-option failed[\s\S]*slurmctld.log"):
        real.up(spare)
    assert leftovers(spare) == []


def test_files_of_others_are_not_covered(spare: Place) -> None:
    spare.folder.mkdir()
    (spare.folder / "precious").write_text("x")
    with pytest.raises(PracticeError, match="holds files that are not this cluster's"):
        real.up(spare)
    assert (spare.folder / "precious").read_text() == "x"
    (spare.folder / "precious").unlink()


def test_with_accounting_sacct_tells_how_jobs_ended(spare: Place) -> None:
    skip_where_it_cannot_run(accounting=True)
    real.up(spare, accounting=True)
    site = Practice(spare)
    number = site.out("sbatch", "--parsable", "--output=/dev/null", "--wrap=exit 3").strip()
    site.wait_for(number, "FAILED")
    command = ("sacct", "-n", "-X", "-P", "-j", number, "-o", "State,ExitCode")
    wait_until(lambda: site.out(*command) == "FAILED|3:0\n", "sacct's FAILED|3:0", 120)
