"""As whom: on the practice cluster root's commands go on as that cluster's user, because containers
refuse to start as root there.
"""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import suppress
from pathlib import Path

from jobs.config.site import NamedSite, load_site
from jobs.messages import ROOT
from train.errors import ConfigError


def is_anothers(site: NamedSite) -> bool:
    """Whether root asks for what the practice cluster's user is to do."""
    return site.site.user is not None and os.geteuid() == 0


def hand_over(site: NamedSite, *folders: Path) -> None:
    """Give the folders to the site's user, and run this command as that user; does not return.

    Raises:
        ConfigError: there is no such user.
    """
    try:
        owner = pwd.getpwnam(site.site.user or "")
    except KeyError:
        raise ConfigError(
            f"{site.source}: there is no user {site.site.user!r}: make cluster makes the practice "
            "user"
        ) from None
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        give(folder, owner.pw_uid, owner.pw_gid)
    become()


def become_owner(folder: Path) -> None:
    """Root asks about a sweep of the practice cluster's user: only that user's jobs count."""
    # no results yet; an id without a name; a site's broken file does not matter here
    with suppress(FileNotFoundError, KeyError, ConfigError):
        if os.geteuid() == 0 and load_site("practice").site.user == folder.owner():
            become()


def give(folder: Path, user: int, group: int) -> None:
    """Make everything below a folder another user's, but never the target of a link, even of one
    that is made meanwhile: names are looked up in folders that are held open."""
    for _, folders, files, handle in os.fwalk(folder):
        for name in (*folders, *files):
            os.chown(name, user, group, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user, group)


def become() -> None:
    """Run this very command again as the user, on the practice cluster's login node; does not
    return."""
    argv = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--"]
    argv += [sys.executable, "-m", "jobs", *sys.argv[1:]]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)  # noqa: S606
