"""Slurm's programs are asked in a clean environment, and no answer is told from an answer.

The programs here are fakes on PATH: small scripts that print what a real one printed (transcripts).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jobs.slurm.client.run import SlurmError, clean_environment, run

SAID = Path(__file__).parent.parent / "transcripts" / "queue"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a fake program of Slurm's first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, script: str) -> None:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    return put


def test_stray_options_and_an_earlier_allocation_are_left_behind() -> None:
    environment = {
        "PATH": "/bin", "HOME": "/home/me", "SLURM_CONF": "/etc/a.conf", "SLURM_CLUSTERS": "big",
        "SBATCH_PARTITION": "debug", "SBATCH_EXPORT": "NONE", "SQUEUE_FORMAT": "%i",
        "SACCT_FORMAT": "jobid", "SINFO_FORMAT": "%P", "SRUN_CPUS_PER_TASK": "4",
        "SLURM_TIME_FORMAT": "relative", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1",
        "SLURM_NTASKS": "4", "SLURM_MEM_PER_NODE": "100", "SLURM_CPU_BIND": "none",
        "SLURM_ARRAY_TASK_ID": "3", "SCANCEL_VERBOSE": "1",
    }  # fmt: skip
    assert clean_environment(environment) == {
        "PATH": "/bin", "HOME": "/home/me", "SLURM_CONF": "/etc/a.conf", "SLURM_CLUSTERS": "big",
        "LC_ALL": "C",
    }  # fmt: skip


def test_outside_an_allocation_a_sites_own_variables_stay() -> None:
    environment = {"SLURM_ROOT": "/opt/slurm", "SLURM_JOBID_OF_SOMETHING": "1"}
    assert clean_environment(environment) == {"SLURM_ROOT": "/opt/slurm", "LC_ALL": "C"}


def test_the_sites_configuration_wins() -> None:
    found = clean_environment({"SLURM_CONF": "/etc/a.conf", "LC_ALL": "de_DE"}, "/run/b.conf")
    assert found == {"SLURM_CONF": "/run/b.conf", "LC_ALL": "C"}


def test_a_program_sees_its_tokens_and_the_clean_environment(fake, monkeypatch) -> None:
    fake("squeue", 'printf "%s\\n" "$#" "$2" "$SLURM_CONF" "$LC_ALL" "${SQUEUE_FORMAT-unset}"')
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    odd = "a b; $(touch x) 'q'\n"
    answer = run(["squeue", "-h", odd], slurm_conf="/x y.conf")
    assert answer.out == f"2\n{odd}\n/x y.conf\nC\nunset\n"


def test_names_that_are_no_utf8_are_kept(fake) -> None:
    fake("squeue", r"printf 'caf\351'")
    assert run(["squeue"]).out.encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_a_refusal_is_an_answer(fake) -> None:
    text = (SAID / "scontrol_unknown_job.err").read_text()
    fake("scontrol", f"echo '{text.strip()}' >&2; exit 1")
    answer = run(["scontrol", "show", "job", "99999"])
    assert (answer.code, answer.words) == (1, "slurm_load_jobs error: Invalid job id specified")


@pytest.mark.parametrize(
    ("file", "code"),
    [("controller_stopped", 1), ("controller_down", 1), ("scancel_controller_down", 8),
     ("sbatch_controller_down", 1), ("sacct_database_down", 1)],
)  # fmt: skip
def test_no_controller_is_no_answer(fake, file: str, code: int) -> None:
    text = (SAID / f"{file}.err").read_text()
    fake("squeue", f"cat '{SAID / file}.err' >&2; exit {code}")
    with pytest.raises(SlurmError) as caught:
        run(["squeue", "-h"])
    assert caught.value.passing and " ".join(text.split()) in str(caught.value)
    assert str(caught.value).startswith("squeue -h: ")


def test_a_program_that_is_not_here_is_not_waited_for() -> None:
    with pytest.raises(SlurmError, match="cannot be started here: No such file") as caught:
        run(["horoscale-no-such-program"], patience_s=3600)
    assert not caught.value.passing


@pytest.mark.parametrize(
    "script",
    ["echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1",
     "echo 'Munge encode failed; connection refused' >&2; exit 127"],
)  # fmt: skip
def test_trouble_that_waiting_does_not_end(fake, script: str) -> None:
    """Said by squeue on a machine with Slurm's programs and no configuration; a shell's 127."""
    fake("squeue", script)
    with pytest.raises(SlurmError) as caught:
        run(["squeue"], patience_s=3600)
    assert not caught.value.passing


def test_the_same_words_in_a_good_answer_are_no_trouble(fake) -> None:
    fake("squeue", "echo 'socket timed out'; echo 'munge' >&2")
    assert run(["squeue"]).code == 0


def test_a_program_that_does_not_end(fake) -> None:
    fake("squeue", "exec sleep 30")
    with pytest.raises(SlurmError, match=r"squeue: no answer within 0\.3 s") as caught:
        run(["squeue"], timeout_s=0.3)
    assert caught.value.passing


def test_asked_again_until_the_controller_is_back(fake, tmp_path: Path) -> None:
    count = tmp_path / "count"
    fake("squeue", f"echo x >> '{count}'; [ $(wc -l < '{count}') -ge 3 ] && echo jobs && exit 0; "
         "echo 'Unable to contact slurm controller' >&2; exit 1")  # fmt: skip
    waits: list[float] = []
    assert run(["squeue"], patience_s=60, pause=waits.append).out == "jobs\n"
    assert waits == [0.5, 1.0]


def test_patience_ends(fake, tmp_path: Path) -> None:
    count = tmp_path / "count"
    fake("squeue", f"echo x >> '{count}'; echo 'Socket timed out' >&2; exit 1")
    with pytest.raises(SlurmError, match="Socket timed out"):
        run(["squeue"])
    assert count.read_text() == "x\n"
