"""SITE=: this machine, a cluster that is found, a cluster that does not answer; and as whom."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.config.load import load_sweep
from jobs.config.site import load_site
from jobs.messages import NoAnswer
from jobs.slurm import sweep as program
from jobs.slurm.client import detect as handover
from jobs.slurm.client import detect as where
from jobs.slurm.client.detect import become_owner, owner_of, site_for, users_of
from jobs.slurm.request import SweepRequest, enter
from tests.jobs.slurm.fakes import FakeSlurm, fake_slurm
from tests.sweeps import ROOT
from train.errors import ConfigError


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    found = fake_slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(where, "PATIENCE_S", 0)
    return found


def test_local_asks_nothing(fake: FakeSlurm, tmp_path: Path) -> None:
    assert site_for("local", tmp_path) is None
    assert fake.calls() == []


def test_auto_without_slurm_is_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert site_for("auto", tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_auto_with_a_cluster_that_does_not_answer_is_no_answer(
    fake: FakeSlurm, tmp_path: Path
) -> None:
    """Never a silent local run of what was meant for the cluster."""
    for name in ("sinfo", "scontrol"):
        fake.away(name)
    with pytest.raises(NoAnswer, match="Unable to contact slurm controller"):
        site_for("auto", tmp_path)


AWAY = ROOT / "tests" / "jobs" / "slurm" / "transcripts" / "away"


def test_auto_where_only_the_programs_are_installed(
    fake: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sinfo", "scontrol", "srun"):
        fake.put(name, f"cat '{AWAY / 'no_configuration.err'}' >&2; exit 1")
    assert site_for("auto", tmp_path) is None
    assert "no configuration of a cluster: running on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        ("munge_down", "Munge encode failed"),
        ("configless_controller_away", "Unable to contact slurm controller"),
        ("no_name_service", "Host name lookup failure"),
        ("conf_missing", "cannot stat file"),
    ],
)
def test_auto_where_slurm_fails_runs_nothing_here(
    fake: FakeSlurm, tmp_path: Path, complaint: str, words: str
) -> None:
    """It may be a login node; two of these end with the words of a machine without a cluster."""
    fake.put("sinfo", f"cat '{AWAY / complaint}.err' >&2; exit 1")
    with pytest.raises(NoAnswer, match=f"(?s)sinfo .*{words}.*SITE=local"):
        site_for("auto", tmp_path)


@pytest.mark.parametrize("name", ["sinfo", "srun"])
def test_auto_where_a_program_may_not_be_run_runs_nothing_here(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (fake.folder / name).chmod(0)
    for tool in ("cat", "printf"):
        (fake.folder / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(fake.folder))  # without the real programs behind
    with pytest.raises(NoAnswer, match=f"{name} .*Permission denied"):
        site_for("auto", tmp_path)


def test_auto_where_srun_refuses_runs_nothing_here(fake: FakeSlurm, tmp_path: Path) -> None:
    fake.put("srun", "echo 'srun: use sbatch on this cluster' >&2; exit 1")
    with pytest.raises(NoAnswer, match="srun --mpi=list: srun: use sbatch on this cluster"):
        site_for("auto", tmp_path)


@pytest.mark.skipif(shutil.which("srun") is None, reason="Slurm's programs are not here")
def test_real_programs_that_find_a_broken_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/dev/null")
    with pytest.raises(NoAnswer, match="Unable to process configuration file"):
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


def test_auto_writes_what_it_found_once(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person changed in the file stays."""
    sites = tmp_path / "sites"
    sites.mkdir()
    mpi = ROOT / "tests" / "jobs" / "slurm" / "transcripts" / "cluster" / "practice_mpi.out"
    fake.put("srun", f"cat '{mpi}' >&2; cat '{mpi}'")
    found = site_for("auto", sites)
    assert found is not None
    (file,) = sites.iterdir()
    assert found.source == file and found.site.ranks_per_node >= 1
    file.write_text(file.read_text().replace("time_min: ", "time_min: 7  # "))
    again = site_for("auto", sites)
    assert again is not None and again.site.time_min == 7


def test_a_site_by_name_or_not_at_all(fake: FakeSlurm) -> None:
    found = site_for("practice")
    assert found is not None and found.site.user == "practice"
    with pytest.raises(ConfigError, match="unknown site 'practise'"):
        site_for("practise")
    assert fake.calls() == []


class Become(Exception):
    """In place of the new process."""


@dataclass
class Folder:
    """In place of a folder of somebody's."""

    name: str | None

    def exists(self) -> bool:
        return True

    def owner(self) -> str:
        if self.name is None:
            raise KeyError("getpwuid(): uid not found: 4711")
        return self.name


@pytest.mark.parametrize(
    ("owner", "we", "wanted"),
    [("practice", 0, True), ("practice", 1001, False), ("ada", 0, False), ("root", 0, False),
     (None, 0, False)],
)  # fmt: skip
def test_root_asks_as_the_practice_user_only_about_its_sweeps(
    monkeypatch: pytest.MonkeyPatch, owner: str | None, we: int, wanted: bool
) -> None:
    """On a real login node, root looks at anybody's sweep as root."""

    def become() -> None:
        raise Become

    monkeypatch.setattr(where, "become", become)
    monkeypatch.setattr(os, "geteuid", lambda: we)
    if wanted:
        with pytest.raises(Become):
            become_owner(Folder(owner))  # type: ignore[arg-type]
    else:
        become_owner(Folder(owner))  # type: ignore[arg-type]


def test_a_broken_file_of_another_site_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("nonsense: [")
    (tmp_path / "b.yaml").write_text("ranks_per_node: 1\nuser: ada\n")
    assert users_of(tmp_path) == {"ada"}
    assert owner_of(tmp_path) is not None


def wish(tmp_path: Path, user: str) -> SweepRequest:
    (tmp_path / "s.yaml").write_text(f"ranks_per_node: 1\nuser: {user}\n")
    return SweepRequest(load_sweep("quickstart"), tmp_path / "results", tmp_path, tmp_path,
                load_site(str(tmp_path / "s.yaml")))  # fmt: skip


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    def become() -> None:
        raise Become

    monkeypatch.setattr(handover, "become", become)
    monkeypatch.setattr(program, "train_images", lambda *_: {})
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_link_in_the_results_gives_nothing_else_away(root: None, tmp_path: Path) -> None:
    """The results belong to the user, so a link of that user may lead anywhere."""
    asked = wish(tmp_path, "nobody")
    asked.folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    (asked.folder / "link").symlink_to(secret)
    with pytest.raises(Become):
        enter(asked)
    assert asked.folder.owner() == "nobody"
    assert secret.owner() == "root"


def test_a_user_that_does_not_exist_is_a_message(root: None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no user 'nobody-here'"):
        enter(wish(tmp_path, "nobody-here"))


def test_a_site_without_a_user_stays_who_it_is(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\n")
    site = load_site(str(tmp_path / "s.yaml"))
    enter(SweepRequest(load_sweep("quickstart"), tmp_path / "r", tmp_path, tmp_path, site))
    assert not (tmp_path / "r").exists()
