"""The user whom root's sweeps and image builds continue as: nothing of them needs root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from pathlib import Path

from locks import SetupError, environment_of_train

PRACTICE_USER = "practice"
#: Ids that a user may map into a container: what Debian's useradd hands out, too.
SUB_IDS = 65536
FIRST_SUB_ID = 100_000
#: root's own PATH may lead through folders that nobody else can enter.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def as_user(argv: Sequence[str], user: str, home: str | None = None) -> list[str]:
    """The same command as another user, with that user's HOME and groups; only root may run it."""
    names = environment_of_train().OF_THE_CALLER
    forgotten = [token for name in names for token in ("-u", name)]
    return [
        "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--inh-caps=-all",
        "env", *forgotten, f"HOME={home or f'/home/{user}'}", f"USER={user}", f"LOGNAME={user}",
        f"PATH={SEARCH_PATH}", *argv,
    ]  # fmt: skip


def has_sub_ids(text: str, user: str) -> bool:
    """Whether a file like /etc/subuid gives the user a whole range of ids."""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == user and rest.partition(":")[2].isdigit() and int(rest.split(":")[1]) >= SUB_IDS:
            return True
    return False


def free_range(text: str) -> tuple[int, int]:
    """First and last id of a range that no line of /etc/subuid or /etc/subgid touches."""
    ends = [FIRST_SUB_ID]
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit():
            ends.append(int(fields[1]) + int(fields[2]))
    return max(ends), max(ends) + SUB_IDS - 1


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def _give_sub_ids(user: str) -> None:
    for file, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
        path = Path(file)
        text = path.read_text() if path.is_file() else ""
        if not has_sub_ids(text, user):
            first, last = free_range(text)
            _run(["usermod", option, f"{first}-{last}", user])


def ensure_user() -> str:
    """The name of an unprivileged user: ourselves, or as root the practice user, made if missing.

    Raises SetupError where the user cannot be made.
    """
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    try:
        pwd.getpwnam(PRACTICE_USER)
    except KeyError:
        _run(["useradd", "--create-home", "--user-group", "--shell", "/bin/bash", PRACTICE_USER])
    _give_sub_ids(PRACTICE_USER)
    return PRACTICE_USER


def home_of(user: str) -> Path:
    return Path(pwd.getpwnam(user).pw_dir)
