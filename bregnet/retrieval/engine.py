"""The base class of engines: what an index needs of whatever searches its items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor

from bregnet._core.state import Tensors
from bregnet.retrieval.items import Found, Gallery


class Settings(NamedTuple):
    """Parameters of an index for its engine: `nprobe` when it searches, the others when it is built."""

    kind: str = "flat"
    n_cells: int | None = None
    nprobe: int = 8
    random_state: int | None = None


class Engine(ABC):
    """What searches the items of a gallery.

    An engine never changes, for other threads may be searching: `extend` and `keep` return another one. Engines are
    registered by the `kind` of an index in ``bregnet/retrieval/engines.py``.

    Attributes
    ----------
    name : str
        How items are searched, the `method` of an index.
    cpu_only : bool
        Whether items must be on the CPU.
    exact : bool
        Whether no nearer item is ever missed.
    seeded : bool
        Whether building it draws random numbers, so that without a `random_state` it cannot be built again.
    files : tuple of str
        Names of files that a folder of this or of an earlier version may hold in addition to the tensors.
    gallery : Gallery
        The items.
    """

    name: ClassVar[str]
    cpu_only: ClassVar[bool] = False
    exact: ClassVar[bool] = True
    seeded: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ()
    gallery: Gallery

    @classmethod
    def suits(cls, gallery: Gallery) -> bool:
        """Whether it can search these items, and well."""
        return True

    @classmethod
    @abstractmethod
    def build(cls, gallery: Gallery, settings: Settings) -> Self:
        """The engine for these items."""

    @abstractmethod
    def search(self, points: Tensor, k: int, settings: Settings) -> Found:
        """The k nearest items of each query, (m, k), in order."""

    @abstractmethod
    def within(self, points: Tensor, radii: Tensor, settings: Settings) -> list[Found]:
        """Items at most as far as the radius of each query, (m,), in order."""

    @abstractmethod
    def extend(self, gallery: Gallery) -> Self:
        """An engine for a gallery with more items, the new ones last."""

    @abstractmethod
    def keep(self, gallery: Gallery, rows: Tensor) -> Self:
        """An engine for some rows of the old gallery, which are the new one."""

    @abstractmethod
    def state(self, name: str, tensors: Tensors, folder: Path | None) -> dict[str, Any]:
        """What a file holds of it: tensors by names that begin with `name`, files, and plain values.

        The engine is saved because one that is built again may round differently, if items were added or removed since.
        Files that can be memory-mapped go to the folder, where there is one.
        """

    @classmethod
    @abstractmethod
    def from_state(
        cls, name: str, state: dict[str, Any], gallery: Gallery, tensors: Tensors, folder: Path | None
    ) -> Self:
        """Read what `state` wrote; an error where it does not fit the items."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory in addition to that of the gallery."""

    @abstractmethod
    def batch_size(self, k: int) -> int:
        """How many queries to give to `search` at once."""
