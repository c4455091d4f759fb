"""The table of cells and its lines: whole in a pipe, fitted to a terminal."""

from __future__ import annotations

import re
import shlex
from unittest.mock import patch

from jobs.messages import columns
from jobs.plan.rows import Rate, rate_key
from jobs.plan.rows import plan_rows
from jobs.plan.text import plan_lines
from tests.jobs.plan.test_rows import IMAGES, config


def test_columns_are_aligned_below_heads_of_several_lines() -> None:
    assert columns(("a", "of\nb", "c"), [("left", "1", ""), ("l", "22", "x")], left=1) == [
        "      of",
        "a      b  c",
        "left   1",
        "l     22  x",
    ]


def test_in_a_pipe_nothing_is_cut_and_launch_lines_can_be_pasted() -> None:
    runs = [config(), config(seed=1, technique={"name": "a_technique_with_a_name_as_long_as_this"})]
    tokens = ["python", "-m", "train", "/a folder/[bold]/" + "x" * 200, "--data", "d'ata"]
    lines = plan_lines(plan_rows(runs, IMAGES, {}), {run.cell_id(): tokens for run in runs[::-1]})
    rows = [line.split() for line in lines]
    assert rows[0] == ["cell", "gpus", "batch", "steps/epoch", "epochs", "steps", "peak", "lr",
                       "time"]  # fmt: skip
    assert rows[1] == [runs[0].cell_id(), "2", "128", "11", "5", "55", "0.1", "?"]
    assert rows[2][0] == runs[1].cell_id()
    assert lines[5:9] == [
        f"  {runs[0].cell_id()}:", f"    {shlex.join(tokens)}",
        f"  {runs[1].cell_id()}:", f"    {shlex.join(tokens)}",
    ]  # fmt: skip


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    runs = [config(technique={"name": name}) for name in ("naive", "lr_scaling_warmup")]
    rows = plan_rows(runs, IMAGES, {})
    with patch("sys.stdout.isatty", return_value=True):
        with patch.dict("os.environ", COLUMNS="200"):
            wide = "\n".join(plan_lines(rows, {}))
        with patch.dict("os.environ", COLUMNS="80"):
            narrow = plan_lines(rows, {})
    assert all(run.cell_id() in wide for run in runs)
    assert max(len(line) for line in narrow) <= 80
    for run in runs:  # what all ids begin with is left out, the rest is whole
        assert any(f"..{run.cell_id().removeprefix('digits-cnn-')} " in line for line in narrow)
    assert "launch lines" not in wide


def test_finished_cells_are_shown_as_done() -> None:
    runs = [config(seed=0), config(seed=1)]
    rates = {rate_key(runs[0]): Rate(images_per_s=704.0, fixed_s=5.0, eval_s=1.0, cells=2)}
    text = "\n".join(plan_lines(plan_rows(runs, IMAGES, rates), {}, {runs[0].cell_id()}))
    assert re.search(rf"{runs[0].cell_id()} .*done", text)
    assert re.search(rf"{runs[1].cell_id()} .*~0:20", text)


def test_what_ids_do_not_say_has_a_column_where_it_differs() -> None:
    runs = [config(technique={"name": "naive", "bn_momentum": m, "normalisation": "batch_norm"},
                   framework=f) for m in (0.9, 0.99) for f in ("horovod", "mirrored")]  # fmt: skip
    rows = plan_rows([*runs, config(technique={"name": "other"})], IMAGES, {})
    head, *lines = plan_lines(rows, {})
    assert head.split()[:4] == ["cell", "framework", "bn_momentum", "gpus"]
    assert [line.split()[1:3] for line in lines[:5]] == [
        ["horovod", "0.9"], ["mirrored", "0.9"], ["horovod", "0.99"], ["mirrored", "0.99"],
        ["horovod", "0.9"],
    ]  # fmt: skip
