"""SITE=auto: recorded clusters become site files that load, fit the cluster and say why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.config.site import Site, load_site
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.client.detect import FoundSite, find_site
from jobs.slurm.client.site import MPI_LIST, SINFO, check_site
from tests.jobs.slurm.client.clusters import Recorded
from train.errors import ConfigError

GOLDEN = Path(__file__).parent.parent / "golden"
SINFO_TEXT = Recorded("declared")(SINFO)
GPU_DEFAULT = SINFO_TEXT.replace("small*", "small").replace("gpu|up", "gpu*|up")
CPU_DEFAULT = SINFO_TEXT.replace("small*", "small").replace("cpu|up", "cpu*|up")
NO_PMIX = Recorded("declared")(MPI_LIST).replace("pmix", "pmi1")
CLUSTERS = {
    "auto_practice": Recorded("practice"),
    "auto_gpu": Recorded("declared", sinfo=GPU_DEFAULT),
    "auto_cpu": Recorded("declared", sinfo=CPU_DEFAULT, mpi=NO_PMIX),
}


def loaded(found: FoundSite, folder: Path) -> Site:
    path = folder / f"{found.name}.yaml"
    path.write_text(found.text)
    return load_site(str(path)).site


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_files_are_word_for_word_what_they_were(name: str) -> None:
    text = find_site(CLUSTERS[name]).text
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"


@pytest.mark.parametrize("name", CLUSTERS)
def test_what_is_found_loads_and_fits_the_cluster_that_it_was_found_on(
    name: str, tmp_path: Path
) -> None:
    site = loaded(find_site(CLUSTERS[name]), tmp_path)
    assert check_site(site, [NodeLayout(2, site.ranks_per_node)], CLUSTERS[name]) is not None


def test_one_question_to_each_program() -> None:
    ask = Recorded("practice")
    find_site(ask)
    assert sorted(ask.asked) == ["config", "mpi", "sinfo"]


def test_the_practice_cluster(tmp_path: Path) -> None:
    found = find_site(Recorded("practice"))
    site = loaded(found, tmp_path)
    assert found.name == "practice"
    assert (site.partition, site.ranks_per_node, site.gpus) == ("practice", 2, "gres")
    assert (site.cpus_per_rank, site.array_limit, site.mpi) == (1, 1001, "pmix")
    assert found.summary == (
        "partition practice: 4 nodes, 2 GPUs pretend and 2 CPUs each; ranks meet by PMIx",
    )


def test_a_cluster_with_gpus_of_two_types(tmp_path: Path) -> None:
    site = loaded(find_site(CLUSTERS["auto_gpu"]), tmp_path)
    assert (site.partition, site.ranks_per_node, site.gpu_type) == ("gpu", 8, "a100")
    assert (site.image, site.gpu_support, site.max_nodes) == ("gpu", "nv", 8)
    assert (site.time_min, site.cpus_per_rank) == (240, 14)


def test_a_cluster_whose_default_partition_has_no_gpus(tmp_path: Path) -> None:
    found = find_site(CLUSTERS["auto_cpu"])
    site = loaded(found, tmp_path)
    assert (site.partition, site.gpus, site.image, site.mpi) == ("cpu", "none", "cpu", "gloo")
    assert (site.ranks_per_node, site.cpus_per_rank) == (4, 8)
    assert "GPUs in partition small, gpu" in found.summary[1]
    assert "# GPUs are in partition: small, gpu" in found.text


def test_without_a_default_the_largest_open_partition(tmp_path: Path) -> None:
    sinfo = SINFO_TEXT.replace("small*", "small")
    assert loaded(find_site(Recorded("declared", sinfo=sinfo)), tmp_path).partition == "cpu"


@pytest.mark.parametrize(("gpu", "support"), [("mi250x", "rocm"), ("h100", "nv"), ("", "nv")])
def test_support_follows_the_type_of_the_gpus(tmp_path: Path, gpu: str, support: str) -> None:
    gres = f"gpu:{gpu}:4" if gpu else "gpu:4"
    sinfo = f"p*|up|1:00:00|1-8|2|idle|64|1|{gres}|(null)\n"
    site = loaded(find_site(Recorded("practice", sinfo=sinfo)), tmp_path)
    assert (site.gpu_support, site.ranks_per_node) == (support, 4)
    assert site.mem_per_rank_gb is None  # RealMemory 1: nobody set it


@pytest.mark.parametrize("name", ["null", "true", "1e3", "a: b", "x#y", "été", "0x1"])
def test_names_that_yaml_would_take_for_something_else(tmp_path: Path, name: str) -> None:
    sinfo = f"{name}*|up|1:00:00|1-8|2|idle|64|1000|(null)|(null)\n"
    ask = Recorded("practice", sinfo=sinfo, config="ClusterName = a/../b c\n")
    found = find_site(ask)
    assert found.name == "a_b_c"
    assert loaded(found, tmp_path).partition == name


def test_a_configuration_elsewhere_is_kept(tmp_path: Path) -> None:
    found = find_site(Recorded("practice"), slurm_conf="/run/my cluster/slurm.conf")
    assert loaded(found, tmp_path).slurm_conf == "/run/my cluster/slurm.conf"


def test_no_partition_takes_jobs() -> None:
    sinfo = "p*|down|1:00:00|1-8|2|idle|64|1000|(null)|(null)\n"
    with pytest.raises(ConfigError, match="no partition of this cluster takes jobs now"):
        find_site(Recorded("practice", sinfo=sinfo))
