"""Ranks on this machine inside an image: launch lines word for word, refusals, a real sweep."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.local.engine import cell_task

from jobs.cell.container import Container
from jobs.cell.image import HEAD_BYTES, MAGIC
from jobs.cell.launch import clean_environment, rank_environment, train_argv
from jobs.local import image as inside
from jobs.local.image import (
    check_gpus,
    container_here,
    gpus_here,
    remark_on_gpus,
    site_here,
    try_out,
)
from jobs.local.supervisor import Machine
from jobs.slurm.client.detect import refuse_image, site_for
from tests.practice import USER, unprivileged
from tests.sweeps import ROOT
from train.errors import ConfigError
from train.record.run import read_record
from train.run.provenance import unused_gpus

GOLDEN = Path(__file__).parent.parent / "golden"
IMAGE = ROOT / "containers" / "images" / "cpu.sif"


@pytest.fixture
def fake_bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but the fakes of a test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def launch_line(image: str, gpus: int) -> str:
    """Of the second of two ranks."""
    root = Path("/home/ada/horoscale")
    site = site_here(image, gpus)
    folders = (str(root), "/r/smoke", "/data", "/data/prepared")
    path = str(root / "containers" / "images" / f"{image}.sif")
    machine = Machine(
        (0, 1), 1, Path("/data"), Path("/data/prepared"), 300, None, 1,
        inside.container_at(site, path, folders), gpus,
    )  # fmt: skip
    task = cell_task(Path("/r/smoke/a-cell"), ((0,), (1,)), machine, resume=True)
    settings = rank_environment(task, 1, attempt=2, supervisor=42, root=root)
    words = ["env", *(f"{name}={value}" for name, value in settings.items())]
    return "\n".join([*words, *train_argv(task, 2)]) + "\n"


@pytest.mark.parametrize(("image", "gpus"), [("cpu", 0), ("gpu", 2)])
def test_launch_lines_are_those_of_slurm_without_srun(
    fake_bin: Path, image: str, gpus: int
) -> None:
    put(fake_bin, "apptainer", "exit 0")
    file, text = GOLDEN / f"local_{image}.txt", launch_line(image, gpus)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with UPDATE_GOLDEN=1"


def test_what_would_hide_the_peers_from_a_rank_is_not_inherited() -> None:
    told = {"APPTAINER_CLEANENV": "1", "SINGULARITY_CONTAINALL": "1", "PYTHONHOME": "/opt"}
    assert clean_environment({**told, "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("name", "gpus", "support"),
    [("cpu", 2, "none"), ("gpu", 0, "nv"), ("/a.sif", 0, "none"), ("/a.sif", 1, "nv")],
)
def test_the_driver_goes_where_the_image_can_use_it(
    fake_bin: Path, name: str, gpus: int, support: str
) -> None:
    put(fake_bin, "singularity", "exit 0")
    site = site_here(name, gpus)
    assert (site.gpu_support, site.runtime) == (support, "singularity")


def test_without_apptainer_the_request_is_refused(fake_bin: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs apptainer .* on PATH"):
        site_here("cpu", 0)


def test_an_image_that_is_not_built_names_its_command(fake_bin: Path, tmp_path: Path) -> None:
    put(fake_bin, "apptainer", "exit 0")
    with pytest.raises(ConfigError, match="make image IMAGE=gpu"):
        container_here("gpu", 0, tmp_path, [])


def test_a_folder_that_apptainer_cannot_bind_is_refused(fake_bin: Path, tmp_path: Path) -> None:
    put(fake_bin, "apptainer", "exit 0")
    (tmp_path / "a.sif").write_bytes(MAGIC.ljust(HEAD_BYTES, b"\0"))
    with pytest.raises(ConfigError, match="the results folder has ','"):
        container_here(
            str(tmp_path / "a.sif"), 0, tmp_path, [(tmp_path / "a,b", "the results folder")]
        )


def test_an_image_that_does_not_start_is_told_before_any_cell(fake_bin: Path) -> None:
    put(fake_bin, "apptainer", "printf '\\033[31mFATAL: no user namespace\\033[0m' >&2; exit 255")
    with pytest.raises(ConfigError, match=r"does not start here: .*\n  FATAL: no user namespace\n"):
        try_out(Container("/a.sif", "apptainer", "none", (), ()))


def test_an_image_for_a_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\n")
    site = site_for(str(tmp_path / "s.yaml"))
    assert site is not None
    refuse_image("", site)
    with pytest.raises(ConfigError, match=r"SITE=local.*image: of .*s\.yaml"):
        refuse_image("cpu", site)


def test_gpus_are_counted_by_the_drivers_folder(fake_bin: Path, tmp_path: Path) -> None:
    """The folder is a fake of the driver's."""
    for name in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / "fake" / name).mkdir(parents=True)
    assert gpus_here({}, tmp_path / "fake") == 2
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "1"}, tmp_path / "fake") == 1
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "0,1,2"}, tmp_path / "fake") == 2
    assert gpus_here({"CUDA_VISIBLE_DEVICES": ""}, tmp_path / "fake") == 0


def test_gpus_are_counted_by_a_fake_nvidia_smi(fake_bin: Path, tmp_path: Path) -> None:
    assert gpus_here({}, tmp_path / "none") == 0
    put(fake_bin, "nvidia-smi", "echo 'GPU 0: Fake (UUID: GPU-1)'; echo '  MIG 1g: Fake'")
    assert gpus_here({}, tmp_path / "none") == 1
    put(fake_bin, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert gpus_here({}, tmp_path / "none") == 0


@pytest.mark.parametrize(("most", "at_once", "said"), [(4, 1, "at most 2"), (2, 2, "JOBS=1")])
def test_a_gpu_is_never_shared(most: int, at_once: int, said: str) -> None:
    driven = Container("/g.sif", "apptainer", "nv", (), ())
    check_gpus(driven, 2, 2, 1)
    check_gpus(driven, 0, most, at_once)  # none is seen: on CPU cores
    with pytest.raises(ConfigError, match=said):
        check_gpus(driven, 2, most, at_once)


def test_gpus_that_stay_unused_are_told_with_the_command(tmp_path: Path) -> None:
    plain = remark_on_gpus(2, None, "smoke", 2, tmp_path)
    assert plain is not None and plain.startswith("2 GPUs of this machine stay unused")
    assert "make image IMAGE=gpu && make sweep SWEEP=smoke SITE=local IMAGE=gpu FORCE=1" in plain
    by_cpu = Container("/c.sif", "apptainer", "none", (), ())
    assert "1 GPU of this machine stays" in (
        told := str(remark_on_gpus(1, by_cpu, "a b", 1, tmp_path))
    )
    assert "SWEEP='a b'" in told and "copy" not in told
    # the command is not one that check_gpus refuses
    large = str(remark_on_gpus(1, None, "smoke", 4, tmp_path))
    assert "SWEEP=COPY.yaml" in large and "at most 1 (here 4)" in large
    driven = Container("/g.sif", "apptainer", "nv", (), ())
    assert remark_on_gpus(1, driven, "smoke", 4, tmp_path) is None
    assert "no GPU is seen" in str(remark_on_gpus(0, driven, "smoke", 4, tmp_path))
    assert remark_on_gpus(0, None, "smoke", 4, tmp_path) is None


def test_the_record_says_how_many_gpus_stayed_unused() -> None:
    assert unused_gpus(None, {"HOROSCALE_GPUS_HERE": "2"}) == 2
    assert unused_gpus("NVIDIA H200", {"HOROSCALE_GPUS_HERE": "2"}) is None
    assert unused_gpus(None, {}) is None


@pytest.fixture
def others_folder() -> Iterator[Path]:
    """Of the user whom ranks in containers run as: root may not start them everywhere."""
    folder = Path(tempfile.mkdtemp(prefix="horoscale-", dir="/var/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, unprivileged.ensure_user())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ranks2
@pytest.mark.skipif(shutil.which("apptainer") is None, reason="no apptainer on PATH: make image")
@pytest.mark.skipif(not IMAGE.exists(), reason=f"no image {IMAGE}: make image")
def test_two_real_ranks_in_the_image(others_folder: Path) -> None:
    python, command = _python(others_folder)
    sweep = others_folder / "two.yaml"
    sweep.write_text(
        "dataset: digits\nmodel: cnn\nepochs: 1\nbatch_per_rank: 64\ntechnique: naive\ngpus: 2\n"
    )
    argv = [*command, python, "-m", "jobs", "sweep", str(sweep), "--site", "local"]
    argv += ["--image", "cpu"]
    for option in ("results", "data", "store"):
        argv += [f"--{option}", str(others_folder / option)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = others_folder.glob("results/two/*/record.json")
    found = read_record(file)
    assert (found.status, found.world.size, found.world.launcher) == ("completed", 2, "horoscale")
    told = found.provenance
    assert told.image_digest == IMAGE.with_name("cpu.sif.sha256").read_text().split()[0]
    assert told.environment["APPTAINER_CONTAINER"] == str(IMAGE)
    assert told.git_commit and "tensorflow-cpu" in told.versions
    assert told.unused_gpus is None


def _python(folder: Path) -> tuple[str, list[str]]:
    """A Python for the supervisor, and the words before it that make root an ordinary user, who
    may not enter the folder of root's own Python."""
    if os.geteuid() != 0:
        return sys.executable, []
    command = unprivileged.as_user([], USER)
    made = [*command, "/usr/bin/python3", "-m", "venv", "--without-pip", str(folder / "venv")]
    if subprocess.run(made, capture_output=True, check=False).returncode != 0:
        pytest.skip("root's ranks in containers need a /usr/bin/python3 for an ordinary user")
    version = f"python3.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    if not packages.exists():
        pytest.skip(f"/usr/bin/python3 is no {version}")
    (packages / "own.pth").write_text(sysconfig.get_paths()["purelib"])
    return str(folder / "venv" / "bin" / "python"), command
