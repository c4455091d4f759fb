"""What a cell needs on its node: found, refused where it is nowhere, and visible in a container."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from jobs.cell.container import Container, container_argv
from jobs.cell.needs import Need, basic_needs, binds_of, check_names, needs_of, usable_tmpdir
from jobs.config.load import load_sweep
from tests.practice import users
from tests.sweeps import ROOT, ran
from train.errors import ConfigError

CELL = {"dataset": "digits", "model": "cnn", "epochs": 1, "batch_per_rank": 8, "gpus": 1,
        "technique": "naive"}  # fmt: skip
#: Of a cell that starts from published weights.
TUNED = {"dataset": "cifar10", "model": "resnet50", "technique": "batch_norm"}


@dataclass(frozen=True)
class World:
    """Two disks, a data folder on one of them, and a home."""

    top: Path

    def make(self, name: str) -> Path:
        """A folder with a class of one image, or a file of weights."""
        path = self.top / name
        inner = path if path.suffix else path / "cat" / "0.png"
        inner.parent.mkdir(parents=True, exist_ok=True)
        inner.write_text(f"made as {name}")
        return path

    def link(self, name: str, target: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).symlink_to(target.replace("TOP", str(self.top)))

    def needs(self, binds: tuple[str, ...] = (), **keys: object) -> tuple[Need, ...]:
        file = self.top / "sweeps" / "mine.yaml"
        file.parent.mkdir(exist_ok=True)
        written = {
            key: value.replace("TOP", str(self.top)) if isinstance(value, str) else value
            for key, value in (CELL | keys).items()
        }
        file.write_text(yaml.safe_dump(written, sort_keys=False))
        data = self.top / "disk1" / "data"
        return needs_of(
            load_sweep(str(file)), results=self.top / "results" / "mine", data=data,
            store=data / "prepared", binds=binds,
        )  # fmt: skip


@pytest.fixture
def world(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """In a folder that the user of containers can reach."""
    (open_folder / "disk1" / "data").mkdir(parents=True)
    (open_folder / "results").mkdir()
    monkeypatch.setenv("HOME", str(open_folder / "home"))
    return World(open_folder)


#: What is there (file or folder, or link -> target), what the sweep names, the paths that are bound
#: besides those of every sweep.
PLACES: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "folder in DATA": (["disk1/data/flowers"], {"dataset": "folder:flowers"}, []),
    "folder of its own": (["disk2/my pets"], {"dataset": "folder:TOP/disk2/my pets"},
                          ["disk2/my pets"]),
    "folder in the home": (["home/pets"], {"dataset": "folder:~/pets"}, ["home/pets"]),
    "folder beside DATA": (["disk1/pets"], {"dataset": "folder:../pets"}, ["disk1/pets"]),
    "link in DATA": (["disk2/pets", "disk1/data/flowers -> TOP/disk2/pets"],
                     {"dataset": "folder:flowers"}, ["disk2/pets"]),
    "relative link over a link": (
        ["disk3/pets", "disk2 -> disk3", "disk1/data/flowers -> ../../disk2/pets"],
        {"dataset": "folder:flowers"}, ["disk3/pets", "disk2/pets"],
    ),
    "link in the home": (["disk2/pets", "home/pets -> TOP/disk2/pets"],
                         {"dataset": "folder:~/pets"}, ["disk2/pets", "home/pets"]),
    "arrays": (["disk2/a.npz", "disk2/c", "disk1/data/prepared/arrays_a-1 -> TOP/disk2/c"],
               {"dataset": "arrays:TOP/disk2/a.npz"},
               ["disk2/a.npz", "disk2/c"]),
    "weights elsewhere": (["disk2/w.h5"], {**TUNED, "pretrained": "TOP/disk2/w.h5"},
                          ["disk2/w.h5"]),
    "weights in DATA": (["disk1/data/w.h5"], {**TUNED, "pretrained": "w.h5"}, []),
    "a set that is a link": (["disk2/c", "disk1/data/cifar10 -> TOP/disk2/c",
                              "disk1/data/imagenet -> TOP/disk2"],
                             {"dataset": "cifar10"}, ["disk2/c"]),
    "files that are links": (["disk2/x.gz", "disk1/data/fashion_mnist/x.gz -> TOP/disk2/x.gz"],
                             {"dataset": "fashion_mnist"}, ["disk2/x.gz"]),
    "a form that is a link": (["disk2/c", "disk1/data/prepared/cifar10-1a -> TOP/disk2/c"],
                              {"dataset": "cifar10"}, ["disk2/c"]),
    "a link to nowhere": (["disk1/data/mnist -> /nowhere"], {"dataset": "mnist"}, []),
    # the folder of a link is a link itself: .. leads to that one's parent, not to d/c/pets
    "link over .. of a link": (
        ["o/c/pets", "o/x", "d/imagenet -> TOP/o/x", "d/pets -> imagenet/../c/pets"],
        {"dataset": "folder:TOP/d/pets"}, ["o/c/pets", "d/pets"],
    ),
    "results on another disk": (["disk2/r", "results/mine -> TOP/disk2/r"], {}, ["disk2/r"]),
}  # fmt: skip


def make(world: World, things: list[str]) -> list[Path]:
    """The folders and files, and their names over links."""
    links = []
    for thing in things:
        name, arrow, target = thing.partition(" -> ")
        if arrow:
            world.link(name, target)
            links.append(world.top / name)
        else:
            world.make(name)
    (world.top / "results" / "mine").mkdir(exist_ok=True)
    return [path for path in links if path.exists()]


@pytest.mark.parametrize("case", PLACES)
def test_what_is_bound(world: World, case: str) -> None:
    """Once each, and the target of a link before the link."""
    things, keys, wanted = PLACES[case]
    make(world, things)
    always = [str(world.top / name) for name in ("results/mine", "disk1/data")]
    found = binds_of(world.needs(**keys))
    assert sorted(found) == sorted([*always, *(str(world.top / name) for name in wanted)])
    if len(wanted) == 2:
        assert [path for path in found if path not in always] == [
            str(world.top / name) for name in wanted
        ]


@pytest.mark.parametrize(
    ("case", "no_home"),
    [*((name, True) for name in PLACES if name != "a link to nowhere"),
     *((name, False) for name in PLACES if "home" in name)],
)  # fmt: skip
def test_a_container_sees_it_as_the_host_does(
    world: World, practice_user: str | None, sif: Path, case: str, no_home: bool
) -> None:
    things, keys, _ = PLACES[case]
    links = make(world, things)
    paths = [need.path for need in world.needs(**keys) if Path(need.path).exists()]
    # a link that only another one goes over, or that no cell uses, leads nowhere inside
    paths += [str(path) for path in links if path.name != "imagenet"]
    arguments = ["--no-home"] if no_home else []
    # by itself it would have all of this folder
    arguments += ["--no-mount", "tmp"]
    binds = binds_of(needs := world.needs(**keys))
    container = Container(str(sif), "apptainer", "none", binds, tuple(arguments))
    home = f"HOME={world.top / 'home'}"
    command = users.as_user(["env", home], practice_user) if practice_user else []
    (world.top / "home").mkdir(exist_ok=True)
    argv = [*command, *container_argv(container), "ls", "-d"]
    done = ran([*argv, *(f"{path}/" if Path(path).is_dir() else path for path in paths)], cwd="/")
    assert done.returncode == 0, (done.stderr, needs)


@pytest.mark.parametrize(
    ("keys", "line", "words"),
    [
        ({"pretrained": "TOP/nowhere/w.h5"}, 7, r"/nowhere/w\.h5 .*No such file.*file of weights"),
        ({"pretrained": "w.h5"}, 7, r"disk1/data/w\.h5 .*No such file"),
        ({"pretrained": "TOP/disk1/data"}, 7, "no file"),
        ({"pretrained": "~/w.h5"}, 7, r"home/w\.h5 "),
        ({"dataset": "folder:flowers"}, 1, r"disk1/data/flowers .*folder of images"),
        ({"dataset": "folder:TOP/a.txt"}, 1, "Not a directory"),
        ({"dataset": "folder:loop"}, 1, "symbolic links"),
        ({"dataset": "folder:jobs"}, 1, rf"there is a {ROOT}/jobs: write its whole path"),
    ],
)
def test_what_is_nowhere_is_refused_with_its_line(
    world: World, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], line: int, words: str
) -> None:
    monkeypatch.chdir(ROOT)
    world.make("a.txt")
    world.link("disk1/data/loop", "loop")
    with pytest.raises(ConfigError, match=rf"mine\.yaml:{line}: .*{words}"):
        world.needs(**(TUNED | keys))


@pytest.mark.parametrize("bind", ["TOP/raid", "TOP/raid/", "/gpfs/x:TOP/raid:ro", "TOP/raid::ro"])
@pytest.mark.parametrize(
    "keys", [{"dataset": "folder:TOP/raid/pets"}, {**TUNED, "pretrained": "TOP/raid/w.h5"}]
)
def test_what_a_site_binds_may_be_on_nodes_alone(
    world: World, bind: str, keys: dict[str, str]
) -> None:
    """It is bound by the site's own words, and the preflight looks for it."""
    needs = world.needs((bind.replace("TOP", str(world.top)),), **keys)
    (there,) = (need for need in needs if "/raid/" in need.path)
    assert not there.bound and there.path not in binds_of(needs)
    with pytest.raises(ConfigError, match="below one of the binds of the site file"):
        world.needs((f"{world.top}/rai",), **keys)


def test_the_temporary_folder(world: World) -> None:
    """One that is not here is not taken along; /tmp needs no bind."""
    there = world.make("disk2/t")
    assert usable_tmpdir(str(there)) == str(there)
    assert usable_tmpdir("/nowhere/tmp") == usable_tmpdir("tmp") == "/tmp"
    assert usable_tmpdir("") is usable_tmpdir(None) is None
    for scratch, bound in ((str(there), True), ("/tmp", False), ("/tmp/ada", False)):
        (need,) = basic_needs("/code", "/i.sif", scratch)[1:]
        assert (need.path, need.use, need.bound) == (scratch, "write", bound)


@pytest.mark.parametrize(
    ("path", "words"),
    [("/a,b", "has ','"), ("/a:b", "has ':'"), ("/usr", "the image's own"), ("/", "no image has")],
)
def test_what_a_container_cannot_name_or_would_hide(path: str, words: str) -> None:
    need = Need(what="the data folder", path=path)
    with pytest.raises(ConfigError, match=f"the data folder.*{words}"):
        check_names([need], "/i.sif")
    if "," not in path and ":" not in path:
        check_names([need], "none")
    check_names([need.model_copy(update={"path": "/usr/local/my data"})], "/i.sif")
