"""Numbers on command lines: above zero and finite, or a wrong request."""

from __future__ import annotations

import argparse

import pytest

from tests.bench import ghost as bench_ghost
from train.arguments import positive
from train.interconnect import simulate


@pytest.mark.parametrize(("kind", "text"), [(int, "3"), (float, "0.25"), (float, "1e3")])
def test_positive_numbers_are_read(kind, text) -> None:
    assert positive(kind)(text) == kind(text)


@pytest.mark.parametrize(
    ("kind", "text"), [(int, "0"), (int, "-1"), (int, "1.5"), (float, "nan"), (float, "inf")]
)
def test_others_are_named_as_what_was_expected(kind, text, capsys) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--n", type=positive(kind))
    with pytest.raises(argparse.ArgumentError, match=f"invalid positive {kind.__name__} value"):
        parser.parse_args([f"--n={text}"])


@pytest.mark.parametrize(
    ("main", "tokens", "words"),
    [
        (bench_ghost.main, ["--repetitions", "0"], "invalid positive int value: '0'"),
        (bench_ghost.main, ["--threads", "0"], "invalid positive int value: '0'"),
        (simulate.main, ["--noise=-1"], "invalid positive float value: '-1'"),
        (simulate.main, ["--shares", "1.5"], "shares of a healthy rate, 1 or less"),
        (simulate.main, ["--nodes", "2"], "three nodes or more"),
    ],
)
def test_commands_refuse_what_makes_no_sense(main, tokens, words, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(tokens)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
