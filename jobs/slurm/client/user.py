"""As whom: on the practice cluster root's commands go on as that cluster's user, because containers
refuse to start as root there, and root writes nothing where that user can. containers/users.py
makes the change.
"""

from __future__ import annotations

import os
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
    """Give the folders to the site's user, and run this command as that user; does not return."""
    become(site.site.user or "", *folders)


def become_owner(folder: Path) -> None:
    """Root asks about a sweep of the practice cluster's user: only that user's jobs count."""
    # no results yet; an id without a name; a site's broken file does not matter here
    with suppress(OSError, KeyError, ConfigError):
        if os.geteuid() == 0 and load_site("practice").site.user == (owner := folder.owner()):
            become(owner)


def become(user: str, *folders: Path) -> None:
    """Run this very command again as the user, on the practice cluster's login node; does not
    return. ``folders``: made that user's before."""
    given = [token for folder in folders for token in ("--give", str(folder.absolute()))]
    argv = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--user", user, *given]
    argv += ["--", sys.executable, "-m", "jobs", *sys.argv[1:]]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)  # noqa: S606
