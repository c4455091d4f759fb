"""SITE=auto's proposal: recorded clusters become site files that load, fit the cluster and say why.

What the cluster ``reserved`` granted when it was recorded: transcripts/cluster/README.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.config.precedence import settings_of
from jobs.config.site import Site, load_site
from jobs.slurm.client.granted import NODES, User
from jobs.slurm.client.nodes import SINFO
from jobs.slurm.client.propose import MPI_LIST, propose
from jobs.slurm.client.run import SCONTROL, SlurmError, read_config
from tests.jobs.slurm.client.clusters import TRANSCRIPTS, Recorded
from train.errors import ConfigError

GOLDEN = TRANSCRIPTS.parent.parent / "golden"
SINFO_TEXT = Recorded("declared")(SINFO)
GPU_DEFAULT = SINFO_TEXT.replace("small*", "small").replace("gpu|up", "gpu*|up")
CPU_DEFAULT = SINFO_TEXT.replace("small*", "small").replace("cpu|up", "cpu*|up")
NO_PMIX = Recorded("declared")(MPI_LIST).replace("pmix", "pmi1")
CLUSTERS = {
    "auto_practice": Recorded("practice"),
    "auto_gpu": Recorded("declared", sinfo=GPU_DEFAULT),
    "auto_cpu": Recorded("declared", sinfo=CPU_DEFAULT, mpi=NO_PMIX),
}


def text_of(ask: Recorded, *, user: User | None = None) -> str:
    return propose(ask, read_config(ask(SCONTROL)), user or User({}), {})


def loaded(ask: Recorded, folder: Path, *, user: User | None = None) -> Site:
    path = folder / "auto.yaml"
    path.write_text(text_of(ask, user=user))
    return load_site(str(path)).site


@pytest.mark.parametrize("name", CLUSTERS)
def test_found_files_are_golden_and_can_be_read(name: str, tmp_path: Path) -> None:
    ask = CLUSTERS[name]
    ask.asked.clear()
    text = text_of(ask)
    assert sorted(ask.asked) == ["config", "mpi", "nodes", "partitions", "sinfo"], "each once"
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"
    loaded(ask, tmp_path)


CONFIG = "ClusterName = spec\nMaxArraySize = {arrays}\nSelectType = {select}\n{more}"
STAFF = frozenset({"users", "staff"})


def reserved(*, arrays: int = 51, select: str = "select/cons_tres", more: str = "", **other: str):
    return Recorded(
        "reserved", config=CONFIG.format(arrays=arrays, select=select, more=more),
        mpi="MPI plugin types are...\n\tpmix_v4\n\tnone\n", **other,
    )  # fmt: skip


def ada(partition: str = "", groups: frozenset[str] = STAFF, **environment: str) -> User:
    environment |= {"SBATCH_PARTITION": partition} if partition else {}
    return User(environment, "ada", groups)


HIDDEN = "PartitionName=big Hidden=YES\nPartitionName=small Hidden=NO\n"
ACCOUNTED = "AccountingStorageType = accounting_storage/slurmdbd\nAccountingStorageEnforce = "


def group(name: str, count: int, state: str, gres: str = "(null)", *, cpus: int = 64) -> str:
    """Equal nodes of one partition, as a line of sinfo."""
    return f"{name}|up|1:00:00|1-8|{count}|{state}|{cpus}|1|{gres}|(null)\n"


def sinfo(*lines: str) -> Recorded:
    return Recorded("declared", sinfo="".join(lines))


NOBODY = User({})
LARGEST = "standard-compute-nodes-of-all"
RESERVED = Recorded("reserved").file("partitions")
OF_PHYSICS = RESERVED.replace("AllowGroups=staff AllowAccounts=ALL AllowQos=ALL",
                              "AllowGroups=ALL AllowAccounts=physics AllowQos=long")  # fmt: skip
GUESTS, NO_GROUP = ada(groups=frozenset({"guests"})), frozenset[str]()
UNNAMED = SINFO_TEXT.replace("small*", "small")  # no partition is the default one


@pytest.mark.parametrize(
    ("ask", "who", "keys"),
    [
        # it is down for the night, and takes jobs all the same
        (sinfo(group("p*", 2, "idle").replace("|up|", "|down|"), group("q", 9, "idle")), NOBODY,
         {"partition": "p"}),
        (sinfo(group("p*", 2, "idle").replace("|up|", "|drain|"), group("q", 9, "idle")), NOBODY,
         {"partition": "q"}),
        # the largest open one, by nodes that are not down
        (sinfo(UNNAMED.replace("down*", "idle")), NOBODY, {"partition": "cpu"}),
        (sinfo(UNNAMED), NOBODY, {"partition": "small"}),
        # nodes that are down do not make a kind the main one; nor the number of their states
        (sinfo(group("p*", 30, "down*", "gpu:k80:2"), group("p*", 6, "idle", "gpu:v100:4")),
         NOBODY, {"gpu_type": "v100", "ranks_per_node": 4}),
        (sinfo(group("p*", 9, "drained", "gpu:k80:2"), group("p*", 6, "idle", cpus=32)),
         NOBODY, {"ranks_per_node": 4, "gpus": "none"}),
        (sinfo(group("p*", 4, "idle", "gpu:a:2"), group("p*", 4, "mixed", "gpu:a:2"),
               group("p*", 6, "idle", "gpu:b:4")), NOBODY, {"gpu_type": "a"}),
        (sinfo(group("p", 2, "idle"), group("p", 2, "mixed"), group("q", 3, "idle")),
         NOBODY, {"partition": "p"}),
        (sinfo(group("p*", 2, "down", "gpu:4")), NOBODY, {"ranks_per_node": 4}),  # for now
        # RealMemory 1: nobody set it
        (sinfo(group("p*", 2, "idle", "gpu:mi250x:4")), NOBODY,
         {"gpu_support": "rocm", "ranks_per_node": 4, "mem_per_rank_gb": None}),
        (sinfo(group("p*", 2, "idle", "gpu:4")), NOBODY, {"gpu_support": "nv"}),
        (sinfo(group("p*", 2, "idle").replace("1:00:00", "1:00")), NOBODY,
         {"max_time_min": 1, "signal_s": 30}),
        # empty partitions run nothing
        (sinfo(group("none*", 0, "n/a"), group("q", 2, "idle")), NOBODY, {"partition": "q"}),
        # a hidden one is not proposed for its size
        (Recorded("practice", sinfo=group("big", 9, "idle") + group("small", 2, "idle"),
                  partitions=HIDDEN), NOBODY, {"partition": "small"}),
        (Recorded("practice", sinfo=group("big*", 9, "idle") + group("small", 2, "idle"),
                  partitions=HIDDEN), NOBODY, {"partition": "big"}),
        # CoreSpecCount and CPUSpecList: 62 of 64 CPUs
        (reserved(), ada(), {"cpus_per_rank": 15, "ranks_per_node": 4, "gpus": "none",
                             "mpi": "pmix_v4"}),
        # whole GPUs and not 14 parts; 124 of 128 CPUs; MemSpecLimit
        (reserved(), ada("accelerated"),
         {"ranks_per_node": 2, "gpus": "gres", "gpu_type": "a100", "cpus_per_rank": 62,
          "mem_per_rank_gb": 435.8, "max_nodes": 2}),
        # MaxCPUsPerNode, MaxMemPerCPU
        (reserved(), ada("shared"),
         {"ranks_per_node": 2, "cpus_per_rank": 8, "mem_per_rank_gb": 15.6}),
        # OverSubscribe=EXCLUSIVE
        (reserved(), ada("whole"),
         {"exclusive": True, "mem_per_rank_gb": None, "cpus_per_rank": 12}),
        # AllowGroups, RootOnly, AllowAccounts: the largest that is left
        (reserved(), GUESTS, {"partition": "shared", "account": None}),
        (reserved(), ada(groups=NO_GROUP, SBATCH_ACCOUNT="lab"),
         {"partition": "accelerated", "account": "lab"}),
        # said by the user
        (reserved(), ada("admin", SLURM_ACCOUNT="b"), {"partition": "admin", "account": "b"}),
        (reserved(arrays=0), ada(), {"array_limit": 1}),  # no arrays at all
        (reserved(more="SchedulerParameters = bf_continue,max_array_tasks=30\n"), ada(),
         {"array_limit": 30}),
        (reserved(select="select/linear"), ada(), {"exclusive": True, "mem_per_rank_gb": None}),
        # scontrol show partition always prints MaxMemPerNode=UNLIMITED; 90 % of 40 GB for two ranks
        (reserved(more="MaxMemPerNode = 40960\n"), ada("accelerated"), {"mem_per_rank_gb": 18}),
        # without leave to see nodes, sinfo's numbers
        (reserved(nodes="Unknown words\nNodeName=n1 Partitions=accelerated CPUTot=many\n"),
         ada("accelerated"), {"cpus_per_rank": 64}),
        # an account and a QoS that the partition takes
        (reserved(more=f"{ACCOUNTED}none\n", partitions=OF_PHYSICS,
                  accounts="lab|normal|spec|lab|normal\nlab|normal|spec|physics|normal,long\n"),
         ada(), {"partition": LARGEST, "account": "physics", "qos": "long"}),
        # without a default one Slurm takes "normal", which the partition does not
        (reserved(more=f"{ACCOUNTED}none\n", partitions=OF_PHYSICS,
                  accounts="lab||spec|lab|long,normal\nlab||spec|Physics|long,normal\n"),
         ada(), {"partition": LARGEST, "account": "Physics", "qos": "long"}),
    ],
)  # fmt: skip
def test_keys_that_follow_from_what_the_cluster_says(tmp_path: Path, ask, who, keys) -> None:
    site = loaded(ask, tmp_path, user=who)
    assert {key: getattr(site, key) for key in keys} == keys


@pytest.mark.parametrize(
    "name",
    ["null", "True", "1e3", "a: b", "x#y", "été", "0x1", "0123", "2026-01-02", "12:30:00", "no",
     "standard-compute", "a-partition-of-more-than-the-columns-that-comments-leave", "x'y", "- a"],
)  # fmt: skip
def test_names_of_any_length_and_kind_are_read_back(tmp_path: Path, name: str) -> None:
    """Seen: `partition: standard-compute# sinfo: the default one`, after which nothing worked."""
    gpu_type = "nvidia_h100_80gb_hbm3"
    sinfo = f"{name}*|up|1:00:00|1-8|2|idle|64|1000|gpu:{gpu_type}:4,gpu:v100:1|(null)\n"
    user = User({"SBATCH_ACCOUNT": name, "SLURM_CONF": f"/{name}/conf"})
    site = loaded(Recorded("practice", sinfo=sinfo), tmp_path, user=user)
    assert (site.partition, site.account, site.slurm_conf) == (name, name, f"/{name}/conf")
    assert site.gpu_type == gpu_type


@pytest.mark.parametrize(
    ("enforce", "accounts", "key", "words"),
    [
        ("associations,limits", "lab|normal|spec|lab|normal,long\n", "lab", "your default one"),
        ("safe", "lab||other|lab|\nx||spec|y|\n", "x", "your default one"),
        ("none", "lab|normal|spec|lab|normal\n", None, "# account: my_project"),
        ("associations", "a line of another form\n", None, "jobs need one here"),
        ("qos", None, None, "jobs need one here"),
    ],
)
def test_an_account_that_is_required(tmp_path: Path, enforce, accounts, key, words) -> None:
    other = {} if accounts is None else {"accounts": accounts}
    ask = reserved(more=f"{ACCOUNTED}{enforce}\n", **other)
    assert loaded(ask, tmp_path, user=ada()).account == key
    assert words in text_of(ask, user=ada())


def test_nothing_that_takes_this_user_s_jobs_says_why_of_each() -> None:
    lines = RESERVED.splitlines(keepends=True)
    ask = reserved(partitions="".join(line.replace("=ALL", "=lab") for line in lines))
    with pytest.raises(ConfigError, match=r"for groups lab.*SBATCH_ACCOUNT"):
        text_of(ask, user=ada())
    with pytest.raises(ConfigError, match=r"^SBATCH_PARTITION=mars was asked for, and sinfo"):
        text_of(reserved(), user=ada("mars"))


def test_gpus_that_slurm_does_not_count_are_named() -> None:
    assert "# v100: the nodes seem to have GPUs" in text_of(reserved(), user=ada())
    sinfo = "gpu-long*|up|1:00:00|1-8|2|idle|64|1000|(null)|ib\n"
    assert "# gpu: the nodes seem to" in text_of(Recorded("practice", sinfo=sinfo))
    assert "seem to have GPUs" not in text_of(Recorded("practice"))


@pytest.mark.parametrize(
    ("kinds", "parts"),
    [("a100_1g.5gb 1g.10gb H100-1G-12GB 2g10gb mig", True),
     ("nvidia_h100_80gb_hbm3 gb200 rtx_8gb amigo", False)],
)  # fmt: skip
def test_parts_of_gpus_are_known_by_their_names(kinds: str, parts: bool) -> None:
    for kind in kinds.split():
        text = text_of(sinfo(group("p*", 2, "idle", f"gpu:{kind}:7")))
        assert "ranks_per_node: 7" in text
        assert ("NCCL connects no ranks on such parts" in text) == parts, kind


def test_the_command_line_shapes_the_first_file_and_is_not_written(tmp_path: Path) -> None:
    """Seen: `make sweep ACCOUNT=lab` ended with "no partition takes your jobs", and PARTITION=gpu
    wrote a file for the default partition of CPUs."""
    partitions = RESERVED.replace("AllowAccounts=ALL", "DenyAccounts=x")
    partitions = partitions.replace("DenyAccounts=lab", "DenyAccounts=x")
    ask = reserved(partitions=partitions, accounts="x|normal|spec|x|normal\n",
                   more=f"{ACCOUNTED}associations\n")  # fmt: skip
    with pytest.raises(ConfigError, match="ACCOUNT= or PARTITION="):
        text_of(ask, user=ada())
    given = settings_of({"account": "lab", "partition": "accelerated", "qos": ""})
    text = propose(ask, read_config(ask(SCONTROL)), ada(), given)
    (tmp_path / "a.yaml").write_text(text)
    site = load_site(str(tmp_path / "a.yaml")).site
    assert (site.partition, site.ranks_per_node, site.image) == ("accelerated", 2, "gpu")
    assert site.account is None and "lab" not in text
    with pytest.raises(ConfigError, match=r"^PARTITION=mars was asked for, and sinfo lists"):
        propose(ask, {}, ada(), settings_of({"partition": "mars"}))


def test_a_controller_that_goes_away_meanwhile_writes_no_half_file() -> None:
    def ask(argv):
        if argv == NODES:
            raise SlurmError("scontrol", "Unable to contact slurm controller", passing=True)
        return reserved()(argv)

    with pytest.raises(SlurmError):
        propose(ask, {}, ada(), {})
