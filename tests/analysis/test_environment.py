"""A report is the same whatever the shell and the dot files of its reader say to other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import _pylab_helpers

from analysis.plots.figure import Canvas, style, to_svg
from tests.analysis.samples import rich_sweep

ROOT = Path(__file__).resolve().parents[2]
RC = """\
text.usetex: True
savefig.bbox: tight
path.sketch: 1, 100, 2
axes.prop_cycle: cycler('color', ['r'])
backend: module://no_such_backend
"""
SHELL = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline", "FORCE_COLOR": "1",
    "TTY_COMPATIBLE": "1", "CLICOLOR_FORCE": "1", "PY_COLORS": "1", "COLUMNS": "20",
    "LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "TMPDIR": "/not/there",
    "NPY_DISABLE_CPU_FEATURES": "", "GITHUB_ACTIONS": "true",
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    """A sweep's folder, and what its report is without all that."""
    folder = rich_sweep(tmp_path_factory.mktemp("plain") / "s")
    made = report(folder, ROOT)
    assert len(made[1]) > 25
    return folder, made


def report(folder: Path, cwd: Path, **variables: str) -> tuple[str, dict[Path, bytes]]:
    """What the program prints, and its files."""
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "report", str(folder)], cwd=cwd, check=False,
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr[-3000:]
    files = (path for path in (folder / "report").rglob("*") if path.is_file())
    return done.stdout, {file.relative_to(folder): file.read_bytes() for file in files}


@pytest.mark.parametrize("place", ["home and shell", "working folder"])
def test_a_report_in_a_hostile_environment_has_the_same_bytes(
    tmp_path: Path, plain: tuple[Path, object], place: str
) -> None:
    folder, expected = plain
    home = tmp_path / ".config" / "matplotlib"
    home.mkdir(parents=True)
    for name in (home, tmp_path):  # matplotlib reads that of the working folder first
        (name / "matplotlibrc").write_text(RC)
    hostile = SHELL | {"HOME": str(tmp_path), "MATPLOTLIBRC": str(home)}
    cwd = tmp_path if place == "working folder" else ROOT
    assert report(folder, cwd, **hostile) == expected


@pytest.mark.parametrize(
    "settings",
    [{"text.usetex": True}, {"savefig.bbox": "tight"}, {"path.sketch": (1, 100, 2)},
     {"savefig.transparent": True, "lines.linewidth": 9, "axes.labelsize": 20, "figure.dpi": 300}],
)  # fmt: skip
def test_a_figure_starts_from_matplotlibs_own_settings(settings: dict[str, object]) -> None:
    """Those of a file in the working folder or of a notebook, which stay as they were."""

    def drawn() -> str:
        with style():
            canvas = Canvas(figsize=(3, 2))
            axes = canvas.subplots()
            axes.plot([1, 2], [1, 4])
            axes.set_xlabel("ranks")
            return to_svg(canvas)

    plain = drawn()
    with mpl.rc_context(settings):
        before = dict(mpl.rcParams)
        assert drawn() == plain
        assert dict(mpl.rcParams) == before
    assert not _pylab_helpers.Gcf.figs, "no figure is left open in pyplot"
