"""The line of a cause, and which lines have one cause."""

from __future__ import annotations

import pytest

from tests.builders import config, record
from train.record.cause import cause_line, pieces
from train.record.run import RunError, RunRecord


def failed(seed: int = 0, what: str = "w", log: tuple[str, ...] = (), *hosts: str) -> RunRecord:
    error = RunError(what=what, where="rank 0", what_to_do="look", log_tail=log)
    made = record(config(seed=seed), status="failed", error=error)
    return made.model_copy(update={"world": made.world.model_copy(update={"hostnames": hosts})})


def cause_of(line: str, of: RunRecord) -> str:
    hosts = of.world.hostnames if of.world else ()
    return "".join(piece for _, piece in pieces(line, of.cell_id, hosts))


@pytest.mark.parametrize(
    ("what", "log", "line"),
    [
        ("a hang", (), "a hang"),
        ("rank 0 ended with exit code 1", ("Traceback", "ImportError: no x", "", "  "),
         "rank 0 ended with exit code 1; its log ends: ImportError: no x"),
        ("ValueError: x", ("...", "ValueError: x"), "ValueError: x"),
        ("ValueError", ("ValueError: x, and why",), "ValueError: x, and why"),
        ("a crash", ("y" * 1000,), f"a crash; its log ends: {'y' * 300}"),
    ],
)  # fmt: skip
def test_the_line_of_a_cause(what: str, log: tuple[str, ...], line: str) -> None:
    assert cause_line(failed(0, what, log).error) == line
    assert cause_line(record().error) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rank 0 was ended by SIGKILL", "rank 13 was ended by SIGKILL"),
        ("connect to alpha:4711 refused", "connect to beta.site:5012 refused"),
        ("read /r/{cell}/logs/rank-0.log", "read /r/{cell}/logs/rank-1.log"),
        ("job 17_2: a node failed (on node[1-2])", "job 18: a node failed (on node[3,5-7])"),
        ("no /r/.submitit/20260102T030405-12/x", "no /r/.submitit/20260203T040506-7/x"),
        ("at 0x7f3a of 3f9a1c07", "at 0x11 of 00ffa1b2"),
        ("2026-01-02 03:04:05.6: nan in epoch 3", "2026-01-03 13:14:15.7: nan in epoch 12"),
        ("1,437 images on gpu07, gpu08", "300 images on gpu11"),
        ("no /data/a-b/x.npz: gone", "no /scratch/y: gone"),
        ("step 3f9a1c of 0b7e1a52-8c1d-4a6b-9f00-aabbccddeeff", "step 00fa1b of "
         "1b7e1a52-8c1d-4a6b-9f00-aabbccddee00"),
        ("it did not start on node alpha: full", "it did not start on node beta: full"),
    ],
)  # fmt: skip
def test_names_and_numbers_do_not_split_a_cause_and_other_words_do(one: str, other: str) -> None:
    first, second = failed(0, "w", (), "alpha"), failed(1, "w", (), "beta.site", "beta-ib")
    line = cause_of(one.format(cell=first.cell_id), first)
    assert line == cause_of(other.format(cell=second.cell_id), second)
    assert line != cause_of(f"{other}, or not", second)
