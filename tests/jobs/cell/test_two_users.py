"""Two users of a group go on with each other's sweep: its folder has their group (setgid) and their
umask is 002."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from jobs.cell.lock import only_sweep
from jobs.cell.missing_record import Begun, announce, over, reserve
from jobs.cell.state import archive, lay_out, stand
from jobs.logs import show
from jobs.slurm import submit
from jobs.slurm.script import freeze
from jobs.slurm.submissions import Array, log_name, read_notes
from tests.acting import acting
from tests.builders import config, record
from tests.jobs.slurm.fakes import context
from train.record.lock import hold
from train.record.run import RECORD_NAME, SweepManifest, write_record

GROUP, A, B, STRANGER = 54320, 54321, 54322, 54323
ONE = config(gpus=1)


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a sweep in that of the group."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    monkeypatch.setattr(submit, "_sbatch", lambda *_: ("101", None))
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        results = Path(name, "results")
        results.mkdir()
        os.chown(results, A, GROUP)
        results.chmod(0o2775)
        for part in ("jobs", "train"):  # the checkout may be in a folder of root's
            (Path(name) / "code" / part).mkdir(parents=True)
            (Path(name) / "code" / part / "one.py").write_text("")
        yield results / "trial"


def works_on(sweep: Path, title: str) -> None:
    """All that a sweep does in its folder, from the lay-out of cells to a record."""
    cell = sweep / ONE.cell_id()
    with only_sweep(sweep):
        manifest = SweepManifest(name="trial", title=title, cells=(cell.name,), techniques=())
        lay_out([ONE], sweep, manifest)
        for note in read_notes(sweep):
            log = sweep / ".submitit" / f"{note.run}-0" / log_name("101")
            assert {f"supervisor: {log}", "  | started"} <= set(show(cell, log))
        freeze(sweep.parent.parent / "code", sweep)
        array = Array(cells=(cell.name,), nodes=1, ranks_per_node=1, minutes=9)
        submit.submit_cells(context(sweep), array, [stand(ONE, cell)], None)
        last = max(note.run for note in read_notes(sweep))
        (sweep / ".submitit" / f"{last}-0" / log_name("101")).write_text("started\n")
        with hold(cell) as ours:
            assert ours
            archive(cell)
            (cell / "logs").mkdir(exist_ok=True)
            reserve(cell, 1)
            announce(cell, Begun(number=1, started_at=datetime.now(UTC), pid=1))
            (cell / "logs" / "rank-0.log").write_text(title)
            assert write_record(cell / RECORD_NAME, record(ONE))
            over(cell)


def test_one_goes_on_with_the_sweep_of_the_other(sweep: Path) -> None:
    """Seen: `make logs` of a colleague ended with EACCES, and `make sweep` with a refused chmod."""
    for turn, user in enumerate((A, B, A)):
        assert acting(user, GROUP, partial(works_on, sweep, f"turn {turn}")) == 0
        assert len(list(sweep.glob("*/archive/*"))) == turn
    secrets = [*sweep.glob(".submitit/*/tasks.json"), *sweep.glob(".submitit/*/submission.sh")]
    assert len(secrets) == 6 and not any(file.stat().st_mode & 0o077 for file in secrets)


def test_a_log_that_may_not_be_read_hides_no_other(sweep: Path) -> None:
    """Seen: `make logs` ended with EACCES, since earlier versions closed the folder."""
    assert acting(A, GROUP, partial(works_on, sweep, "mine"), umask=0o022) == 0
    cell, (log,) = sweep / ONE.cell_id(), sweep.glob(f".submitit/*/{log_name('101')}")

    def look() -> None:
        said = list(show(cell, log))
        assert f"supervisor: {log} (cannot be read: Permission denied)" in said
        assert "  | mine" in said

    (sweep / ".submitit").chmod(0o700)
    assert acting(B, GROUP, look) == 0
    (sweep / ".submitit").chmod(0o755)
    log.chmod(0o600)
    assert acting(B, GROUP, look) == 0


def test_with_a_closed_umask_nobody_else_reads(sweep: Path) -> None:
    assert acting(A, GROUP, lambda: works_on(sweep, "mine"), umask=0o077) == 0
    assert {path for path in sweep.rglob("*") if path.stat().st_mode & 0o077} == set()
    assert acting(B, GROUP, lambda: works_on(sweep, "another's")) != 0


def test_others_read_what_the_umask_leaves_open(sweep: Path) -> None:
    assert acting(A, GROUP, lambda: works_on(sweep, "mine"), umask=0o022) == 0
    cell, (log,) = sweep / ONE.cell_id(), sweep.glob(f".submitit/*/{log_name('101')}")
    assert acting(STRANGER, STRANGER, (cell / RECORD_NAME).read_text) == 0
    assert acting(STRANGER, STRANGER, log.read_text) == 0
