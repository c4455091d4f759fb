"""Which GPUs and drivers the programs of an image can use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from train.errors import ConfigError

#: Of the suite's image (containers/recipes/gpu.def): TensorFlow's CUDA.
IMAGE_CUDA = "12.2"
#: Compute capability that the image's Horovod is compiled for, at least.
_OLDEST = (7, 0)
#: First CUDA whose compiler and libraries know compute capability 10.0.
_KNOWS_10 = (12, 8)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver of this machine serves; None without one."""
    driver, version = _driver(), ctypes.c_int()
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def gpu_addresses() -> list[str]:
    """PCI addresses of the GPUs that this process sees, as 0000:3b:00.0, in the order of CUDA,
    which is TensorFlow's, too."""
    texts = _of_each(lambda driver, text, gpu: driver.cuDeviceGetPCIBusId(text, len(text), gpu))
    return [text.value.decode("ascii").lower() for text in texts]


def gpu_ids() -> list[str]:
    """The same GPUs by what no other has: slices of one (MIG) share its address."""
    texts = _of_each(lambda driver, text, gpu: driver.cuDeviceGetUuid_v2(text, gpu))
    return [text.raw[:16].hex() for text in texts]


def _of_each(ask: Callable[[ctypes.CDLL, Any, int], int]) -> list[Any]:
    driver, count = _driver(), ctypes.c_int()
    if driver is None or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    texts = [ctypes.create_string_buffer(32) for _ in range(count.value)]
    return [] if any(ask(driver, text, gpu) for gpu, text in enumerate(texts)) else texts


def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def unusable(name: str, capability: tuple[int, int], cuda: str) -> str | None:
    """Why programs that are built for this CUDA cannot use a GPU of this compute capability.

    cuda: its version; the lower limit is known of the suite's own image alone.
    """
    what = f"{name} has compute capability {capability[0]}.{capability[1]}"
    if capability >= (10, 0) and tuple(map(int, cuda.split(".")[:2])) < _KNOWS_10:
        return f"{what}, which CUDA {cuda} of the image does not know: up to 9.x run"
    if capability < _OLDEST and cuda == IMAGE_CUDA:
        return f"{what}, for which the image is not compiled: 7.0 to 9.x run"
    return None


def choose_products(precision: str) -> None:
    """Round the factors of float32 products to TF32 if the config asks for it. (TensorFlow's
    default is to round on every GPU that can.)"""
    import tensorflow as tf  # noqa: PLC0415

    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    gpus = tf.config.get_visible_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    able = [one.get("compute_capability", (0, 0)) >= (8, 0) for one in details]
    if precision == "tf32" and not (able and all(able)):
        found = "an older GPU" if able else "no GPU"
        raise ConfigError(
            f"precision tf32 needs GPUs of compute capability 8.0 or above (Ampere and later), "
            f"found {found}: say precision: float32"
        )
