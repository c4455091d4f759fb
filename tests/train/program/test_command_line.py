"""A program's command line, and its exit code wherever it prints to."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from analysis.__main__ import app as analysis
from jobs.__main__ import app as jobs
from tests.sweeps import ROOT
from train.errors import expanded
from train.program.command_line import place, positive


@pytest.mark.parametrize(
    ("kind", "text"), [(int, "0"), (int, "-1"), (int, "1.5"), (float, "nan"), (float, "inf")]
)
def test_others_are_named_as_what_was_expected(kind, text, capsys) -> None:
    assert positive(kind)("3") == 3
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--n", type=positive(kind))
    with pytest.raises(argparse.ArgumentError, match=f"invalid positive {kind.__name__} value"):
        parser.parse_args([f"--n={text}"])


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: RESULTS='~/r' made a folder with that name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place("~/r") == tmp_path / "r" and place("~root") == expanded("~root") != Path("~root")
    assert place("./~/r") == Path("./~/r") and place("a~b") == Path("a~b")
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--out", type=place)
    assert parser.parse_args(["--out=~/r"]).out == tmp_path / "r"
    with pytest.raises(argparse.ArgumentError, match="no user ~nobody-here is known"):
        parser.parse_args(["--out=~nobody-here/r"])


PATHS = {"jobs": jobs, "analysis": analysis}


@pytest.mark.parametrize("program", PATHS)
def test_every_path_of_a_command_line_is_read_alike(program: str) -> None:
    """One that is forgotten would make a folder named ~ again."""
    read = 0
    for hints in (typing.get_type_hints(c.callback, include_extras=True)
                  for c in PATHS[program].registered_commands):  # fmt: skip
        for hint in hints.values():
            if typing.get_origin(hint) is typing.Annotated and "Path" in str(hint.__origin__):
                (info,) = hint.__metadata__
                assert info.parser is place, hint
                read += 1
    assert read > 5


def shell(main: str, line: str, cwd: Path = ROOT, **variables: str) -> tuple[int, bytes, str]:
    """What a program with this body (which may end with ``return CODE``) does in a line of bash,
    where it is $RUN: its exit code, stdout and stderr."""
    code = "\n    ".join(
        ["from train.program.command_line import run\ndef main():", *main.splitlines()]
    )
    run = shlex.join([sys.executable, "-c", f"import os, sys\n{code}\nrun(main)"])
    own = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        ["bash", "-c", line.replace("$RUN", run)], cwd=cwd, capture_output=True, check=False,
        env=own | {"PYTHONPATH": str(ROOT)} | variables, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "é ± ▏"), ("latin-1", "é ± \\u258f"), ("ascii", None)]
)
def test_a_terminal_that_knows_few_characters(encoding: str, expected: str | None) -> None:
    """Seen: a traceback of 95 lines, and the exit code of an incomplete cell. Names of files stay
    what they are."""
    shown = (expected or r"\xe9 \xb1 \u258f").encode(encoding)
    body = "print('é ± ▏', os.fsdecode(b'\\xff'))\nreturn 1"
    for variables in ({"PYTHONIOENCODING": encoding}, {"PYTHONIOENCODING": f"{encoding}:strict"}):
        assert shell(body, "$RUN", **variables) == (1, shown + b" \xff\n", "")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("$RUN | head -1 >/dev/null; exit ${PIPESTATUS[0]}", 3, ""),
        ("$RUN >/dev/full", 3, "error: cannot print: No space left on device\n"),
        ("$RUN 2>/dev/full", 3, ""),
        ("$RUN >&-", 3, ""),
        ("$RUN >&- 2>&-", 3, ""),
        ("$RUN <&-", 3, ""),
        ("CODE=0 $RUN >/dev/full", 2, "error: cannot print: No space left on device\n"),
    ],
)
def test_the_exit_code_is_of_what_was_found(line: str, code: int, said: str) -> None:
    """It was 1 or 120, a failed cell, where a reader was gone or a disk was full."""
    body = "for number in range(20_000): print(number, 'x' * 80)\nreturn int(os.getenv('CODE', 3))"
    found, _, err = shell(body, line)
    assert (found, err) == (code, said)


def test_a_program_that_it_starts_has_all_three_streams(tmp_path: Path) -> None:
    """Seen: a file got the number of the closed stdout, and what was printed."""
    file = tmp_path / "record"
    code = f"out = open({str(file)!r}, 'w'); import os; os.write(1, b'x'); out.write('whole')"
    body = f"import subprocess\nsubprocess.run([sys.executable, '-c', {code!r}], check=True)"
    assert shell(body, "$RUN >&-")[0] == 0
    assert file.read_text() == "whole"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("raise KeyError('x')", 3, "KeyError: 'x'\nerror: this is a fault of the suite"),
        (f"raise OSError({errno.EIO}, 'Input/output error', '/x')", 2,
         "error: [Errno 5] Input/output error: '/x': have its disk or file server looked at\n"),
        ("sys.exit(7)", 7, ""),
        ("raise KeyboardInterrupt", 130, ""),
        ("sys.exit('why')", 1, "why\n"),
    ],
)  # fmt: skip
def test_how_it_ends(body: str, code: int, words: str) -> None:
    found, _, err = shell(body, "$RUN")
    assert found == code and words in err and (code == 3) == ("Traceback" in err)


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    found = shell("return 0", 'mkdir gone && cd gone && rmdir "$PWD" && $RUN', cwd=tmp_path)
    said = "error: the working folder: No such file or directory: cd to another one\n"
    assert found == (2, b"", said)
