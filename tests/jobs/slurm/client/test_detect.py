"""SITE=: this machine, a cluster that is found, a cluster that does not answer. Recorded clusters
become site files that load, fit the cluster and say why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.config.site import NodeLayout, Site, load_site
from jobs.messages import NoAnswer
from jobs.slurm.client import detect
from jobs.slurm.client.detect import MPI_LIST, find_site, site_for
from jobs.slurm.client.nodes import SINFO
from jobs.slurm.client.run import asker
from jobs.slurm.client.site import check_site
from tests.jobs.slurm.client.clusters import TRANSCRIPTS, Recorded
from tests.jobs.slurm.fakes import FakeSlurm
from tests.sweeps import ROOT
from train.errors import ConfigError

AWAY = TRANSCRIPTS.parent / "away"
GOLDEN = TRANSCRIPTS.parent.parent / "golden"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "asker", lambda conf: asker(conf, patience_s=0))


def test_local_and_a_name_ask_nothing(fake: FakeSlurm, tmp_path: Path) -> None:
    assert site_for("local", tmp_path) is None
    found = site_for("practice")
    assert found is not None and found.site.user == "practice"
    assert fake.calls() == []


def test_auto_without_a_cluster_is_local(fake: FakeSlurm, tmp_path: Path, monkeypatch) -> None:
    """Only Slurm's programs are installed, or not even they."""
    for name in ("sinfo", "scontrol", "srun"):
        fake.put(name, f"cat '{AWAY / 'no_configuration.err'}' >&2; exit 1")
    assert site_for("auto", tmp_path / "sites") is None and len(fake.calls()) == 1
    monkeypatch.setenv("PATH", str(tmp_path))
    assert site_for("auto", tmp_path / "sites") is None and len(fake.calls()) == 1


@pytest.mark.parametrize(
    ("program", "script", "words"),
    [
        *(("sinfo", f"cat '{AWAY / complaint}.err' >&2; exit 1", words) for complaint, words in (
            ("munge_down", "sinfo .*Munge encode failed"),
            ("configless_controller_away", "sinfo .*Unable to contact slurm controller"),
            ("no_name_service", "sinfo .*Host name lookup failure"),
            ("conf_missing", "sinfo .*cannot stat file"),
        )),
        ("srun", "echo 'use sbatch on this cluster' >&2; exit 1", "srun --mpi=list: use sbatch"),
        ("sinfo", None, "sinfo .*Permission denied"),
    ],
)  # fmt: skip
def test_auto_where_slurm_fails_runs_nothing_here(
    fake: FakeSlurm, tmp_path: Path, monkeypatch, program: str, script: str | None, words: str
) -> None:
    """It may be a login node; two of these end with the words of a machine without a cluster."""
    if script is None:
        (fake.folder / program).chmod(0)
        for tool in ("cat", "printf"):
            (fake.folder / tool).symlink_to(f"/usr/bin/{tool}")
        monkeypatch.setenv("PATH", str(fake.folder))  # without the real programs behind
    else:
        fake.put(program, script)
    with pytest.raises(NoAnswer, match=f"(?s){words}.*SITE=local"):
        site_for("auto", tmp_path)


def test_make_sets_up_and_runs_nothing_where_slurm_fails(fake: FakeSlurm, tmp_path: Path) -> None:
    """Horovod must not be compiled on a login node first."""
    fake.put("sinfo", f"cat '{AWAY / 'munge_down'}.err' >&2; exit 1")
    fake.put("python", "exit 0")  # for the set-up
    argv = ["make", "sweep", f"PYTHON={fake.folder / 'python'}", f"PY={sys.executable}"]
    argv.append(f"RESULTS={tmp_path / 'results'}")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "Error 3" in done.stderr  # make's own code, and ours
    assert "Munge encode failed" in done.stderr and "SITE=local" in done.stderr
    _, *setups = fake.calls("python")  # the first call asks for its version
    assert [call[-1] for call in setups] == ["login"]
    assert not (tmp_path / "results").exists()


def test_auto_writes_what_it_found_once(fake: FakeSlurm, tmp_path: Path) -> None:
    """What a person changed in the file stays."""
    sites = tmp_path / "sites"
    sites.mkdir()
    fake.put("srun", f"cat '{TRANSCRIPTS / 'practice_mpi.out'}' >&2")  # as older Slurms do
    found = site_for("auto", sites)
    assert found is not None and found.site.mpi == "pmix"
    (file,) = sites.iterdir()
    assert found.source == file and found.site.ranks_per_node >= 1
    file.write_text(file.read_text().replace("time_min: ", "time_min: 7  # "))
    again = site_for("auto", sites)
    assert again is not None and again.site.time_min == 7


SINFO_TEXT = Recorded("declared")(SINFO)
GPU_DEFAULT = SINFO_TEXT.replace("small*", "small").replace("gpu|up", "gpu*|up")
CPU_DEFAULT = SINFO_TEXT.replace("small*", "small").replace("cpu|up", "cpu*|up")
NO_PMIX = Recorded("declared")(MPI_LIST).replace("pmix", "pmi1")
CLUSTERS = {
    "auto_practice": Recorded("practice"),
    "auto_gpu": Recorded("declared", sinfo=GPU_DEFAULT),
    "auto_cpu": Recorded("declared", sinfo=CPU_DEFAULT, mpi=NO_PMIX),
}


def loaded(ask: Recorded, folder: Path, **more: str) -> Site:
    name, text = find_site(ask, **more)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return load_site(str(path)).site


@pytest.mark.parametrize("name", CLUSTERS)
def test_found_files_are_golden_and_fit_their_cluster(name: str, tmp_path: Path) -> None:
    ask = CLUSTERS[name]
    ask.asked.clear()
    _, text = find_site(ask)
    assert sorted(ask.asked) == ["config", "mpi", "sinfo"], "one question to each program"
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"
    site = loaded(ask, tmp_path)
    check_site(site, [NodeLayout(2, site.ranks_per_node)], ask, minutes=site.time_min)


@pytest.mark.parametrize(
    ("sinfo", "keys"),
    [
        (SINFO_TEXT.replace("small*", "small"), {"partition": "cpu"}),  # the largest open one
        # RealMemory 1: nobody set it
        ("p*|up|1:00:00|1-8|2|idle|64|1|gpu:mi250x:4|(null)\n",
         {"gpu_support": "rocm", "ranks_per_node": 4, "mem_per_rank_gb": None}),
        ("p*|up|1:00:00|1-8|2|idle|64|1|gpu:4|(null)\n",
         {"gpu_support": "nv", "ranks_per_node": 4}),
    ],
)  # fmt: skip
def test_keys_that_follow_from_sinfo(tmp_path: Path, sinfo: str, keys: dict[str, object]) -> None:
    site = loaded(Recorded("declared", sinfo=sinfo), tmp_path)
    assert {key: getattr(site, key) for key in keys} == keys


@pytest.mark.parametrize("name", ["null", "True", "1e3", "a: b", "x#y", "été", "0x1"])
def test_names_that_yaml_would_take_for_something_else(tmp_path: Path, name: str) -> None:
    sinfo = f"{name}*|up|1:00:00|1-8|2|idle|64|1000|(null)|(null)\n"
    ask = Recorded("practice", sinfo=sinfo, config="ClusterName = a/../b c\n")
    site = loaded(ask, tmp_path, slurm_conf="/run/my cluster/slurm.conf")
    assert (tmp_path / "a_b_c.yaml").exists()
    assert (site.partition, site.slurm_conf) == (name, "/run/my cluster/slurm.conf")


def test_no_partition_takes_jobs() -> None:
    sinfo = "p*|down|1:00:00|1-8|2|idle|64|1000|(null)|(null)\n"
    with pytest.raises(ConfigError, match="no partition of this cluster takes jobs now"):
        find_site(Recorded("practice", sinfo=sinfo))
