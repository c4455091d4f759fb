"""The batch script of an array, as values for submitit and as text. Nothing runs here."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# submitit's own writer, so that what a plan shows is what sbatch gets
from submitit.slurm.slurm import _make_sbatch_string

from jobs.site import Site
from jobs.slurm.units import Array
from train.errors import ConfigError

TASKS_NAME = "tasks.json"
#: What the batch script ends with where the node does not see them.
NO_TASKS = 66


def job_name(sweep: str, folder: Path) -> str:
    """Name of all jobs of one sweep folder, for people who look at the queue."""
    digest = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape"))
    return f"horoscale-{sweep}-{digest.hexdigest()[:8]}"


def command(python: str, tasks: Path) -> str:
    """The batch script's last lines. The shell becomes the supervisor, so that Slurm's signals
    reach it; a node that does not see its tasks says so by its exit code."""
    told = shlex.quote(str(tasks))
    return (
        f"test -r {told} || exit {NO_TASKS}\nexec {shlex.quote(python)} -u -m jobs.slurm.job {told}"
    )


def parameters(
    site: Site,
    array: Array,
    *,
    name: str,
    root: Path,
    dependency: str | None = None,
    comment: str | None = None,
    exclude: str | None = None,
    more: Mapping[str, str | bool] | None = None,
) -> dict[str, Any]:
    """Options of sbatch for one array, as submitit's writer takes them.

    ``root``: the code that the job runs; ``dependency``: as sbatch takes it, e.g. ``afterok:12``;
    ``comment``: by which squeue tells jobs apart; ``exclude``: nodes, with commas; ``more``: of
    sbatch's options, for this job alone.
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
        "exclude": exclude,
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
        "additional_parameters": _additional(site, root, dependency) | dict(more or {}),
        **{key: value for key, value in asked.items() if value is not None},
    }


def script_text(
    site: Site, array: Array, folder: Path, *, python: str = sys.executable, **asked: Any
) -> str:
    """What sbatch gets. ``folder``: of the array's tasks and logs; ``asked``: see
    :func:`parameters`."""
    return _make_sbatch_string(
        command=command(python, folder / TASKS_NAME),
        folder=folder,
        map_count=len(array.units) if len(array.units) > 1 else None,
        **parameters(site, array, **asked),
    )


def _additional(site: Site, root: Path, dependency: str | None) -> dict[str, str | int | bool]:
    options: dict[str, str | int | bool] = {
        # Python looks for modules in the working folder first, and that is to be the code's
        "chdir": str(root),
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
    lines = ["trap '' USR2"]  # a warning that comes before Python hears it must not end it
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
