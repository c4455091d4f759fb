"""What an image is made of: keys that change when they must and only then, definitions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from build import plan
from locks import SetupError

KEYS = {"base": plan.base_key, "wheel": plan.wheel_key, "image": plan.image_key}
ALL, WHEEL, IMAGE = ["base", "wheel", "image"], ["wheel", "image"], ["image"]


@pytest.fixture(params=("cpu", "gpu"))
def parts(request) -> plan.Parts:
    return plan.read_parts(request.param, "x86_64")


def changed_keys(parts: plan.Parts, **changes: str) -> list[str]:
    changed = replace(parts, **changes)
    return [name for name, key in KEYS.items() if key(parts) != key(changed)]


@pytest.mark.parametrize(
    ("fields", "text", "expected"),
    [
        ("base machine", "more\n", ALL),
        ("horovod build cuda compile compiling patch", "more\n", WHEEL),
        ("script final", "more\n", IMAGE),
        ("base script compile compiling final", "   # why\n", []),
    ],
)
def test_a_text_changes_the_keys_of_what_is_made_from_it(parts, fields, text, expected) -> None:
    for field in fields.split():
        changed = changed_keys(parts, **{field: f"{getattr(parts, field)}\n{text}"})
        assert changed == expected, field


@pytest.mark.parametrize(("package", "expected"), [("tensorflow(-cpu)?", WHEEL), ("pillow", IMAGE)])
def test_horovod_is_compiled_anew_for_another_tensorflow_only(parts, package, expected) -> None:
    packages = re.sub(rf"(?m)^({package})==\S+", r"\1==99", parts.packages)
    assert changed_keys(parts, packages=packages) == expected


def test_both_images_stand_on_one_base_and_differ_in_tensorflow() -> None:
    cpu, gpu = (plan.read_parts(name, "x86_64") for name in ("cpu", "gpu"))
    assert plan.base_key(cpu) == plan.base_key(gpu)
    assert plan.wheel_key(cpu) != plan.wheel_key(gpu)
    locks = [set(plan.entries(plan.lock_file(name).read_text())) for name in ("ranks", "gpu")]
    assert not set.intersection(*locks)
    names = [set(plan.entries(parts.packages)) for parts in (cpu, gpu)]
    assert names[0] - names[1] == {"tensorflow-cpu"}
    added = names[1] - names[0]
    assert all(name.startswith("nvidia-") or name == "tensorflow" for name in added)
    version = plan.version(cpu.packages, "tensorflow-cpu")
    assert version == plan.version(gpu.packages, "tensorflow")


def test_lists_of_texts_have_digests_of_their_own() -> None:
    assert plan.digest("ab", "c") != plan.digest("a", "bc") != plan.digest("abc")


def test_braces_and_arguments_are_the_same_set(parts) -> None:
    """Apptainer refuses values that a definition does not use as well as missing ones."""
    arguments = plan.build_arguments(parts, Path("/base.sif"), "/mnt/wheels/x", "c0ffee")
    for text in (parts.compile + parts.final, parts.final):
        assert set(re.findall(r"\{\{ (\w+) \}\}", text)) == set(arguments)
    assert re.findall(r"\{\{ (\w+) \}\}", parts.base) == ["mirror"]
    assert arguments["commit"] == "c0ffee" and arguments["tensorflow"] == "2.15.1"


def test_a_package_that_no_lock_pins_is_named() -> None:
    with pytest.raises(SetupError, match="do not pin tensorflow: run `make lock`"):
        plan.version("numpy==1.0 --hash=sha256:00\n", "tensorflow")
