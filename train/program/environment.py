"""What our programs see of their user's environment: one table for variables and files.

What a user's shell and dot files say to other programs does not reach ours: a number would depend
on whose shell it was made in. What a site says does: proxies, certificates, the package index,
module systems (PATH, LD_LIBRARY_PATH, CUDA_*, ...), NCCL_* and UCX_*. Families are denied, since
nobody can list what modules set; pip, and what root starts as another user, see listed ones only.
The site's file (``environment:``, ``setup:``, ``modules:``) is read after this table and wins.

It loads the standard library alone: the programs in containers/ import it on a bare Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Program = Literal[
    "command",  # jobs, analysis and the data program themselves
    "ranks",  # on this machine, and the container that they run in
    "slurm",  # Slurm's programs; of sbatch, also what its job inherits
    "step",  # srun and its ranks: modules and set-up lines of the site have run by then
    "setup",  # venv, pip, and the first import of what they installed
    "compiler",  # pip, CMake and compilers while Horovod is compiled
    "image",  # apt, debootstrap and Apptainer while an image is built
    "git",
    "user",  # all that root starts as the practice cluster's user; of it, what its jobs inherit
]


@dataclass(frozen=True)
class Rule:
    """Which variables a program does not see, those of them that it sees all the same, and what it
    is given instead. A name that ends with * stands for all that begin so."""

    drops: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)


#: Where a program expects a file or folder of settings, and shall find none: it then uses its own
#: defaults, and cannot leave anything there. It is in every container, too.
NOTHING = os.devnull

#: How shells, Python, git and make run, and how text looks on a terminal.
_SHELL = (
    "BASH_ENV", "ENV", "CDPATH", "GLOBIGNORE", "SHELLOPTS", "BASHOPTS", "POSIXLY_CORRECT",
    "GREP_*", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "PYTHON*", "GIT_*",
    "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "GITHUB_ACTIONS", "COLUMNS", "LINES",
)  # fmt: skip
_PLOTS = ("MPLBACKEND", "MATPLOTLIBRC")
_LIBRARIES = ("TF_*", "TF2_*", "TFA_*", "KERAS_*", "XLA_*", "AUTOGRAPH_*", "PROTOCOL_BUFFERS_*")
#: What changes results or times of ranks, and no record shows it: libraries' switches, and
#: threads and their places, which each rank sets by the cores that it owns.
_NUMBERS = (
    *_LIBRARIES, "OMP_*", "GOMP_*", "KMP_*", "LIBOMP_*", "MKL_*",
    "DNNL_*", "ONEDNN_*", "OPENBLAS_*", "GOTO_*", "BLIS_*", "NUMEXPR_*", "NPY_*", "TBB_*",
    "CUBLAS_*", "CUDA_LAUNCH_BLOCKING", "CUDA_FORCE_PTX_JIT", "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
#: Left by other launchers, or meant for them.
_LAUNCHERS = (
    "HOROVOD_*", "HOROSCALE_*", "OMPI_*", "OPAL_*", "ORTE_*", "PRTE_*", "PMIX_*", "PMI_*",
    "SUBMITIT_*", "SBATCH_*", "SRUN_*", "SLURM_CPU_BIND*",
)  # fmt: skip
#: Horovod's tuning knobs, and how much TensorFlow writes into logs.
_KNOBS = ("HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CACHE_CAPACITY",
          "TF_CPP_MIN_LOG_LEVEL")  # fmt: skip
#: With Terraform's, which begin as TensorFlow's do.
_TUNING = (*_KNOBS, "TF_CLI_*", "TF_VAR_*")
#: Options and binds of containers, and variables injected into them. What a cell needs is bound by
#: its launch line; a site names more in its file.
_CONTAINERS = ("APPTAINER*", "SINGULARITY*")
_CONTAINER_PLACES = tuple(
    f"{name}_{what}" for name in ("APPTAINER", "SINGULARITY")
    for what in ("CACHEDIR", "TMPDIR", "CONTAINER")
)  # fmt: skip
#: They drop what ranks find each other by, whoever sets them.
_CLOSED_CONTAINERS = tuple(
    f"{name}_{what}" for name in ("APPTAINER", "SINGULARITY") for what in ("CLEANENV", "CONTAINALL")
)
#: Options of Slurm's programs: they would change what is printed or submitted without the knowledge
#: of the code that builds the command.
_SLURM = (
    "SBATCH_*", "SRUN_*", "SALLOC_*", "SQUEUE_*", "SACCT_*", "SINFO_*", "SCANCEL_*", "SCONTROL_*",
    "SLURM_*",
)  # fmt: skip
_SLURM_PLACES = ("SLURM_CONF*", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME", "SLURM_JWT", "SLURM_ROOT",
                 "SLURM_HOME", "SLURM_DIR", "SLURM_PREFIX")  # fmt: skip
#: The way to packages, as pip's options; the same stand in its configuration files.
INDEX_OPTIONS = (
    "index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert",
    "client-cert", "proxy", "timeout", "default-timeout", "retries", "keyring-provider",
    "use-feature", "cache-dir", "no-cache-dir",
)  # fmt: skip
_PACKAGES = ("PIP_*", "VIRTUAL_ENV", "CONDA_PREFIX", "SETUPTOOLS_*", "DISTUTILS_*",
             "DIST_EXTRA_CONFIG")  # fmt: skip
_WAYS = ("PIP_CONFIG_FILE", *(f"PIP_{name.upper().replace('-', '_')}" for name in INDEX_OPTIONS))
#: Flags and options of another recipe. A compiler that CXX names is used, and CC with it.
_RECIPES = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS", "LDSHARED", "LDCXXSHARED", "CPP",
    "LD", "AR", "NM", "RANLIB", "CMAKE_*", "NINJA*", "CUDACXX", "CUDAHOSTCXX", "CUDAFLAGS",
    "NVCC_*", "DESTDIR", "HOROVOD_*",
)  # fmt: skip
#: Compilers and paths of this machine, which mean nothing inside an image.
_OF_THE_MACHINE = ("CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
                   "PKG_CONFIG*", "PERL*", "LD_PRELOAD")  # fmt: skip
_TEMPORARY = ("TMPDIR", "TMP", "TEMP")
#: Language and colours.
_TEXT = ("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR")
#: Proxies, certificates and Debian's mirrors.
_NETWORK = (
    *(name for one in ("http", "https", "ftp", "all", "no")
      for name in (f"{one}_proxy", f"{one.upper()}_PROXY")),
    "CA", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "DEBIAN_MIRROR", "DEBIAN_SECURITY_MIRROR",
)  # fmt: skip

_PYTHON = {"PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1"}
#: Sets have one order on all ranks, in a network's code, too. Keras' own defaults stand for
#: ~/.keras/keras.json; what it downloads stays where it is.
_RANK = {**_PYTHON, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "KERAS_HOME": NOTHING}
_DRAWN = {"MPLBACKEND": "agg", "MATPLOTLIBRC": NOTHING}
TABLE: Mapping[Program, Rule] = {
    "command": Rule(
        # GIT: of the code that started this shell, as in a rank's, not of this checkout
        (*_SHELL, *_PLOTS, "NPY_*", "HOROSCALE_GIT_*"),
        # PYTHON: the interpreter that set-up is to use; BASH_ENV may be a module system's
        ("PYTHON", "BASH_ENV"),
        {**_PYTHON, **_DRAWN},
    ),
    "ranks": Rule(
        (*_SHELL, *_PLOTS, *_NUMBERS, *_LAUNCHERS, *_CONTAINERS),
        (*_TUNING, *_CONTAINER_PLACES),
        _RANK,
    ),
    "slurm": Rule(
        (*_SHELL, *_PLOTS, *_NUMBERS, *_LAUNCHERS, *_CONTAINERS, *_SLURM),
        # other SLURM_* are options of srun, which would find them in the job
        (*_TUNING, *_SLURM_PLACES, *_CONTAINER_PLACES),
        # messages in English; lists of array elements in full, not cut at 64 characters
        {"LC_ALL": "C", "SLURM_BITSTR_LEN": "0"},
    ),
    "step": Rule(
        ("PYTHON*", "GIT_*", *_LAUNCHERS, *_CLOSED_CONTAINERS),
        _TUNING,
        _RANK,
    ),
    "setup": Rule(
        (*_SHELL, *_PLOTS, *_LIBRARIES, *_PACKAGES, "NPY_*"),
        _WAYS,
        {**_PYTHON, **_DRAWN, "KERAS_HOME": NOTHING},
    ),
    "compiler": Rule(
        (*_SHELL, *_LIBRARIES, *_PACKAGES, *_RECIPES), _WAYS, {**_PYTHON, "LC_ALL": "C"}
    ),
    "image": Rule(
        (*_SHELL, *_PACKAGES, *_RECIPES, *_CONTAINERS, *_OF_THE_MACHINE),
        (*_WAYS, *_CONTAINER_PLACES),
        _PYTHON,
    ),
    "git": Rule(("GIT_*",)),
    # root's shell may hold passwords, tokens and sockets: an allow-list
    "user": Rule(
        ("*",),
        (*_WAYS, *_KNOBS, *_TEXT, *_NETWORK, "NCCL_*", "UCX_*", "CUDA_VISIBLE_DEVICES",
         "LD_LIBRARY_PATH", *_TEMPORARY, "SLURM_CONF", "PYTHON", "DATA", "RESULTS", "FORCE"),
    ),
}  # fmt: skip


def environment_of(program: Program, environment: Mapping[str, str]) -> dict[str, str]:
    """What the program sees of this environment, as its row of the table says."""
    rule = TABLE[program]
    seen = {
        name: value
        for name, value in environment.items()
        if (_is_one_of(name, rule.keeps) or not _is_one_of(name, rule.drops))
        and (name not in _TEMPORARY or os.access(value, os.W_OK | os.X_OK))
    }
    # a module system's file that defines `module` for batch scripts, none of the user's own
    shell = environment.get("BASH_ENV", "")
    home = environment.get("HOME", "/")
    if program == "slurm" and shell.startswith("/") and not Path(shell).is_relative_to(home):
        seen["BASH_ENV"] = shell
    # what is true for sbatch alone would have jobs looked for on another cluster
    if program == "slurm" and (clusters := environment.get("SBATCH_CLUSTERS")):
        seen["SLURM_CLUSTERS"] = clusters
    return seen | dict(rule.sets)


def enter(program: Program, environment: MutableMapping[str, str]) -> None:
    """Change os.environ into what the program sees, and what it starts inherits. For the first line
    of a program, never of a library. What it starts or imports from here on is of the Python
    environment that it began in: `.venv` is a link, and may lead to another one later."""
    sys.path[:] = map(os.path.realpath, sys.path)
    folder, name = os.path.split(sys.executable)
    sys.executable = f"{os.path.realpath(folder)}/{name}"
    seen = environment_of(program, environment)
    if os.path.expanduser("~") == "~":  # noqa: PTH111  (no HOME, and no list of users knows us)
        seen["HOME"] = NOTHING
    for name in environment.keys() - seen.keys():
        del environment[name]
    environment.update(seen)


def unheard(environment: Mapping[str, str]) -> list[str]:
    """Names of variables that a user may have set for ranks, and that do not reach them."""
    seen = environment_of("ranks", environment)
    asked = (*_NUMBERS, *_CONTAINERS, "HOROVOD_*", "OPAL_*")
    dropped = (name for name, value in environment.items() if seen.get(name) != value)
    return sorted(name for name in dropped if _is_one_of(name, asked))


def _is_one_of(name: str, names: Iterable[str]) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in names)
