"""The README is true: its links exist, its targets exist, and its commands run as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import picture
from tests.measured import MEASURED, frames_of, headline
from tests.sweeps import ROOT, ran
from train.record.run import read_record

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "README.md"]


def commands(text: str) -> list[str]:
    """Lines of the shell blocks, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    for link in links:
        if not link.startswith("http"):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_paths_of_the_file_map_exist() -> None:
    for path in re.findall(r"^\| `([a-z/]+)` \|", PAGES[0].read_text(), re.MULTILINE):
        assert (ROOT / path).is_dir(), path


def test_paths_of_the_contributors_map_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:jobs|train|analysis|containers|tests)/[\w/.]*)`", text)
    assert len(paths) > 30
    for path in paths:
        assert (ROOT / path).exists(), path


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory) -> dict[str, str]:
    """Results and data of a newcomer, apart from those of this checkout."""
    folder = tmp_path_factory.mktemp("newcomer")
    return os.environ | {
        "RESULTS": str(folder / "results"), "DATA": str(folder / "data"),
        "PYTHON": f"{sys.base_prefix}/bin/python3.11", "SITE": "local",
    }  # fmt: skip


def shell(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return ran(["bash", "-c", command], cwd=ROOT, env=environment, timeout=3000)


def test_it_shows_a_measured_table_and_no_placeholder() -> None:
    text = PAGES[0].read_text()
    assert not re.search(r"^[A-Z_]{5,}$", text, re.MULTILINE)
    shown = re.findall(r"^\| [a-z_]+ \| 0\..*$", text, re.MULTILINE)
    measured = headline(frames_of(MEASURED / "cifar10_techniques")).splitlines()
    assert len(shown) == 5 and set(shown) <= set(measured)
    for _, row in frames_of(MEASURED / "cifar10_tuned")["convergence"].iterrows():
        told = f"{row['validation_accuracy']:.3f} at {row['global_batch']:,}"
        assert told in " ".join(text.split())


def test_the_picture_shows_what_the_code_writes() -> None:
    assert picture.described() == picture.sentences(picture.report(draw=False)), (
        "replace it: python -m tests.picture"
    )


def test_no_command_is_left_untested() -> None:
    tested = {*RUN, *ON_PRACTICE, INTERCONNECT, "make test", "make cluster-down"}
    assert set(commands(PAGES[0].read_text())) == tested
    # make test is what runs this; continuous integration starts there, and ends the cluster
    text = (ROOT / ".ci" / "run").read_text()
    assert "make test" in text
    assert "make cluster-down" in text


#: command -> words that its output must have; in the README's order
RUN = {
    "make sweep": ("all cells: 16 completed", "report/report.html"),
    "make plan SWEEP=cifar10": ("cifar10-resnet_mini-lamb-g8-s2-", "launch lines"),
    "make sweep SWEEP=smoke": ("all cells: 6 completed", "report/report.html"),
    # efficiencies only if no other test has taken a core of these runs
    "make report SWEEP=smoke": ("Throughput against ranks", "report/report.html"),
    ".venv/bin/horovodrun -np 2 .venv/bin/python -m train "
    "results/smoke/digits-cnn-naive-g2-s0-*/config.json --out by-hand": (),
}


#: The same on the practice cluster; make cluster-down would end the other tests' cluster.
ON_PRACTICE = {
    "make cluster": ("use it:",),
    "make image": ("cpu.sif",),
    "make plan SWEEP=smoke SITE=practice": ("#SBATCH --nodes=4", "GPU-hours"),
    "make sweep SWEEP=smoke SITE=practice": ("all cells: 6 completed", "report/report.html"),
    "make status SWEEP=smoke": ("6 of 6 cells done",),
    "python3 containers/practice limit all 200mbit": (),
}
INTERCONNECT = "make interconnect SITE=practice LINE=200mbit"


@pytest.mark.slurm
@pytest.mark.timeout(3600)
def test_commands_of_the_practice_cluster_run_as_written(surroundings, cluster) -> None:
    # nodes have a /tmp of their own
    folder = Path(tempfile.mkdtemp(prefix="readme-", dir="/var/tmp"))
    folder.chmod(0o755)
    told = {"RESULTS": str(folder / "results"), "DATA": str(folder / "data")}
    try:
        for command, words in ON_PRACTICE.items():
            done = shell(command, surroundings | told)
            assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
            for word in words:
                assert word in done.stdout + done.stderr, f"{command}: {word!r} is not there"
        records = [read_record(file) for file in folder.glob("results/smoke/*/record.json")]
        hosts = {host for record in records for host in record.world.hostnames}
        assert hosts == {"node1", "node2", "node3", "node4"}
        assert {record.world.nodes for record in records} == {1, 2, 4}
        for record in (record for record in records if record.world.nodes > 1):
            # a ring all-reduce sends 2 (n-1)/n of the gradient in each step; the small CNN has some
            # 100,000 weights: megabytes, not the kilobytes of control
            sent = [link.sent_bytes for link in record.traffic if link.interface == "eth0"]
            steps = sum(epoch.steps for epoch in record.epochs)
            assert len(sent) == record.world.nodes and min(sent) > steps * 100_000
        done = shell(INTERCONNECT, surroundings | told)
        # what else runs on these cores may keep it from deciding; the links themselves are healthy
        assert ("PASS" in done.stdout) == (done.returncode == 0), done.stdout[-3000:]
        assert "\nFAIL" not in done.stdout and "Traceback" not in done.stderr, done.stdout[-3000:]
        (run,) = folder.glob("results/interconnect/[!.]*/")  # beside .code
        left = {path.name for path in (*run.iterdir(), *run.glob("report/*"))}
        assert left >= {
            "job.json", "collectives.json", "tournament.json", "verdict.json", "report.html",
            "facts-node1-before.json", "facts-node4-after.json", "junit.xml", "pairs.csv",
        }  # fmt: skip
    finally:
        cluster.limit("all", "off")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ranks2
@pytest.mark.slow
@pytest.mark.xdist_group("readme")
@pytest.mark.timeout(3600)  # all of the README's commands, one after another
def test_commands_run_as_written(surroundings, tmp_path) -> None:
    for command, words in RUN.items():
        if "horovodrun" in command:
            continue
        done = shell(command, surroundings)
        assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        for word in words:
            assert word in done.stdout + done.stderr, f"{command}: {word!r} is not in the output"
    by_hand = next(command for command in RUN if "horovodrun" in command)
    # the same words, with this test's folders in place of the checkout's
    here = by_hand.replace("results/", surroundings["RESULTS"] + "/")
    here = here.replace("by-hand", str(tmp_path / "by-hand"))
    done = shell(here, surroundings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert read_record(tmp_path / "by-hand" / "record.json").world.launcher != "horoscale"
    again = shell("make sweep SWEEP=smoke", surroundings)
    assert again.returncode == 0 and "nothing to train" in again.stderr
    assert "report.html" in again.stdout


@pytest.mark.ranks2
@pytest.mark.slow
@pytest.mark.xdist_group("readme")
@pytest.mark.timeout(3600)
def test_commands_of_a_network_of_ones_own_run_as_written(surroundings) -> None:
    """The check, the sweep, the export, and its weights in plain Keras."""
    text = (ROOT / "docs" / "own-network.md").read_text()
    text = text.replace(" results/", f" {surroundings['RESULTS']}/")
    text = text.replace('"results/', f'"{surroundings["RESULTS"]}/')
    python = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [f"{sys.executable} -c '{code}'" for code in python]
    assert (len(commands(text)), len(lines)) == (3, 1)
    for command in commands(text) + lines:
        done = shell(command, surroundings)
        assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    assert [*Path(surroundings["RESULTS"]).glob("own_network/events/*/events.*")]


def test_make_alone_lists_every_public_target() -> None:
    listed = shell("make", dict(os.environ)).stdout
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 8
    for target in targets:
        assert re.search(rf"^  {target} +\S", listed, re.MULTILINE), target


@pytest.mark.parametrize("variables", ["SWEEP=quickstrat", "SITE=mars SWEEP=smoke"])
def test_wrong_requests_are_exit_code_2_with_the_nearest_name(variables, surroundings) -> None:
    environment = {k: v for k, v in surroundings.items() if k != "SITE"}
    done = shell(f"make sweep {variables}", environment)
    assert done.returncode == 2 and "Error 2" in done.stderr
    assert ("quickstart" if "SWEEP=q" in variables else "known: auto, local") in done.stderr
    assert "Traceback" not in done.stderr
