"""Approximate search: cells of near items, of which the nearest are searched (an inverted file of faiss)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from bregnet.centres import lloyd, nearest_centres
from bregnet.engines.gallery import Found, Gallery
from bregnet.engines.lift import Queries
from bregnet.engines.threads import in_threads
from bregnet.engines.vectors import Vectors

if TYPE_CHECKING:
    import faiss

TRAINING_ITEMS = 50  # for each cell
TRAINING_ROUNDS = 10
QUERIES_A_BATCH = 2048
FILLED = 1 << 16  # items put into lists at once


class CellEngine:
    """Cells by Bregman k-means, probed by the divergence of their centres.

    Cells of plain k-means, or of inner products, hold far fewer of the nearest items.

    Parameters
    ----------
    vectors : Vectors
    centres : Tensor of shape (n_cells, n_features)
    lists : faiss.IndexIVFFlat, default=None
        Those of the items, where they are at hand.
    in_file : bool, default=False
        Whether the lists are mapped from a file, so that nothing can be added to them.
    """

    name = "cells"

    def __init__(
        self, vectors: Vectors, centres: Tensor, lists: faiss.IndexIVFFlat | None = None, *, in_file: bool = False
    ) -> None:
        self.vectors, self.centres, self._in_file = vectors, centres, in_file
        self._centre_vectors = vectors.lift.items(centres).float()
        self.lists = self._empty_lists() if lists is None else lists
        self._fill()

    @classmethod
    def of(cls, gallery: Gallery, n_cells: int, seed: np.random.RandomState) -> CellEngine:
        """The engine for these items."""
        step = max(1, len(gallery) // (TRAINING_ITEMS * n_cells))
        training = gallery.points[::step].double()
        clusters = lloyd(gallery.divergence, training, n_cells, seed=seed, max_iter=TRAINING_ROUNDS)
        return cls(Vectors.of(gallery), clusters.centres)

    @classmethod
    def read(cls, vectors: Vectors, centres: Tensor, path: Path, *, mmap: bool) -> CellEngine:
        """The engine of lists that were written to a file; with `mmap` they stay there."""
        import faiss

        if not path.is_file():
            raise ValueError(f"{path.name} is missing")
        lists: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP if mmap else 0)
        expected = (vectors.width, len(centres), len(vectors.gallery), faiss.METRIC_INNER_PRODUCT)
        fits = isinstance(lists, faiss.IndexIVFFlat) and _shape(lists) == expected
        if not (fits and _is_here(lists, mapped=mmap) and _has_rows(lists)):
            raise ValueError(f"{path.name} does not fit the items")
        return cls(vectors, centres, lists, in_file=mmap)

    def write_lists(self, path: Path) -> None:
        """Write the lists to a file of faiss."""
        import faiss

        # what is mapped from a file would be written as the name of that file
        lists = CellEngine(self.vectors, self.centres).lists if self._in_file else self.lists
        faiss.write_index(lists, str(path))

    def extended(self, gallery: Gallery) -> CellEngine:
        """With the items that the gallery has more than before; cells stay as they are."""
        import faiss

        vectors, lists = self.vectors.extended(gallery), None
        if vectors.lift is self.vectors.lift and not self._in_file:
            lists = cast("faiss.IndexIVFFlat", faiss.clone_index(self.lists))  # others may be searching
        return CellEngine(vectors, self.centres, lists)

    def kept(self, gallery: Gallery, rows: Tensor) -> CellEngine:
        """With some of the rows, which are the gallery now; cells stay as they are."""
        return CellEngine(self.vectors.kept(gallery, rows), self.centres)

    @property
    def gallery(self) -> Gallery:
        """The items."""
        return self.vectors.gallery

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.centres)

    @property
    def nbytes(self) -> int:
        """Memory beside that of the gallery."""
        return self.vectors.nbytes + len(self.gallery) * (4 * self.vectors.width + 8)

    def batch_size(self, k: int) -> int:
        """How many queries to give at once."""
        return min(QUERIES_A_BATCH, self.vectors.batch_size(k))

    def search(self, points: Tensor, k: int, nprobe: int) -> Found:
        """The k nearest items of each query, (m, k), of those in the nearest cells; more cells where these are few."""
        queries = self.vectors.lift.queries(points)
        count, probed = self.vectors.n_candidates(k), min(nprobe, self.n_cells)
        rows, worst = self._candidates(queries, count, probed)
        short = (rows[:, k - 1] < 0).nonzero()[:, 0]
        while len(short) and probed < self.n_cells:  # all cells hold at least k items
            probed = min(2 * probed, self.n_cells)
            rows[short], worst[short] = self._candidates(queries[short], count, probed)
            short = short[rows[short, k - 1] < 0]
        found = self.vectors.ranked(queries, rows, k)
        return self.vectors.completed(queries, found, worst, partial(self._rows_above, nprobe=probed))

    def within(self, points: Tensor, radii: Tensor, nprobe: int) -> list[Found]:
        """Items of the nearest cells at most as far as the radius of each query, (m,)."""
        rows_above = partial(self._rows_above, nprobe=min(nprobe, self.n_cells))
        return self.vectors.within(self.vectors.lift.queries(points), radii, rows_above)

    def _candidates(self, queries: Queries, count: int, nprobe: int) -> tuple[Tensor, Tensor]:
        """Rows of the largest inner products in the nearest cells, (m, count), and the least of these, (m,).

        Where there are no more rows they are -1, and the least is minus infinity.
        """
        import faiss

        asked = queries.vectors.float()
        # queries that visit the same cells, one after the other, find them in the cache
        order = (asked @ self._centre_vectors.T).argmax(1).argsort()
        vectors = asked[order].numpy()
        rows = torch.empty(len(queries), count, dtype=torch.int64)
        worst = torch.empty(len(queries), dtype=torch.float32)

        def answer(part: slice) -> None:
            before = faiss.omp_get_max_threads()  # of this thread alone
            faiss.omp_set_num_threads(1)
            try:
                scores, found = self.lists.search(vectors[part], count, params=_probing(nprobe))
            finally:
                faiss.omp_set_num_threads(before)
            rows[part], worst[part] = torch.as_tensor(found), torch.as_tensor(scores)[:, -1]

        in_threads(answer, len(queries))
        back = order.argsort()
        return rows[back], torch.where(rows[:, -1] < 0, -torch.inf, worst)[back]

    def _rows_above(self, query: Queries, least: float, nprobe: int) -> Tensor:
        """Items of the nearest cells whose inner product with one query is at least `least`."""
        at_least = np.float32(np.clip(least, -1e30, 1e30))
        bound = float(np.nextafter(at_least, np.float32(-np.inf)))  # faiss takes what is above
        _, _, rows = self.lists.range_search(query.vectors.float().numpy(), bound, params=_probing(nprobe))
        return torch.as_tensor(rows)

    def _empty_lists(self) -> faiss.IndexIVFFlat:
        """Lists of faiss whose cells are ranked by the divergence of their centres, which is an inner product too."""
        import faiss  # slow to import

        centres = faiss.IndexFlatIP(self.vectors.width)
        centres.add(self._centre_vectors.numpy())
        lists = faiss.IndexIVFFlat(centres, self.vectors.width, self.n_cells, faiss.METRIC_INNER_PRODUCT)
        lists.is_trained = True
        return lists

    def _fill(self) -> None:
        """Put the items that are not there yet into the lists of their cells."""
        import faiss

        for start in range(self.lists.ntotal, len(self.gallery), FILLED):
            rows = torch.arange(start, min(start + FILLED, len(self.gallery)))
            cells, _ = nearest_centres(self.gallery.divergence, self.gallery.points[rows].double(), self.centres)
            vectors = self.vectors.coarse[rows].contiguous()
            given = (faiss.swig_ptr(part.numpy()) for part in (vectors, rows, cells.contiguous()))
            self.lists.add_core(len(rows), *given)


def _probing(nprobe: int) -> faiss.SearchParametersIVF:
    import faiss

    parameters = faiss.SearchParametersIVF()
    parameters.nprobe = nprobe
    return parameters


def _shape(lists: faiss.IndexIVFFlat) -> tuple[int, int, int, int]:
    return lists.d, lists.nlist, lists.ntotal, lists.metric_type


def _is_here(lists: faiss.IndexIVFFlat, *, mapped: bool) -> bool:
    """Whether the lists are mapped from their own file, or in memory; a file can also name another one."""
    import faiss

    if lists.invlists is None:
        return False
    kept = faiss.downcast_InvertedLists(lists.invlists)
    if isinstance(kept, faiss.OnDiskInvertedLists):
        return mapped and not kept.filename and kept.ptr is not None
    return not mapped


def _has_rows(lists: faiss.IndexIVFFlat) -> bool:
    """Whether the lists hold every row of the items once."""
    import faiss

    filled = lists.invlists
    if filled is None:
        return False
    sizes = [filled.list_size(cell) for cell in range(lists.nlist)]
    if sum(sizes) != lists.ntotal:
        return False
    parts = [faiss.rev_swig_ptr(filled.get_ids(cell), size) for cell, size in enumerate(sizes) if size]
    rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return bool((np.sort(rows) == np.arange(lists.ntotal)).all())
