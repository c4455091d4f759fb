"""Build an image as an unprivileged user without any image registry: ``image.py cpu|gpu``.

Writes containers/images/NAME.sif, then NAME.sif.sha256 beside it. What has not changed is used
again: the image, its base, the Horovod wheel and all downloads. Nothing half-built gets a name
that anybody looks for. FORCE=1 builds all but the wheel anew (security updates of Debian).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import apptainer
from image_downloads import sha256_of
from image_mirrors import ca_bundle, debian_mirror
from image_plan import (
    IMAGES,
    Parts,
    base_key,
    build_arguments,
    build_command,
    image_key,
    read_parts,
    wheel_key,
    without_stage,
)
from image_prepare import (
    check_machine,
    download,
    environment_of_build,
    lay_out,
    only_one,
    work_folder,
)
from image_steps import Steps, remove_tree, say
from locks import LOCKS, SetupError, environment_of_train, errors_of_train, refusal
from unprivileged import ensure_user

FOLDER = LOCKS / "images"
REQUEST_IS_WRONG = 2


def labels(program: str, image: Path) -> dict[str, str]:
    """What an image says about itself; empty where it cannot be read."""
    command = [program, "inspect", "--json", str(image)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(found.stdout)["data"]["attributes"]["labels"])
    except (ValueError, KeyError, TypeError):
        return {}


def checksum_file(image: Path) -> Path:
    return image.with_name(image.name + ".sha256")


def is_current(program: str, image: Path, key: str) -> bool:
    """Whether the image is there, undamaged, and made from exactly what the checkout says."""
    if not (image.is_file() and checksum_file(image).is_file()):
        return False
    if labels(program, image).get("horoscale.key") != key:
        return False
    return checksum_file(image).read_text().split()[:1] == [sha256_of(image)]


def commit() -> str:
    command = ["git", "-C", str(LOCKS), "describe", "--always", "--abbrev=40", "--dirty",
               "--exclude=*"]  # fmt: skip
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def build_base(
    program: str, parts: Parts, steps: Steps, environment: Mapping[str, str], *, anew: bool
) -> Path:
    """The base from the cache, or built into it."""
    base = steps.work / f"base-{base_key(parts)}.sif"
    if base.is_file() and not anew:
        say(f"{steps.seconds():4.0f} s  the base is in the cache ({base.name})")
        return base
    definition = steps.work / "base.def"
    definition.write_text(parts.base)
    half = steps.work / "tmp" / base.name
    arguments = {"mirror": debian_mirror(os.environ)}
    command = build_command(program, steps.work, arguments, half, definition)
    steps.run_as_builder(
        command, "building the base: Debian, Python, Open MPI, PMIx", environment,
        "Is the Debian mirror in reach? DEBIAN_MIRROR=, CA= and http_proxy= name other ways.",
    )  # fmt: skip
    for old in steps.work.glob("base-*.sif"):
        old.unlink()
    return half.rename(base)


def build_image(
    program: str, parts: Parts, base: Path, steps: Steps, environment: Mapping[str, str]
) -> Path:
    """The image in the work folder; its Horovod wheel is compiled first where the cache has none.

    Apptainer runs the definition's %test at the end and fails where that fails.
    """
    wheel = steps.work / "wheels" / wheel_key(parts)
    text = parts.definition
    if wheel.is_dir():
        text = without_stage(text, "build")
        what = f"building the {parts.name} image (its Horovod wheel is in the cache)"
    else:
        what = f"building the {parts.name} image: compiles Horovod first, takes many minutes"
    definition = steps.work / f"{parts.name}.def"
    definition.write_text(text)
    half = steps.work / "tmp" / f"{parts.name}.sif"
    arguments = build_arguments(parts, base, f"/mnt/wheels/{wheel.name}", commit())
    command = build_command(program, steps.work, arguments, half, definition)
    steps.run_as_builder(command, what, environment, "What was built before is kept.")
    return half


def publish(half: Path, image: Path) -> str:
    """Copy under a temporary name, rename; the checksum (as of sha256sum) comes last."""
    image.parent.mkdir(parents=True, exist_ok=True)
    for left in image.parent.glob(f".{image.name}.*"):
        left.unlink()
    copy = image.parent / f".{image.name}.{os.getpid()}"
    shutil.copyfile(half, copy)
    copy.chmod(0o755)
    found = sha256_of(copy)
    note = image.parent / f".{image.name}.sha256.{os.getpid()}"
    note.write_text(f"{found}  {image.name}\n")
    with copy.open("rb") as handle:
        os.fsync(handle.fileno())
    copy.rename(image)
    note.rename(checksum_file(image))
    half.unlink()
    return found


def check_target() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not os.access(FOLDER, os.W_OK):
        raise SetupError(
            f"{FOLDER} cannot be written, expected a folder for the image. Build in a checkout of "
            "your own, or as its owner."
        )


def make(name: str, *, anew: bool) -> None:
    check_target()
    program = str(apptainer.ensure())
    parts = read_parts(name, platform.machine())
    image = FOLDER / f"{name}.sif"
    if not anew and is_current(program, image, image_key(parts)):
        say(f"{image} is up to date")
        return
    ca = ca_bundle(os.environ)
    user = ensure_user()
    work = work_folder(user)
    with only_one(work) as lock:
        if not anew and is_current(program, image, image_key(parts)):
            say(f"{image} was built meanwhile")
            return
        if any((work / "tmp").iterdir()):
            say("removing what an interrupted build left")
            remove_tree(user, work / "tmp")
        work_folder(user)
        check_machine(name, work, user)
        log = work / f"{name}.log"
        log.write_bytes(b"")
        steps = Steps(user=user, work=work, log=log, held=(lock,))
        environment = environment_of_build(work, ca)
        say(f"{image.name} as user {user}; parts are kept in {work}, the log is {log}")
        download(parts, steps, environment)
        lay_out(parts, work, ca)
        base = build_base(program, parts, steps, environment, anew=anew)
        half = build_image(program, parts, base, steps, environment)
        found = publish(half, image)
        megabytes = image.stat().st_size / 1e6
        say(f"{steps.seconds():4.0f} s  {image}: {megabytes:.0f} MB, sha256 {found}")


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in IMAGES:
        told = " ".join(arguments) or "nothing"
        say(f"found {told}, expected one of: {', '.join(IMAGES)}. As in: make image IMAGE=cpu")
        return REQUEST_IS_WRONG
    try:
        make(arguments[0], anew=os.environ.get("FORCE") == "1")
    except SetupError as error:
        say(str(error))
        return REQUEST_IS_WRONG
    except OSError as error:
        say(f"{refusal(error)}; the next make goes on from here.")
        return REQUEST_IS_WRONG
    except KeyboardInterrupt:
        say("interrupted: the next make goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    environment_of_train().enter("image", os.environ)
    # ended by a batch system, we end Apptainer with us before the lock is free for another build
    errors_of_train().interrupt_on_signals()
    sys.exit(main(sys.argv[1:]))
