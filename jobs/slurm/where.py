"""SITE=: which cluster, or this machine; and as whom."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from jobs.options import NoAnswer, say
from jobs.sites import AUTO, LOCAL, SITES, NamedSite, load_site, site_names
from jobs.slurm.commands import SlurmError, ask
from jobs.slurm.find import find_site
from jobs.supervisor import ROOT
from train.errors import ConfigError
from train.record.atomic import write_atomically

PATIENCE_S = 60.0
#: Either of them, even where this user may not run it, is a sign of Slurm; another package has a
#: sinfo, too.
PROGRAMS = ("srun", "sbatch")
#: How they end where there is no slurm.conf and the name service knows no controller to ask for one
#: (tried with 22.05 and 24.11). The last words alone would not do: a login node whose controller
#: does not answer, or refuses it (munge), ends with them, too, and so does one whose name service
#: is down.
_NO_CONFIGURATION = (
    "DNS SRV lookup failed",
    "Could not establish a configuration source",
)
_NO_SUCH_NAME = ("Unknown host", "No address associated with name")


def site_for(name: str, folder: Path = SITES) -> NamedSite | None:
    """The site that SITE= names; None for this machine.

    ``auto`` is the cluster that answers here, as its file in ``folder`` says; the first time, that
    file is written from what the cluster tells of itself.

    Raises:
        ConfigError: no such site, or an error in its file.
        NoAnswer: Slurm's programs are here and fail: whether there is a cluster is not known, and a
            login node is no place to train on unasked.
    """
    if name == LOCAL or (name == AUTO and not any(map(_is_installed, PROGRAMS))):
        return None
    if name != AUTO:
        return load_site(name, folder)
    conf = os.environ.get("SLURM_CONF")
    try:
        found = find_site(asker(conf), slurm_conf=conf)
    except SlurmError as error:
        if not _finds_no_configuration(error.came):
            raise NoAnswer(
                f"Slurm is here but gives no answer ({error}), so nothing was set up or run. Where "
                "this is a login node, try again later or tell its administrators; SITE=local runs "
                "on this very machine"
            ) from error
        say("Slurm's programs are here, but no configuration of a cluster: running on this machine")
        return None
    # never one of the examples beside it
    file = folder / f"auto-{found.name}.yaml"
    if not file.exists():
        write_atomically(file, found.text)
        say(f"found a cluster and wrote {file}: look it over, change what is wrong")
        for line in found.summary:
            say(f"  {line}")
    return load_site(str(file))


def _is_installed(program: str) -> bool:
    return shutil.which(program, mode=os.F_OK) is not None


def _finds_no_configuration(said: str) -> bool:
    """Client packages alone, as on a laptop: there is no cluster that could be meant."""
    unnamed = any(f"res_nsearch error: {words}" in said for words in _NO_SUCH_NAME)
    return unnamed and all(words in said for words in _NO_CONFIGURATION)


def refuse_image(image: str, site: NamedSite) -> None:
    """Raises ConfigError where IMAGE= would be left out of account."""
    if image:
        raise ConfigError(
            f"IMAGE={image} is for ranks on this machine: say SITE=local, too. The image of the "
            f"cluster's jobs is the key image: of {site.source}"
        )


def asker(slurm_conf: str | None) -> Callable[[Sequence[str]], str]:
    """Ask Slurm one question; its refusal counts as no answer.

    The function raises SlurmError.
    """

    def question(argv: Sequence[str]) -> str:
        answer = ask(argv, patience_s=PATIENCE_S, slurm_conf=slurm_conf)
        if answer.code != 0:
            raise SlurmError(" ".join(argv), answer.words, passing=False)
        # srun of older Slurms lists what it can launch with among its messages
        return answer.out if answer.out.strip() else answer.err

    return question


def become() -> None:
    """Run this very command once more, on the practice cluster's login node as its user, because
    containers refuse to start as root there. Does not return."""
    argv = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--"]
    argv += [sys.executable, "-m", "jobs", *sys.argv[1:]]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)  # noqa: S606


def become_owner(folder: Path, known: Path = SITES) -> None:
    """Root asks about a sweep of the practice cluster's user: only that user's jobs count."""
    if os.geteuid() == 0 and folder.exists() and owner_of(folder) in users_of(known):
        become()


def owner_of(folder: Path) -> str | None:
    try:
        return folder.owner()
    except KeyError:  # an id without a name
        return None


def users_of(known: Path) -> set[str]:
    """Whose jobs root's sweeps become, on any site."""
    found = set()
    for name in site_names(known):
        with suppress(ConfigError):  # a broken file of another site is no matter here
            if (user := load_site(name, known).site.user) is not None:
                found.add(user)
    return found
