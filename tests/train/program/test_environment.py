"""What a user's shell and dot files say to other programs does not reach ours: the table, and real
programs in a hostile environment."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from train.program.environment import NOTHING, TABLE, enter, environment_of, unheard

ROOT = Path(__file__).resolve().parents[3]
#: What a site says, and a module system sets.
SITE = {
    "PATH": "/bin", "HOME": "/home/me", "LD_LIBRARY_PATH": "/opt/cuda/lib",
    "CUDA_HOME": "/opt/cuda", "CUDA_VISIBLE_DEVICES": "0", "LMOD_CMD": "/opt/lmod",
    "https_proxy": "http://p:1",
    "SSL_CERT_FILE": "/ca.pem", "REQUESTS_CA_BUNDLE": "/ca.pem", "NCCL_SOCKET_IFNAME": "ib0",
    "UCX_TLS": "rc", "NO_COLOR": "1", "TZ": "Europe/Berlin",
}  # fmt: skip
INDEX = {
    "PIP_INDEX_URL": "https://a/simple", "PIP_TRUSTED_HOST": "a", "PIP_FIND_LINKS": "/wheels",
    "PIP_CERT": "/ca.pem",
}  # fmt: skip


def test_of_root_s_variables_another_user_sees_the_listed_ones_only() -> None:
    listed = {"NCCL_DEBUG": "INFO", "HTTPS_PROXY": "p", "LC_ALL": "C", "HOROVOD_CYCLE_TIME": "1"}
    secret = dict.fromkeys(("AWS_SECRET_ACCESS_KEY", "TF_VAR_token", "SSH_AUTH_SOCK", "HOME"), "x")
    assert environment_of("user", listed | INDEX | secret) == listed | INDEX


@pytest.mark.parametrize("program", sorted(TABLE.keys() - {"user"}))
def test_what_a_site_says_reaches_every_program(program) -> None:
    seen = environment_of(program, SITE | INDEX)
    assert SITE.items() <= seen.items()
    if program == "slurm":  # which cluster is meant
        cluster = dict.fromkeys(("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_ROOT"), "a")
        assert cluster.items() <= environment_of(program, cluster).items()
    if program in ("setup", "compiler", "image"):
        assert INDEX.items() <= seen.items()


@pytest.mark.parametrize(
    ("program", "stray"),
    [
        ("command", "PYTHONHASHSEED FORCE_COLOR TTY_COMPATIBLE COLUMNS MPLBACKEND GIT_DIR CDPATH"),
        ("ranks", "KERAS_BACKEND TF_XLA_FLAGS XLA_FLAGS TF_USE_LEGACY_KERAS TF_ENABLE_ONEDNN_OPTS "
         "OMP_PLACES KMP_AFFINITY MKL_CBWR NVIDIA_TF32_OVERRIDE APPTAINERENV_LD_PRELOAD OMPI_x "
         "SINGULARITY_BIND PYTHONOPTIMIZE HOROVOD_AUTOTUNE OPAL_PREFIX "
         "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"),
        ("slurm", "SQUEUE_FORMAT PYTHONSTARTUP TF_CONFIG GOMP_CPU_AFFINITY SINGULARITYENV_A "
         "GIT_DIR OPAL_PREFIX PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION SLURM_LABELIO "
         "SLURM_DISTRIBUTION SBATCH_EXPORT SACCT_FORMAT SINFO_FORMAT SRUN_CPUS_PER_TASK "
         "SLURM_JOB_ID SLURM_TIME_FORMAT SLURM_NTASKS SLURM_MEM_PER_NODE SLURM_ARRAY_TASK_ID "
         "SCANCEL_VERBOSE LC_ALL TF_XLA_FLAGS OMP_PLACES APPTAINERENV_PYTHONPATH PYTHONOPTIMIZE "
         "SINGULARITY_BIND"),
        ("step", "PYTHONHOME OMPI_MCA_pml OPAL_PREFIX APPTAINER_CLEANENV HOROVOD_RANK PMI_RANK "
         "OMPI_COMM_WORLD_SIZE PMIX_RANK SLURM_CPU_BIND SBATCH_EXPORT SUBMITIT_EXECUTOR "
         "SINGULARITY_CLEANENV"),
        ("setup", "PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_DRY_RUN PIP_REQUIRE_VIRTUALENV "
         "NPY_DISABLE_CPU_FEATURES PIP_CONSTRAINT PIP_NO_BINARY VIRTUAL_ENV TF_USE_LEGACY_KERAS"),
        ("compiler", "HOROVOD_GPU_OPERATIONS HOROVOD_WITHOUT_TENSORFLOW CFLAGS LDFLAGS MAKEFLAGS "
         "CMAKE_GENERATOR CMAKE_PREFIX_PATH PIP_NO_BINARY"),
        ("image", "APPTAINER_BIND SINGULARITYENV_PYTHONPATH CXX CPATH "
         "HOROVOD_WITH_PYTORCH PERL5LIB"),
        ("git", "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE"),
    ],
)  # fmt: skip
def test_what_it_says_to_other_programs_does_not(program, stray: str) -> None:
    names = stray.split()
    seen = environment_of(program, SITE | dict.fromkeys(names, "hostile"))
    assert "hostile" not in seen.values()
    assert seen == SITE | TABLE[program].sets


def test_what_a_site_loads_for_a_job_reaches_its_ranks() -> None:
    said = {"OMP_PROC_BIND": "close", "XLA_FLAGS": "--x", "APPTAINER_BIND": "/opt/cray",
            "TF_A": "1", "OPENBLAS_CORETYPE": "ZEN", "LD_PRELOAD": "/opt/darshan.so",
            "SLURM_JOB_ID": "7", "SLURM_CONF": "/c", "HOROVOD_FUSION_THRESHOLD": "1"}  # fmt: skip
    assert said.items() <= environment_of("step", said).items()


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP"])
def test_a_temporary_folder_that_is_not_there_is_left_out(tmp_path: Path, name: str) -> None:
    for program in TABLE:
        assert name not in environment_of(program, {name: str(tmp_path / "gone")})
        assert environment_of(program, {name: str(tmp_path)})[name] == str(tmp_path)


def test_a_program_that_enters_its_row_and_what_is_named() -> None:
    own = {"PATH": "/bin", "PYTHONPATH": "/x", "PYTHON": "python3.11", "OMP_NUM_THREADS": "1"}
    enter("command", own)
    assert own == {"PATH": "/bin", "PYTHON": "python3.11", "OMP_NUM_THREADS": "1",
                   **TABLE["command"].sets}  # fmt: skip
    shell = dict.fromkeys(("PATH", "TF_XLA_FLAGS", "APPTAINER_BIND", "APPTAINER_CACHEDIR"), "x")
    for file, kept in (("/opt/lmod/init/bash", True), ("/home/me/.env", False)):
        own = {"HOME": "/home/me", "BASH_ENV": file}
        enter("command", own)
        assert ("BASH_ENV" in environment_of("slurm", own)) is kept, "a module system's own"
    own = {"OMP_NUM_THREADS": "1"}
    assert unheard(shell | own) == ["APPTAINER_BIND", "OMP_NUM_THREADS", "TF_XLA_FLAGS"]


def test_a_program_stays_in_the_environment_that_it_began_in(tmp_path: Path) -> None:
    """Also where a user types .venv/bin/python; seen: what it imported later was of another one."""
    link = tmp_path / "link"
    link.symlink_to(Path(sys.prefix).resolve())
    code = (
        "from train.program.environment import enter; import os, sys; enter('command', os.environ)"
    )
    command = [link / "bin" / "python", "-c", f"{code}; print(sys.executable, *sys.path)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(link.resolve()) in done.stdout and str(link) not in done.stdout


def test_a_user_without_a_home_folder_gets_one_that_holds_nothing(monkeypatch) -> None:
    """Of a number that no list of users knows, as in some containers. Seen: a traceback."""
    monkeypatch.delenv("HOME")
    own: dict[str, str] = {}
    enter("command", own)
    assert "HOME" not in own, "the list of users knows it"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    enter("command", own)
    assert own["HOME"] == NOTHING


def test_the_table_needs_nothing_but_a_bare_python() -> None:
    code = (
        "import sys; before = set(sys.modules); import train.program.environment as e; "
        "found = {m for m in set(sys.modules) - before if m.startswith('train')}; "
        "assert found == {'train', 'train.program', 'train.program.environment'}, found; "
        "print(len(e.environment_of('setup', {'PIP_USER': '1'})))"
    )
    bare = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", bare], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(len(TABLE["setup"].sets))


BY_HAND = """
from tests.builders import config
from train.distributed.launch import read_launch
from train.distributed.world import start
start(config(gpus=1), read_launch({}))
"""
SETTINGS = """
import tensorflow as tf
backend = tf.keras.backend
print(backend.floatx(), backend.image_data_format(), backend.epsilon())
"""


@pytest.mark.parametrize(
    ("settings", "by_hand"),
    [
        ({"image_data_format": "channels_first", "floatx": "float64", "epsilon": 0.5}, False),
        ({"floatx": "bfloat16"}, False),  # ends every import of Keras that reads it
        ({"image_data_format": "channels_first"}, True),
    ],
)
def test_keras_of_ranks_has_its_own_settings(tmp_path: Path, settings, by_hand: bool) -> None:
    """Also of ranks that are started by hand."""
    dot, shell = tmp_path / ".keras", tmp_path / "shell"
    for folder in (dot, shell):
        folder.mkdir()
        (folder / "keras.json").write_text(json.dumps(settings))
    hostile = os.environ | {"HOME": str(tmp_path), "KERAS_HOME": str(shell), "TF_CONFIG": "{",
                            "TF_USE_LEGACY_KERAS": "1", "PYTHONHASHSEED": "no"}  # fmt: skip
    own = environment_of("ranks", hostile) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if by_hand:
        own = own | {"PYTHONPATH": str(ROOT)}
        del own["KERAS_HOME"]
    code = f"{BY_HAND if by_hand else ''}{SETTINGS}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=False, env=own)  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["float32 channels_last 1e-07"], done.stderr[-3000:]
    assert sorted(path.name for path in dot.iterdir()) == ["keras.json"]
