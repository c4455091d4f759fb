"""A site: what one cluster wants to be asked, and how ranks are launched there. Read from
jobs/sites/*.yaml, strictly. And the nodes that so many ranks take there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from jobs.config.yamlfile import find_file, load_yaml, names_in
from train.config.frozen import Frozen
from train.errors import ConfigError, expanded, named_folder

#: How a job asks for GPUs; ``none``: ranks compute on CPU cores.
GpuRequest = Literal["none", "gres", "gpus-per-node", "gpus-per-task"]
#: ~ and ~user are home folders, the same on nodes.
Home = BeforeValidator(lambda text: str(expanded(text)) if isinstance(text, str) else text)
#: Without what apptainer takes for the start of another bind.
Bind = Annotated[str, Home, Field(pattern=r"^/[^,^]*$")]
#: Of nodes, so that no working folder and no variable of this shell can be meant.
Place = Annotated[str, Home, Field(pattern=r"^/")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
LongOption = Annotated[str, Field(pattern=r"^[a-z][a-z-]*$")]


class Site(Frozen):
    """One file of jobs/sites. What is null is not asked for: the cluster's own default holds."""

    title: str = ""
    # what to ask Slurm for
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    wckey: str | None = None
    cluster: str | None = None  # where Slurm's programs serve several (SLURM_CLUSTERS)
    ranks_per_node: int = Field(ge=1)  # GPUs of a node that a job may use; without GPUs, ranks
    gpus: GpuRequest = "none"
    gpu_type: str | None = None  # as in gres: gpu:TYPE:N
    cpus_per_rank: int = Field(default=1, ge=1)
    mem_per_rank_gb: float | None = Field(default=None, gt=0)
    # time limit of a cell's job; a cell may need several jobs. null: by the times of earlier cells,
    # and max_time_min where they do not tell
    time_min: int | None = Field(default=None, ge=1)
    max_time_min: int = Field(default=60, ge=1)
    exclusive: bool = False
    max_nodes: int | None = Field(default=None, ge=1)  # of one job
    array_limit: int = Field(default=1000, ge=1)  # elements of one array, at most MaxArraySize
    array_parallel: int = Field(default=64, ge=1)  # elements (jobs) of a sweep that run at once
    # jobs in the queue, array elements counted
    submit_limit: int | None = Field(default=None, ge=1)
    requeue: bool = True  # a preempted or unfinished cell goes on in the same job, requeued
    # seconds before its end at which Slurm warns a job; of one minute, by default, 30
    signal_s: int = Field(default=90, ge=1)
    preflight_s: int = Field(default=150, ge=20)  # seconds that the preflight's ranks may take
    sbatch: dict[LongOption, str | int | bool] = Field(default_factory=dict)  # other options
    modules: tuple[str, ...] = ()  # loaded in the batch script, before the supervisor
    # lines of shell for the batch script, the site's own words; each is a complete command, and one
    # that fails ends the job
    setup: tuple[str, ...] = ()
    # how ranks are launched
    mpi: str = "pmix"  # value of srun --mpi, or "gloo" where the site has no PMIx
    interface: str | None = None  # network interface for ranks (Gloo, Open MPI's TCP, NCCL sockets)
    srun: tuple[str, ...] = ()  # further arguments of srun
    environment: dict[Variable, str] = Field(default_factory=dict)  # for the ranks
    # the container
    # cpu or gpu: the one that make image builds; the path of a SIF file; or none: no container, but
    # the Python environment of `make setup`, which nodes must see
    image: str = "cpu"
    runtime: Literal["apptainer", "singularity"] = "apptainer"
    gpu_support: Literal["none", "nv", "rocm"] = "none"
    binds: tuple[Bind, ...] = ()  # SRC[:DEST[:ro]]
    container_arguments: tuple[str, ...] = ()
    scratch: Place | None = None  # folder on every node for temporary files of ranks (TMPDIR)
    # the cluster itself
    slurm_conf: Place | None = None  # where it is not the default one
    poll_s: float | None = Field(default=None, ge=1)  # seconds between two looks at the queue;
    # null: 5 in the first minute, then 60
    user: str | None = None  # whose jobs root's sweeps become: practice clusters only

    @property
    def longest_min(self) -> int:
        """Most minutes that the job of one cell may take."""
        return self.max_time_min if self.time_min is None else self.time_min

    @field_validator("*")
    @classmethod
    def _one_line(cls, value: Any) -> Any:
        """A line break would end a line of the batch script and start a command of its own."""
        texts = [*value, *value.values()] if isinstance(value, dict) else value
        for text in texts if isinstance(texts, list | tuple) else [texts]:
            if isinstance(text, str) and not text.replace("\t", " ").isprintable():
                raise ValueError(f"expected a single line of text, found {text!r}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Site:
        if self.gpu_type is not None and self.gpus == "none":
            raise ValueError("gpu_type needs a way to ask for it: gpus: gres or gpus-per-...")
        limit_s = 60 * self.longest_min
        if self.signal_s >= limit_s and "signal_s" not in self.model_fields_set:
            object.__setattr__(self, "signal_s", limit_s // 2)  # the model is frozen
        if self.signal_s >= limit_s:
            which = "max_time_min" if self.time_min is None else "time_min"
            raise ValueError(f"signal_s {self.signal_s}: a job has {limit_s} s ({which})")
        for option in self.sbatch:
            key = _BY_KEY.get(option)
            # where the key says nothing, the option may say what the key cannot
            yields = key in _YIELDING and getattr(self, str(key)) in _SILENT
            if option in _OWN_OPTIONS or (key is not None and not yields):
                raise ValueError(f"sbatch: {option} {place_of(option)}")
        return self


#: Options of sbatch that decide where records are and which cell a job runs.
_OWN_OPTIONS = frozenset(
    {
        "array", "chdir", "clusters", "comment", "dependency", "error", "export", "job-name",
        "kill-on-invalid-dep", "nodes", "no-requeue", "ntasks", "ntasks-per-node", "open-mode",
        "output", "parsable", "quiet", "signal", "test-only", "wait", "wrap",
    }
)  # fmt: skip
_BY_KEY = {
    "partition": "partition", "account": "account", "qos": "qos", "constraint": "constraint",
    "reservation": "reservation", "wckey": "wckey", "time": "time_min", "requeue": "requeue",
    "cpus-per-task": "cpus_per_rank", "gres": "gpus", "gpus-per-node": "gpus",
    "gpus-per-task": "gpus", "mem": "mem_per_rank_gb", "exclusive": "exclusive",
}  # fmt: skip
#: Keys for a part of what such an option could say.
_PARTLY = {"export": "environment", "signal": "signal_s", "no-requeue": "requeue",
           "clusters": "cluster"}  # fmt: skip
#: Keys that set options of sbatch together with others, or without being what the option is called.
_FURTHER = ("ranks_per_node", "gpu_type", "max_time_min", "array_limit", "array_parallel",
            "signal_s", "sbatch")  # fmt: skip
_YIELDING = frozenset({"gpus", "mem_per_rank_gb", "exclusive"})
_SILENT = (None, False, "none")


def place_of(option: str) -> str:
    """Where a site file says what this option of sbatch says, in words."""
    if option in _OWN_OPTIONS:
        key = _PARTLY.get(option)
        return "is what this program sets by itself" + (f"; see the key {key!r}" if key else "")
    if key := _BY_KEY.get(option):
        return f"belongs to the key {key!r} of the site file"
    return f"belongs into the site file (sbatch: {{{option}: ...}})"


def sbatch_keys(site: Site) -> list[str]:
    """Keys of a site file that set options of sbatch for this site."""
    keys = dict.fromkeys((*_BY_KEY.values(), *_FURTHER))
    return [key for key in keys if getattr(site, key) not in (*_SILENT, {})]


SITES = Path(__file__).parent.parent / "sites"
#: Words of SITE= that stand for no file.
AUTO, LOCAL = "auto", "local"


@dataclass(frozen=True)
class NamedSite:
    name: str
    site: Site
    source: Path

    @property
    def file(self) -> str:
        """For a person: what SITE=auto proposed for one command has no file yet."""
        if self.source.exists():
            return str(self.source)
        first = "the first command without ACCOUNT=, PARTITION=, QOS= and TIME="
        return f"{self.source} (not saved: {first} writes it)"


def own_sites() -> Path:
    """The user's own site files: an installation that users share may be read-only."""
    return (named_folder("XDG_CONFIG_HOME") or Path.home() / ".config") / "horoscale" / "sites"


def auto_file(cluster: str) -> Path:
    """The file of SITE=auto: the user's own, or one of the installation where there is no own."""
    own, shared = (folder / f"auto-{cluster}.yaml" for folder in (own_sites(), SITES))
    return shared if shared.exists() and not own.exists() else own


def load_site(name_or_path: str, folder: Path = SITES) -> NamedSite:
    """Read a site by its path, or by its name among the user's own or in ``folder``.

    Raises:
        ConfigError: no such site, or an error in its file: with the line, what was found, what is
            known and the nearest.
    """
    own = own_sites()
    folder = own if name_or_path in names_in(own) else folder
    file = find_file("site", name_or_path, folder, (AUTO, LOCAL, *names_in(own)))
    document = load_yaml(file)
    return NamedSite(file.stem, document.checked(Site, document.value), file)


@dataclass(frozen=True)
class NodeLayout:
    """The nodes of a job, with equally many ranks on each."""

    nodes: int
    ranks_per_node: int

    @property
    def size(self) -> int:
        """All ranks, which reports call the number of GPUs."""
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{nodes} x {_ranks(self.ranks_per_node)}"


def layout_of(gpus: int, site: Site) -> NodeLayout:
    """As few nodes as hold ``gpus`` ranks, with equally many on each.

    Raises:
        ConfigError: the ranks cannot be spread equally, or need more nodes than a job may have.
    """
    most = site.ranks_per_node
    nodes = math.ceil(gpus / most)
    if site.max_nodes is not None and nodes > site.max_nodes:
        raise ConfigError(
            f"gpus={gpus} needs {nodes} nodes with up to {_ranks(most)} each, and the site allows "
            f"a job {site.max_nodes} (max_nodes): use at most gpus={site.max_nodes * most}"
        )
    if gpus % nodes:
        fewer = gpus // nodes * nodes
        raise ConfigError(
            f"gpus={gpus} cannot be spread equally: a node of the site holds {_ranks(most)}, and "
            f"{nodes} nodes do not divide {gpus}; nearest: gpus={max(fewer, (nodes - 1) * most)} "
            f"or gpus={fewer + nodes}"
        )
    return NodeLayout(nodes, gpus // nodes)


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"
