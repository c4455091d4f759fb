"""The batch script of an array, and the copy of the code that it runs."""

from __future__ import annotations

import compileall
import hashlib
import os
import shlex
import shutil
import sys
import uuid
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from submitit.slurm.slurm import _make_sbatch_string

from jobs.config.site import NodeLayout, Site
from train.record.atomic import create

TASKS_NAME = "tasks.json"
#: What the batch script ends with where the node does not see them.
NO_TASKS = os.EX_NOINPUT
#: ... and where a line of the site's file failed, which its log names after the mark.
SETUP_FAILED, SETUP_MARK = os.EX_CONFIG, "[batch] "
#: Environment Modules 3 always end with 0: there, even a module without a file seems to load. What
#: an alias loads has another name, and may be loaded already.
_LOAD = """hs_load() {
  hs_before=${LOADEDMODULES-}
  module load "$1" || return
  [[ ":${LOADEDMODULES-}:" == *:"$1"[:/]* || ${LOADEDMODULES-} != "$hs_before" ]] && return
  ! (module load no-such-module) &>/dev/null && return
  (unset LOADEDMODULES _LMFILES_; module load "$1"; [[ ${LOADEDMODULES-} ]]) &>/dev/null
}"""


def script_text(
    site: Site,
    layout: NodeLayout,
    folder: Path,
    *,
    minutes: int,
    elements: int,
    parallel: int,
    name: str,
    root: Path,
    **options: Any,
) -> str:
    """What sbatch gets for an array of so many elements; for one element it is a plain job.

    ``folder``: of the tasks and logs; ``root``: the code that the job runs; ``options``: of sbatch,
    for this job alone, e.g. ``dependency="afterok:12"``; None: not given.
    """
    tasks = shlex.quote(str(folder / TASKS_NAME))
    additional: dict[str, str | int | bool] = {
        # Python looks for modules in the working folder first, and that is to be the code's
        "chdir": str(root),
        # B: the batch shell alone, which is the supervisor; ranks are told by files
        "signal": f"B:USR2@{site.signal_s}",
        "requeue" if site.requeue else "no-requeue": True,
    }
    kind = "" if site.gpu_type is None else f"{site.gpu_type}:"
    optional = {
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "reservation": site.reservation,
        "mem": _memory(site, layout.ranks_per_node),
        "exclusive": site.exclusive or None,
        # what waits for a failed preflight would wait for ever
        "kill-on-invalid-dep": "yes" if options.get("dependency") else None,
        "gres": f"gpu:{kind}{layout.ranks_per_node}" if site.gpus == "gres" else None,
        "gpus-per-node": f"{kind}{layout.ranks_per_node}" if site.gpus == "gpus-per-node" else None,
        "gpus-per-task": f"{kind}1" if site.gpus == "gpus-per-task" else None,
        # false stands for "not asked for": sbatch's switches take no value
        **{key: value for key, value in site.sbatch.items() if value is not False},
        **{key: value for key, value in options.items() if value is not None},
    }
    additional |= {key: value for key, value in optional.items() if value is not None}
    return _make_sbatch_string(
        # the shell becomes the supervisor, so that Slurm's signals reach it; a node that does not
        # see its tasks exits with a code of its own
        command=f"test -r {tasks} || exit {NO_TASKS}\n"
        f"exec {shlex.quote(sys.executable)} -u -m jobs.slurm.job {tasks}",
        folder=folder,
        job_name=name,
        time=minutes,
        nodes=layout.nodes,
        ntasks_per_node=layout.ranks_per_node,
        cpus_per_task=site.cpus_per_rank,
        map_count=elements if elements > 1 else None,
        array_parallelism=parallel,
        setup=_setup(site, root),
        use_srun=False,
        stderr_to_stdout=True,
        # sbatch refuses a key that the site does not know, and submitit sends one of its own
        wckey=site.wckey,
        additional_parameters=additional,
    )


def _memory(site: Site, ranks: int) -> str | None:
    """Of one node, in Slurm's units (1G = 1024M)."""
    if site.mem_per_rank_gb is None:
        return None
    megabytes = round(site.mem_per_rank_gb * ranks * 1024)
    return f"{megabytes // 1024}G" if megabytes % 1024 == 0 else f"{megabytes}M"


def _setup(site: Site, root: Path) -> list[str]:
    """Shell lines before the supervisor; ours last, because modules set PYTHONPATH, too."""
    lines = ["trap '' USR2"]  # a warning that comes before Python hears it must not end it
    if site.modules or site.setup:
        told = f"{SETUP_MARK}$hs_line failed on ${{SLURMD_NODENAME-$HOSTNAME}} (exit code $1)"
        lines.append(f'hs_failed() {{ echo "{told}"; trap - EXIT; exit {SETUP_FAILED}; }}')
        # also a line that leaves the shell (exit, set -e, ${NAME:?}) is a line that failed
        lines.append("trap 'hs_failed $?' EXIT")
    if site.modules:
        # a batch shell is no login shell, and at some sites only that knows `module`
        lines += ["hs_line='. /etc/profile'", "type module &>/dev/null || . /etc/profile", _LOAD]
    for name in map(shlex.quote, site.modules):
        lines += [
            f"hs_line={shlex.quote(f'module load {name}')}",
            f"hs_load {name} || hs_failed $?",
        ]
    # each command of a line counts; of a file that it reads, which may end the trap, the last one
    trap = "trap 'hs_code=$?; ((${#BASH_SOURCE[@]} > 1)) || hs_failed $hs_code' ERR"
    for line in site.setup:
        lines += [f"hs_line={shlex.quote(line)}", trap, 'eval -- "$hs_line"', "hs_code=$?",
                  "((hs_code == 0)) || hs_failed $hs_code"]  # fmt: skip
    if site.modules or site.setup:
        # Python looks for modules in the working folder first, wherever a line has gone
        lines += ["trap - EXIT ERR", f"builtin cd {shlex.quote(str(root))} || exit {NO_TASKS}"]
    lines.append(f"export PYTHONPATH={shlex.quote(str(root))}")
    if site.slurm_conf is not None:
        lines.append(f"export SLURM_CONF={shlex.quote(site.slurm_conf)}")
    return lines


CODE_NAME = ".code"


def freeze(root: Path, folder: Path) -> Path:
    """Copy jobs/ and train/ of the checkout ``root`` under ``folder``; equal code is copied once.

    Files are read-only; folders are not, so that results can be removed as before.

    Raises:
        OSError: the folder cannot be written.
    """
    files = {
        file.relative_to(root): file.read_bytes()
        for part in ("jobs", "train")
        for file in sorted((root / part).rglob("*"))
        if file.suffix in (".py", ".yaml", ".yml") and file.is_file()
    }
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    parent = folder / CODE_NAME
    target = parent / digest.hexdigest()[:12]
    if target.is_dir():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    new = parent / f".new-{uuid.uuid4().hex}"
    new.mkdir()
    try:
        for name, content in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(create(new / name, 0o444), "wb") as out:
                out.write(content)
        # nobody else will: ranks of other users' containers may not write here
        compileall.compile_dir(
            new, quiet=2, stripdir=str(new), prependdir=str(target),
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )  # fmt: skip
        new.rename(target)
    except OSError:
        if not target.is_dir():  # another submission was first
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target
