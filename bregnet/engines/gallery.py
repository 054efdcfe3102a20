"""The items of an index, and which of two is nearer to a query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from bregnet.divergences import BregmanDivergence

TIE = 1e-12  # differences below this share of the scale are ties
STABLE_TIE = 1e-10  # and below this share of the divergence, where it has all its digits
LOST = (
    1e-5  # divergences below this share of the scale have lost digits in inner products, and are computed from points
)
SAMPLE = 8192  # items that say how large things are
GATHERED = 1 << 22  # numbers of items that are gathered at once


class Found(NamedTuple):
    """Items by query: divergences, and row numbers of the gallery; one row a query, or the items of one."""

    divergences: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Gallery:
    """The items, and what it takes to compare them.

    Attributes
    ----------
    divergence : BregmanDivergence
        In double precision, on the device of the points.
    side : str
        "right" for D(query, item), "left" for D(item, query).
    points : Tensor of shape (n_items, n_features)
        In single or double precision.
    ids : Tensor of shape (n_items,)
    """

    divergence: BregmanDivergence
    side: str
    points: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def sample(self) -> Tensor:
        """Some thousand items at most, evenly spread, in double precision."""
        return self.points[:: max(1, len(self) // SAMPLE)].double()

    @cached_property
    def squared_grain(self) -> Tensor:
        """Squared distances are told apart by multiples of this."""
        spread = (self.sample - self.sample.mean(0)).square().sum(1).mean()
        return TIE * torch.where(spread > 0, spread, 1.0)

    def tie(self, divergences: Tensor, scale: Tensor) -> Tensor:
        """How much less than these divergences another may be and tie with them."""
        if not self.divergence.generator._stable:
            return TIE * scale
        return torch.where(divergences <= LOST * scale, STABLE_TIE * divergences, TIE * scale)

    def paired(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Divergences between queries (m, d) and the items of the same place in `rows` (m,), with all their digits."""
        items = self.points[rows].double()
        return self.divergence.paired(*((queries, items) if self.side == "right" else (items, queries)))

    def squared_distances(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Squared Euclidean distances (m, c) of queries (m, d) and items (m, c), in multiples of the grain."""
        step = max(1, GATHERED // (queries.shape[1] * rows.shape[1]))
        parts = zip(queries.split(step), rows.split(step), strict=True)
        squares = [(self.points[there] - q[:, None]).square_().sum(2) for q, there in parts]
        return torch.cat(squares).div_(self.squared_grain).round_()


def nearest_first(gallery: Gallery, queries: Tensor, found: Found, scale: Tensor, k: int) -> Found:
    """The k nearest (m, k) of the items found (m, c): by divergence, then squared Euclidean distance, then id.

    Divergences that differ from one to the next by no more than rounding explains are ties, and get the least of their
    values. `scale` (m,) is the size of what was added up to them.
    """
    values, order = found.divergences.sort(dim=1)
    rows = found.rows.gather(1, order)
    tied = values.diff(dim=1) <= gallery.tie(values[:, 1:], scale[:, None])
    if tied.any():
        first = torch.cat([torch.ones_like(values[:, :1], dtype=torch.bool), ~tied], 1)
        values = torch.where(first, values, -torch.inf).cummax(1).values
        with_ties = tied.any(1).nonzero()[:, 0]
        there = rows[with_ties]
        distances = gallery.squared_distances(queries[with_ties], there)
        order = gallery.ids[there].argsort(1)
        for key in (distances, first[with_ties].cumsum(1)):
            order = order.gather(1, key.gather(1, order).argsort(dim=1, stable=True))
        rows[with_ties] = there.gather(1, order)
    return Found(values[:, :k], rows[:, :k])
