"""Names of networks in configs: their three forms, labels, ids and places."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.builders import config
from train.config.networks import (
    IN_APPLICATIONS,
    NetworkSource,
    model_file,
    model_label,
    model_slug,
    parse_model,
    smallest_side,
    split_hash,
)

#: Those that are built in two seconds; all of them takes minutes.
QUICK = ("MobileNet", "Xception")
SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("model", "source", "label", "slug"),
    [
        ("cnn", NetworkSource("cnn"), "cnn", "cnn"),
        ("keras.applications.MobileNetV2", NetworkSource("MobileNetV2"),
         "MobileNetV2", "mobilenetv2"),
        (f"vit.py:build@{SHA}", NetworkSource("build", "vit.py", SHA), "vit", "vit"),
        (f"My ViT-2.x.py:small@{SHA}", NetworkSource("small", "My ViT-2.x.py", SHA),
         "My ViT-2.x:small", "my_vit_2_x_small"),
        (f"é.py:build@{SHA}", NetworkSource("build", "é.py", SHA), "é", "network"),
    ],
)  # fmt: skip
def test_a_network_has_a_source_a_label_and_a_place_in_ids(model, source, label, slug) -> None:
    assert parse_model(model) == source
    assert (model_label(model), model_slug(model)) == (label, slug)
    assert config(model=model, dataset="cifar10").cell_id().startswith(f"cifar10-{slug}-naive-g1-")


@pytest.mark.parametrize(
    "model",
    ["resnet", "vit.py:build", f"nets/vit.py:build@{SHA}", f"a:b.py:build@{SHA}", "vit.py",
     f"vit.py@{SHA}", f"vit.py:1st@{SHA}", f"vit\n.py:build@{SHA}", "keras.applications.",
     "keras.applications.a.b", f"vit.py:build@{SHA.upper()}"],
)  # fmt: skip
def test_other_forms_are_refused(model) -> None:
    with pytest.raises(ValidationError, match=r"unknown model .*expected linear, .*FILE\.py:FUNC"):
        config(model=model)


def test_the_names_of_applications_are_those_of_keras() -> None:
    import tensorflow as tf

    there = tf.keras.applications
    assert tuple(n for n in dir(there) if callable(getattr(there, n))) == IN_APPLICATIONS


def keras_takes(name: str, side: int) -> bool:
    import tensorflow as tf

    build = getattr(tf.keras.applications, name)
    return not fails(build, weights=None, input_shape=(side, side, 3), classifier_activation=None)


def test_networks_need_the_images_that_keras_prepares_and_checks() -> None:
    import tensorflow as tf

    for name in IN_APPLICATIONS:
        cell = config(model=f"keras.applications.{name}", dataset=f"arrays:a.npz@{SHA}")
        side = smallest_side(cell.model)
        prepare = sys.modules[getattr(tf.keras.applications, name).__module__].preprocess_input
        refused = [cell.image_problem(shape) for shape in ((side, side, 3), (side, side, 1))]
        by_keras = fails(prepare, tf.keras.Input((64, 64, 1)))
        assert [bool(text) for text in refused] == [False, by_keras], name
        assert f"at least {side} pixels" in cell.image_problem((side, side - 1, 3))
        assert not keras_takes(name, side - 1), name


@pytest.mark.parametrize("name", QUICK)
def test_keras_takes_the_smallest_images(name: str) -> None:
    assert keras_takes(name, smallest_side(f"keras.applications.{name}"))


def fails(function: Callable[..., object], *given: object, **named: object) -> bool:
    try:
        function(*given, **named)
    except ValueError:
        return True
    return False


def test_other_content_is_another_cell_and_the_folder_of_cells_has_the_copy() -> None:
    one, other = (config(model=f"vit.py:build@{sha}") for sha in (SHA, SHA[::-1]))
    assert one.cell_id() != other.cell_id()
    assert one.runs_as_built and not config().runs_as_built
    copy = model_file(one.model, Path("results/mine/cell"), Path("elsewhere/cell"))
    assert copy == Path(f"results/mine/models/{SHA}.py")


def test_weights_of_an_own_network_are_named_with_their_hash() -> None:
    assert split_hash(f"w.h5@{SHA}") == ("w.h5", SHA) and split_hash("a@b.h5") == ("a@b.h5", None)
    own = {"model": "keras.applications.MobileNetV2", "dataset": "cifar10"}
    assert config(**own, pretrained=f"w.h5@{SHA}").pretrained == f"w.h5@{SHA}"
    with pytest.raises(ValidationError, match="pretrained: expected FILE@SHA256"):
        config(**own, pretrained="w.h5")
