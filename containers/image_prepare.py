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
from image_steps import Steps, as_builder, say
from locks import SetupError, pip_environment
from unprivileged import has_sub_ids, home_of

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FOLDERS = ("downloads", "wheels", "locks", "lists/partial", "apt/archives/partial", "tmp")


def work_folder(user: str) -> Path:
    """Where the builder keeps downloads and parts: its own cache, or the one that is named.

    root's own cache is often closed to others; then it is that of the builder's home.
    """
    candidates = [home_of(user) / ".cache" / "horoscale"]
    if os.geteuid() != 0 or "XDG_CACHE_HOME" in os.environ:
        candidates.insert(0, cache_folder())
    said = ""
    for folder in (candidate / "images" for candidate in candidates):
        command = as_builder(["mkdir", "-p", *(str(folder / name) for name in FOLDERS)], user)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and os.access(folder, os.W_OK):
            return folder
        said = (done.stderr.splitlines() or [f"{folder} cannot be written"])[0]
    raise SetupError(
        f"{user}, who builds images, has no place for their parts: {said}\n"
        "Name a folder: XDG_CACHE_HOME=/big/disk make image"
    )


@contextmanager
def only_one(work: Path) -> Iterator[int]:
    """Held while an image is built in this folder; yields the lock's file number."""
    with (work / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another image is being built: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()


def maps_ids(user: str) -> bool:
    """Whether the user may map a range of ids, by the files or by the site's directory service."""
    files = [Path("/etc/subuid"), Path("/etc/subgid")]
    if all(file.is_file() and has_sub_ids(file.read_text(), user) for file in files):
        return True
    if shutil.which("getsubids") is None:
        return False
    found = subprocess.run(["getsubids", user], capture_output=True, check=False)
    return found.returncode == 0


def check_machine(name: str, work: Path, user: str) -> None:
    """Before anything is downloaded: what building needs."""
    if not maps_ids(user):
        raise SetupError(
            f"{user} has no range of ids in /etc/subuid and /etc/subgid, expected 65536: files of "
            "an image belong to several users. Ask an administrator for: usermod --add-subuids "
            f"200000-265535 --add-subgids 200000-265535 {user} (a range that nobody else has)"
        )
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
        # debootstrap downloads with wget, which is told of certificates in its own file only
        env |= {"WGETRC": str(work / "wgetrc")}
    return env


def download(parts: Parts, steps: Steps, environment: Mapping[str, str]) -> None:
    """All Python packages into the cache; nothing is asked of an index where all are there."""
    folder = steps.work / "downloads"
    wanted = (
        (parts.packages, False), (parts.build, False), (parts.cuda, False), (parts.horovod, True)
    )  # fmt: skip
    for requirements, source in wanted:
        if not (absent := missing(requirements, folder)):
            continue
        listing = steps.work / "requirements"
        listing.write_text(requirements)
        pip = usable_pip(steps.work / "pip")
        command = download_command(pip, listing, folder, parts.machine, source=source)
        what = f"downloading {', '.join(absent[:3])}{' ...' if absent[3:] else ''}"
        seen = pip_environment(pip) | dict(environment) | {"PIP_CONFIG_FILE": os.devnull}
        steps.run(
            command, f"{what} ({len(absent)} packages)", seen,
            "Is the package index in reach? PIP_INDEX_URL=, CA= and https_proxy= name other ways.",
        )  # fmt: skip


def lay_out(parts: Parts, work: Path, ca: Path | None) -> None:
    """What the definitions read from /mnt beside downloads and wheels: locks, apt's settings."""
    for name, text in (("packages", parts.packages), ("horovod", parts.horovod),
                       ("build", parts.build), ("cuda", parts.cuda)):  # fmt: skip
        (work / "locks" / name).write_text(text)
    (work / "image_build.sh").write_text(parts.script)
    (work / "image_compile.sh").write_text(parts.compiling)
    (work / "horovod.patch").write_text(parts.patch)
    mirror = debian_mirror(os.environ)
    (work / "sources.list").write_text(sources_list(mirror, security_mirror(os.environ, SUITE)))
    (work / "apt.conf").write_text(
        apt_configuration(apt_settings(), proxies(os.environ), ca=ca is not None)
    )
    (work / "wgetrc").write_text("" if ca is None else f"ca_certificate = {work / 'ca.crt'}\n")
    (work / "ca.crt").write_bytes(ca.read_bytes() if ca is not None else b"")
