"""Dynamic loss scaling: what float16 would lose is kept, what overflows is skipped."""

from __future__ import annotations

import numpy as np
import pytest

from train.errors import ConfigError

pytestmark = pytest.mark.tf


def run(scale, *finite: bool) -> list[float]:
    """The scale after each of these steps, in a graph as the step is."""
    import tensorflow as tf

    update = tf.function(scale.update)
    after = []
    for good in finite:
        update(tf.constant(good))
        after.append(float(scale.scale))
    return after


@pytest.mark.parametrize(
    ("scale", "finite", "expected"),
    [
        ((1024.0, 3), [True] * 4, [1024, 1024, 2048, 2048]),
        # an overflow restarts the count
        ((1024.0, 2), [True, False, True, True, True], [1024, 512, 512, 1024, 1024]),
        ((), [True] * 2000, [2.0**15] * 1999 + [2.0**16]),  # as published
        # from one to what float32 holds
        ((4.0,), [False] * 4, [2, 1, 1, 1]),
        ((2.0**126, 1), [True] * 3, [2.0**127] * 3),
    ],
)
def test_halves_on_overflow_and_doubles_after_good_steps(scale, finite, expected):
    from train.step.loss_scale import LossScale

    assert run(LossScale(*scale), *finite) == expected


def test_keeps_gradients_that_float16_loses(invariant):
    import tensorflow as tf

    from train.step.loss_scale import LossScale, NoLossScale

    weight = tf.Variable(1.0)

    def gradient(scale: LossScale | NoLossScale) -> float:
        with tf.GradientTape() as tape:
            output = tf.cast(weight, tf.float16) * tf.constant(1e-5, tf.float16)
            (loss,) = scale.scaled([tf.cast(output, tf.float32) * 1e-4])
        return float(scale.unscaled(tape.gradient(loss, [weight]))[0])

    assert gradient(NoLossScale()) == 0  # 1e-9 is below float16's least number
    # 1e-5 is below 2^-14, so float16 keeps it to half of 2^-24: 0.3 %
    error = gradient(LossScale()) / 1e-9 - 1
    invariant("T15 loss scale", "a gradient of 1e-9 survives float16, relative error", error, 4e-3)
    # one that overflows says so
    assert not np.isfinite(gradient(LossScale(2.0**40)))


def test_tf32_is_only_on_where_it_is_asked_for_and_can_be(monkeypatch):
    """TensorFlow's default is to round on every GPU that can."""
    import tensorflow as tf

    from train.distributed.machine.gpus import choose_products

    capability = {"V100": (7, 0), "A100": (8, 0), "H100": (9, 0), "other maker": None}
    devices: list[str] = []
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: devices)
    details = lambda gpu: {"compute_capability": c} if (c := capability[gpu]) else {}  # noqa: E731
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details)
    enabled = tf.config.experimental.tensor_float_32_execution_enabled
    for found, able in (("A100 H100", True), ("A100 V100", False), ("other maker", False), ("", 0)):
        devices[:] = found.split(" ") if "A100" in found else [found] * bool(found)
        if able:
            choose_products("tf32")
            assert enabled()
        else:
            with pytest.raises(ConfigError, match=r"8\.0 or above .* found (no|an older) GPU: say"):
                choose_products("tf32")
        for precision in ("float32", "mixed_float16", "mixed_bfloat16"):
            choose_products(precision)
            assert not enabled()
