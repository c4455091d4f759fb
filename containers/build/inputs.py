"""Everything that an image build needs, put ready in one folder that the build sees as /mnt.

Python packages are downloaded outside of the build: so this machine's own pip configuration (index,
mirror, certificates, proxy) holds, and the build itself needs no package index.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from locks import SetupError, cache_folders, entries, writable_by_others
from runner import check_room, output, pip_environment, run, sha256_of

from build.mirrors import apt_configuration, apt_settings, apt_ways, proxies, sources_list
from build.plan import NEEDED_BYTES, Parts
from build.steps import Steps, say

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Oldest to newest C library that wheels may be built for; Debian 12 has 2.36.
PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014",
             *(f"manylinux_2_{minor}" for minor in range(5, 37)))  # fmt: skip
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
FOLDERS = ("downloads", "wheels", "locks", "lists/partial", "apt/archives/partial", "tmp")


def work_folder() -> Path:
    """Where downloads and parts are kept: the first of the caches that serves.

    Raises SetupError where none can be written, or others could put something there.
    """
    said = ""
    for cache in cache_folders():
        folder = cache / "images"
        for place in (cache, folder, *(folder / name for name in FOLDERS)):
            try:
                place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                said = said or str(error)
                break
            if (part := writable_by_others(place)) or not os.access(place, os.W_OK):
                said = said or f"others than you can change {part or place}"
                break
        else:
            return folder
    raise SetupError(
        f"there is no place for an image's parts: {said}\n"
        "Name a folder of your own: XDG_CACHE_HOME=/big/disk make image"
    )


def has_sub_ids(user: str) -> bool:
    """Whether the user may map a range of ids, by the files or by the site's directory service."""
    for file in (Path("/etc/subuid"), Path("/etc/subgid")):
        lines = file.read_text().splitlines() if file.is_file() else []
        if not any(line.startswith(f"{user}:") for line in lines):
            return output(["getsubids", user]) is not None
    return True


def check_machine(name: str, work: Path, user: str, program: str) -> None:
    """Before anything is downloaded: what building needs."""
    if "--build-arg" not in (output([program, "build", "--help"]) or ""):
        raise SetupError(
            f"{program} lacks build --build-arg, expected Apptainer 1.2 or later: load its module, "
            "or build on another machine and copy containers/images here"
        )
    if not has_sub_ids(user):
        raise SetupError(
            f"{user} has no range of ids in /etc/subuid and /etc/subgid, expected 65536: files of "
            "an image belong to several users. Ask an administrator for: usermod --add-subuids "
            f"200000-265535 --add-subgids 200000-265535 {user} (a range that nobody else has)"
        )
    check_room(work, NEEDED_BYTES[name], say)
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


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(requirements: str, folder: Path) -> list[str]:
    """Packages of which the folder holds no file with one of the locked hashes.

    Names only choose what is hashed: gigabytes of another image's packages need not be read.
    """
    files = [(normalized(file.name), file) for file in folder.iterdir() if file.is_file()]

    def present(package: str, hashes: set[str]) -> bool:
        start = f"{normalized(package)}-"
        return any(name.startswith(start) and sha256_of(file) in hashes for name, file in files)

    return [name for name, entry in entries(requirements).items()
            if not present(name, set(HASH.findall(entry)))]  # fmt: skip


def usable_pip(venv: Path) -> list[str]:
    """That of an environment of our own: many a Python is packaged without."""
    if not (venv / "bin" / "pip").exists():
        # -P: never a module of the folder that we are in
        run([sys.executable, "-P", "-m", "venv", "--clear", str(venv)], "making an environment")
    return [str(venv / "bin" / "python"), "-P", "-m", "pip"]


def download_command(
    pip: list[str], requirements: Path, folder: Path, machine: str, *, source: bool
) -> list[str]:
    """pip's command for wheels of the image's Python, whatever Python runs pip; or for sources."""
    kind = [] if source else [
        "--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
        *(f"--platform={platform}_{machine}" for platform in PLATFORMS),
    ]  # fmt: skip
    return [*pip, "download", "--quiet", "--no-input", "--disable-pip-version-check",
            "--no-cache-dir", "--no-deps", "--require-hashes", *kind,
            "-d", str(folder), "-r", str(requirements)]  # fmt: skip


def download(parts: Parts, steps: Steps) -> None:
    """All Python packages into the cache; nothing is asked of an index where all are there."""
    folder = steps.work / "downloads"
    wanted = (
        (parts.packages, False), (parts.build, False), (parts.cuda, False), (parts.horovod, True)
    )  # fmt: skip
    for requirements, source in wanted:
        if not (absent := missing(requirements, folder)):
            continue
        listing = steps.write("requirements", requirements)
        pip = usable_pip(steps.work / "pip")
        command = download_command(pip, listing, folder, parts.machine, source=source)
        what = f"downloading {', '.join(absent[:3])}{' ...' if absent[3:] else ''}"
        steps.run(
            command, f"{what} ({len(absent)} packages)",
            "Is the package index in reach? PIP_INDEX_URL=, CA= and https_proxy= name other ways.",
            pip_environment(pip) | dict(steps.environment) | {"PIP_CONFIG_FILE": os.devnull},
        )  # fmt: skip


def lay_out(parts: Parts, steps: Steps, ca: Path | None) -> None:
    """What the definitions read from /mnt beside downloads and wheels: locks, apt's settings."""
    bundle, ways = steps.work / "ca.crt", apt_ways(proxies(os.environ), ca=ca is not None)
    for name, content in {
        "locks/packages": parts.packages,
        "locks/horovod": parts.horovod,
        "locks/build": parts.build,
        "locks/cuda": parts.cuda,
        "image_build.sh": parts.script,
        "image_compile.sh": parts.compiling,
        "horovod.patch": parts.patch,
        "sources.list": sources_list(os.environ),
        "apt.conf": apt_settings() + apt_configuration("/mnt") + ways,
        "wgetrc": "" if ca is None else f"ca_certificate = {bundle}\n",
        "ca.crt": "" if ca is None else ca.read_bytes(),
    }.items():
        steps.write(name, content)
