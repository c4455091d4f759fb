"""The preflight's own job, with an srun that starts no rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cell.needs import Need
from jobs.config.site import Site
from jobs.slurm.job.preflight import run_preflight
from jobs.slurm.job.task import PreflightTask, read_preflight
from tests.jobs.slurm.fakes import FakeSlurm


def test_ranks_that_do_not_start_hold_the_sweep(
    fake: FakeSlurm, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fatal = f"echo 'FATAL:   no such image' > {tmp_path}/rank-1.log"
    fake.put(
        "srun", f"{fatal}; echo 'srun: error: n2: task 1: Exited with exit code 255' >&2; exit 1"
    )
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    needs = (Need(what="the results", path="/results", use="write"),
             Need(what="the data set", path="/a b"))  # fmt: skip
    task = PreflightTask(
        folder=str(tmp_path), key="k", site=Site(ranks_per_node=1), nodes=2, ranks_per_node=1,
        image="/i.sif", root="/code", needs=needs,
    )  # fmt: skip
    with pytest.raises(SystemExit, match="1"):
        run_preflight(task.model_dump(mode="json"))
    report = read_preflight(tmp_path)
    assert report is not None and (report.job, report.nodes) == ("7", ())
    assert "[preflight] n2: container: found no such image" in capsys.readouterr().out
    (line,) = fake.calls("srun")
    at = line.index("/i.sif")
    assert line[at - 6 : at] == [
        word for path in ("/code", "/results", "/a b") for word in ("--bind", path)
    ]
    assert {"--mpi=pmix", "--ntasks=2", "--kill-on-bad-exit=0"} <= set(line[:at])
    assert line[-8:] == [
        "--need", "the results", "write", "/results", "--need", "the data set", "read", "/a b",
    ]  # fmt: skip
