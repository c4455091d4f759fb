"""The nearest valid name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.config.yamlfile import nearest, unknown

NAMES = ["cifar10", "fashion_mnist", "mnist", "resnet_mini", "Resnet50"]


def test_a_slip_finds_the_name() -> None:
    assert nearest("resnet_mni", NAMES) == "resnet_mini"
    assert nearest("CIFAR-10", NAMES) == "cifar10"
    assert nearest("RESNET50", NAMES) == "Resnet50"  # spelt as it is known


def test_nothing_alike_gives_no_hint() -> None:
    assert nearest("qqqq", NAMES) is None
    assert "did you mean" not in unknown("data set", "qqqq", NAMES)


def test_the_sentence_names_all() -> None:
    assert unknown("model", "cn", ["cnn", "resnet50"]) == (
        "unknown model 'cn'; did you mean 'cnn'? known: cnn, resnet50"
    )
    assert unknown("model", 5, []) == "unknown model 5; known: (none)"


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=5))
def test_only_known_names_are_ever_suggested(word: str, known: list[str]) -> None:
    found = nearest(word, known)
    assert found is None or found in known


@given(st.lists(st.text(alphabet="abcdefg_", min_size=1, max_size=12), min_size=1, max_size=5))
def test_a_known_name_is_nearest_to_itself(known: list[str]) -> None:
    assert all(nearest(word, known) == word for word in known)
