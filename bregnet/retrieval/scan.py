"""Scans on a CPU: inner products in tiles, of which a compiled pass keeps what may belong to the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import batches
from bregnet._core.parallel import in_threads, single_threaded_blas
from bregnet.retrieval.items import Found
from bregnet.retrieval.lift import Queries
from bregnet.retrieval.vectors import SMALL, Vectors

# Queries and items whose products are made at once: 4 MB of single precision, still in the cache when it is compared.
# Fewer queries have more items at once. Searches on two threads with 512, 1024, 2048 and 4096 items: 24,400, 24,300,
# 25,100 and 19,800 queries/s with 16 features, 8,890, 9,080, 9,060 and 8,330 with 64 (200,000 items), 3,317, 3,354,
# 3,327 and 3,290 with 768 (50,000 items).
TILE = 1024, 1024


@dataclass(frozen=True)
class Lists:
    """Items in inverted lists.

    Attributes
    ----------
    vectors : Tensor of shape (n_items, width)
        Lifted items in single precision, one list after the other.
    rows : Tensor of shape (n_items,)
        Their rows in the gallery.
    starts : Tensor of shape (n_lists + 1,)
        Where each list begins; the last entry is the number of items.
    """

    vectors: Tensor
    rows: Tensor
    starts: Tensor


class Candidates:
    """What may be among the k nearest items of each query; k is at most the number of vectors that are not `long`.

    A query keeps the items whose inner products are within a margin of its k-th largest, wide enough for all rounding,
    so that there are hardly more than k in the end.

    Parameters
    ----------
    vectors : Vectors
    queries : Queries
    k : int
    names : Tensor of shape (n_items,), default=None
        The rows of the items in the gallery, where products are given in another order.

    Attributes
    ----------
    divergences, rows : Tensor of shape (m, room)
        From inner products in double precision, nearest first; infinite, and -1, where there are no more.
    bounds : Tensor of shape (m,)
        All others of the items have inner products below these; infinite where too many are nearly equal.
    doubtful : Tensor of shape (m,), bool
        Whether some divergences must be computed again, for they are close to each other or small.
    """

    def __init__(self, vectors: Vectors, queries: Queries, k: int, names: Tensor | None = None) -> None:
        room = room_for(k)
        m, width = len(queries), room + len(vectors.long)
        self._vectors, self._queries, self._limits, self._names = vectors, queries, (k, room), names
        self.rows, self.divergences = torch.empty(m, width, dtype=torch.int64), torch.empty(m, width).double()
        self.bounds, self.doubtful = torch.full((m,), -torch.inf), torch.empty(m, dtype=torch.bool)
        counts, values = torch.zeros(m, dtype=torch.int64), torch.empty(m, width)
        kept = vectors.margins(queries), self.bounds, counts, values, self.rows
        self._kept = [each.numpy() for each in kept]
        self._skipped = torch.zeros(len(vectors.coarse) if len(vectors.long) else 0, dtype=torch.bool)
        self._skipped[vectors.long] = True
        renamed = names is not None and len(vectors.long)
        self._left_out = (self._skipped[names] if renamed else self._skipped).numpy()

    def keep(self, products: np.ndarray, numbers: np.ndarray, first: int) -> None:
        """Take products (c, n) of some queries (c,) and the items from `first` on."""
        from bregnet.retrieval.compiled_scan import keep  # numba is slow to import

        keep(products, numbers, first, self._left_out, *self._limits, *self._kept)

    def keep_of_lists(self, lists: Lists, probes: Tensor, tile: tuple[int, int]) -> None:
        """Make and take products with the items of the lists that each query probes, (m, n_probes)."""
        from bregnet.retrieval.compiled_scan import keep_of_lists

        given = (each.numpy() for each in (self._queries.vectors.float(), probes, lists.vectors, lists.starts))
        keep_of_lists(*given, tile, self._left_out, *self._limits, *self._kept)

    def keep_alone(self) -> None:
        """Make and take the products of a single query with all items."""
        from bregnet.retrieval.compiled_scan import keep_alone

        query, items = self._queries.vectors[0].float().numpy(), self._vectors.coarse.numpy()
        keep_alone(query, items, self._left_out, *self._limits, *self._kept)

    def ranked(self) -> Candidates:
        """Themselves, in the order of divergences in double precision."""
        from bregnet.retrieval.compiled_scan import rank

        vectors, queries = self._vectors, self._queries
        names = torch.empty(0, dtype=torch.int64) if self._names is None else self._names
        sizes = SMALL * queries.scale, vectors.near(queries), vectors.slack(queries)
        terms = torch.stack([queries.offsets, queries.reach, *sizes], 1)
        shared = self._skipped, vectors.long, names, vectors.coarse, vectors.fine
        outcome = queries.vectors, terms, self.divergences, self.doubtful
        rank(self._limits[0], *self._kept, *(each.numpy() for each in (*shared, *outcome)))
        return self

    def nearest(self) -> Found:
        """The k nearest (m, k), in order; of doubtful ones divergences are computed again, pair by pair."""
        k, again = self._limits[0], self.doubtful.nonzero()[:, 0]
        found = Found(self.divergences[:, :k].clone(), self.rows[:, :k].clone())
        if len(again):
            rows = self.rows[again]
            some = slice(0, max(k, int((rows >= 0).sum(1).max())))
            given = self._queries[again], rows[:, some], self.divergences[again, some]
            found.divergences[again], found.rows[again] = self._vectors.settled(*given, k)
        return found

    def missed(self, found: Found) -> Tensor:
        """Numbers of the queries for which other items might belong to what was found."""
        least = self._vectors.least_score(self._queries, found.divergences[:, -1])
        return (self.bounds.double() >= least).nonzero()[:, 0]


def found_in_threads(search: Callable[[Tensor], Found], points: Tensor, k: int) -> Found:
    """The k nearest items of all queries, (m, k), from a function of some of them."""
    found = Found(torch.empty(len(points), k).double(), torch.empty(len(points), k, dtype=torch.int64))
    divergences, rows = found.divergences.numpy(), found.rows.numpy()  # torch may be in inference mode here only

    def answer(part: slice) -> None:
        with torch.no_grad(), np.errstate(all="ignore"):  # a thread has a state of its own
            divergences[part], rows[part] = search(points[part])

    with single_threaded_blas:
        in_threads(answer, len(points))
    return found


def room_for(k: int) -> int:
    """How many candidates a query has room for: all but the best are dropped some times, of however many there are."""
    return 2 * k + 64


def scan(vectors: Vectors, queries: Queries, k: int, tile: tuple[int, int] = TILE) -> Candidates:
    """Candidates among all items, by a tile of queries and items after the other."""
    found, asked = Candidates(vectors, queries, k), queries.vectors.float()
    if len(asked) == 1:
        found.keep_alone()
        return found.ranked()
    coarse, products = vectors.coarse.numpy(), np.empty(tile[0] * tile[1], np.float32)  # fresh memory is slow
    at_once = len(products) // min(tile[0], len(asked))
    for some in batches(len(asked), tile[0]):
        mine, numbers = asked[some].numpy(), np.arange(some.start, some.stop)
        for items in batches(len(coarse), at_once):
            out = products[: len(mine) * (items.stop - items.start)].reshape(len(mine), -1)
            found.keep(np.matmul(mine, coarse[items].T, out=out), numbers, items.start)
    return found.ranked()


def scan_lists(
    vectors: Vectors, queries: Queries, k: int, lists: Lists, probes: Tensor, tile: tuple[int, int] = TILE
) -> Candidates:
    """Candidates among the items of some lists of each query, (m, nprobe)."""
    found = Candidates(vectors, queries, k, lists.rows)
    found.keep_of_lists(lists, probes, tile)
    return found.ranked()
