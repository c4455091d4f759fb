"""Which of the command line, the site file and the user's variables counts, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.precedence import decide
from jobs.config.site import NamedSite, Site
from train.errors import ConfigError

FILE = Path("/sites/a.yaml")


def site(**keys: object) -> NamedSite:
    return NamedSite("a", Site.model_validate({"ranks_per_node": 2, **keys}), FILE)


@pytest.mark.parametrize("program", ["SBATCH", "SLURM"])
@pytest.mark.parametrize(
    "key", ["account", "partition", "qos", "reservation", "constraint", "wckey", "cluster"]
)
def test_the_user_s_variables_count_where_the_file_says_nothing(program: str, key: str) -> None:
    variable = f"{program}_{key.upper()}" + ("S" if key == "cluster" else "")
    found, remarks = decide({variable: "b"}, site(), {})
    assert getattr(found.site, key) == "b"
    assert remarks == [f"{variable}=b is used: site file a.yaml has no {key}:"]
    found, remarks = decide({variable: "b"}, site(**{key: "a"}), {})
    assert getattr(found.site, key) == "a"
    assert remarks == [f"{variable}=b is ignored: {key}: a of site file a.yaml comes first"]
    assert decide({variable: "a"}, site(**{key: "a"}), {})[1] == [], "they agree"
    assert decide({variable: ""}, site(), {}) == (site(), [])
    found, remarks = decide({variable: "b"}, site(**{key: None}), {})
    assert getattr(found.site, key) is None
    assert remarks == [f"{variable}=b is ignored: {key}: null of site file a.yaml comes first"]


@pytest.mark.parametrize("conf", ["/etc/other/slurm.conf", "/run/b/slurm.conf"])
def test_another_configuration_than_the_file_s_is_named(conf: str) -> None:
    """Seen: jobs went to the cluster of the file, and the shell named another one."""
    found, remarks = decide({"SLURM_CONF": conf}, site(slurm_conf="/a"), {})
    assert found.site.slurm_conf == "/a"
    assert remarks == [
        f"SLURM_CONF={conf} is ignored: slurm_conf: /a of site file a.yaml comes first"
    ]
    # nothing that jobs would export: nodes may have their configuration elsewhere
    assert decide({"SLURM_CONF": conf}, site(), {}) == (site(), [])


@pytest.mark.parametrize("key", ["account", "partition", "qos"])
def test_the_command_line_wins(key: str) -> None:
    name = key.upper()
    found, remarks = decide({f"SBATCH_{name}": "b"}, site(**{key: "a"}), {key: "c"})
    assert getattr(found.site, key) == "c"
    kept = "; its ranks_per_node, gpus and image count" if key == "partition" else ""
    assert remarks == [
        f"{key}: a of site file a.yaml is ignored: {name}=c comes first{kept}",
        f"SBATCH_{name}=b is ignored: {name}=c comes first",
    ]
    found, remarks = decide({}, site(**{key: "a"}), {key: "a"})
    assert (getattr(found.site, key), remarks) == ("a", [])


def test_times_are_slurm_s() -> None:
    found, remarks = decide({"SBATCH_TIMELIMIT": "1-00:00:00"}, site(time_min=1440), {})
    assert (found.site.time_min, remarks) == (1440, [])
    found, remarks = decide({"SBATCH_TIMELIMIT": "soon"}, site(), {"time_min": "1:30:00"})
    assert found.site.time_min == 90
    assert remarks[0].startswith("SBATCH_TIMELIMIT is ignored: SBATCH_TIMELIMIT=soon: expected a ")
    for text in ("%E real", "0", "infinite", "-5", "1:2:3:4"):
        with pytest.raises(ConfigError, match=r"TIME=.*: expected a time in Slurm's form"):
            decide({}, site(), {"time_min": text})
    with pytest.raises(ConfigError, match="TIME=1: signal_s 90: a job has 60 s"):
        decide({}, site(signal_s=90), {"time_min": "1"})
    for environment, options in (({}, {"time_min": "1"}), ({"SBATCH_TIMELIMIT": "0:30"}, {})):
        found, _ = decide(environment, site(), options)
        assert (found.site.time_min, found.site.signal_s) == (1, 30), "what is not written follows"


@pytest.mark.parametrize(
    ("environment", "used", "remarks"),
    [
        # what sbatch itself would read comes first
        ({"SLURM_ACCOUNT": "c", "SBATCH_ACCOUNT": "b"}, {"account": "b"},
         ["SLURM_ACCOUNT=c is ignored: SBATCH_ACCOUNT=b comes first"]),
        ({"SLURM_QOS": "b", "SBATCH_QOS": "b"}, {"qos": "b"}, []),
        # a partition for interactive work is none for batch jobs
        ({"SALLOC_PARTITION": "interactive"}, {}, []),
        # each is led to where the site file takes it
        ({"SBATCH_GRES": "gpu:1", "SBATCH_EXPORT": "NONE", "SBATCH_MEM_PER_CPU": ""}, {},
         ["SBATCH_EXPORT is ignored: --export is what this program sets by itself; see the key "
          "'environment'", "SBATCH_GRES is ignored: --gres belongs to the key 'gpus' of the site "
          "file"]),
        ({"SBATCH_MEM_PER_NODE": "1", "SBATCH_ARRAY_INX": "1-3", "SBATCH_HINT": "nomultithread"},
         {}, ["SBATCH_ARRAY_INX is ignored: --array is what this program sets by itself",
              "SBATCH_HINT is ignored: --hint belongs into the site file (sbatch: {hint: ...})",
              "SBATCH_MEM_PER_NODE is ignored: --mem belongs to the key 'mem_per_rank_gb' of the "
              "site file"]),
        ({"SBATCH_ACCOUNT": " ", "SLURM_ACCOUNT": " b ", "SBATCH_QOS": "\t"}, {"account": "b"}, []),
        # of the allocation in which the command runs
        ({"SLURM_JOB_ACCOUNT": "x", "SLURM_JOB_PARTITION": "y", "SLURM_JOB_ID": "7"}, {}, []),
    ],
)  # fmt: skip
def test_which_variables_are_read(environment, used, remarks) -> None:
    found, said = decide(environment, site(), {})
    assert {key: getattr(found.site, key) for key in used} == used
    assert found.site.model_fields_set == {"ranks_per_node", *used}
    assert [one for one in said if "is used" not in one] == remarks


def test_a_value_that_no_site_file_may_have() -> None:
    with pytest.raises(ConfigError, match=r"(?s)SBATCH_ACCOUNT=a.*expected a single line of text"):
        decide({"SBATCH_ACCOUNT": "a\n#SBATCH --uid=0"}, site(), {})
