"""As whom: on the practice cluster root's commands go on as that cluster's user, because containers
refuse to start as root there, and root writes nothing where that user can. containers/users.py
makes the change.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jobs.config.site import NamedSite, load_site
from jobs.messages import ROOT
from train.errors import ConfigError


def hand_over(named: NamedSite, *folders: Path, data: Path | None = None) -> None:
    """Where root asks for what the site's user is to do, run this command as that user from its
    beginning, and do not return.

    ``folders``: made the user's before. ``data``: made before as root's own, where it is missing,
    since containers bind only what is there; the user brings and prepares data elsewhere. None: the
    command only looks, which needs no user.
    """
    user = named.site.user
    if user is None or os.geteuid() != 0:
        return
    try:
        pwd.getpwnam(user)
    except KeyError:
        if data is None:
            return
    # by its path: a name of root's own would be sought among the user's
    options = ["--read", str(named.source.absolute())]
    options += [] if data is None else ["--make", str(data.absolute())]
    options += [token for folder in folders for token in ("--give", str(folder.absolute()))]
    # of an option given twice, the last counts
    _become(user, options, "--site", str(named.source.absolute()))


def become_owner(folder: Path) -> None:
    """Root asks about a sweep of the practice cluster's user: only that user's jobs count."""
    # no results yet; an id without a name; a site's broken file does not matter here
    with suppress(OSError, KeyError, ConfigError):
        if os.geteuid() == 0 and load_site("practice").site.user == (owner := folder.owner()):
            _become(owner)


def _become(user: str, options: Sequence[str] = (), *words: str) -> None:
    """Run this very command, with further ``words``, again as the user, on the practice cluster's
    login node; does not return."""
    argv = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--user", user]
    argv += [*options, "--", sys.executable, "-m", "jobs", *sys.argv[1:], *words]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)  # noqa: S606
