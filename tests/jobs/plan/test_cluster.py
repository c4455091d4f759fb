"""What a plan for a cluster prints: the arrays, the batch script, the line that starts a cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from jobs.cell.container import Image
from jobs.config.load import load_sweep
from jobs.config.site import load_site
from jobs.plan import cluster as module
from jobs.plan.cluster import plan_cluster
from jobs.slurm.request import SweepRequest
from tests.jobs.slurm.fakes import SBATCH, FakeSlurm, fake_slurm
from tests.sweeps import ROOT

#: A relative folder is that of DATA.
SWEEP = {"dataset": "folder:pets", "model": "cnn", "epochs": 2, "batch_per_rank": 64,
         "technique": "naive", "image_size": 32,
         "matrix": {"gpus": [16, 1], "seeds": 3}}  # fmt: skip


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = fake_slurm(tmp_path_factory.mktemp("bin"))
    monkeypatch.setenv("PATH", slurm.path)
    return slurm


def test_an_array_of_each_shape_is_shown_as_it_would_be_submitted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake: FakeSlurm,
) -> None:
    refusal, fits = SBATCH / "nodes.err", SBATCH / "fits.err"
    fake.put("sbatch", f"""cp "$2" "$HERE/asked-$(grep -c . "$HERE/calls")"
grep -q nodes=2 "$2" && cat '{refusal}' >&2 && exit 1; cat '{fits}' >&2""")  # fmt: skip
    monkeypatch.setattr(module, "find_image", lambda *_: Image("/images/gpu.sif", None))
    monkeypatch.setattr(module, "train_images", lambda *_, **__: {("folder:pets", 32): 3181})
    data = tmp_path / "data"
    (data / "pets").mkdir(parents=True)
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    wanted = load_sweep("two", tmp_path)
    folders = tmp_path / "results", data, tmp_path / "store"
    plan_cluster(SweepRequest(wanted, *folders, load_site("dgx")))
    text = capsys.readouterr().out
    assert "sbatch calls: 2; jobs: 6, one per cell" in text and "GPU-hours: at most " in text
    assert "random order of cells (seed 0) in each array" in text
    parts = text.split("batch script of array ")[1:]
    for number, part, nodes, ranks, cells in zip(
        (1, 2), parts, (2, 1), (8, 1), (wanted.configs[:3], wanted.configs[3:]), strict=True
    ):
        script, told, line = re.split(r"which runs, for (\S+) and each other cell:\n", part)
        assert told in {cell.cell_id() for cell in cells}
        assert part.startswith(f"{number}, {nodes} node")
        options = f"--nodes={nodes}", f"--ntasks-per-node={ranks}", "--dependency=afterok:PREFLIGHT"
        assert all(f"#SBATCH {option}\n" in script for option in options), script
        launch = line.splitlines()[0]
        assert " srun " in launch and " /images/gpu.sif " in launch and told in launch
        assert f" --bind {data} " in launch and f" --bind {data}/" not in launch
    assert "before them the preflight" in text
    answers = text.split("sbatch --test-only answers,")[1].splitlines()[1:]
    assert answers == [
        f"    2 nodes x 8 ranks: {refusal.read_text().strip()}",
        f"    1 node x 1 rank: {fits.read_text().strip()}",
    ]
    for script in fake.folder.glob("asked-*"):
        asked = script.read_text()
        assert "--array=0-2%" in asked and "PREFLIGHT" not in asked, "no job to wait for yet"
    assert [call[:2] for call in fake.calls("sbatch")] == [["sbatch", "--test-only"]] * 2
    assert f"    {data}/pets (the data set, to read)\n" in text
    assert {file.name for file in tmp_path.iterdir()} == {"data", "two.yaml"}, "it leaves nothing"
    fake.forget()
    fake.away("scontrol")
    plan_cluster(SweepRequest(wanted, *folders, load_site("dgx")))
    text = capsys.readouterr().out
    assert "batch script of array 2" in text and "Slurm gives no answer here" in text
    assert not fake.calls("sbatch"), "each would wait for the controller"


def test_what_stands_for_later_values_is_documented() -> None:
    """Before, the plan promised exact batch scripts."""
    text = (ROOT / "docs/cluster.md").read_text()
    names = (module.RUN, module.JOB, module.FIRST.removeprefix("afterok:"))
    assert [name for name in names if f"`{name}`" not in text] == []
