"""SITE=: which cluster, or this machine; SITE=auto writes a site file from what the cluster says of
itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from jobs.config.precedence import OPTIONS, Setting, decide, settings_of
from jobs.config.site import AUTO, LOCAL, NamedSite, auto_file, load_site
from jobs.messages import NoAnswer, say
from jobs.slurm.client.granted import User, cluster_name
from jobs.slurm.client.propose import propose
from jobs.slurm.client.run import SCONTROL, SlurmError, ask_cluster, asker, read_config
from jobs.slurm.client.user import hand_over
from jobs.slurm.submissions import NOTES_NAME
from train.errors import ConfigError
from train.record.atomic import write_atomically

#: No sweep runs without these. Any of them, or srun, is a sign of Slurm, even if this user may not
#: run it; another package has a sinfo, too.
_PROGRAMS = ("sbatch", "squeue", "scontrol")
#: Further signs: what the user asks of a cluster, what the sweep has submitted, variables that name
#: a configuration or its server, and where packages, sites and the daemons of a cluster without
#: configuration files (configless) keep slurm.conf.
_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS")
CONFIGURATIONS = (
    "/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf", "/run/slurm/conf/slurm.conf",
)  # fmt: skip
#: Of Environment Modules and of Lmod. Where programs come from packages, only a module may name the
#: configuration.
_MODULES = ("MODULESHOME", "LMOD_CMD")
_WHERE = "jobs run on the cluster of site file"
#: They say so where there is no slurm.conf and the name service knows no controller to ask for one
#: (tried with 22.05 and 24.11). Their last words would not do: a login node whose controller does
#: not answer ends with them, too, and so does one whose name service is down.
_NO_CONFIGURATION = re.compile("res_nsearch error: (Unknown host|No address associated with name)")


def site_for(
    name: str,
    options: Mapping[str, str] = MappingProxyType({}),
    *,
    of_cells: bool = True,
    sweep: Path | None = None,
    gives: Sequence[Path] = (),
    data: Path | None = None,
) -> NamedSite | None:
    """The site that SITE= names, as it counts for this user; None for this machine. Which of them
    it is is the first line that a user reads.

    ``auto`` is the cluster that answers here, as the user's own file of it says; the first time,
    that file is written from what the cluster says of itself. Root's command goes on as the user
    of the practice cluster, before anything is asked or written for it.

    ``options``: what the command line asks for in place of the file's keys
    (jobs/config/precedence.py). ``of_cells``: else the job is one whose time limit follows from
    what it does, so that nothing that the user says of it counts. ``sweep``: folder of its results.
    ``gives``, ``data``: folders that root's command makes that user's, and the one that it makes
    for that user to read.

    Raises:
        ConfigError: no such site, or an error in its file.
        NoAnswer: Slurm's programs are here and fail, or only other signs of a cluster are here:
            a login node is no place to train on unasked.
    """
    given = {key: text for key, text in options.items() if text}
    ignored = []
    environment = dict(os.environ)
    if not of_cells:
        for variable in ("SBATCH_TIMELIMIT", "SLURM_TIMELIMIT"):
            environment.pop(variable, None)
        if time := given.pop("time_min", ""):
            ignored = [f"TIME={time}: ignored, since it is for cells; this job takes what it needs"]
    ask = name == AUTO and _has_slurm(given, sweep)
    if ask:
        named = _found(settings_of(given))
    else:
        named = load_site(name) if name not in (AUTO, LOCAL) else None
    if named is None:
        why = ": Slurm's programs are here, but no configuration of a cluster" if ask else ""
        say(f"cells run on this machine, {os.uname().nodename}{why}")
        if given:
            asked = ", ".join(f"{OPTIONS[key]}={text}" for key, text in given.items())
            say(f"{asked}: ignored, since ranks run on this machine")
        return None
    hand_over(named, *gives, data=data)
    if not ask:
        say(f"{_WHERE} {named.source}")
    named, remarks = decide(environment, named, given)
    for remark in (*ignored, *remarks):
        say(remark)
    site = named.site
    clusters = (site.cluster or "") if "cluster" in site.model_fields_set else None
    ask_cluster(clusters, site.slurm_conf)
    return named


def _signs() -> list[str]:
    """What is here of a configuration of Slurm."""
    return _given(_VARIABLES) + [file for file in CONFIGURATIONS if os.path.lexists(file)]


def _given(variables: Sequence[str]) -> list[str]:
    values = {name: os.environ.get(name, "").strip() for name in variables}
    return [f"{name}={value}" for name, value in values.items() if value]


def _has_slurm(given: Mapping[str, str], sweep: Path | None) -> bool:
    """Whether Slurm's programs are here, to be asked.

    ``given``, ``sweep``: what the command line asks for, and the folder of the sweep's results.

    Raises:
        NoAnswer: some are missing, and there are signs of a cluster.
    """
    there = [name for name in ("srun", *_PROGRAMS) if shutil.which(name, mode=os.F_OK)]
    missing = [name for name in _PROGRAMS if name not in there]
    signs = _signs() + there
    if _given(_MODULES):  # elsewhere they may be variables of other programs, which make reads
        signs += [f"{OPTIONS[key]}={text}" for key, text in given.items()]
    signs += [str(notes)] if sweep and (notes := sweep / NOTES_NAME).exists() else []
    if missing and signs:
        raise _not_loaded(signs, f"not on PATH: {', '.join(missing)}")
    return not missing


def _not_loaded(signs: Sequence[str], lacks: str) -> NoAnswer:
    return NoAnswer(
        f"{', '.join(signs)} found here, as on the login node of a cluster, but {lacks}; nothing "
        "was set up or run. Load Slurm (module load slurm, for instance) or set PATH and "
        "SLURM_CONF; SITE=local runs on this machine"
    )


def _found(given: Mapping[str, Setting]) -> NamedSite | None:
    """The cluster that answers here, by its file, which is written where there is none; None where
    client packages alone are installed.

    ``given``: what the command line asks for. It holds for this command alone, and may decide which
    partition is proposed: then nothing is written.
    """
    ask = asker()
    try:
        config = read_config(ask(SCONTROL))
        file, remark = _file_of(config)
        say(f"{_WHERE} {file}")
        if remark:
            say(remark)
        if file.exists():
            return _loaded(file)
        text = propose(ask, config, User.here(), given)
    except SlurmError as error:
        # as on a laptop: there is no cluster that could be meant
        if _NO_CONFIGURATION.search(error.came) and not _signs():
            if modules := _given(_MODULES):
                lacks = "no configuration that Slurm's programs find"
                raise _not_loaded(modules, lacks) from error
            return None
        raise NoAnswer(
            f"Slurm is here but gives no answer ({error}), so nothing was set up or run. Where "
            "this is a login node, try again later or tell its administrators; where users may "
            "not run sinfo, write a site file (jobs/sites/cpu.yaml is an example) and name it with "
            "SITE=; SITE=local runs on this very machine"
        ) from error
    with TemporaryDirectory() as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        try:
            found = replace(load_site(str(draft)), source=file)
        except ConfigError as error:
            raise ConfigError(
                f"SITE=auto cannot write a site file for this cluster ({error}):\n{text}"
                "Write one by hand (jobs/sites/cpu.yaml is an example) and name it with SITE="
            ) from error
    if given:
        asked = ", ".join(map(str, given.values()))
        say(f"found a cluster; {asked} holds for this command alone, so no site file was written: "
            f"the first command without that writes {file}")  # fmt: skip
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text)
        say(f"found a cluster and wrote {file}: look it over, change what is wrong\n{text}")
    return found


def _file_of(config: Mapping[str, str]) -> tuple[Path, str]:
    """The file of SITE=auto for the cluster with this configuration, and a remark on it. Many a
    cluster is called "cluster", so its controller is a part of the name."""
    conf = os.environ.get("SLURM_CONF")
    controller = config.get("SlurmctldHost[0]"), config.get("SlurmctldPort")
    identity = hashlib.sha256(repr(controller).encode()).hexdigest()[:4]
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", cluster_name(config))
    file, earlier = auto_file(f"{name}-{identity}"), auto_file(name)
    if file.exists() or not earlier.exists():
        return file, ""
    # as earlier versions called it: one of another cluster names another SLURM_CONF
    named = _loaded(earlier).site.slurm_conf
    if named and conf and named != conf.strip():
        return file, ""
    if bool(named) == bool(conf):
        return earlier, ""
    what = f"SLURM_CONF={named}" if named else "no SLURM_CONF"
    return earlier, (
        f"{earlier}, of an earlier version, is used and names {what}: give it another name if it "
        "is another cluster's, and SITE=auto writes one for this"
    )


def _loaded(file: Path) -> NamedSite:
    try:
        return load_site(str(file))
    except ConfigError as error:
        raise ConfigError(f"{error}. Remove it, and SITE=auto writes another") from error


def refuse_image(image: str, site: NamedSite) -> None:
    """Raises ConfigError where IMAGE= would be ignored."""
    if image:
        raise ConfigError(
            f"IMAGE={image} is for ranks on this machine: say SITE=local, too. The image of the "
            f"cluster's jobs is the key image: of {site.file}"
        )
