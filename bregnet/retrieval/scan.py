"""Scans on a CPU: inner products in tiles, of which a compiled pass keeps what may belong to the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import batches
from bregnet._core.parallel import in_threads, shared, single_threaded_blas
from bregnet.retrieval.items import Found
from bregnet.retrieval.lift import Queries
from bregnet.retrieval.vectors import HALF_TILE, SMALL, Scanned, Vectors

# Queries and items whose products are made at once: 4 MB of single precision, still in the cache when it is compared.
# Fewer queries have more items at once. Searches on two threads with 256, 512, 1024 and 2048 items: 24,800, 30,600,
# 31,900 and 34,100 queries/s with 16 features, 12,400, 13,600, 13,900 and 13,400 with 64 (10 nearest of 200,000 items).
TILE = 1024, 1024
# Queries from which oneDNN makes the products. Where numpy's OpenBLAS computes without AVX-512 and oneDNN with it, the
# former takes 1.0, 1.35, 1.6 and 1.8 times as long with 32, 64, 128 and 300 queries (64 features, one thread).
ONEDNN_FROM = 64
FEW = 128  # queries up to which there may be none for other threads, so that these share the items
SHARED_WORK = 500_000  # numbers of items for each thread, from which that pays


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
    scanned : Scanned, default=None
        The vectors that products are made with; those in single precision by default.
    n_items : int, default=None
        How many of the items are looked at; all by default.
    parts : int, default=1
        How many candidates there is room for: those of so many scans.

    Attributes
    ----------
    divergences, rows : Tensor of shape (m, room)
        From inner products in double precision, nearest first; infinite, and -1, where there are no more.
    asked : Tensor of shape (m, width)
        The vectors of the queries, as they are multiplied.
    bounds : Tensor of shape (m,)
        All others of the items have inner products below these; infinite where too many are nearly equal.
    doubtful : Tensor of shape (m,), bool
        Whether some divergences must be computed again, for they are close to each other or small.
    """

    def __init__(
        self,
        vectors: Vectors,
        queries: Queries,
        k: int,
        names: Tensor | None = None,
        scanned: Scanned | None = None,
        n_items: int | None = None,
        parts: int = 1,
    ) -> None:
        self._scanned, n_items = scanned or vectors.single, len(vectors.coarse) if n_items is None else n_items
        m, width = len(queries), parts * room_for(k) + len(vectors.long)
        room = room_for(k) + (spare_room(n_items, m) if self._scanned.is_half else 0)
        self._vectors, self._queries, self._names, self._k = vectors, queries, names, k
        self._limits = k, room, np.float32(self._scanned.relative), self._scanned.above.numpy()
        self.rows, self.divergences = torch.empty(m, width, dtype=torch.int64), torch.empty(m, width).double()
        self.bounds, self.doubtful = torch.full((m,), -torch.inf), torch.empty(m, dtype=torch.bool)
        counts, values = torch.zeros(m, dtype=torch.int64), torch.empty(m, parts * room)
        self.asked, lost = self._scanned.asked(queries)
        kept = self.bounds, counts, values, torch.empty_like(values, dtype=torch.int64)
        self._kept = [each.numpy() for each in (vectors.margins(queries, self._scanned), lost, *kept)]
        self._skipped = torch.zeros(len(vectors.coarse) if len(vectors.long) else 0, dtype=torch.bool)
        self._skipped[vectors.long] = True
        renamed = names is not None and len(vectors.long)
        self._left_out = (self._skipped[names] if renamed else self._skipped).numpy()

    def keep(self, products: np.ndarray, numbers: np.ndarray, first: int) -> None:
        """Take products (c, n) of some queries (c,) and the items from `first` on."""
        from bregnet.retrieval.compiled_scan import keep  # numba is slow to import

        keep(products, numbers, first, self._left_out, self._limits, *self._kept)

    def keep_of_lists(self, lists: Lists, probes: Tensor, tile: tuple[int, int]) -> None:
        """Make and take products with the items of the lists that each query probes, (m, n_probes)."""
        from bregnet.retrieval.compiled_scan import keep_of_lists

        given = (each.numpy() for each in (self.asked, probes, lists.vectors, lists.starts))
        keep_of_lists(*given, tile, self._left_out, self._limits, *self._kept)

    def keep_alone(self, first: int, stop: int) -> None:
        """Make and take the products of a single query with some items, in half precision."""
        from bregnet.retrieval.compiled_scan import keep_alone

        query = self.asked[0].float().numpy()
        items = self._scanned.vectors.view(torch.uint16).numpy()
        keep_alone(query, items, first, stop, self._left_out, self._limits, *self._kept)

    def take(self, others: Candidates) -> None:
        """Add the candidates of the same queries among other items."""
        from bregnet.retrieval.compiled_scan import take

        take(*self._kept[3:], *others._kept[3:])
        torch.maximum(self.bounds, others.bounds, out=self.bounds)

    def ranked(self) -> Candidates:
        """Themselves, in the order of divergences in double precision."""
        from bregnet.retrieval.compiled_scan import rank

        vectors, queries = self._vectors, self._queries
        names = torch.empty(0, dtype=torch.int64) if self._names is None else self._names
        sizes = SMALL * queries.scale, vectors.near(queries), vectors.slack(queries)
        terms = torch.stack([queries.offsets, queries.reach, *sizes], 1)
        shared = self._skipped, vectors.long, names, vectors.coarse, vectors.fine
        near_enough = vectors.margins(queries, vectors.single)[: len(queries) * self._scanned.is_half]
        outcome = queries.vectors, terms, near_enough, self.rows, self.divergences, self.doubtful
        rank(self._limits, *self._kept, *(each.numpy() for each in (*shared, *outcome)))
        return self

    def nearest(self) -> Found:
        """The k nearest (m, k), in order; of doubtful ones divergences are computed again, pair by pair."""
        k, again = self._k, self.doubtful.nonzero()[:, 0]
        found = Found(self.divergences[:, :k].clone(), self.rows[:, :k].clone())
        if len(again):
            rows = self.rows[again]
            some = slice(0, max(k, int((rows >= 0).sum(1).max())))
            given = self._queries[again], rows[:, some], self.divergences[again, some]
            found.divergences[again], found.rows[again] = self._vectors.settled(*given, k)
        return found

    def missed(self, found: Found) -> Tensor:
        """Numbers of the queries for which other items might belong to what was found."""
        least = self._vectors.least_score(self._queries, found.divergences[:, -1], self._scanned)
        return (self.bounds.double() >= least).nonzero()[:, 0]


def found_in_threads(search: Callable[[Tensor], Found], points: Tensor, k: int) -> Found:
    """The k nearest items of all queries, (m, k), from a function of some of them."""
    found = Found(torch.empty(len(points), k).double(), torch.empty(len(points), k, dtype=torch.int64))
    divergences, rows = found.divergences.numpy(), found.rows.numpy()  # torch may be in inference mode here only

    def answer(part: slice) -> None:
        with torch.no_grad(), np.errstate(all="ignore"):  # a thread has a state of its own
            divergences[part], rows[part] = search(points[part])

    with single_threaded_blas if len(points) > 1 else nullcontext():  # which takes as long as a small search
        in_threads(answer, len(points))
    return found


def room_for(k: int) -> int:
    """How many candidates a query has room for: all but the best are dropped some times, of however many there are."""
    return 2 * k + 64


def spare_room(n_items: int, n_queries: int) -> int:
    """How many more it has room for in half precision, which leaves some times as many.

    To go through so many takes about as long as the search in single precision that follows where there are more.
    """
    return n_items // (8 if n_queries == 1 else 32)


def _of_items(
    vectors: Vectors, queries: Queries, k: int, tile: tuple[int, int], scanned: Scanned, items: slice, parts: int
) -> Candidates:
    """Candidates among some items, by a tile of queries and items after the other; room for those of more parts."""
    found = Candidates(vectors, queries, k, scanned=scanned, n_items=items.stop - items.start, parts=parts)
    if scanned.is_half and len(queries) == 1:
        found.keep_alone(items.start, items.stop)
        return found
    n_queries, n_items = min(tile[0], len(queries)), HALF_TILE
    if not scanned.is_half:
        n_items = math.prod(tile) // n_queries
    single = torch.empty(n_queries * n_items)  # fresh memory is slow
    half = torch.empty_like(single, dtype=torch.bfloat16)
    for some in batches(len(queries), n_queries):
        mine, numbers = found.asked[some], np.arange(some.start, some.stop)
        for start in range(items.start, items.stop, n_items):
            stop = min(start + n_items, items.stop)
            shape = len(mine), stop - start
            products = single[: math.prod(shape)].view(shape)
            if scanned.is_half:
                part = scanned.vectors[start // HALF_TILE, :, : shape[1]]
                products.copy_(torch.mm(mine, part, out=half[: products.numel()].view(shape)))
            else:
                products = _products(mine, vectors.coarse[start:stop], out=products)
            found.keep(products.numpy(), numbers, start)
    return found


def scan(
    vectors: Vectors,
    queries: Queries,
    k: int,
    tile: tuple[int, int] = TILE,
    *,
    scanned: Scanned | None = None,
    n_threads: int = 1,
) -> Candidates:
    """Candidates among all items; where queries are too few for other threads of a search, these share the items."""
    n_items, scanned = len(vectors.coarse), scanned or vectors.single
    n_parts = 1 if len(queries) >= FEW else max(1, min(n_threads, n_items * vectors.width // SHARED_WORK))
    parts = list(batches(n_items, -(-n_items // (n_parts * HALF_TILE)) * HALF_TILE))

    def some(part: slice) -> Candidates:
        with torch.no_grad():
            return _of_items(vectors, queries, k, tile, scanned, part, len(parts) if part is parts[0] else 1)

    found, *others = shared(some, parts, n_threads)
    for each in others:
        found.take(each)
    return found.ranked()


def _products(queries: Tensor, items: Tensor, out: Tensor) -> Tensor:
    """Inner products in single precision, (m, n), in `out` or in memory of their own."""
    if len(queries) >= ONEDNN_FROM and _onednn_is_fast():
        return _onednn_products(queries, items)
    np.matmul(queries.numpy(), items.numpy().T, out=out.numpy())  # takes two thirds of the time of torch's
    return out


@lru_cache(maxsize=1)
def _onednn_is_fast() -> bool:
    """Whether torch has oneDNN's products, and these can use AVX-512, as the BLAS of numpy may not."""
    if not _onednn_knows("avx512_f"):
        return False
    queries, items = torch.eye(3), torch.eye(2, 3)
    try:  # not a public function: another version of torch may not have it, or in another way
        return torch.equal(_onednn_products(queries, items), queries @ items.T)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _onednn_products(queries: Tensor, items: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(queries, items, None, "none", [], "")


@lru_cache(maxsize=1)
def half_is_fast() -> bool:
    """Whether this processor multiplies numbers of half precision (bfloat16) itself, and torch has it do so."""
    return _onednn_knows("avx512_bf16", "amx_bf16", "bf16")


def _onednn_knows(*names: str) -> bool:
    """Whether torch has oneDNN, and the processor one of these sets of instructions."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # not in all versions
    return torch.backends.mkldnn.is_available() and any(known.get(name) for name in names)


def scan_lists(
    vectors: Vectors, queries: Queries, k: int, lists: Lists, probes: Tensor, tile: tuple[int, int] = TILE
) -> Candidates:
    """Candidates among the items of some lists of each query, (m, nprobe)."""
    found = Candidates(vectors, queries, k, lists.rows)
    found.keep_of_lists(lists, probes, tile)
    return found.ranked()
