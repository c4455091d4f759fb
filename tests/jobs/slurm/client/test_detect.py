"""SITE=: this machine, a cluster that is found, a cluster that does not answer; what the user's
variables and the command line change."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.__main__ import app
from jobs.config.site import NamedSite, own_sites
from jobs.messages import NoAnswer
from jobs.slurm.client import detect
from jobs.slurm.client.detect import refuse_image, site_for
from jobs.slurm.client.run import asker, run
from tests.jobs.slurm.client.clusters import TRANSCRIPTS
from tests.jobs.slurm.fakes import FakeSlurm
from tests.sweeps import ROOT
from train.errors import ConfigError

AWAY = TRANSCRIPTS.parent / "away"
HOST = os.uname().nodename


@pytest.fixture(autouse=True)
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(detect, "asker", lambda: asker(patience_s=0))
    monkeypatch.setattr(detect, "CONFIGURATIONS", ())  # whatever this machine has
    for name in ("SLURM_CONF_SERVER", "MODULESHOME", "LMOD_CMD"):
        monkeypatch.delenv(name, raising=False)


def found_for(name: str = "auto", **how: Any) -> NamedSite:
    named = site_for(name, **how)
    assert named is not None
    return named


def test_local_and_a_name_ask_nothing(fake: FakeSlurm, capsys) -> None:
    assert site_for("local", options={"account": "b", "qos": ""}) is None
    said = "[sweep] ACCOUNT=b: ignored, since ranks run on this machine\n"
    assert capsys.readouterr().err == f"[sweep] cells run on this machine, {HOST}\n{said}"
    assert found_for("dgx").site.partition == "gpu"
    assert fake.calls() == []


def test_auto_without_a_cluster_is_local(fake, tmp_path: Path, monkeypatch, capsys) -> None:
    """Only Slurm's programs are installed, or not even they."""
    for name in ("sinfo", "scontrol", "srun"):
        fake.put(name, f"cat '{AWAY / 'no_configuration.err'}' >&2; exit 1")
    assert site_for("auto") is None and len(fake.calls()) == 1
    assert f"{HOST}: Slurm's programs are here, but no conf" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert site_for("auto") is None and len(fake.calls()) == 1


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is on PATH, for single programs of Slurm."""
    folder = tmp_path / "some"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return folder


@pytest.mark.parametrize("command", ["sweep", "plan", "preflight", "interconnect"])
@pytest.mark.parametrize(
    ("sign", "words"),
    [
        ("SLURM_CONF", "SLURM_CONF=/opt/slurm.conf found here"),
        ("SLURM_CONF_SERVER", "SLURM_CONF_SERVER=/opt/slurm.conf found here"),
        ("file", "/some/slurm.conf found here"),
        ("srun", "srun found here, .*sbatch, squeue, scontrol; nothing was"),
        ("scontrol", "scontrol found here, .*sbatch, squeue; nothing was"),
    ],
)
def test_signs_of_a_cluster_without_its_programs(
    bare: Path, tmp_path: Path, monkeypatch, command: str, sign: str, words: str
) -> None:
    """Seen: a login node that needs `module load slurm` trained six cells itself."""
    if sign == "file":
        (bare / "slurm.conf").touch()
        monkeypatch.setattr(detect, "CONFIGURATIONS", (str(bare / "slurm.conf"),))
    elif sign.isupper():
        monkeypatch.setenv(sign, "/opt/slurm.conf")
    else:
        (bare / sign).touch()
    argv = [command] if command == "interconnect" else [command, "smoke"]
    done = CliRunner().invoke(app, [*argv, f"--results={tmp_path / 'results'}"])
    assert done.exit_code == 3 and re.search(f"(?s){words}.*SITE=local", done.stderr), done.stderr
    assert not (tmp_path / "results").exists()
    assert site_for("local") is None


def test_an_empty_variable_is_no_sign(bare: Path, monkeypatch) -> None:
    for name in ("SLURM_CONF", "SLURM_CONF_SERVER"):
        monkeypatch.setenv(name, " ")
    assert site_for("auto") is None


def test_programs_that_find_no_configuration_where_there_is_one(fake, monkeypatch) -> None:
    """These words alone decide nothing."""
    fake.put("scontrol", f"cat '{AWAY / 'no_configuration.err'}' >&2; exit 1")
    assert site_for("auto") is None
    monkeypatch.setenv("SLURM_CONF", "/opt/slurm.conf")
    with pytest.raises(NoAnswer, match="SITE=local"):
        site_for("auto")


@pytest.mark.parametrize("variable", ["MODULESHOME", "LMOD_CMD"])
def test_a_module_may_bring_the_configuration(fake, monkeypatch, variable) -> None:
    """Seen: clients from packages are on each login node, and only `module load slurm` sets
    SLURM_CONF: cells ran there. Modules alone, on a machine without Slurm, are no sign."""
    fake.put("scontrol", f"cat '{AWAY / 'no_configuration.err'}' >&2; exit 1")
    monkeypatch.setenv(variable, "/usr/share/modules")
    words = rf"{variable}=/usr/share/modules.*module load slurm.*SITE=local"
    with pytest.raises(NoAnswer, match=words):
        site_for("auto")
    assert site_for("local") is None
    monkeypatch.setenv(variable, " ")
    assert site_for("auto") is None
    monkeypatch.setenv(variable, "/usr/share/modules")
    monkeypatch.setenv("PATH", str(fake.folder / "none"))
    assert site_for("auto") is None


@pytest.mark.parametrize(
    ("how", "variables", "words"),
    [
        ({"options": {"account": "b"}}, {"LMOD_CMD": "/lmod"}, "ACCOUNT=b found here"),
        ({}, {"SBATCH_PARTITION": "gpu"}, "SBATCH_PARTITION=gpu found here"),
        ({"sweep": True}, {}, r"\.slurm found here"),
    ],
)
def test_who_uses_a_cluster_does_not_train_where_slurm_is_not_loaded(
    bare: Path, tmp_path: Path, monkeypatch, how: dict[str, Any], variables, words: str
) -> None:
    """Seen: cells that wait in the queue were trained on the login node."""
    if "sweep" in how:
        how = {"sweep": tmp_path}
        (tmp_path / ".slurm").mkdir()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NoAnswer, match=f"{words}.*SITE=local"):
        site_for("auto", **how)
    assert site_for("local", **how) is None


def test_variables_of_other_programs_are_no_sign(bare: Path, monkeypatch) -> None:
    """make reads ACCOUNT of a cloud's tools."""
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    assert site_for("auto", options={"account": "123456789012"}) is None


@pytest.mark.parametrize("name", ["auto", "dgx", "local"])
def test_the_first_line_is_where_cells_run(fake: FakeSlurm, monkeypatch, capsys, name) -> None:
    """Before what was found, and before what is ignored."""
    monkeypatch.setenv("SBATCH_NODES", "7")
    found = site_for(name, options={"qos": "long"})
    first, *others = capsys.readouterr().err.splitlines()
    where = f"jobs run on the cluster of site file {found.source}" if found else HOST
    assert where in first and others


@pytest.mark.parametrize(
    ("program", "script", "words"),
    [
        *(("sinfo", f"cat '{AWAY / complaint}.err' >&2; exit 1", words) for complaint, words in (
            ("munge_down", "sinfo .*Munge encode failed"),
            ("configless_controller_away", "sinfo .*Unable to contact slurm controller"),
            ("no_name_service", "sinfo .*Host name lookup failure"),
            ("conf_missing", "sinfo .*cannot stat file"),
        )),
        ("sinfo", "echo 'not on login nodes' >&2; exit 1", "not on login nodes.*cpu.yaml"),
        ("srun", "kill $$", "srun --mpi=list: a signal ended it.*try again later"),
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
        site_for("auto")


@pytest.mark.parametrize("forbids", ["echo 'use sbatch on this cluster' >&2; exit 1", None])
def test_a_login_node_without_srun_gets_a_site_file(
    fake: FakeSlurm, monkeypatch, capsys, forbids: str | None
) -> None:
    """Seen: each command ended with 3, and its advice was to try again later. Gloo needs nothing of
    srun; who knows that the nodes have PMIx writes it into the file."""
    if forbids is None:
        (fake.folder / "srun").unlink()
        for tool in ("cat", "printf"):
            (fake.folder / tool).symlink_to(f"/usr/bin/{tool}")
        monkeypatch.setenv("PATH", str(fake.folder))
    else:
        fake.put("srun", forbids)
    found = found_for()
    assert found.site.mpi == "gloo"
    (line,) = (line for line in found.source.read_text().splitlines() if line.startswith("mpi:"))
    assert "srun --mpi=list is refused here" in line and "pmix" in line
    said = capsys.readouterr().err
    assert f"wrote {found.source}: look it over" in said
    assert "no such program" in said if forbids is None else "use sbatch on this cluster" in said


def test_make_sets_up_and_runs_nothing_where_slurm_fails(fake: FakeSlurm, tmp_path: Path) -> None:
    """Horovod must not be compiled on a login node first."""
    fake.put("sinfo", f"cat '{AWAY / 'munge_down'}.err' >&2; exit 1")
    fake.put("python", "exit 0")  # for the set-up
    argv = ["make", "sweep", f"PYTHON={fake.folder / 'python'}", f"PY={sys.executable}"]
    argv.append(f"RESULTS={tmp_path / 'results'}")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "Error 3" in done.stderr  # make's own code, and ours
    assert "Munge encode failed" in done.stderr and "SITE=local" in done.stderr
    # the others ask what kind of Python it is
    setups = [call for call in fake.calls("python") if any("setup.py" in word for word in call)]
    assert [call[-1] for call in setups] == ["login"]
    assert not (tmp_path / "results").exists()


def test_auto_writes_what_it_found_once(fake: FakeSlurm, tmp_path: Path) -> None:
    """What a person changed in the file stays."""
    fake.put("srun", f"cat '{TRANSCRIPTS / 'practice_mpi.out'}' >&2")  # as older Slurms do
    found = found_for()
    (file,) = own_sites().iterdir()
    assert (found.source, found.site.mpi) == (file, "pmix")
    file.write_text(file.read_text().replace("max_nodes: ", "# ") + "poll_s: 7\n")
    assert found_for().site.poll_s == 7


def test_a_file_that_is_there_is_used_whatever_the_partitions_do(fake, tmp_path) -> None:
    """Seen: on a maintenance day no partition was up, and each command was refused."""
    file = own_sites() / "auto-practice.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("ranks_per_node: 3\n")
    fake.put("sinfo", "echo 'practice*|down|1:00:00|1-8|2|idle|64|1000|(null)|(null)'")
    found = found_for()
    assert (found.source, found.site.ranks_per_node) == (file, 3)
    assert fake.calls("sinfo") == []
    # as an earlier version wrote it
    file.write_text("partition: standard-compute# sinfo: the default one\n")
    with pytest.raises(ConfigError, match=r":1: .*Remove it, and SITE=auto writes another"):
        site_for("auto")


def test_what_cannot_be_read_back_is_not_left(fake: FakeSlurm, monkeypatch) -> None:
    monkeypatch.setenv("SBATCH_RESERVATION", "a\x07b")
    with pytest.raises(ConfigError, match=r"(?s)cannot write .*single line of text.*by hand") as e:
        site_for("auto")
    assert not own_sites().exists() and "pydantic" not in str(e.value)


def test_a_job_that_runs_no_cell_takes_no_time_limit(fake, tmp_path: Path, monkeypatch, capsys):
    """Of make preflight and make interconnect: seen, TIME= was dropped without a word, and
    SBATCH_TIMELIMIT was said to be used."""
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\n")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "5")
    found = found_for(str(tmp_path / "s.yaml"), options={"time_min": "7"}, of_cells=False)
    assert found.site.time_min is None
    said = capsys.readouterr().err
    assert said.splitlines()[1].startswith("[sweep] TIME=7: ignored")
    assert "SBATCH_TIMELIMIT" not in said


@pytest.mark.parametrize(
    "option", [{"partition": "urgent"}, {"account": "b"}, {"qos": "long"}, {"time_min": "7"}]
)
def test_what_the_command_line_says_holds_for_that_command_alone(fake, capsys, option) -> None:
    """Seen: one PARTITION=urgent on the first command stood in the file for good."""
    ((key, text),) = option.items()
    for _ in range(2):
        found = found_for(options=option)
        assert str(getattr(found.site, key)) == text
        assert not found.source.exists() and "this command alone" in capsys.readouterr().err
        assert found.file.startswith(f"{found.source} (not saved: the first command without")
        with pytest.raises(ConfigError, match="not saved"):
            refuse_image("cpu", found)
    lasting = found_for()
    assert lasting.file == str(found.source)
    assert lasting.source == found.source and text not in (lasting.site.account, lasting.site.qos)
    assert (lasting.site.partition, lasting.site.time_min) == ("practice", None)


CONFIG = (TRANSCRIPTS / "practice_config.out").read_text()


@pytest.mark.parametrize(
    ("conf", "config"),
    [(None, CONFIG.replace("(10.87.1.1)", "(10.9.9.9)")),
     ("/run/b/slurm.conf", f"{CONFIG}SlurmctldPort = 26817\n")],
    ids=["controller", "port"],
)  # fmt: skip
def test_clusters_of_one_name_have_files_of_their_own(
    fake: FakeSlurm, tmp_path: Path, monkeypatch, conf: str | None, config: str
) -> None:
    """Seen: the second one's jobs went by the file, and so to the first cluster."""
    first = found_for()
    assert first.site.slurm_conf is None
    (tmp_path / "second.out").write_text(config)
    program, recorded = fake.folder / "scontrol", str(TRANSCRIPTS / "practice_config.out")
    program.write_text(program.read_text().replace(recorded, str(tmp_path / "second.out")))
    if conf:
        monkeypatch.setenv("SLURM_CONF", conf)
    second = found_for()
    assert second.source != first.source and second.site.slurm_conf == conf


@pytest.mark.parametrize("conf", ["/a/slurm.conf", None])
def test_a_file_that_an_earlier_version_wrote_is_that_of_its_own_cluster(
    fake: FakeSlurm, monkeypatch, conf: str | None
) -> None:
    file = own_sites() / "auto-practice.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("ranks_per_node: 3\n" + (f"slurm_conf: {conf}\n" if conf else ""))
    for shell in ("/a/slurm.conf", "/b/slurm.conf", "", None):
        monkeypatch.delenv("SLURM_CONF", raising=False)
        if shell is not None:
            monkeypatch.setenv("SLURM_CONF", shell)
        found = found_for()
        assert (found.source == file) == (not (shell and conf) or shell == conf)
        if found.source != file:
            found.source.unlink()


@pytest.mark.parametrize(
    ("variable", "names"),
    [("SLURM_CLUSTERS", "a,b"), ("SBATCH_CLUSTERS", "big,small"), ("SLURM_CLUSTERS", "all")],
)
def test_of_several_clusters_none_is_asked(fake, tmp_path, monkeypatch, variable, names) -> None:
    """sbatch would take any of them, and the job be looked for on another."""
    monkeypatch.setenv(variable, names)
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\n")
    for command in (lambda: site_for("auto"), lambda: site_for(str(tmp_path / "s.yaml")),
                    lambda: run(["squeue"])):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"{names} .*export SLURM_CLUSTERS=NAME"):
            command()
    assert fake.calls() == []
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\ncluster: a\n")
    assert found_for(str(tmp_path / "s.yaml")).site.cluster == "a", "the file names one"


def test_all_programs_ask_the_cluster_of_the_site(fake, tmp_path, monkeypatch) -> None:
    """sbatch alone would obey SBATCH_CLUSTERS, and its job be looked for elsewhere."""
    fake.put("squeue", 'echo "${SLURM_CLUSTERS-none} ${SBATCH_CLUSTERS-none} ${SLURM_CONF-}"')
    monkeypatch.setenv("SBATCH_CLUSTERS", "big")
    monkeypatch.setenv("SLURM_CLUSTERS", "small")
    assert run(["squeue"]).out == "big none \n"
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\ncluster: third\nslurm_conf: /c\n")
    site_for(str(tmp_path / "s.yaml"))
    assert run(["squeue"]).out == "third none /c\n"
    # a null of the file is the file's word
    monkeypatch.setenv("SBATCH_CLUSTERS", "big")
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\ncluster: null\n")
    site_for(str(tmp_path / "s.yaml"))
    assert run(["squeue"]).out == "none none /c\n"
