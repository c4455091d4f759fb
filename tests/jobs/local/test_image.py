"""Ranks on this machine inside an image: launch lines word for word, refusals, a real sweep."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest
import users

from jobs.cell.container import Container
from jobs.cell.needs import Need
from jobs.config.load import load_sweep
from jobs.config.sweep import Sweep
from jobs.local.image import (
    check_gpu_models,
    check_gpus,
    container_here,
    gpus_here,
    remark_on_gpus,
    try_out,
)  # fmt: skip
from jobs.local.supervisor import Machine, launch_line
from jobs.local.sweep import machine_for
from jobs.slurm.client.detect import refuse_image, site_for
from tests.builders import config
from tests.jobs.cell.test_container import sif
from tests.practice import USER
from tests.sweeps import ROOT, UNTRAINED, ran
from train.errors import ConfigError
from train.record.run import read_record

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout is the folder of the test."""
    monkeypatch.setattr("jobs.local.image.ROOT", tmp_path)


def sweep_of(gpus: int, name: str = "smoke") -> Sweep:
    return Sweep(name, name, Path(name), (config(gpus=gpus),), (), None)


def container(gpu_support: str) -> Container:
    return Container("/a.sif", "apptainer", gpu_support, (), ())


@pytest.mark.parametrize(("image", "gpus"), [("cpu", 0), ("gpu", 2)])
def test_launch_lines_are_those_of_slurm_without_srun(
    program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, gpus: int
) -> None:
    """Of the second of two ranks. What a GPU adds, by the words after which it stands."""
    program("apptainer", "exit 0")
    sif(tmp_path / "containers" / "images" / f"{image}.sif")
    folders = [tmp_path, *map(Path, ("/r/smoke", "/data", "/data/prepared"))]
    made = container_here(image, gpus, [Need(what="a folder", path=str(p)) for p in folders])
    monkeypatch.setattr("jobs.local.supervisor.ROOT", tmp_path)
    monkeypatch.setattr("os.getpid", lambda: 42)
    machine = Machine((0, 1), 1, Path("/data"), Path("/data/prepared"), 300, 1, made, gpus)
    cell = Path("/r/smoke/a-cell")
    argv, settings = launch_line(cell, ((0,), (1,)), machine, attempt=2, resume=True)
    words = ["env", *(f"{name}={value}" for name, value in settings[1].items()), *argv]
    text = "\n".join(words).replace(str(tmp_path), "/home/ada/horoscale") + "\n"
    file = GOLDEN / "local_cpu.txt"
    if os.environ.get("UPDATE_GOLDEN") and not gpus:
        file.write_text(text)
    wanted = file.read_text()
    if gpus:
        wanted = wanted.replace("env\n", "env\nHOROSCALE_GPUS_HERE=2\n")
        wanted = wanted.replace("cpu.sif", "gpu.sif").replace("\nexec\n", "\nexec\n--nv\n")
    assert text == wanted, "if meant, see it with UPDATE_GOLDEN=1"


def test_the_driver_goes_where_an_image_of_others_can_use_it(program, tmp_path) -> None:
    program("singularity", "exit 0")
    image = str(sif(tmp_path / "a.sif"))
    assert container_here(image, 0, []).gpu_support == "none"
    made = container_here(image, 1, [])
    assert (made.gpu_support, made.runtime) == ("nv", "singularity")


def test_what_a_request_for_an_image_lacks_is_said(program, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs apptainer .* on PATH"):
        container_here("cpu", 0, [])
    program("apptainer", "exit 0")
    with pytest.raises(ConfigError, match="IMAGE=none found"):
        container_here("none", 0, [])
    with pytest.raises(ConfigError, match="the results folder has ','"):
        image = str(sif(tmp_path / "a.sif"))
        container_here(image, 0, [Need(what="the results folder", path=f"{tmp_path}/a,b")])
    program("apptainer", "printf '\\033[31mFATAL: no user namespace\\033[0m' >&2; exit 255")
    with pytest.raises(ConfigError, match=r"does not start here: .*\n  FATAL: no user namespace\n"):
        try_out(container("none"))


def test_what_a_sweep_names_is_bound_and_what_is_nowhere_refused(
    program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("apptainer", "exit 0")
    image, data, store = (tmp_path / name for name in ("a.sif", "data", "store"))
    sif(image)
    text = UNTRAINED.format(gpus="[1]", seeds="[0]").replace("digits", "folder:pets")
    (tmp_path / "two.yaml").write_text(text)
    wanted, results = load_sweep("two", tmp_path), tmp_path / "r" / "two"
    for name in (str(image), ""):
        with pytest.raises(ConfigError, match=r"two\.yaml:3: dataset: "):
            machine_for(wanted, data, store, results, image=name)
    for folder in (tmp_path / "disk" / "pets", data):
        folder.mkdir(parents=True)
    (data / "pets").symlink_to("../disk/pets")
    made = machine_for(wanted, data, store, results, image=str(image))
    assert made.container is not None and f"{tmp_path}/disk/pets" in made.container.binds


@pytest.mark.parametrize("uid", [0, 1000])
def test_root_that_lacks_a_capability_starts_it_as_others_do(
    program, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    """Seen: ERROR : Requesting capability set 0x... while permitted capability set is 0x..."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    made = container("none")
    program("apptainer", "exit 0")
    assert try_out(made) == made
    program("apptainer", 'case "$*" in *--userns*) exit 0;; esac; echo capability >&2; exit 1')
    if uid == 0:
        assert try_out(made).arguments == ("--userns",)
        program("apptainer", "echo capability >&2; exit 1")
    todo = "make sweep as an ordinary user" if uid == 0 else "try that line by hand"
    with pytest.raises(ConfigError, match=f"exec /a.sif .*\n  capability\n  Nothing.*{todo}"):
        try_out(made)


def test_what_is_no_utf_8_is_no_traceback(program) -> None:
    """Names of folders, and messages in the encoding of the user's locale."""
    program("apptainer", r"printf 'f\374r' >&2; exit 1")
    with pytest.raises(ConfigError, match=r"f.r"):
        try_out(container("none"))
    program("nvidia-smi", r"echo 'GPU 0: x'; printf '\374'")
    assert gpus_here({}) == 1


def test_an_image_for_a_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\n")
    site = site_for(str(tmp_path / "s.yaml"))
    assert site is not None
    refuse_image("", site)
    with pytest.raises(ConfigError, match=r"SITE=local.*image: of .*s\.yaml"):
        refuse_image("cpu", site)


def test_gpus_are_counted_by_nvidia_smi(program) -> None:
    """Of which this is a fake."""
    assert gpus_here({}) == 0
    program("nvidia-smi", "for n in 0 1; do echo 'GPU 0: Fake'; echo '  MIG 1g: x'; done")
    assert gpus_here({}) == 2
    for shown, count in (("1", 1), ("0,1,2", 2), ("", 0)):
        assert gpus_here({"CUDA_VISIBLE_DEVICES": shown}) == count
    program("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert gpus_here({}) == 0


@pytest.mark.parametrize(
    ("capability", "driver", "more", "said"),
    [
        ("9.0", None, {}, ""),
        ("10.0", (12, 8), {}, "Fake A has compute capability 10.0, which CUDA 12.2"),
        ("6.1", (12, 4), {}, "Fake A has compute capability 6.1, for which"),
        ("8.0", (11, 4), {}, "the driver is for CUDA 11.4, the image for 12.2"),
        ("12.0", (12, 8), {"CUDA_VISIBLE_DEVICES": "GPU-b"}, ""),  # the other one alone is shown
        ("12.0", (12, 8), {"CUDA_VISIBLE_DEVICES": "GPU-a"}, "Fake A"),
        ("12.0", (12, 8), {"CUDA_VISIBLE_DEVICES": "0"}, ""),  # CUDA may number them otherwise
        ("12.0", (12, 8), {"CUDA_VISIBLE_DEVICES": ""}, ""),
        ("[N/A]", (12, 8), {}, ""),
    ],
)
def test_gpus_that_the_image_cannot_use_are_refused(
    program, monkeypatch, capability: str, driver, more: dict[str, str], said: str
) -> None:
    """By a fake nvidia-smi, as a driver of 470 answers where it is that old."""
    lines = f"GPU-a1, Fake A, {capability}\\nGPU-b1, Fake B, 9.0\\n"
    if driver == (11, 4):
        lines = 'Field "compute_cap" is not a valid field to query.'
    listed = "GPU 0: Fake A (UUID: GPU-a1)\\nGPU 1: Fake B (UUID: GPU-b1)\\n"
    program("nvidia-smi", f"""test "$1" = -L && printf '{listed}' || printf '{lines}'""")
    monkeypatch.setattr("jobs.local.image.driver_cuda", lambda: driver)
    check_gpu_models("cpu", more)
    if not said:
        check_gpu_models("gpu", more)
        return
    with pytest.raises(ConfigError, match=f"IMAGE=gpu cannot run here: {said}"):
        check_gpu_models("gpu", more)


@pytest.mark.parametrize(("most", "at_once", "said"), [(4, 1, "at most 2"), (2, 2, "JOBS=1")])
def test_a_gpu_is_never_shared(most: int, at_once: int, said: str) -> None:
    check_gpus(sweep_of(2), container("nv"), 2, 1)
    check_gpus(sweep_of(most), container("nv"), 0, at_once)  # none is seen: on CPU cores
    with pytest.raises(ConfigError, match=said):
        check_gpus(sweep_of(most), container("nv"), 2, at_once)


@pytest.mark.parametrize(
    ("gpus", "support", "sweep", "said"),
    [
        (2, "", sweep_of(2), "stay unused: 2, "), (1, "none", sweep_of(1, "a b"), "SWEEP='a b'"),
        (1, "", sweep_of(4), "no cell of the sweep's file has more than 1 gpus\n"),
        (0, "nv", sweep_of(4), "no GPU is seen"),
        (1, "nv", sweep_of(4), ""), (0, "", sweep_of(4), ""),
    ],
)  # fmt: skip
def test_gpus_that_stay_unused(capsys, gpus: int, support: str, sweep, said) -> None:
    remark_on_gpus(sweep, container(support) if support else None, gpus)
    err = capsys.readouterr().err
    assert said in err and bool(said) == bool(err)


@pytest.mark.ranks2
def test_two_real_ranks_in_the_image(shared_folder: Path, sif: Path) -> None:
    """As the user whom ranks in containers run as: root may not start them everywhere."""
    python, command = _python(shared_folder)
    sweep = shared_folder / "two.yaml"
    sweep.write_text(
        "dataset: digits\nmodel: cnn\nepochs: 1\nbatch_per_rank: 64\ntechnique: naive\ngpus: 2\n"
    )
    told = [f"{name}={value}" for name, value in hostile(shared_folder).items()]
    argv = [*command, "env", *told, python, "-m", "jobs", "sweep", str(sweep), "--site", "local"]
    argv += ["--image", "cpu"]
    for option in ("results", "data", "store"):
        argv += [f"--{option}", str(shared_folder / option)]
    done = ran(argv, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (
        "not passed on to ranks: APPTAINERENV_PYTHONPATH, APPTAINER_BIND, KERAS_HOME" in done.stderr
    )
    (file,) = shared_folder.glob("results/two/*/record.json")
    found = read_record(file)
    assert (found.status, found.world.size, found.world.launcher) == ("completed", 2, "horoscale")
    made = found.provenance
    assert made.image_digest == sif.with_name("cpu.sif.sha256").read_text().split()[0]
    assert made.environment["APPTAINER_CONTAINER"] == str(sif)
    assert made.git_commit and "tensorflow-cpu" in made.versions
    assert made.unused_gpus is None


def hostile(folder: Path) -> dict[str, str]:
    """Each of them would end a rank, or the container before it."""
    for name in ("numpy.py", "keras.json"):
        (folder / name).write_text("{" if name == "numpy.py" else '{"floatx": "bfloat16"}')
    return {
        "APPTAINERENV_PYTHONPATH": str(folder), "SINGULARITYENV_PYTHONHOME": "/not/there",
        "APPTAINER_BIND": "/not/there", "KERAS_HOME": str(folder), "TF_USE_LEGACY_KERAS": "1",
        "TF_CONFIG": "{", "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1",
    }  # fmt: skip


def _python(folder: Path) -> tuple[str, list[str]]:
    """A Python for the supervisor, and the words before it that make root an ordinary user, who
    may not enter the folder of root's own Python."""
    if os.geteuid() != 0:
        return sys.executable, []
    command = users.as_user([], USER)
    made = [*command, "/usr/bin/python3", "-m", "venv", "--without-pip", str(folder / "venv")]
    if ran(made).returncode != 0:
        pytest.skip("root's ranks in containers need a /usr/bin/python3 for an ordinary user")
    version = f"python3.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    if not packages.exists():
        pytest.skip(f"/usr/bin/python3 is no {version}")
    (packages / "own.pth").write_text(sysconfig.get_paths()["purelib"])
    return str(folder / "venv" / "bin" / "python"), command
