"""What ``exclude`` names is there to be excluded."""

from __future__ import annotations

import pytest

from tests.train.optimizers.toy import Toy
from train.config.optimizer import Lamb, Lars, Sgd
from train.errors import ConfigError

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("config", [Lars(exclude=("bias", "batchnorm")), Sgd(exclude=("biases",))])
def test_a_pattern_that_is_in_no_name_is_refused_with_names_that_are(config) -> None:
    with pytest.raises(ConfigError, match=r"in no variable's name.* names are .*kernel"):
        Toy(config)


@pytest.mark.parametrize("config", [Lars(), Lamb(exclude=()), Sgd(exclude=("bias:0$", "kernel"))])
def test_usual_ones_may_be_idle_and_others_are_found_as_regular_expressions(config) -> None:
    assert Toy(config).optimizer is not None
