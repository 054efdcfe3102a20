"""Approximate search: an inverted file (IVF) of faiss, with Bregman k-means for the lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from bregnet._core.chunks import CACHE, MEMORY, blocks
from bregnet._core.parallel import in_threads
from bregnet._core.state import Tensors
from bregnet.clustering.centred_points import CentredPoints
from bregnet.clustering.centres import lloyd, nearest_centres
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.items import Found, Gallery
from bregnet.retrieval.lift import Queries
from bregnet.retrieval.vectors import Vectors

if TYPE_CHECKING:
    import faiss


class CellEngine(Engine):
    """Inverted lists of items by the nearest center of Bregman k-means; a query probes those of the nearest centers.

    With plain k-means, or k-means of the lifted vectors, the probed lists hold far fewer of the nearest items. In files
    and as the `method` of an index the lists are called "cells".

    Parameters
    ----------
    vectors : Vectors
    centres : Tensor of shape (n_cells, n_features)
    lists : faiss.IndexIVFFlat, default=None
        The filled lists, where they are known.
    cells : Tensor of shape (n_known,), default=None
        The list of each of the first items, where it is known; the lists are then filled.
    in_file : bool, default=False
        Whether the lists are memory-mapped, so that nothing can be added to them.
    """

    name = "cells"
    cpu_only = True
    seeded = True
    files = ("cells.faiss",)  # the lists

    def __init__(
        self,
        vectors: Vectors,
        centres: Tensor,
        lists: faiss.IndexIVFFlat | None = None,
        *,
        cells: Tensor | None = None,
        in_file: bool = False,
    ) -> None:
        self.vectors, self.gallery = vectors, vectors.gallery
        self.centres, self._in_file = centres, in_file
        self._centre_vectors = vectors.lift.items(centres).float()
        self.lists = self._empty_lists() if lists is None else lists
        self._fill(torch.empty(0, dtype=torch.int64) if cells is None else cells)

    @classmethod
    def build(cls, gallery: Gallery, settings: Settings) -> CellEngine:
        """The engine for these items; some 50 items for each center are enough to train them."""
        n_cells = round(len(gallery) ** 0.5) if settings.n_cells is None else settings.n_cells
        n_cells = min(n_cells, len(gallery))
        training = gallery.points[:: max(1, len(gallery) // (50 * n_cells))].double()
        seed = check_random_state(settings.random_state)
        clusters = lloyd(gallery.divergence, training, n_cells, seed=seed, max_iter=10)
        return cls(Vectors.from_gallery(gallery), clusters.centres)

    def state(self, name: str, tensors: Tensors, folder: Path | None) -> dict[str, Any]:
        """Vectors and centers, and the lists as a file of faiss, or without a folder the list of each item."""
        import faiss

        self.vectors.write(name, tensors)
        tensors.put(f"{name}.centres", self.centres)
        if folder is None:
            tensors.put(f"{name}.cells", self.cells())
        else:  # of memory-mapped lists faiss would write the name of their file
            lists = CellEngine(self.vectors, self.centres, cells=self.cells()).lists if self._in_file else self.lists
            faiss.write_index(lists, str(folder / self.files[0]))
        return {}

    @classmethod
    def from_state(
        cls, name: str, state: dict[str, Any], gallery: Gallery, tensors: Tensors, folder: Path | None
    ) -> CellEngine:
        """Read what `state` wrote; memory-mapped lists stay in their file."""
        centres = tensors.tensor(f"{name}.centres", (None, gallery.points.shape[1]), torch.float64)
        gallery.divergence.generator._check_domain(f"{name}.centres", centres, True)
        vectors = Vectors.read(name, gallery, tensors)
        if folder is not None:
            lists = _read_lists(folder / cls.files[0], vectors, centres, tensors.mapped)
            return cls(vectors, centres, lists, in_file=tensors.mapped)
        return cls(vectors, centres, cells=tensors.numbers_below(f"{name}.cells", len(gallery), len(centres)))

    def extend(self, gallery: Gallery) -> CellEngine:
        """An engine for a gallery with more items; the centers stay as they are."""
        import faiss

        vectors = self.vectors.extend(gallery)
        if vectors.lift is self.vectors.lift and not self._in_file:
            lists = cast("faiss.IndexIVFFlat", faiss.clone_index(self.lists))  # others may be searching
            return CellEngine(vectors, self.centres, lists)
        return CellEngine(vectors, self.centres, cells=self.cells())

    def keep(self, gallery: Gallery, rows: Tensor) -> CellEngine:
        """An engine for some rows of the old gallery, which are the new one; the centers stay as they are."""
        return CellEngine(self.vectors.keep(gallery, rows), self.centres, cells=self.cells()[rows])

    def cells(self) -> Tensor:
        """The list of each item, (n_items,)."""
        cells = np.empty(self.lists.ntotal, dtype=np.int64)
        for cell, rows in _rows_of(self.lists):
            cells[rows] = cell
        return torch.from_numpy(cells)

    @property
    def n_cells(self) -> int:
        """Number of lists."""
        return len(self.centres)

    @property
    def nbytes(self) -> int:
        """Memory beside that of the gallery."""
        lists = self.lists.ntotal * (self.lists.code_size + 8)  # a vector and a row number each
        return self.vectors.nbytes + lists + self.centres.nbytes + 2 * self._centre_vectors.nbytes  # faiss has a copy

    def batch_size(self, k: int) -> int:
        """How many queries to give at once."""
        return min(2048, self.vectors.batch_size(k))

    def search(self, points: Tensor, k: int, settings: Settings) -> Found:
        """The k nearest items of each query, (m, k), in the probed lists; more are probed where these hold too few."""
        queries = self.vectors.lift.queries(points)
        count, probed = self.vectors.n_candidates(k), min(settings.nprobe, self.n_cells)
        rows, worst = self._candidates(queries, count, probed)
        short = (rows[:, k - 1] < 0).nonzero()[:, 0]
        while len(short) and probed < self.n_cells:  # all lists together hold at least k items
            probed = min(2 * probed, self.n_cells)
            rows[short], worst[short] = self._candidates(queries[short], count, probed)
            short = short[rows[short, k - 1] < 0]
        found = self.vectors.ranked(queries, rows, k)
        return self.vectors.completed(queries, found, worst, partial(self._rows_above, queries, probed))

    def within(self, points: Tensor, radii: Tensor, settings: Settings) -> list[Found]:
        """Items of the probed lists at most as far as the radius of each query, (m,)."""
        queries = self.vectors.lift.queries(points)
        probed = min(settings.nprobe, self.n_cells)
        return self.vectors.within(queries, radii, partial(self._rows_above, queries, probed))

    def _candidates(self, queries: Queries, count: int, nprobe: int) -> tuple[Tensor, Tensor]:
        """Rows of the largest inner products in the probed lists, (m, count), and the least of these, (m,).

        Where there are no more rows they are -1, and the least is minus infinity.
        """
        import faiss

        asked = queries.vectors.float()
        # consecutive queries that probe the same lists find them in the cache
        order = (asked @ self._centre_vectors.T).argmax(1).argsort()
        vectors = asked[order].numpy()
        rows = torch.empty(len(queries), count, dtype=torch.int64)
        worst = torch.empty(len(queries), dtype=torch.float32)

        def answer(part: slice) -> None:
            before = faiss.omp_get_max_threads()  # of this thread alone
            faiss.omp_set_num_threads(1)
            try:
                scores, found = _of_numpy(self.lists, "search")(vectors[part], count, params=_probing(nprobe))
            finally:
                faiss.omp_set_num_threads(before)
            rows[part], worst[part] = torch.as_tensor(found), torch.as_tensor(scores)[:, -1]

        in_threads(answer, len(queries))
        back = order.argsort()
        return rows[back], torch.where(rows[:, -1] < 0, -torch.inf, worst)[back]

    def _rows_above(self, queries: Queries, nprobe: int, number: int, least: float) -> Tensor:
        """Items of the probed lists whose inner product with query `number` is at least `least`."""
        at_least = np.float32(np.clip(least, -1e30, 1e30))
        bound = float(np.nextafter(at_least, np.float32(-np.inf)))  # faiss takes what is above
        vector = queries.vectors[number : number + 1].float().numpy()
        _, _, rows = _of_numpy(self.lists, "range_search")(vector, bound, params=_probing(nprobe))
        return torch.as_tensor(rows)

    def _empty_lists(self) -> faiss.IndexIVFFlat:
        """Empty lists of faiss, probed by the divergence from their centers, which is an inner product too."""
        import faiss  # slow to import

        centres = faiss.IndexFlatIP(self.vectors.width)
        centres.add(self._centre_vectors.numpy())
        lists = faiss.IndexIVFFlat(centres, self.vectors.width, self.n_cells, faiss.METRIC_INNER_PRODUCT)
        lists.is_trained = True
        return lists

    def _fill(self, known: Tensor) -> None:
        """Put the items that are not in the lists yet into them; those of the first may be `known`."""
        import faiss

        first = self.lists.ntotal
        known = known[first:]
        cells = torch.cat([known, self._assigned(self.gallery.points[first + len(known) :])])
        if first == 0 and self.lists.invlists is not None:  # exactly as much memory as it takes
            for cell, size in enumerate(torch.bincount(cells, minlength=self.n_cells).tolist()):
                self.lists.invlists.resize(cell, size)
                self.lists.invlists.resize(cell, 0)
        for part in blocks(len(cells), self.vectors.width):
            rows = torch.arange(first + part.start, first + part.stop)
            given = self.vectors.coarse[rows], rows, cells[part]
            self.lists.add_core(len(rows), *(faiss.swig_ptr(each.numpy()) for each in given))

    def _assigned(self, points: Tensor) -> Tensor:
        """The nearest centers of points by D(x, center), (n,), in batches.

        The nearest center has the highest tangent plane at x, so where f is costly it is not evaluated at x at all.
        """
        if not len(points):
            return torch.empty(0, dtype=torch.int64)
        generator = self.gallery.divergence.generator
        seen = CentredPoints(generator, self.centres)
        slopes, below = seen.tangents(self.centres)
        planes_will_do = generator._width(points.shape[1]) > points.shape[1] and _differ(slopes)
        width, budget = (self.n_cells, CACHE) if planes_will_do else (points.shape[1], MEMORY)  # of planes, or points
        cells = torch.empty(len(points), dtype=torch.int64)
        for rows in blocks(len(points), width, budget=budget):
            part = points[rows].double()
            if planes_will_do:
                heights = torch.addmm(-below, part - seen.origin, slopes.T)
                np.argmax(heights.numpy(), axis=1, out=cells[rows].numpy())
            else:
                cells[rows], _ = nearest_centres(self.gallery.divergence, part, self.centres)
        return cells


def _differ(rows: Tensor) -> bool:
    """Whether no two rows are equal."""
    return len(torch.unique(rows, dim=0)) == len(rows)


def _of_numpy(lists: faiss.IndexIVFFlat, name: str) -> Callable[..., Any]:
    """A method for numpy arrays; importing `faiss.contrib.torch_utils` replaces them by others without `params`."""
    return getattr(lists, f"{name}_numpy", None) or getattr(lists, name)


def _probing(nprobe: int) -> faiss.SearchParametersIVF:
    import faiss

    parameters = faiss.SearchParametersIVF()
    parameters.nprobe = nprobe
    return parameters


def _read_lists(path: Path, vectors: Vectors, centres: Tensor, mapped: bool) -> faiss.IndexIVFFlat:
    """Read the lists of the items from a file, and check them."""
    import faiss

    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    lists: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP if mapped else 0)
    expected = (vectors.width, len(centres), len(vectors.gallery), faiss.METRIC_INNER_PRODUCT)
    fits = isinstance(lists, faiss.IndexIVFFlat) and (lists.d, lists.nlist, lists.ntotal, lists.metric_type) == expected
    if not (fits and _is_here(lists, mapped=mapped) and _has_rows(lists)):
        raise ValueError(f"{path.name} does not fit the items")
    return lists


def _is_here(lists: faiss.IndexIVFFlat, *, mapped: bool) -> bool:
    """Whether the lists are in memory, or mapped from their own file; a file of faiss can name another one."""
    import faiss

    if lists.invlists is None:
        return False
    inverted = faiss.downcast_InvertedLists(lists.invlists)
    if isinstance(inverted, faiss.OnDiskInvertedLists):
        return mapped and not inverted.filename and inverted.ptr is not None
    return not mapped


def _rows_of(lists: faiss.IndexIVFFlat) -> Iterator[tuple[int, np.ndarray]]:
    """The lists that have items, and the rows of these."""
    import faiss

    filled = lists.invlists
    if filled is None:
        return
    for cell in range(lists.nlist):
        size = filled.list_size(cell)
        if size:
            yield cell, faiss.rev_swig_ptr(filled.get_ids(cell), size)


def _has_rows(lists: faiss.IndexIVFFlat) -> bool:
    """Whether the lists hold every row of the items once."""
    parts = [rows for _, rows in _rows_of(lists)]
    found = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return len(found) == lists.ntotal and bool((np.sort(found) == np.arange(lists.ntotal)).all())
