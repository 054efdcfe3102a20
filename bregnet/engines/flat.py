"""Exact search: single precision finds candidates, double precision their order, a bound says that none is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from bregnet.engines.gallery import Found, Gallery
from bregnet.engines.lift import Queries
from bregnet.engines.vectors import Vectors

SCORES = 1 << 25  # inner products held at once
SCORE_QUERIES = 128
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
        queries, long = self.vectors.lift.queries(points), self.vectors.long
        count = self.vectors.n_candidates(k)
        if count + len(long) >= len(self.gallery):
            everything = torch.arange(len(self.gallery), device=points.device).expand(len(points), -1)
            return self.vectors.ranked(queries, everything, k)
        rows, worst = self._candidates(queries.vectors.float(), count)
        found = self.vectors.ranked(queries, torch.cat([rows, long.expand(len(rows), -1)], 1), k)
        return self.vectors.completed(queries, found, worst, self._rows_above)

    def within(self, points: Tensor, radii: Tensor) -> list[Found]:
        """Items at most as far as the radius of each query, (m,)."""
        return self.vectors.within(self.vectors.lift.queries(points), radii, self._rows_above)

    def _rows_above(self, query: Queries, least: float) -> Tensor:
        """All items whose inner product with one query is at least `least`, and those that are always ranked."""
        above = (self.vectors.coarse @ query.vectors[0].float()).double() >= least
        above[self.vectors.long] = True
        return above.nonzero()[:, 0]

    def _candidates(self, vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Rows (m, count) of the largest inner products, and the least of these (m,)."""
        coarse, long = self.vectors.coarse, self.vectors.long
        step = max(1, min(SCORE_QUERIES, SCORES // len(coarse)))
        room = coarse.new_empty(min(step, len(vectors)), len(coarse))  # fresh memory costs as much as products
        parts = []
        for part in vectors.split(step):
            scores = torch.mm(part, coarse.T, out=room[: len(part)])
            scores[:, long] = -torch.inf
            parts.append(_largest(scores, count))
        places, worst = zip(*parts, strict=True)
        return torch.cat(places), torch.cat(worst)


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Places (m, count) of the largest entries of each row, and the least of these (m,).

    The largest entries lie in the groups with the largest maxima, so most are passed over once.
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
