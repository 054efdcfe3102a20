"""Approximate search: an inverted file (IVF), with Bregman k-means for the lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from bregnet._core.chunks import CACHE, MEMORY, blocks, rows_at_once
from bregnet._core.state import Tensors
from bregnet.clustering.centered_points import CenteredPoints
from bregnet.clustering.centers import lloyd, nearest_centers
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.items import Found, Gallery
from bregnet.retrieval.lift import Queries
from bregnet.retrieval.scan import Lists, found_in_threads, room_for, scan_lists
from bregnet.retrieval.vectors import Vectors


class CellEngine(Engine):
    """Inverted lists of items by the nearest center of Bregman k-means; a query probes those of the nearest centers.

    With plain k-means, or k-means of the lifted vectors, the probed lists hold far fewer of the nearest items. In files
    and as the `method` of an index the lists are called "cells".

    Parameters
    ----------
    vectors : Vectors
    centres : Tensor of shape (n_cells, n_features)
    cells : Tensor of shape (n_known,), default=None
        The list of each of the first items, where it is known.
    listed : Tensor of shape (n_items, width), default=None
        The vectors of all items one list after the other, where they are known; they may be memory-mapped.
    """

    name = "cells"
    cpu_only = True
    exact = False
    seeded = True
    files = ("cells.faiss",)  # the lists in folders of earlier versions

    def __init__(
        self, vectors: Vectors, centres: Tensor, cells: Tensor | None = None, listed: Tensor | None = None
    ) -> None:
        self.vectors, self.gallery, self.centres = vectors, vectors.gallery, centres
        self._centre_vectors = vectors.lift.items(centres).float()
        known = torch.empty(0, dtype=torch.int64) if cells is None else cells
        self._cells = torch.cat([known, self._assigned(self.gallery.points[len(known) :])])  # of each item, (n_items,)
        order = self._cells.argsort(stable=True)
        starts = torch.nn.functional.pad(torch.bincount(self._cells, minlength=self.n_cells).cumsum(0), (1, 0))
        self._lists = Lists(vectors.coarse[order] if listed is None else listed, order, starts)

    @classmethod
    def build(cls, gallery: Gallery, settings: Settings) -> CellEngine:
        """The engine for these items; some 50 items for each center are enough to train them."""
        n_cells = round(len(gallery) ** 0.5) if settings.n_cells is None else settings.n_cells
        n_cells = min(n_cells, len(gallery))
        training = gallery.points[:: max(1, len(gallery) // (50 * n_cells))].double()
        seed = check_random_state(settings.random_state)
        clusters = lloyd(gallery.divergence, training, n_cells, seed=seed, max_iter=10)
        return cls(Vectors.from_gallery(gallery), clusters.centers)

    def state(self, name: str, tensors: Tensors, folder: Path | None) -> dict[str, Any]:
        """Vectors, centers and the list of each item; in a folder also the lists, which can be memory-mapped."""
        self.vectors.write(name, tensors)
        tensors.put(f"{name}.centres", self.centres)
        tensors.put(f"{name}.cells", self._cells)
        if folder is not None:
            tensors.put(f"{name}.listed", self._lists.vectors)
        return {}

    @classmethod
    def from_state(
        cls, name: str, state: dict[str, Any], gallery: Gallery, tensors: Tensors, folder: Path | None
    ) -> CellEngine:
        """Read what `state` wrote; memory-mapped lists stay in their file."""
        centres = tensors.tensor(f"{name}.centres", (None, gallery.points.shape[1]), torch.float64)
        gallery.divergence.generator._check_domain(f"{name}.centres", centres, True)
        vectors = Vectors.read(name, gallery, tensors)
        if folder is not None and f"{name}.cells" not in tensors.stored:
            return cls(vectors, centres, _read_cells(folder / cls.files[0], vectors, len(centres)))
        cells = tensors.numbers_below(f"{name}.cells", len(gallery), len(centres))
        if folder is None:
            return cls(vectors, centres, cells)
        engine = cls(
            vectors, centres, cells, tensors.tensor(f"{name}.listed", tuple(vectors.coarse.shape), torch.float32)
        )
        seen = slice(0, 16 if tensors.mapped else None)
        if not torch.equal(engine._lists.vectors[seen], vectors.coarse[engine._lists.rows[seen]]):
            raise ValueError(f"{name}.listed does not fit the items")
        return engine

    def extend(self, gallery: Gallery) -> CellEngine:
        """An engine for a gallery with more items; the centers stay as they are."""
        return CellEngine(self.vectors.extend(gallery), self.centres, self._cells)

    def keep(self, gallery: Gallery, rows: Tensor) -> CellEngine:
        """An engine for some rows of the old gallery, which are the new one; the centers stay as they are."""
        return CellEngine(self.vectors.keep(gallery, rows), self.centres, self._cells[rows])

    def cells(self) -> Tensor:
        """The list of each item, (n_items,)."""
        return self._cells

    @property
    def n_cells(self) -> int:
        """Number of lists."""
        return len(self.centres)

    @property
    def nbytes(self) -> int:
        """Memory in addition to that of the gallery."""
        lists = sum(part.nbytes for part in (self._lists.vectors, self._lists.rows, self._lists.starts, self._cells))
        return self.vectors.nbytes + lists + self.centres.nbytes + self._centre_vectors.nbytes

    def batch_size(self, k: int) -> int:
        """How many queries to give at once."""
        return min(4096, rows_at_once(room_for(k)))

    def search(self, points: Tensor, k: int, settings: Settings) -> Found:
        """The k nearest items of each query, (m, k), in the probed lists; more are probed where these hold too few."""
        nprobe, lift = settings.nprobe, self.vectors.lift
        return found_in_threads(lambda some: self._nearest(lift.queries(some), k, nprobe), points, k)

    def within(self, points: Tensor, radii: Tensor, settings: Settings) -> list[Found]:
        """Items of the probed lists at most as far as the radius of each query, (m,)."""
        queries = self.vectors.lift.queries(points)
        return self.vectors.within(queries, radii, self._rows_above(queries, self._probes(queries, settings.nprobe)))

    def _nearest(self, queries: Queries, k: int, nprobe: int) -> Found:
        probes = self._probes(queries, nprobe)
        candidates = scan_lists(self.vectors, queries, k, self._lists, probes)
        found = candidates.nearest()
        short = ((candidates.rows[:, k - 1] < 0) & (candidates.bounds < torch.inf)).nonzero()[:, 0]
        if len(short):  # all lists together hold at least k items
            found.divergences[short], found.rows[short] = self._nearest(queries[short], k, 2 * nprobe)
        return self.vectors.completed(queries, found, candidates.bounds, self._rows_above(queries, probes))

    def _probes(self, queries: Queries, nprobe: int) -> Tensor:
        """The lists of the nearest centers, (m, nprobe), in any order."""
        scores = queries.vectors.float() @ self._centre_vectors.T
        return scores.topk(min(nprobe, self.n_cells), sorted=False).indices

    def _rows_above(self, queries: Queries, probes: Tensor) -> Callable[[int, float], Tensor]:
        """Items of the probed lists whose inner product with a query is at least so much, and those always ranked."""
        lists = self._lists

        def rows_above(number: int, least: float) -> Tensor:
            query, rows = queries.vectors[number].float(), [self.vectors.long]
            ends = lists.starts[torch.stack([probes[number], probes[number] + 1], 1)]
            for start, stop in ends.tolist():
                there = slice(start, stop)
                rows.append(lists.rows[there][(lists.vectors[there] @ query).double() >= least])
            return torch.cat(rows).unique()

        return rows_above

    def _assigned(self, points: Tensor) -> Tensor:
        """The nearest centers of points by D(x, center), (n,), in batches.

        The nearest center has the highest tangent plane at x, so where f is costly it is not evaluated at x at all.
        """
        if not len(points):
            return torch.empty(0, dtype=torch.int64)
        generator = self.gallery.divergence.generator
        seen = CenteredPoints(generator, self.centres)
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
                cells[rows], _ = nearest_centers(self.gallery.divergence, part, self.centres)
        return cells


def _differ(rows: Tensor) -> bool:
    """Whether no two rows are equal."""
    return len(torch.unique(rows, dim=0)) == len(rows)


def _read_cells(path: Path, vectors: Vectors, n_cells: int) -> Tensor:
    """The list of each item from a file of faiss, as earlier versions wrote it; an error where it does not fit."""
    import faiss  # slow to import

    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    lists: Any = faiss.read_index(str(path))
    n_items = len(vectors.gallery)
    expected = (vectors.width, n_cells, n_items, faiss.METRIC_INNER_PRODUCT)
    if not isinstance(lists, faiss.IndexIVFFlat) or (lists.d, lists.nlist, lists.ntotal, lists.metric_type) != expected:
        raise ValueError(f"{path.name} does not fit the items")
    filled = None if lists.invlists is None else faiss.downcast_InvertedLists(lists.invlists)
    if not isinstance(filled, faiss.ArrayInvertedLists):  # a file of faiss can name another one
        raise ValueError(f"{path.name} does not hold its lists")
    cells, seen = torch.empty(n_items, dtype=torch.int64), torch.zeros(n_items, dtype=torch.bool)
    for cell in range(n_cells):
        if size := filled.list_size(cell):
            rows = torch.from_numpy(faiss.rev_swig_ptr(filled.get_ids(cell), size).copy())
            if int(rows.min()) < 0 or int(rows.max()) >= n_items:
                raise ValueError(f"{path.name} does not fit the items")
            cells[rows], seen[rows] = cell, True
    if not seen.all():
        raise ValueError(f"{path.name} does not hold all items")
    return cells
