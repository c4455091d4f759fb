"""Everything that an image build needs, put ready in one folder that the build sees as /mnt."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import apptainer
from image_downloads import download_command, missing, usable_pip
from image_mirrors import (
    apt_settings,
    cache_folder,
    debian_codename,
    debian_mirror,
    proxies,
    security_mirror,
)
from image_plan import NEEDED_BYTES, SUITE, Parts, apt_configuration, sources_list
from image_steps import Steps, say
from locks import SetupError
from unprivileged import as_user, home_of

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FOLDERS = ("downloads", "wheels", "locks", "lists", "lists/partial", "apt", "apt/archives",
           "apt/archives/partial", "tmp")  # fmt: skip


def work_folder(user: str) -> Path:
    """Where the builder keeps downloads and parts: its own cache, unless root names another one."""
    ours = os.geteuid() != 0
    named = ours or "XDG_CACHE_HOME" in os.environ
    folder = (cache_folder() if named else home_of(user) / ".cache" / "horoscale") / "images"
    for name in ("", *FOLDERS):
        part = folder / name
        part.mkdir(parents=True, exist_ok=True)
        if not ours:
            shutil.chown(part, user, user)
    if not ours:
        probe = as_user(["test", "-w", str(folder)], user)
        if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
            raise SetupError(
                f"The user {user}, who builds images for root, cannot write {folder}. Open the "
                "folders above it, or unset XDG_CACHE_HOME."
            )
    return folder


@contextmanager
def only_one(work: Path) -> Iterator[None]:
    with (work / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another image is being built: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def check_machine(name: str, work: Path) -> None:
    """Before anything is downloaded: what building needs."""
    free = shutil.disk_usage(work).free
    if free < NEEDED_BYTES[name]:
        raise SetupError(
            f"{work} has {free / 1e9:.1f} GB free, building the {name} image needs "
            f"{NEEDED_BYTES[name] / 1e9:.0f} GB. Free some, or name another folder: "
            "XDG_CACHE_HOME=/big/disk make image"
        )
    if shutil.which("debootstrap") is None and os.geteuid() == 0 and debian_codename():
        apptainer.install_packages(["debootstrap"])
    for what, there in (("the program debootstrap", shutil.which("debootstrap")),
                        (f"Debian's signing keys ({KEYRING})", KEYRING.is_file())):  # fmt: skip
        if not there:
            raise SetupError(
                f"{what} is missing, with which the image's Debian is put together. Install the "
                "packages debootstrap and debian-archive-keyring (many distributions have them), "
                "build on another machine and copy containers/images here, or start from an image "
                "that your site has: docs/images.md"
            )


def environment_of_build(work: Path, ca: Path | None) -> dict[str, str]:
    """Of Apptainer: temporary trees on the cache's disk, because /tmp is often small."""
    env = {**os.environ, **proxies(os.environ)}
    env |= {"APPTAINER_TMPDIR": str(work / "tmp"), "APPTAINER_CACHEDIR": str(work / "apptainer")}
    if ca is not None:
        env |= {"SSL_CERT_FILE": str(ca), "PIP_CERT": str(ca)}
    return env


def download(parts: Parts, steps: Steps, environment: Mapping[str, str]) -> None:
    """All Python packages into the cache; nothing is asked of an index where all are there."""
    folder = steps.work / "downloads"
    wanted = ((parts.packages, False), (parts.build, False), (parts.horovod, True))
    for requirements, source in wanted:
        if not (absent := missing(requirements, folder)):
            continue
        listing = steps.work / "requirements"
        listing.write_text(requirements)
        command = download_command(
            usable_pip(steps.work / "pip"), listing, folder, parts.machine, source=source
        )
        what = f"downloading {', '.join(absent[:3])}{' ...' if absent[3:] else ''}"
        steps.run_as_caller(command, f"{what} ({len(absent)} packages)", environment)


def lay_out(parts: Parts, work: Path, ca: Path | None) -> None:
    """What the definitions read from /mnt beside downloads and wheels: locks, apt's settings."""
    for name, text in (("packages", parts.packages), ("horovod", parts.horovod),
                       ("build", parts.build)):  # fmt: skip
        (work / "locks" / name).write_text(text)
    mirror = debian_mirror(os.environ)
    (work / "sources.list").write_text(sources_list(mirror, security_mirror(os.environ, SUITE)))
    (work / "apt.conf").write_text(
        apt_configuration(apt_settings(), proxies(os.environ), ca=ca is not None)
    )
    (work / "ca.crt").write_bytes(ca.read_bytes() if ca is not None else b"")
