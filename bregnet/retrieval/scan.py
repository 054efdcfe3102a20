"""The exact scan on a CPU: inner products in tiles, of which a compiled pass keeps what may belong to the answer."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bregnet._core.chunks import batches
from bregnet._core.parallel import in_threads
from bregnet.retrieval.lift import Queries
from bregnet.retrieval.vectors import NEAR, SMALL, Vectors

# Queries and items whose products are made at once: 1 MB of single precision, still in the cache when it is compared.
# Fewer queries have more items at once. Other sizes of as many bytes have not been told apart on a quiet machine.
TILE = 256, 1024


class Scanned(NamedTuple):
    """What may be among the k nearest items of each query.

    Attributes
    ----------
    divergences, rows : Tensor of shape (m, room)
        From inner products in double precision, nearest first; infinite, and -1, where there are no more.
    bounds : Tensor of shape (m,)
        All other items have inner products below these; infinite where too many are nearly equal.
    doubtful : Tensor of shape (m,), bool
        Whether some divergences must be computed again, for they are close to each other or small.
    """

    divergences: Tensor
    rows: Tensor
    bounds: Tensor
    doubtful: Tensor


def scan(vectors: Vectors, queries: Queries, k: int, tile: tuple[int, int] = TILE) -> Scanned:
    """Candidates for the k nearest items, where k is at most the number of vectors that are not `long`.

    Each thread makes the products of its queries with a tile of items after the other. A query keeps those within a
    margin of its k-th largest, wide enough for all rounding, so that there are hardly more than k in the end.
    """
    from bregnet.retrieval.compiled_scan import keep, rank  # numba is slow to import

    room = 2 * k + 64  # four or five times all but the best are dropped to make room, however many items there are
    m, width = len(queries), room + len(vectors.long)
    asked, margins = queries.vectors.float(), vectors.margins(queries)
    values, rows = asked.new_empty(m, width), torch.empty(m, width, dtype=torch.int64)
    bounds, counts = asked.new_full((m,), -torch.inf), torch.zeros(m, dtype=torch.int64)
    divergences, doubtful = queries.vectors.new_empty(m, width), torch.empty(m, dtype=torch.bool)
    skipped = torch.zeros(len(vectors.coarse) if len(vectors.long) else 0, dtype=torch.bool)
    skipped[vectors.long] = True
    sizes = SMALL * queries.scale, NEAR * queries.scale, vectors.slack(queries)
    terms = torch.stack([queries.offsets, queries.reach, *sizes], 1)
    shared = [each.numpy() for each in (skipped, vectors.long, vectors.coarse, vectors.fine)]

    def answer(part: slice) -> None:
        products = asked.new_empty(tile[0] * tile[1])  # fresh memory is slow
        at_once = len(products) // min(tile[0], part.stop - part.start)
        for some in batches(part.stop, tile[0], part.start):
            kept = [each[some].numpy() for each in (margins, bounds, counts, values, rows)]
            mine = asked[some]
            for items in batches(len(vectors.coarse), at_once):
                out = products[: len(mine) * (items.stop - items.start)].view(len(mine), -1)
                torch.mm(mine, vectors.coarse[items].T, out=out)
                keep(out.numpy(), items.start, shared[0], k, room, *kept)
            outcome = [each[some].numpy() for each in (queries.vectors, terms, divergences, doubtful)]
            rank(k, *kept, *shared, *outcome)

    in_threads(answer, m)
    return Scanned(divergences, rows, bounds, doubtful)
