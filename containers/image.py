"""Build an image as an unprivileged user without any image registry: ``image.py cpu|gpu``.

Writes containers/images/NAME.sif, then NAME.sif.sha256 beside it. What has not changed is used
again: the image, its base, the Horovod wheel and all downloads. Nothing half-built gets a name
that anybody looks for. FORCE=1 builds all but the wheel anew (security updates of Debian).

Root installs what is missing, and starts this program again as the practice user, who downloads and
builds in a folder of its own and hands the image over through an open file: root itself neither
reads, writes nor runs anything there.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import apptainer
from build import inputs, plan
from build.mirrors import ca_bundle, debian_codename, debian_mirror
from build.steps import Steps, remove_tree, say
from locks import LOCKS, SetupError, atomic, check_own, run, table, write_all
from runner import REQUEST_IS_WRONG, guarded, only_one, output, pip_environment, sha256_of
from users import ensure_user, enter_argv

FOLDER = LOCKS / "images"


def labels(program: str, image: Path) -> dict[str, str]:
    """What an image says about itself; empty where it cannot be read."""
    try:
        said = output([program, "inspect", "--json", str(image)]) or ""
        return dict(json.loads(said)["data"]["attributes"]["labels"])
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
    """Of this checkout; a repository that it only lies in is another project's."""
    if output(["git", "-C", str(LOCKS), "rev-parse", "--show-prefix"]) != f"{LOCKS.name}/\n":
        return "unknown"
    said = output(["git", "-C", str(LOCKS), "describe", "--always", "--abbrev=40", "--dirty",
                   "--exclude=*"])  # fmt: skip
    return (said or "").strip() or "unknown"


def build_base(program: str, parts: plan.Parts, steps: Steps) -> Path:
    """The base from the cache, or built into it; with FORCE=1 built again, for Debian's updates."""
    base = steps.work / f"base-{plan.base_key(parts)}.sif"
    if base.is_file() and os.environ.get("FORCE") != "1":
        say(f"the base is in the cache ({base.name})")
        return base
    definition = steps.write("base.def", parts.base)
    half = steps.work / "tmp" / base.name
    arguments = {"mirror": debian_mirror(os.environ)}
    steps.run(
        plan.build_command(program, steps.work, arguments, half, definition),
        "building the base: Debian, Python, Open MPI, PMIx",
        "Is the Debian mirror in reach? DEBIAN_MIRROR=, CA= and http_proxy= name other ways.",
    )
    for old in steps.work.glob("base-*.sif"):
        old.unlink()
    return half.rename(base)


def build_image(program: str, parts: plan.Parts, revision: str, base: Path, steps: Steps) -> Path:
    """The image in the work folder; its Horovod wheel is compiled first where the cache has none.

    Apptainer runs the definition's %test at the end and fails where that fails.
    """
    wheel = steps.work / "wheels" / plan.wheel_key(parts)
    text = parts.final
    if wheel.is_dir():
        what = f"building the {parts.name} image (its Horovod wheel is in the cache)"
    else:
        text = parts.compile + text
        what = f"building the {parts.name} image: compiles Horovod first, takes many minutes"
    definition = steps.write(f"{parts.name}.def", text)
    half = steps.work / "tmp" / f"{parts.name}.sif"
    arguments = plan.build_arguments(parts, base, f"/mnt/wheels/{wheel.name}", revision)
    command = plan.build_command(program, steps.work, arguments, half, definition)
    steps.run(command, what, "What was built before is kept.")
    return half


def build(program: str, name: str, revision: str, out: BinaryIO) -> None:
    """Build in our own folder, as an ordinary user, and write the image to an open file.

    ``revision``: the git commit that its label names.
    """
    parts = plan.read_parts(name, os.uname().machine)
    ca = ca_bundle(os.environ)
    user = str(os.geteuid())
    with suppress(KeyError):  # not every id has a name
        user = pwd.getpwuid(os.geteuid()).pw_name
    work = inputs.work_folder()
    waits = "another image is being built: waiting for it"
    with only_one(work / ".lock", lambda: say(waits)) as lock:
        if any((work / "tmp").iterdir()):
            say("removing what an interrupted build left")
            remove_tree(work / "tmp")
        inputs.work_folder()
        inputs.check_machine(name, work, user, program)
        log = work / f"{name}.log"
        steps = Steps(work, log, inputs.environment_of_build(work, ca), held=(lock,))
        steps.write(log.name)
        say(f"{name}.sif as user {user}; parts are kept in {work}, the log is {log}")
        inputs.download(parts, steps)
        inputs.lay_out(parts, steps, ca)
        base = build_base(program, parts, steps)
        half = build_image(program, parts, revision, base, steps)
        with half.open("rb") as made:
            shutil.copyfileobj(made, out)
        half.unlink()
        say("built")


def build_as_user(program: str, name: str, out: BinaryIO) -> None:
    """Root's part: what only root can install. The other user's program prints the image."""
    if debian_codename() and shutil.which("debootstrap") is None:
        say("installing the package debootstrap")
        apptainer.install_packages(["debootstrap"])
    user = ensure_user()
    pip = [sys.executable, "-P", "-m", "pip"]
    # the way to packages that root's own configuration names; not as words, which everybody sees
    ways = pip_environment(pip) if output([*pip, "--version"]) is not None else {}
    ways = {key: value for key, value in ways.items() if key.startswith("PIP_")}
    kept = [f"{key}={os.environ[key]}" for key in ("XDG_CACHE_HOME",) if key in os.environ]
    own = [sys.executable, str(Path(__file__).resolve()), name, commit(), program]
    # no descriptor of root's terminal: what the build prints is copied to it
    with subprocess.Popen(
        enter_argv(["env", *kept, *own], user), cwd="/", env={**os.environ, **ways},
        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            for line in process.stderr or ():
                write_all(2, line)
            code = process.wait()
        finally:
            process.terminate()  # it ends its own commands
    if code != 0:
        raise SetupError(f"no {name} image: the build as user {user} ended with exit code {code}")


def publish(new: Path, image: Path) -> str:
    """Give a complete image its name; the checksum (as of sha256sum) comes last."""
    found = sha256_of(new)
    note = new.with_name(f"{new.name}.sha256")
    with note.open("x") as out:  # never through a link that others put there
        out.write(f"{found}  {image.name}\n")
    new.rename(image)
    note.rename(checksum_file(image))
    return found


def make(name: str) -> None:
    if os.geteuid() == 0:
        os.umask(0o022)  # others are to use what root builds
    FOLDER.mkdir(parents=True, exist_ok=True)
    check_own(FOLDER)
    program = str(apptainer.ensure())
    key = plan.image_key(plan.read_parts(name, os.uname().machine))
    image = FOLDER / f"{name}.sif"
    with only_one(FOLDER / ".lock", lambda: say("waiting for another build in this checkout")):
        if os.environ.get("FORCE") != "1" and is_current(program, image, key):
            say(f"{image} is up to date")
            return
        for left in FOLDER.glob(f".{image.name}.*"):
            left.unlink()
        new = FOLDER / f".{image.name}.{uuid.uuid4().hex}"
        handle = atomic.create(new, 0o777)
        try:
            with os.fdopen(handle, "wb") as out:
                if os.geteuid() == 0:
                    build_as_user(program, name, out)
                else:
                    build(program, name, commit(), out)
                atomic.flush_to_disk(out)
            found = publish(new, image)
        finally:
            new.unlink(missing_ok=True)
        say(f"{image}: {image.stat().st_size / 1e6:.0f} MB, sha256 {found}")


def main(arguments: Sequence[str]) -> int:
    handed_over = len(arguments) == 3  # by root: the commit, and where Apptainer is
    if not (len(arguments) == 1 or handed_over) or arguments[0] not in plan.IMAGES:
        told = " ".join(arguments) or "nothing"
        say(f"found {told}, expected one of: {', '.join(plan.IMAGES)}. As in: make image IMAGE=cpu")
        return REQUEST_IS_WRONG
    os.umask(os.umask(0o022) | 0o022)  # only its owner changes what a build keeps
    hint = "build in a checkout of your own; the next make goes on from here"
    if handed_over:
        name, revision, program = arguments
        with open(1, "wb", closefd=False) as out:  # it fails where not all can be written
            return guarded(lambda: build(program, name, revision, out), say, hint)
    return guarded(lambda: make(arguments[0]), say, hint)


if __name__ == "__main__":
    table.enter("image", os.environ)
    run(lambda: main(sys.argv[1:]))
