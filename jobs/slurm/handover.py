"""Root's request on the practice cluster: handed over to its user, since containers refuse to start
as root there."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from jobs.sites import NamedSite
from jobs.slurm.where import become
from train.errors import ConfigError


def is_anothers(site: NamedSite) -> bool:
    """Whether root asks for what the practice cluster's user is to do."""
    return site.site.user is not None and os.geteuid() == 0


def hand_over(site: NamedSite, folder: Path) -> None:
    """Make the folder that user's, and this command once more as that user; does not return.

    Raises:
        ConfigError: there is no such user.
    """
    assert site.site.user is not None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        owner = pwd.getpwnam(site.site.user)
    except KeyError:
        raise ConfigError(
            f"{site.source}: there is no user {site.site.user!r}: make cluster makes the practice "
            "user"
        ) from None
    give(folder, owner.pw_uid, owner.pw_gid)
    become()


def give(folder: Path, user: int, group: int) -> None:
    """Make all below a folder another user's: never what a link leads to, even one that is put
    there meanwhile, because names are looked up in folders that are held open."""
    for _, folders, files, handle in os.fwalk(folder):
        for name in (*folders, *files):
            os.chown(name, user, group, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user, group)
