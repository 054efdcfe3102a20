"""Searching a collection by a Bregman divergence."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.chunks import batches
from bregnet._core.notebook import shown_in_notebooks
from bregnet._core.parallel import progress_bar
from bregnet.divergences.resolve import divergence_of
from bregnet.retrieval.collection import LARGEST_ID, Collection
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.engines import ENGINES, build_engine
from bregnet.retrieval.folder import read_folder, write_folder
from bregnet.retrieval.inner_product import InnerProductForm
from bregnet.retrieval.items import Found

KINDS = tuple(ENGINES)


@shown_in_notebooks
class BregmanIndex:
    """A collection of points to search by a Bregman divergence.

    The nearest items of a query are those of the least divergence. Items whose divergences are equal up to rounding are
    ordered by squared Euclidean distance, then by id. Inner products in single or half precision find candidates,
    whose divergences are then computed in double precision.

    Several threads may search at once, also while another adds or removes items: each sees all items as they were at
    one moment. Processes that are forked from one that has searched compute on one thread each.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or fitted estimator
        The divergence, a generator, the name of a classical one, or what has learned one, such as a fitted
        :class:`bregnet.PBDL`.
    side : {"right", "left"}, default="right"
        "right" searches for the least D(query, item), "left" for the least D(item, query).
    kind : {"flat", "ivf"}, default="flat"
        "flat" is exact. It scans inner products, or, for a `MaxAffine` without temperature, visits the items piece by
        piece. "ivf" is an inverted file, approximate and faster than a scan: items are in lists by the nearest of
        `n_cells` centers, and the lists of the centers nearest to a query are searched. Without a temperature "flat"
        is both exact and faster.
    n_cells : int, default=None
        Number of lists of kind "ivf"; about the square root of the number of items by default.
    nprobe : int, default=8
        Lists of kind "ivf" that are searched for a query. More are slower and find more; it can be set at any time.
    device : str or torch.device, default="auto"
        Where to keep the items and compute; "auto" takes CUDA when there is one. Kind "ivf" computes on the CPU.
    random_state : int, RandomState or None, default=None
        Seed of the centers of kind "ivf".

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import BregmanIndex
    >>> index = BregmanIndex("kl")
    >>> index.add(np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]))
    >>> divergences, ids = index.search(np.array([[0.6, 0.4]]), k=2)
    >>> ids
    array([[0, 1]])
    >>> divergences.round(4)
    array([[0.0201, 0.3112]])
    """

    def __init__(
        self,
        divergence: Any,
        *,
        side: str = "right",
        kind: str = "flat",
        n_cells: int | None = None,
        nprobe: int = 8,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.divergence = divergence_of(divergence)
        self.side = check.one_of("side", side, ("right", "left"))
        if isinstance(kind, str) and kind == "hnsw":
            raise ValueError(
                f"kind must be one of {', '.join(map(repr, KINDS))}, got 'hnsw': graphs of neighbors miss most of the"
                " nearest items on inner products: use kind='ivf', or to_inner_product(symmetric=True) for a graph"
                " elsewhere"
            )
        self.kind = check.one_of("kind", kind, KINDS)
        self.n_cells = None if n_cells is None else check.integer_at_least("n_cells", n_cells, 1)
        self.nprobe = nprobe
        there = check.resolve_device(device)
        self.device = torch.device("cpu") if all(engine.cpu_only for engine in ENGINES[kind]) else there
        if isinstance(random_state, np.random.RandomState):  # one seed, so that saved cells are those of a new search
            random_state = int(random_state.randint(np.iinfo(np.int32).max))
        self.random_state = None if random_state is None else check.integer_at_least("random_state", random_state, 0)
        self._collection = Collection(self.divergence.base, side, self.device)  # of mapped points

    def __repr__(self) -> str:
        return f"BregmanIndex({self.divergence!r}, side={self.side!r}, kind={self.kind!r}; {len(self)} items)"

    def __len__(self) -> int:
        """Number of items."""
        return len(self._collection)

    @property
    def ntotal(self) -> int:
        """Number of items, by the name that faiss has for it."""
        return len(self)

    @property
    def n_features(self) -> int | None:
        """Number of features, None if there are no items yet and any number is accepted."""
        plain = self.divergence is self.divergence.base
        return self._collection.n_features if plain else self.divergence.n_features

    @property
    def ids(self) -> np.ndarray:
        """The ids of all items, in the order they were added."""
        return to_numpy(self._collection.gallery().public_ids()).copy() if len(self) else np.empty(0, dtype=np.int64)

    @property
    def nprobe(self) -> int:
        """Lists of kind "ivf" that are searched for a query."""
        return self._nprobe

    @nprobe.setter
    def nprobe(self, value: int) -> None:
        self._nprobe = check.integer_at_least("nprobe", value, 1)

    @property
    def nbytes(self) -> int:
        """Memory of the items and of what it takes to search them, in bytes."""
        if len(self) == 0:
            return 0
        engine = self._ready()
        return engine.gallery.points.nbytes + engine.gallery.ids.nbytes + engine.nbytes

    @property
    def bytes_per_item(self) -> float:
        """Memory of an item, in bytes: `nbytes` over the number of items, 0 without any.

        For d features an item takes 8 d (4 d in single precision) and 8 for its id. Inner products add 8 (d + 1), and
        2 d + 14 from the first search on that reads them in half precision; kind "ivf" adds 8 (d + 1) and
        4 (d + 1) + 16, and lists of pieces as much as the features, and 16.

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add(np.random.default_rng(0).standard_normal((1000, 16)))
        >>> index.bytes_per_item  # 128 for the point, 8 for the id, 136 for its vector
        272.0
        """
        return self.nbytes / len(self) if len(self) else 0.0

    def __contains__(self, number: object) -> bool:
        """Whether there is an item of this id."""
        if not len(self):
            return False
        gallery = self._collection.gallery()
        if gallery.names is not None:
            return isinstance(number, str) and number in gallery.row_of
        try:
            wanted = operator.index(number)  # type: ignore[arg-type]
        except TypeError:  # no whole number
            return False
        return abs(wanted) <= LARGEST_ID and bool((gallery.ids == wanted).any())

    @property
    def method(self) -> str:
        """How the items are searched: "inner products", "lists of pieces", or "cells" for an inverted file."""
        return self._ready().name

    def add(self, X: Array, ids: Array | None = None) -> None:
        """Add items.

        Parameters
        ----------
        X : array of shape (n_items, n_features)
        ids : array of shape (n_items,), int or str, default=None
            Numbers or names of the items, different from each other and from those in the index; by default numbers go
            on from the largest so far, beginning with 0. An index has either numbers or names. Among items that tie in
            divergence and distance, that with the lower number, or the name that was added first, is nearer.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0]])
        >>> index.add([[2.0]], ids=[10])
        >>> index.ids
        array([ 0,  1, 10])
        >>> named = BregmanIndex("sqeuclidean")
        >>> named.add([[0.0], [5.0]], ids=["low", "high"])
        >>> named.search([[4.0]], k=2)[1]
        array([['high', 'low']], dtype='<U4')
        """
        self._collection.add(_checked(self, "X", X, tangent=self.side == "right"), ids)

    def remove(self, ids: Array) -> None:
        """Remove items by their ids.

        Parameters
        ----------
        ids : array of shape (n_items,), int or str
            All of them must be there; otherwise nothing is removed.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [2.0]])
        >>> index.remove([1])
        >>> index.search([[1.2]], k=1)[1]
        array([[2]])
        """
        self._collection.remove(ids, self._settings())

    def reset(self) -> None:
        """Remove all items; those that are added next may have any number of features and any ids.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0]])
        >>> index.reset()
        >>> index.ntotal
        0
        """
        self._collection = Collection(self.divergence.base, self.side, self.device)

    def reconstruct(self, ids: int | Array) -> np.ndarray:
        """The items of some ids, as the index keeps them.

        Parameters
        ----------
        ids : int, str or array of shape (n_items,), int or str
            All of them must be there.

        Returns
        -------
        points : ndarray of shape (n_items, n_features), or (n_features,) for one id
            In single precision if all items were added in it. Where the divergence has a feature map that is not
            affine (a :class:`bregnet.MappedDivergence`), the index keeps mapped points only, and these are returned,
            with as many features as ``divergence.base`` has.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [3.0]], ids=[5, 6, 7])
        >>> index.reconstruct(7)
        array([3.])
        >>> index.reconstruct([6, 5])
        array([[1.],
               [0.]])
        """
        if isinstance(ids, str | int | np.integer):
            return self.reconstruct(np.array([ids]))[0]
        return self._collection.points_of(ids).cpu().numpy()

    @torch.no_grad()
    def search(
        self, Q: Array, k: int = 10, *, progress: bool | None = None, dtype: str = "float64"
    ) -> tuple[Array, Array]:
        """The k nearest items of each query.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        k : int, default=10
            At most the number of items; a larger `k` is an error.
        progress : bool, default=None
            Whether to show a progress bar; by default on a terminal, after two seconds.
        dtype : {"float64", "float32"}, default="float64"
            Precision of the divergences that are returned; they are computed in double precision.

        Returns
        -------
        divergences : array of shape (n_queries, k)
            D(query, item), or D(item, query) for ``side="left"``: not negative, nearest first.
        ids : array of shape (n_queries, k), int or str
            The items: by divergence, then squared Euclidean distance, then id. Strings are in a numpy array always.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [3.0]])
        >>> index.search([[0.9]], k=2)[1]
        array([[1, 0]])
        """
        queries, precision = _checked(self, "Q", Q, tangent=self.side == "left"), _precision(dtype)
        k = check.integer_at_least("k", k, 1)
        engine = self._ready(least=k)
        found = _found(engine, queries, k, self._settings(), progress)
        return arrays.like(found.divergences.to(precision), Q), _ids_like(engine, found, Q)

    @torch.no_grad()
    def search_radius(
        self, Q: Array, radius: float | Array, *, progress: bool | None = None, dtype: str = "float64"
    ) -> tuple[list[Array], list[Array]]:
        """All items within a radius of each query.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        radius : float or array of shape (n_queries,)
            The largest divergence, included (up to rounding).
        progress : bool, default=None
            Whether to show a progress bar; by default on a terminal, after two seconds.
        dtype : {"float64", "float32"}, default="float64"
            Precision of the divergences that are returned; they are computed in double precision.

        Returns
        -------
        divergences : list of array
            For each query, those of the items within its radius, nearest first.
        ids : list of array

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [3.0]])
        >>> index.search_radius([[0.5], [9.0]], 1.0)[1]
        [array([0, 1]), array([], dtype=int64)]
        """
        queries, precision = _checked(self, "Q", Q, tangent=self.side == "left"), _precision(dtype)
        radii = _checked_radii(radius, queries)
        engine = self._ready()
        found: list[Found] = []
        for part in _batches(len(queries), 64, progress):  # between two steps of a progress bar
            found += engine.within(queries[part], radii[part], self._settings())
        ids = [_ids_like(engine, each, Q) for each in found]
        return [arrays.like(each.divergences.to(precision), Q) for each in found], ids

    @torch.no_grad()
    def recall(self, Q: Array, k: int = 10) -> float:
        """Share of the k nearest items that :meth:`search` finds, measured against the exact answer.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        k : int, default=10

        Returns
        -------
        recall : float
            1.0 for kind "flat".

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import BregmanIndex
        >>> X = np.random.default_rng(0).standard_normal((1000, 4))
        >>> index = BregmanIndex("sqeuclidean", kind="ivf", random_state=0)
        >>> index.add(X)
        >>> index.nprobe = 31
        >>> index.recall(X[:100], k=5) > 0.99
        True
        """
        queries = _checked(self, "Q", Q, tangent=self.side == "left")
        k = check.integer_at_least("k", k, 1)
        engine = self._ready(least=k)
        if not len(queries):
            raise ValueError("Q must have at least one row, got none")
        exact = build_engine(engine.gallery, Settings("flat"))
        found, wanted = (_found(each, queries, k, self._settings(), None).rows for each in (engine, exact))
        return float((found[:, :, None] == wanted[:, None, :]).any(2).double().mean())

    @torch.no_grad()
    def to_inner_product(self, *, symmetric: bool = False) -> InnerProductForm:
        """Vectors for any store that searches by inner products, and an encoder of queries for them.

        Parameters
        ----------
        symmetric : bool, default=False
            Whether to make vectors for stores that search graphs of neighbors (HNSW), which fail on plain ones.

        Returns
        -------
        form : InnerProductForm
            Its ``items`` go into the store, with its ``ids``; the largest inner products with ``encode(Q)`` are the
            least divergences.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [3.0]])
        >>> form = index.to_inner_product()
        >>> form.ids[(form.encode([[2.9]]) @ form.items.T).argmax(1)]
        array([2])
        """
        symmetric = check.boolean("symmetric", symmetric)
        form = InnerProductForm.from_gallery(self._collection.gallery(), symmetric=symmetric)
        return replace(form, feature_map=getattr(self.divergence, "feature_map", None))

    @torch.no_grad()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder that opens on another machine.

        Tensors are stored as safetensors; nothing is pickled. The folder appears when it is complete, and replaces one
        that was saved there before.

        Parameters
        ----------
        path : str or path
            The folder.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [3.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index.save(Path(folder) / "items")
        ...     BregmanIndex.load(Path(folder) / "items").search([[2.9]], k=1)[1]
        array([[2]])
        """
        write_folder(self, check.folder("path", path))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = False, device: str | torch.device = "auto"
    ) -> BregmanIndex:
        """Open an index that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path
            The folder.
        mmap : bool, default=False
            Whether items stay in the files and are read when they are needed; the files must then not change. Lists of
            pieces (no temperature) need a copy in memory, and so does an index after items were added or removed.
        device : str or torch.device, default="auto"
            Where to compute.

        Returns
        -------
        index : BregmanIndex

        Examples
        --------
        See :meth:`save`.
        """
        place = check.resolve_device(device)
        return read_folder(cls, check.folder("path", path), place, mmap=check.boolean("mmap", mmap))

    @property
    def _of_mapped(self) -> BregmanIndex:
        """The same index for queries that are mapped already, such as its own items."""
        inside = copy.copy(self)
        inside.divergence = self.divergence.base
        return inside

    def _settings(self) -> Settings:
        return Settings(self.kind, self.n_cells, self.nprobe, self.random_state)

    def _ready(self, least: int = 1) -> Engine:
        """The engine, built or brought up to date, for at least so many items."""
        return self._collection.ready(self._settings(), least)


def _checked(index: BregmanIndex, name: str, points: Array, *, tangent: bool) -> Tensor:
    """Points in their own precision, single or double, in the domain of the divergence."""
    checked = arrays.points(name, points, index.n_features, None, index.device).detach()
    if checked.shape[1] == 0:
        raise ValueError(f"{name} must have at least one feature, got shape {tuple(checked.shape)}")
    checked = index.divergence._mapped(name, checked)
    index.divergence.generator._check_domain(name, checked, tangent)
    return checked


def _found(engine: Engine, queries: Tensor, k: int, settings: Settings, progress: bool | None) -> Found:
    """What an engine finds, some queries at a time."""
    divergences = torch.empty(len(queries), k, dtype=torch.float64, device=queries.device)
    rows = torch.empty(len(queries), k, dtype=torch.int64, device=queries.device)
    for part in _batches(len(queries), engine.batch_size(k), progress):
        divergences[part], rows[part] = engine.search(queries[part], k, settings)
    if not torch.isfinite(divergences).all():
        raise ValueError("Q and the items must have finite divergences, got values so large that they overflow")
    return Found(divergences, rows)


def _precision(dtype: str) -> torch.dtype:
    return getattr(torch, check.one_of("dtype", np.dtype(dtype).name, ("float64", "float32")))


def _ids_like(engine: Engine, found: Found, Q: Array) -> Array:
    """Ids of what was found, numbers as the kind of array that was given."""
    ids = engine.gallery.public_ids(found.rows)
    return arrays.like(ids, Q) if isinstance(ids, Tensor) else ids


def _checked_radii(radius: float | Array, like: Tensor) -> Tensor:
    """A radius for each query, (m,)."""
    radii = arrays.to_torch("radius", radius).double().to(like.device)
    if radii.shape not in ((), (len(like),)):
        raise ValueError(f"radius must be a number or have shape ({len(like)},), got {tuple(radii.shape)}")
    if not (radii >= 0).all():
        raise ValueError(f"radius must be at least 0, got {radii.min():g}")
    return radii.clamp_max(torch.finfo(torch.float64).max).expand(len(like))


def _batches(total: int, step: int, progress: bool | None) -> Iterator[slice]:
    """Slices of queries, with a progress bar on a terminal or where it is asked for."""
    with progress_bar("searching", total, progress) as advance:
        for part in batches(total, step):
            yield part
            advance(part.stop - part.start)
