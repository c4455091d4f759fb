"""Variables of make: what comes from the environment is used, and named once."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.sweeps import ROOT, ran

#: Named in texts, and no variables of ours.
SHELL = {"PYTHONPATH", "USER", "LOGNAME", "NAME"}


def make(*words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """What make would run, in a shell that no other make has started."""
    shell = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C"}
    done = ran(["make", "-n", *words], cwd=ROOT, env=shell | environment, timeout=60)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"SITE": "mars"}, ["SITE=mars"]),
        ({"NODES": "3", "DATA": "/a b", "IMAGE": "cpu"}, ["NODES=3", "DATA=/a b", "IMAGE=cpu"]),
        ({"ACCOUNT": "b", "RUN": "", "EDITOR": "vi"}, ["ACCOUNT=b"]),
        ({"RESULTS": "x'; touch /tmp/y; \"`z`"}, ["RESULTS=x'; touch /tmp/y; \"`z`"]),
        # the format of GNU time
        ({"TIME": "%E real"}, []),
        ({"TIME": "90"}, ["TIME=90"]),
        # a make that calls this one, as `make test` does, passes on its own
        ({"SITE": "mars", "MAKELEVEL": "1"}, []),
    ],
)  # fmt: skip
def test_what_comes_from_the_environment_is_named(environment, named) -> None:
    done = make("plan", **environment)
    said = [line for line in done.stderr.splitlines() if "comes from the environment" in line]
    assert sorted(said) == sorted(f"make: {one} comes from the environment" for one in named)


def test_the_command_line_s_own_and_a_list_of_targets_name_nothing() -> None:
    assert make("plan", "SITE=mars", "TIME=90", SITE="venus").stderr == ""
    assert make("help", HOME="/x").stderr == ""


@pytest.mark.parametrize("target", ["plan", "sweep", "preflight", "interconnect"])
def test_what_a_job_asks_for_reaches_the_program(target: str) -> None:
    line = make(target).stdout
    for option in ("account", "partition", "qos", "time"):
        name = option.upper()
        assert f'${{{name}:+--{option} "${name}"}}' in line


@pytest.mark.parametrize("target", ["plan", "sweep"])
def test_variables_of_earlier_versions_reach_the_program_that_refuses_them(target: str) -> None:
    assert '${PACK:+--pack "$PACK"} ${BUDGET:+--budget "$BUDGET"}' in make(target).stdout


def test_a_network_interface_and_the_phases_reach_the_measurement() -> None:
    line = make("interconnect").stdout
    assert '${INTERFACE:+--interface "$INTERFACE"}' in line and '--phases "$PHASES"' in line


def variables_of_make() -> list[str]:
    names = re.search(r"VARIABLES := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text())
    assert names is not None
    return names[1].replace("\\\n", " ").split()


def test_what_messages_and_pages_advise_is_read() -> None:
    """Seen: an advice named INTERFACE=, which make did not hand on."""
    programs = [f for room in ("jobs", "train", "analysis", "containers")
                for f in (ROOT / room).rglob("*.py")]  # fmt: skip
    code = "".join(file.read_text() for file in programs)
    pages = "".join(
        file.read_text() for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    )
    advised = set(re.findall(r"(?<![\w$-])([A-Z]{3,})=(?!=)", code + pages))
    assert {"SWEEP", "MPI"} <= advised
    read = {name for name in advised if f'"{name}"' in code}  # by a program itself
    assert advised - read - SHELL <= set(variables_of_make())


def test_an_empty_variable_is_not_given() -> None:
    """Seen: after `export DATA=` the folder of the shell was taken for the data folder."""
    variables = variables_of_make()
    show = "show: ; $(foreach name,$(VARIABLES),$(info $(name)=$($(name))))"
    plain = make("--eval", show, "show").stdout
    assert f"DATA={ROOT}/.data\n" in plain and "SWEEP=quickstart\n" in plain
    for empty in ("", " "):
        given = dict.fromkeys(variables, empty)
        assert make("--eval", show, "show", **given).stdout == plain
        words = [f"{name}={empty}" for name in variables]
        assert make("--eval", show, "show", *words).stdout == plain


@pytest.mark.parametrize("word", ["FORCE=yes", "WAIT=no", "PREFLIGHT=false", "FORCE=0 1"])
def test_a_yes_or_no_in_other_words_is_refused(word: str) -> None:
    """Seen: PREFLIGHT=false ran the preflight."""
    name, _, value = word.partition("=")
    said = make("sweep", word, code=2).stderr
    assert f"{name}={value} found, expected {name}=1 or {name}=0" in said
