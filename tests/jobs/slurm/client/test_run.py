"""Slurm's programs run in a clean environment, and no answer is told apart from an answer."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from contextlib import nullcontext

import pytest

from jobs.messages import seconds_of
from jobs.slurm.client.run import SlurmError, asker, run
from tests.jobs.slurm.client.clusters import SAID
from tests.jobs.slurm.fakes import AWAY, FakeSlurm


def test_a_program_sees_its_words_and_the_clean_environment(fake: FakeSlurm, monkeypatch) -> None:
    fake.put("squeue", 'printf "%s\\n" "$#" "$2" "$SLURM_CONF" "$LC_ALL" "${SQUEUE_FORMAT-unset}"')
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CONF", "/x y.conf")
    odd = "a b; $(touch x) 'q'\n"
    answer = run(["squeue", "-h", odd])
    assert answer.out == f"2\n{odd}\n/x y.conf\nC\nunset\n"


def test_a_good_answer_may_hold_any_bytes_and_complaints(fake: FakeSlurm) -> None:
    fake.put("squeue", r"printf 'caf\351'; echo 'socket timed out' >&2")
    assert run(["squeue"]).out.encode("utf-8", "surrogateescape") == b"caf\xe9"


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    "file", ["controller_stopped", "controller_down", "scancel_controller_down",
             "sbatch_controller_down", "sacct_database_down"],
)  # fmt: skip
def test_no_controller_is_no_answer(fake: FakeSlurm, file: str, code: int) -> None:
    fake.put("squeue", f"cat '{SAID / file}.err' >&2; exit {code}")
    words = " ".join((SAID / f"{file}.err").read_text().split())
    with pytest.raises(SlurmError, match=f"^squeue -h: {re.escape(words)}$") as caught:
        run(["squeue", "-h"])
    assert caught.value.passing
    assert len(fake.calls("squeue")) == 1, "without patience it is not asked again"


def test_a_refusal_is_an_answer_and_not_asked_again(fake: FakeSlurm) -> None:
    words = "slurm_load_jobs error: Invalid job id specified"
    fake.put("squeue", f"echo '{words}' >&2; exit 1")
    answer = run(["squeue"], patience_s=3600)
    assert (answer.code, answer.words) == (1, words)
    with pytest.raises(SlurmError, match=words) as caught:
        asker()(["squeue"])
    assert not caught.value.passing and len(fake.calls("squeue")) == 2


@pytest.mark.parametrize(
    ("line", "away"),
    [
        ("scancel: error: Unable to contact slurm controller (connect failure)", True),  # 24.05
        ("Job can not be altered now, try again later for job 7_5", True),
        ("7_5: Job can not be altered now, try again later", True),
        ("sinfo: error: _fetch_child: failed to fetch remote configs: Connection refused", True),
        ("slurm_update error: Resource temporarily unavailable", True),
        ("slurm_update error: Access/permission denied", False),
        # a tracer that finds its server away: scancel was taken for a controller that is away
        ("tracer: error: Connection refused", False),
        ("scancel: error: your ticket: connection refused, try again later", False),
        ("Connection refused", False),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_only_slurms_own_texts_are_a_controller_that_is_away(
    fake: FakeSlurm, line: str, away: bool, code: int
) -> None:
    fake.put("scancel", f"echo '{line}' >&2; exit {code}")
    with pytest.raises(SlurmError, match="scancel 7") if away else nullcontext():
        assert run(["scancel", "7"]).code == code


def test_a_refusal_is_all_that_was_printed(fake: FakeSlurm) -> None:
    fake.put("scontrol", "echo 'ERROR: ld.so: ignored.' >&2; echo 'not from this node'; exit 1")
    with pytest.raises(SlurmError, match=r"ld\.so: ignored\. not from this node"):
        asker()(["scontrol", "show", "config"])


def test_messages_are_no_answer_but_for_srun(fake: FakeSlurm) -> None:
    """Seen with LD_PRELOAD: what the loader complains of was read as sinfo's answer."""
    for name in ("sinfo", "srun"):
        fake.put(name, "echo 'ERROR: ld.so: ignored.' >&2; echo 'pmix' >&2")
    assert asker()(["sinfo"]) == "" and "pmix" in asker()(["srun", "--mpi=list"]).split()


def test_a_program_that_is_not_here_or_does_not_end(fake: FakeSlurm) -> None:
    with pytest.raises(SlurmError, match="started here: no such program on PATH") as caught:
        run(["horoscale-no-such-program"], patience_s=3600)
    assert not caught.value.passing
    fake.put("squeue", "exec sleep 30")
    with pytest.raises(SlurmError, match=r"squeue: no answer within 0\.3 s") as caught:
        run(["squeue"], timeout_s=0.3)
    assert caught.value.passing
    # by itself, and under a site's wrapper, whose shell ends with 128 and the signal's number
    for killed in ("kill -KILL $$", "sh -c 'kill -KILL $$'; exit $?"):
        fake.put("squeue", killed)
        with pytest.raises(SlurmError, match=r"squeue: a signal ended it .*Killed") as caught:
            run(["squeue"])
        assert caught.value.passing


def test_what_a_wrapper_started_ends_with_it(fake: FakeSlurm) -> None:
    """An sbatch that is given up must not submit later, nor a squeue stay for each look."""
    fake.put("sbatch", '(trap "" TERM; sleep 0.7; touch "$HERE/submitted") & wait')
    with pytest.raises(SlurmError, match="no answer within"):
        run(["sbatch"], timeout_s=0.3)
    time.sleep(1)
    assert not (fake.folder / "submitted").exists()


def test_a_program_that_cannot_be_ended_is_not_waited_for(
    fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper that became root by sudo: a look at the queue lasted as long as its hanging."""

    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    fake.put("squeue", "exec sleep 4")
    began = time.monotonic()
    with pytest.raises(SlurmError, match="no answer within"):
        run(["squeue"], timeout_s=0.3)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(("number", "passing"), [(errno.EAGAIN, True), (errno.ENOEXEC, False)])
def test_a_login_node_without_room_for_a_process_has_room_later(
    monkeypatch: pytest.MonkeyPatch, number: int, passing: bool
) -> None:
    """A limit on processes or memory: one make sweep took sbatch for missing, and gave up."""
    full = OSError(number, os.strerror(number))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: (_ for _ in ()).throw(full))
    with pytest.raises(SlurmError, match="cannot be started here") as caught:
        run(["squeue"])
    assert caught.value.passing == passing


def test_asked_again_until_the_controller_is_back(fake: FakeSlurm, monkeypatch) -> None:
    fake.put("squeue", 'echo x >> "$HERE/n"; [ $(wc -l < "$HERE/n") -ge 3 ] && echo jobs && exit; '
             f"echo '{AWAY}' >&2; exit 1")  # fmt: skip
    monkeypatch.setattr("jobs.slurm.client.run._PAUSES_S", (0.01, 0.02))
    assert run(["squeue"], patience_s=60).out == "jobs\n"
    assert len(fake.calls("squeue")) == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00", 0), ("1:05", 65), ("2:03:04", 7384), ("1-02:03:04", 93784), ("90", 5400),
     ("90:00", 5400), ("2-0", 172800), ("1-12:30", 131400), ("UNLIMITED", None), ("", None)],
)  # fmt: skip
def test_slurms_times(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
