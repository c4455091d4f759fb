"""The import arrows of the design, by reading the code, and that the contracts load nothing big."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("jobs", "train", "analysis")
#: What the other parts may use of train: the contracts, the files that carry them, the clock and
#: the limit of a hang.
CONTRACT = {
    "train.errors", "train.environment", "train.program", "train.config", "train.record",
    "train.run.provenance",
    "train.distributed.awake", "train.distributed.machine", "train.distributed.watchdog",
    "train.distributed.preflight.report",
    "train.interconnect.record", "train.interconnect.collectives.record",
    "train.interconnect.facts.record",
}  # fmt: skip
HEAVY = {"tensorflow", "tensorflow_addons", "horovod", "keras"}
FORBIDDEN = {
    "train": {"jobs", "analysis", "submitit", "pandas", "typer", "rich"},
    "jobs": {"analysis", "pandas", "matplotlib", "numpy", *HEAVY},
    "analysis": {"jobs", "submitit", *HEAVY},
}


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sources(part: str) -> list[Path]:
    # networks that sweeps bring are data: they load TensorFlow, and nothing imports them
    files = sorted(f for f in (ROOT / part).rglob("*.py") if "sweeps" not in f.parts)
    assert files
    return files


@pytest.mark.parametrize("part", PARTS)
def test_forbidden_arrows(part: str) -> None:
    for file in sources(part):
        tops = {name.split(".")[0] for name in imports(file)}
        assert not tops & FORBIDDEN[part], f"{file.relative_to(ROOT)}: {tops & FORBIDDEN[part]}"


@pytest.mark.parametrize("part", ("jobs", "analysis"))
def test_only_the_contracts_of_train(part: str) -> None:
    for file in sources(part):
        for name in imports(file):
            if name == "train" or name.startswith("train."):
                first = name.split(".")
                assert {".".join(first[:end]) for end in (2, 3, 4)} & CONTRACT, (
                    f"{file.relative_to(ROOT)}: {name}"
                )


def test_images_have_all_packages_that_train_imports() -> None:
    """Those of others by their documentation. Seen: it left out psutil and scipy."""
    tops = {name.split(".")[0] for file in sources("train") for name in imports(file)}
    others = sorted(tops - set(PARTS) - sys.stdlib_module_names)
    assert len(others) > 7
    packages = {"PIL": "pillow", "sklearn": "scikit-learn", "tensorflow": "tensorflow-cpu"}
    lock = (ROOT / "containers/locks/ranks.lock").read_text()
    needs = (ROOT / "docs/images.md").read_text().partition("Such an image must contain:")[2]
    for name in others:
        package = packages.get(name, name.replace("_", "-"))
        assert f"\n{package}==" in lock, package
        assert re.search(rf"\b{name}\b", needs.partition(";\n")[0], re.IGNORECASE), name


#: Rooms of train, lowest first: a room imports from those on lower floors only.
FLOORS = (
    {"errors", "environment", "tensorflow_internals"},
    {"program"},
    {"config"},
    {"record", "optimizers"},
    {"distributed"},
    {"data"},
    {"models"},
    {"step", "interconnect"},
    {"trainer"},
    {"run"},
    {"__main__"},
)


def test_rooms_of_train_import_downwards_only() -> None:
    floor = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
    for file in sources("train"):
        room = file.relative_to(ROOT / "train").parts[0].removesuffix(".py")
        for name in imports(file):
            if name.startswith("train.") and (below := name.split(".")[1]) != room:
                assert floor[below] < floor[room], f"{file.relative_to(ROOT)}: {name}"


def test_modules_of_train_import_each_other_in_no_circle() -> None:
    """Imports within functions and for types alone count, too."""
    files = {module(file): imports(file) for file in sources("train")}
    TopologicalSorter({name: below & files.keys() for name, below in files.items()}).prepare()


def test_one_file_knows_the_private_parts_of_tensorflow() -> None:
    private = ("tensorflow.python", "tensorflow.tsl", "tensorflow.core", "keras.src")
    users = [f for f in sources("train") if any(n.startswith(private) for n in imports(f))]
    assert [str(file.relative_to(ROOT)) for file in users] == ["train/tensorflow_internals.py"]


#: All that ranks send each other; then what measures Horovod itself, or whether it is there at
#: all; then the server by which ranks meet, before TensorFlow may be loaded.
HOROVOD = (
    "train/distributed/communicator.py",
    "train/interconnect/", "train/distributed/preflight/",
    "train/distributed/rendezvous.py",
)  # fmt: skip


def test_ranks_talk_through_one_file() -> None:
    files = {str(file.relative_to(ROOT)): imports(file) for file in sources("train")}
    users = [name for name, names in files.items() if any(n.startswith("horovod") for n in names)]
    assert not [name for name in users if not name.startswith(HOROVOD)]


@pytest.mark.parametrize(("part", "most"), [("train", 14), ("jobs", 14)])
def test_a_folder_can_be_seen_at_once(part: str, most: int) -> None:
    for folder in {file.parent for file in sources(part)}:
        seen = [e for e in folder.iterdir() if not e.name.startswith("__")]
        assert len(seen) <= most, f"{folder.relative_to(ROOT)} shows {len(seen)} entries"


def test_jobs_has_seven_import_floors_at_most() -> None:
    """A file stands one floor above the highest file of jobs that it imports."""
    arrows = {module(file): imports(file) for file in sources("jobs")}

    @cache
    def floor(name: str) -> int:
        return 1 + max((floor(below) for below in arrows[name] & arrows.keys()), default=0)

    top = max(arrows, key=floor)
    assert floor(top) <= 7, f"{top} stands on floor {floor(top)}"


def module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def test_the_picture_of_the_architecture_is_that_of_the_code() -> None:
    """Each room stands in it, and each arrow's name is a word of the rooms at both of its ends."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = page.partition("```mermaid")[2].partition("```")[0]
    rooms = dict(re.findall(r'(\w+)\["([a-z/]+)"\]', picture))
    words = {
        room: set(re.findall(r"\w+", "".join(f.read_text() for f in own_files(ROOT / room))))
        for room in rooms.values()
    }
    for start, name, end in re.findall(r"^  (\w+)\S* -->\|(\w+)\| (\w+)", picture, re.MULTILINE):
        for room in (rooms[start], rooms[end]):
            assert name in words[room], f"{room} does not have {name}"
    folders = {file.parent.relative_to(ROOT) for part in PARTS for file in sources(part)}
    there = {room for folder in folders if len(room := folder.parts) > 1}
    for room in there:
        names = {"/".join(room[:depth]) for depth in (2, 3)}
        assert names & set(rooms.values()), f"{'/'.join(room)} is not in the picture"


def own_files(room: Path) -> list[Path]:
    """Those of rooms below it, too, except in jobs/slurm, whose rooms are drawn apart."""
    deep = room.relative_to(ROOT) != Path("jobs/slurm")
    return sorted(room.rglob("*.py") if deep else room.glob("*.py"))


def test_one_file_knows_submitit() -> None:
    users = [f for f in sources("jobs") if any(n.startswith("submitit") for n in imports(f))]
    assert [str(file.relative_to(ROOT)) for file in users] == ["jobs/slurm/script.py"]


@pytest.mark.parametrize(
    "module",
    ["train.config.run", "train.config.plan", "train.record.run", "train.record.cell_folder",
     "train.data.registry",
     "jobs.__main__", "analysis.__main__"],
)  # fmt: skip
def test_login_side_loads_no_tensorflow(module: str) -> None:
    code = (
        f"import sys, {module}; print(sorted({HEAVY!r} & {{m.split('.')[0] for m in sys.modules}}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize("part", PARTS)
def test_rooms_stay_small(part: str) -> None:
    for file in sources(part):
        assert len(file.read_text().splitlines()) <= 300, f"{file.relative_to(ROOT)} holds too much"
