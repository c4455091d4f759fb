"""What a user asks of a cluster, checked before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.cell.container import Image, find_image
from jobs.cell.needs import basic_needs, check_names, needs_of
from jobs.config.site import NamedSite, Site, sbatch_keys
from jobs.config.sweep import Sweep
from jobs.messages import ROOT, NoAnswer, say, without_links
from jobs.slurm.client.run import SCONTROL, SlurmError, asker, max_array_size, read_config
from jobs.slurm.job.task import SubmissionContext
from jobs.slurm.script import freeze
from train.distributed.watchdog import STALL_S
from train.errors import ConfigError
from train.record.mount import local_file_system
from train.run.provenance import git_state


@dataclass(frozen=True)
class SweepRequest:
    """A sweep, and how it is to run."""

    wanted: Sweep
    results: Path
    data: Path
    store: Path
    site: NamedSite
    stall_s: float = STALL_S

    @property
    def folder(self) -> Path:
        return self.results / self.wanted.name


@contextmanager
def slurm_refusals(site: NamedSite) -> Iterator[None]:
    """Raises ConfigError where sbatch refuses what the site file asks for, else NoAnswer."""
    try:
        yield
    except SlurmError as error:
        if error.asked == "sbatch" and not error.passing:
            raise ConfigError(
                f"sbatch refused: {error.printed}\nKeys of {site.file} that set its options: "
                f"{', '.join(sbatch_keys(site.site))}. Change what it refused, then submit again: "
                "what was submitted before goes on"
            ) from error
        raise NoAnswer(
            f"Slurm gives no answer, or is busy: {error}. Jobs that were submitted go on. Repeat "
            "the command to submit the others; make status shows the jobs of a sweep"
        ) from error


def prepare(request: SweepRequest) -> SubmissionContext:
    """Everything that the jobs share, checked.

    Raises:
        ConfigError: no image, or a folder that a batch script cannot name.
    """
    # bundled data leave no folder, and containers bind only what is there
    for folder in (request.data, request.store):
        with suppress(OSError):  # read-only: what is missing there, the preflight reports
            folder.mkdir(parents=True, exist_ok=True)
    return context_for(request, find_image(request.site.site.image, ROOT))


def context_for(request: SweepRequest, image: Image) -> SubmissionContext:
    """Raises ConfigError where a batch script cannot name a folder."""
    data, store = without_links(request.data), without_links(request.store)
    site = request.site.site
    needs = needs_of(
        request.wanted, results=request.folder, data=data, store=store, binds=site.binds
    )
    check_names((*basic_needs(str(ROOT), image.path, site.scratch), *needs), image.path)
    commit, dirty = git_state(ROOT)
    return SubmissionContext(
        name=request.wanted.name,
        folder=request.folder,
        site_name=request.site.name,
        site=site,
        image=image,
        root=ROOT,
        data=data,
        store=store,
        needs=needs,
        stall_s=request.stall_s,
        git_commit=commit,
        git_dirty=dirty,
    )


def with_array_limit(site: Site, config: Mapping[str, str]) -> Site:
    """The same with arrays that the cluster takes: the smaller of the two limits holds.

    ``config``: the cluster's.
    """
    most = min(site.array_limit, max_array_size(config))
    return site.model_copy(update={"array_limit": most})


def check_cluster(request: SweepRequest, context: SubmissionContext) -> SubmissionContext:
    """The same with the code that waiting jobs will run, the name of the cluster, and its limit on
    arrays. What else the cluster takes, sbatch decides.

    Raises:
        SlurmError: Slurm does not answer.
    """
    config = read_config(asker()(SCONTROL))
    if (kind := local_file_system(request.folder)) and context.site.user is None:
        say(f"{request.folder} is on a file system of this machine alone ({kind}): nodes do not "
            "see it, so jobs will fail. Name a shared folder with RESULTS=DIR")  # fmt: skip
    return replace(
        context,
        root=freeze(ROOT, context.folder),
        cluster=config.get("ClusterName"),
        site=with_array_limit(context.site, config),
    )
