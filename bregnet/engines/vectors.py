"""Vectors of all items: in single precision for scans, and what double precision adds to them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bregnet.engines.gallery import GATHERED, LOST, TIE, Found, Gallery, nearest_first
from bregnet.engines.lift import Lift, Queries

CANDIDATES = 4  # for each item that is asked for
LEAST_CANDIDATES = 32
LIFTED = 1 << 16  # items lifted at once
SINGLE = 2.0**-24  # relative rounding of single precision


class Vectors:
    """The lifted items of a gallery, as sums of two numbers of single precision.

    Parameters
    ----------
    gallery : Gallery
    lift : Lift
    coarse, fine : Tensor of shape (n_items, n_features + 1)
        Single precision, and what is to be added for double precision.
    """

    def __init__(self, gallery: Gallery, lift: Lift, coarse: Tensor, fine: Tensor) -> None:
        self.gallery, self.lift, self.coarse, self.fine = gallery, lift, coarse, fine
        self._longest = float(coarse.norm(dim=1).max())

    @classmethod
    def of(cls, gallery: Gallery) -> Vectors:
        """The vectors of all items."""
        lift = Lift.of(gallery)
        return cls(gallery, lift, *_lifted(lift, gallery.points))

    def extended(self, gallery: Gallery) -> Vectors:
        """With the items that the gallery has more than before."""
        coarse, fine = _lifted(self.lift, gallery.points[len(self.gallery) :])
        return Vectors(gallery, self.lift, torch.cat([self.coarse, coarse]), torch.cat([self.fine, fine]))

    def kept(self, gallery: Gallery, rows: Tensor) -> Vectors:
        """Those of some rows, which are the gallery now."""
        return Vectors(gallery, self.lift, self.coarse[rows], self.fine[rows])

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.coarse.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of the vectors."""
        return self.coarse.nbytes + self.fine.nbytes

    def n_candidates(self, k: int) -> int:
        """How many items to rank for k."""
        return min(len(self.gallery), max(CANDIDATES * k, LEAST_CANDIDATES))

    def batch_size(self, k: int) -> int:
        """How many queries to rank items for at once."""
        return max(1, min(4096, GATHERED // (self.n_candidates(k) * self.width)))

    def least_score(self, queries: Queries, divergences: Tensor) -> Tensor:
        """An item at most so far from a query has at least this inner product in single precision, (m,)."""
        rounding = 1.01 * (self.width + 3) * SINGLE * self._longest
        return (queries.offsets - divergences - TIE * queries.scale) / queries.reach - rounding

    def divergences(self, queries: Queries, rows: Tensor) -> Tensor:
        """True divergences of the queries and the items in `rows`, (m, c)."""
        step = max(1, GATHERED // max(1, rows.shape[1] * self.width))
        parts = zip(queries.vectors.split(step), rows.split(step), strict=True)
        dots = [torch.bmm(self._precise(there), vectors[:, :, None])[:, :, 0] for vectors, there in parts]
        out = queries.offsets[:, None] - queries.reach[:, None] * torch.cat(dots)
        lost = (out <= LOST * queries.scale[:, None]).nonzero(as_tuple=True)
        if len(lost[0]):
            out[lost] = self.gallery.paired(queries.points[lost[0]], rows[lost])
        return out

    def ranked(self, queries: Queries, rows: Tensor, k: int) -> Found:
        """The k nearest of the items in `rows` (m, c), in order."""
        found = Found(self.divergences(queries, rows), rows)
        return nearest_first(self.gallery, queries.points, found, queries.scale, k)

    def completed(
        self, queries: Queries, found: Found, worst: Tensor, rows_above: Callable[[Queries, float], Tensor]
    ) -> Found:
        """The items found (m, k), with those that single precision may have missed.

        `worst` (m,) is the least inner product of the candidates. Where an item below it might belong to the answer,
        as with many ties, `rows_above` gives all that might for one query, and these are ranked.
        """
        least = self.least_score(queries, found.divergences[:, -1])
        for number in (worst.double() >= least).nonzero()[:, 0].tolist():
            query = queries[number : number + 1]
            rows = rows_above(query, float(least[number]))
            again = self.ranked(query, rows[None], found.rows.shape[1])
            found.divergences[number], found.rows[number] = again.divergences[0], again.rows[0]
        return found

    def ranked_within(self, query: Queries, rows: Tensor, radius: Tensor) -> Found:
        """The items in `rows` (c,) that are at most as far from one query as the radius, in order."""
        found = self.ranked(query, rows[None], len(rows))
        kept = found.divergences[0] <= radius + TIE * query.scale
        return Found(found.divergences[0, kept], found.rows[0, kept])

    def _precise(self, rows: Tensor) -> Tensor:
        return self.coarse[rows].double().add_(self.fine[rows])


def _lifted(lift: Lift, points: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors of points, some at a time."""
    shape = len(points), points.shape[1] + 1
    coarse, fine = (torch.empty(shape, dtype=torch.float32, device=points.device) for _ in range(2))
    for start in range(0, len(points), LIFTED):
        part = slice(start, start + LIFTED)
        vectors = lift.items(points[part])
        coarse[part] = vectors
        fine[part] = vectors - coarse[part]
    return coarse, fine
