"""Finding Apptainer, and what is said where it can neither be found nor installed."""

from __future__ import annotations

import os

import apptainer
import pytest
from locks import SetupError
from runner import run


def test_apptainer_is_found_before_singularity(program) -> None:
    assert apptainer.find() is None
    singularity = program("singularity")
    assert apptainer.find() == singularity
    both = program("apptainer")
    assert apptainer.find() == apptainer.ensure() == both


@pytest.mark.parametrize(
    ("codename", "uid", "why"),
    [("", 0, "not Debian"), ("bookworm", 1000, "only root can install it")],
)
def test_where_it_cannot_be_installed_the_ways_are_named(
    program, monkeypatch, codename, uid, why
) -> None:
    monkeypatch.setattr(apptainer, "debian_codename", lambda: codename)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    message = f"Neither apptainer nor singularity is on PATH.*{why}.*administrators"
    with pytest.raises(SetupError, match=message):
        apptainer.ensure()


def test_the_message_of_a_failing_command_ends_with_its_output() -> None:
    with pytest.raises(SetupError, match=r"trying failed \(exit code 3\):\nbad news"):
        run(["sh", "-c", "echo bad news >&2; exit 3"], "trying")
    with pytest.raises(SetupError, match=r"trying failed: .*no-such-program"):
        run(["no-such-program"], "trying")


def test_what_is_no_utf_8_is_no_traceback() -> None:
    """A compiler, pip and Apptainer speak in the encoding of the user's locale."""
    with pytest.raises(SetupError, match=r"failed \(exit code 1\):\n.*bersetzung"):
        run(["sh", "-c", r"printf '\334bersetzung' >&2; exit 1"])
