"""The batch script of an array, as values for submitit and as text. Nothing runs here."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from typing import Any

# submitit's own writer, so that what a plan shows is what sbatch gets
from submitit.slurm.slurm import _make_sbatch_string

from jobs.site import Site
from jobs.slurm.units import Array
from train.errors import ConfigError


def job_name(sweep: str, folder: Path) -> str:
    """Name of all jobs of one sweep folder, so that one query finds them, noted or not."""
    digest = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape"))
    return f"horoscale-{sweep}-{digest.hexdigest()[:8]}"


def executor_python() -> str:
    """submitit's ``python``: the shell becomes the supervisor, so Slurm's signals reach it."""
    return f"exec {shlex.quote(sys.executable)}"


def parameters(
    site: Site,
    array: Array,
    *,
    name: str,
    root: Path,
    dependency: str | None = None,
    comment: str | None = None,
) -> dict[str, Any]:
    """Keyword arguments of ``SlurmExecutor.update_parameters`` for one array.

    ``root``: the checkout; ``dependency``: as sbatch takes it, e.g. ``afterok:12``; ``comment``: by
    which squeue tells jobs apart.
    """
    asked = {
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "mem": _memory(site, array),
        "exclusive": True if site.exclusive else None,
        "dependency": dependency,
        "comment": comment,
        **_gpus(site, array),
    }
    return {
        "job_name": name,
        "time": array.minutes,
        "nodes": array.shape.nodes,
        "ntasks_per_node": array.shape.ranks_per_node,
        "cpus_per_task": site.cpus_per_rank,
        "array_parallelism": array.parallel,
        "signal_delay_s": site.signal_s,
        "setup": _setup(site, root),
        "use_srun": False,
        "stderr_to_stdout": True,
        # sbatch refuses a key that the site does not know, and submitit sends one of its own
        "wckey": site.wckey,
        "additional_parameters": _additional(site, dependency),
        **{key: value for key, value in asked.items() if value is not None},
    }


def script_text(
    site: Site,
    array: Array,
    folder: Path,
    *,
    name: str,
    root: Path,
    dependency: str | None = None,
    comment: str | None = None,
    python: str | None = None,
) -> str:
    """What submitit will hand to sbatch for an executor with this ``folder``."""
    start = executor_python() if python is None else python
    return _make_sbatch_string(
        command=f"{start} -u -m submitit.core._submit {shlex.quote(str(folder))}",
        folder=folder,
        map_count=len(array.units) if len(array.units) > 1 else None,
        **parameters(site, array, name=name, root=root, dependency=dependency, comment=comment),
    )


def _additional(site: Site, dependency: str | None) -> dict[str, str | int | bool]:
    options: dict[str, str | int | bool] = {
        # B: the batch shell alone, which is the supervisor; ranks are told by files
        "signal": f"B:USR2@{site.signal_s}",
        "requeue" if site.requeue else "no-requeue": True,
    }
    if site.reservation is not None:
        options["reservation"] = site.reservation
    if dependency is not None:
        # what waits for a failed preflight would wait for ever
        options["kill-on-invalid-dep"] = "yes"
    # false stands for "not asked for": sbatch's switches take no value
    return options | {key: value for key, value in site.sbatch.items() if value is not False}


def _gpus(site: Site, array: Array) -> dict[str, Any]:
    kind = "" if site.gpu_type is None else f"{site.gpu_type}:"
    each = array.shape.ranks_per_node
    match site.gpus:
        case "gres":
            return {"gres": f"gpu:{kind}{each}"}
        case "gpus-per-node":
            return {"gpus_per_node": f"{kind}{each}"}
        case "gpus-per-task":
            return {"gpus_per_task": f"{kind}1"}
        case "none":
            return {}


def _memory(site: Site, array: Array) -> str | None:
    """Of one node, in Slurm's units (1G = 1024M)."""
    if site.mem_per_rank_gb is None:
        return None
    megabytes = round(site.mem_per_rank_gb * array.shape.ranks_per_node * 1024)
    return f"{megabytes // 1024}G" if megabytes % 1024 == 0 else f"{megabytes}M"


def _setup(site: Site, root: Path) -> list[str]:
    """Shell lines before the supervisor; ours last, because modules set PYTHONPATH, too."""
    lines = []
    if site.modules:
        # a batch shell is no login shell, and at some sites only that knows `module`
        lines.append("type module >/dev/null 2>&1 || . /etc/profile")
        lines += [f"module load {shlex.quote(module)}" for module in site.modules]
    lines += site.setup
    lines.append(f"export PYTHONPATH={shlex.quote(str(root))}")
    if site.slurm_conf is not None:
        lines.append(f"export SLURM_CONF={shlex.quote(site.slurm_conf)}")
    return lines


#: Signs that one of the readers of a path cannot be told as themselves, and who that is; tried with
#: Slurm 22.05 and Apptainer 1.4, where every other printable sign arrived whole.
_REFUSED = {
    "\\": "sbatch drops it",
    "%": "sbatch and srun replace it by numbers of jobs",
    ",": "apptainer's --bind ends there",
    "^": "apptainer's --bind ends there",
    ":": "apptainer's --bind and PYTHONPATH end there",
}


def check_path(path: Path, what: str) -> None:
    """Paths that go into the script and the container: the checkout, results, data.

    Spaces and quotes are fine.

    Raises:
        ConfigError: a sign that sbatch, srun or apptainer cannot be told as itself.
    """
    text = str(path)
    for sign in text:
        if sign in _REFUSED:
            raise ConfigError(
                f"{what} has {sign!r} in its path, {text!r}: {_REFUSED[sign]}. "
                "Use a folder without it"
            )
        if not sign.isprintable():
            raise ConfigError(
                f"{what} has the sign {sign!r} in its path, {text!r}, which a batch script cannot "
                "hold: use a folder without it"
            )
