"""Exact search: single precision finds candidates, double precision their order, a bound says that none is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from bregnet.engines.gallery import Found, Gallery
from bregnet.engines.lift import Queries
from bregnet.engines.vectors import Vectors

SCORES = 1 << 23  # inner products held at once
SCORE_QUERIES = 32  # a third faster than 8 or 128
GROUP = 64  # items of which the best is looked for first


class FlatEngine:
    """All inner products of a batch of queries, in single precision; the best are ranked in double precision.

    The rounding of single precision is bounded. Where an item beyond the candidates might belong to the answer, as with
    many ties, all items that might are ranked, so the answer is exact always.
    """

    name = "inner products"

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    @classmethod
    def of(cls, gallery: Gallery) -> FlatEngine:
        """The engine for these items."""
        return cls(Vectors.of(gallery))

    def extended(self, gallery: Gallery) -> FlatEngine:
        """With the items that the gallery has more than before."""
        return FlatEngine(self.vectors.extended(gallery))

    def kept(self, gallery: Gallery, rows: Tensor) -> FlatEngine:
        """With some of the rows, which are the gallery now."""
        return FlatEngine(self.vectors.kept(gallery, rows))

    @property
    def gallery(self) -> Gallery:
        """The items."""
        return self.vectors.gallery

    @property
    def nbytes(self) -> int:
        """Memory beside that of the gallery."""
        return self.vectors.nbytes

    def batch_size(self, k: int) -> int:
        """How many queries to give at once."""
        return self.vectors.batch_size(k)

    def search(self, points: Tensor, k: int) -> Found:
        """The k nearest items of each query, (m, k)."""
        queries = self.vectors.lift.queries(points)
        rows, worst = self._candidates(queries.vectors.float(), self.vectors.n_candidates(k))
        found = self.vectors.ranked(queries, rows, k)
        if rows.shape[1] == len(self.gallery):
            return found
        return self.vectors.completed(queries, found, worst, self._rows_above)

    def within(self, points: Tensor, radii: Tensor) -> list[Found]:
        """Items at most as far as the radius of each query, (m,)."""
        queries = self.vectors.lift.queries(points)
        least = self.vectors.least_score(queries, radii)
        out = []
        for number, radius in enumerate(radii):
            query = queries[number : number + 1]
            out.append(self.vectors.ranked_within(query, self._rows_above(query, float(least[number])), radius))
        return out

    def _rows_above(self, query: Queries, least: float) -> Tensor:
        """All items whose inner product with one query is at least `least`."""
        scores = self.vectors.coarse @ query.vectors[0].float()
        return (scores.double() >= least).nonzero()[:, 0]

    def _candidates(self, vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Rows (m, count) of the largest inner products, and the least of these (m,)."""
        coarse = self.vectors.coarse
        step = max(1, min(SCORE_QUERIES, SCORES // len(coarse)))
        rows, worst = zip(*(_largest(part @ coarse.T, count) for part in vectors.split(step)), strict=True)
        return torch.cat(rows), torch.cat(worst)


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Places (m, count) of the largest entries of each row, and the least of these (m,).

    The largest entries lie in the groups with the largest maxima, so most are passed over once: twice as fast as topk.
    """
    n_groups, rest = divmod(scores.shape[1], GROUP)
    if n_groups <= 2 * count:
        values, places = scores.topk(count, dim=1)
        return places, values[:, -1]
    whole = n_groups * GROUP
    grouped = scores[:, :whole].unflatten(1, (n_groups, GROUP))
    best = grouped.amax(2).topk(count, dim=1, sorted=False).indices
    values = grouped.gather(1, best[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    places = (GROUP * best[:, :, None] + torch.arange(GROUP, device=scores.device)).flatten(1)
    if rest:
        values = torch.cat([values, scores[:, whole:]], 1)
        tail = torch.arange(whole, scores.shape[1], device=scores.device)
        places = torch.cat([places, tail.expand(len(scores), -1)], 1)
    values, at = values.topk(count, dim=1)
    return places.gather(1, at), values[:, -1]
