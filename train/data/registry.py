"""All data sets by name: brought into their prepared form once, then loaded in all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from train.config.datasets import (
    ARRAYS_PREFIX,
    DATASETS,
    FOLDER_PREFIX,
    FOLDER_SIDE,
    forms_key,
    read_forms,
)
from train.data.dataset import META, Dataset, Source, name_of, read_prepared, write_prepared
from train.data.sources import arrays, cifar10, image_folder, mnist
from train.data.sources.digits_synthetic import decode_digits, decode_synthetic
from train.data.sources.download import OTHERWISE, PUBLISHED, fetch_all
from train.data.waiting import one_at_a_time, say
from train.errors import Unreadable, explained, is_writable

_FINDERS: Mapping[str, Callable[[Path], Sequence[Source]]] = {
    "digits": lambda _: [Source(name_of("digits", "digits"), decode_digits)],
    "cifar10": cifar10.find,
    "fashion_mnist": partial(mnist.find, mnist.FASHION),
    "mnist": partial(mnist.find, mnist.MNIST),
    "synthetic": lambda _: [
        Source(name_of("synthetic", "synthetic", DATASETS["synthetic"][:4]), decode_synthetic)
    ],
}


@dataclass(frozen=True)
class DatasetFiles:
    """The raw files of one data set, and its prepared form.

    Methods raise DataError: raw files that are missing, damaged or not as expected, or no space.
    """

    name: str  # checked, as a config has it
    root: Path  # folder with the raw data sets
    image_size: int | None = None  # side in pixels of a folder's images
    store: Path | None = None  # folder of prepared forms; None: prepared/ in ``root``

    def load(self, forms: Sequence[str] = ()) -> Dataset:
        """The data set from its prepared form, which is made first if it is not there."""
        made = self.prepare(forms)
        with explained(f"loading {self.name}", self.root):
            return read_prepared(made)

    def forms(self, sweep: Path | None = None) -> tuple[str, ...]:
        """Folder names of its prepared forms: the one that ``sweep`` noted if it is prepared, else
        those that the raw files give; for these all files of a folder of images are listed."""
        with explained(f"preparing {self.name}", self.root):
            if sweep is not None:
                with suppress(Unreadable):
                    noted = read_forms(sweep).get(forms_key(self.name, self.image_size, self.root))
                    if noted and self._prepared([noted]):
                        return (noted,)
            return tuple(source.folder_name for source in self._sources(self.root))

    def prepare(self, forms: Sequence[str] = ()) -> Path:
        """Make the prepared form in the store unless it is there; return its folder.

        If raw files are gone, the form that was made of them is used; else published ones are
        downloaded, to the store if ``root`` is read-only. Of processes that ask at the same time,
        one does it. forms: of :meth:`forms`; if one is prepared, no raw file is looked at.
        """
        with explained(f"preparing {self.name}", self.root):
            if folder := self._prepared(forms):
                return folder
            forms = self.forms()  # the raw files may be others than those that gave ``forms``
            if folder := self._prepared(forms):
                return folder
            store = self._stores[0]
            with one_at_a_time(store, self.name):  # another process may have made it meanwhile
                return self._prepared(forms) or self._make(store)

    @property
    def _stores(self) -> tuple[Path, Path]:
        """Where forms are made, and where another user may have made them."""
        beside = self.root / "prepared"
        return self.store or beside, beside

    def _prepared(self, forms: Sequence[str]) -> Path | None:
        """The folder of the first of these forms that is there."""
        folders = (store / form for form in forms for store in self._stores)
        return next((folder for folder in folders if (folder / META).exists()), None)

    def _make(self, store: Path) -> Path:
        source, *_ = self._sources(self.root)
        if source.decode is None:
            # a folder for a whole class, or of another user, may be closed to us
            place = self.root if is_writable(self.root / self.name) else store
            fetch_all(PUBLISHED[self.name], place / self.name, OTHERWISE.get(self.name, ""))
            source, *_ = self._sources(place)
            assert source.decode is not None, "what was fetched is not what is looked for"
        say(f"preparing {self.name} in {self.root}")
        data = source.decode()
        made = store / source.folder_name
        with explained(f"preparing {self.name}", made, "STORE=DIR"):
            write_prepared(made, data)
        return made

    def _sources(self, root: Path) -> Sequence[Source]:
        """The form whose raw files are in ``root``; without any, all forms that could be made."""
        if self.name.startswith(FOLDER_PREFIX):
            path, size = self.name.removeprefix(FOLDER_PREFIX), self.image_size or FOLDER_SIDE
            return [image_folder.find(path, size, root)]
        if self.name.startswith(ARRAYS_PREFIX):
            return [arrays.find(self.name, root)]
        return _FINDERS[self.name](root)
