"""Items to search, their order from a query, and arrays of rows that grow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bregnet._core.arrays import Array
from bregnet._core.chunks import batches, rows_at_once
from bregnet.divergences import BregmanDivergence

ULPS = 256 * 2.0**-52  # divergences tie where they differ by less than this share of their terms
KEPT_BITS = 41  # of squared distances that are compared


class Found(NamedTuple):
    """Divergences and row numbers of the items that were found: a row for each query, or the items of one query."""

    divergences: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Gallery:
    """The items and the divergence to compare them by.

    Attributes
    ----------
    divergence : BregmanDivergence
        In double precision, on the device of the points.
    side : str
        "right" for D(query, item), "left" for D(item, query).
    points : Tensor of shape (n_items, n_features)
        In single or double precision.
    ids : Tensor of shape (n_items,)
    names : ndarray of shape (n_items,), str, or None
        Ids that are strings; `ids` are then numbers in the order in which items were added.
    """

    divergence: BregmanDivergence
    side: str
    points: Tensor
    ids: Tensor
    names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def public_ids(self, rows: Any = slice(None)) -> Array:
        """The ids of some items as their user knows them: a tensor of numbers, or an array of strings."""
        if self.names is not None:
            return self.names[rows.cpu().numpy() if isinstance(rows, Tensor) else rows]
        if isinstance(rows, Tensor) and rows.device.type == "cpu":  # by numpy: threads of torch spin for milliseconds
            return torch.from_numpy(self.ids.numpy()[rows.numpy()])
        return self.ids[rows]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row numbers of items whose ids are strings."""
        return {} if self.names is None else dict(zip(self.names.tolist(), range(len(self)), strict=True))

    @cached_property
    def sample(self) -> Tensor:
        """Some thousand evenly spaced items at most, in double precision."""
        return self.points[:: max(1, len(self) // 8192)].double()

    def paired(self, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Divergences of queries (m, d) from the items in `rows` (m,), and differences up to which they tie, (m,)."""
        generator = self.divergence.generator
        values, ties = queries.new_empty(len(rows)), queries.new_empty(len(rows))
        for part in batches(len(rows), generator._batch_size(queries)):
            pair = queries[part], self.points[rows[part]].double()
            first, second = pair if self.side == "right" else pair[::-1]
            values[part], ties[part] = generator._paired(first, second), ULPS * generator._rounding(first, second)
        return values, ties

    def squared_distances(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Squared Euclidean distances (m, c) of queries (m, d) and items (m, c), rounded so that ties are ties."""
        step = rows_at_once(queries.shape[1] * rows.shape[1])
        parts = zip(queries.split(step), rows.split(step), strict=True)
        return rounded(torch.cat([(self.points[there] - q[:, None]).square_().sum(2) for q, there in parts]))


def rounded(values: Tensor) -> Tensor:
    """Double precision rounded to fewer bits."""
    cut = 53 - KEPT_BITS
    return ((values.view(torch.int64) + (1 << (cut - 1))) >> cut << cut).view(torch.float64)


def ties_with_next(values: Tensor, ties: Tensor) -> Tensor:
    """Whether each of ordered divergences (..., c) ties with the next, (..., c - 1).

    This decides ties in search and in evaluation: two that are next to each other in the order tie where they differ by
    no more than the smaller of their tolerances, the `ties` of :meth:`Gallery.paired`, and a chain of such pairs is one
    tie. (:mod:`bregnet.retrieval.compiled_pieces` has the rule for lists of pieces, with one tolerance for each query.)
    """
    return values.diff() <= torch.minimum(ties[..., 1:], ties[..., :-1])


def nearest_first(gallery: Gallery, queries: Tensor, found: Found, ties: Tensor, k: int) -> Found:
    """The k nearest (m, k) of the items found (m, c): by divergence, then squared Euclidean distance, then id.

    Those that tie by their `ties` (m, c) get the least of their values.
    """
    values, order = found.divergences.sort(dim=1)
    rows, ties = found.rows.gather(1, order), ties.gather(1, order)
    tied = ties_with_next(values, ties)
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


class GrowingRows:
    """Tensors with the same number of rows, and memory for more.

    Rows are written once: `tensors` that were taken before do not change when rows are added.

    Parameters
    ----------
    *tensors : Tensor of shape (n_rows, ...)
        They are not copied, and never written to.
    """

    def __init__(self, *tensors: Tensor) -> None:
        self._rooms, self.count = tensors, len(tensors[0])

    def __len__(self) -> int:
        return self.count

    def __getstate__(self) -> dict[str, Any]:
        """The rows alone; a slice of a tensor is pickled with all of its memory."""
        return {"count": self.count, "_rooms": tuple(part.clone() for part in self.tensors)}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All rows."""
        return tuple(room[: self.count] for room in self._rooms)

    def add(self, *tensors: Tensor) -> None:
        """Add a copy of rows, (n_added, ...) each; a tensor takes the higher of both precisions."""
        total = self.count + len(tensors[0])
        rooms = []
        for room, added in zip(self._rooms, tensors, strict=True):
            dtype = torch.promote_types(room.dtype, added.dtype)
            if len(room) < total or dtype != room.dtype:
                # half as many again: memory that was never written to costs nothing yet
                room = self._copied(room, max(total, int(1.5 * self.count)), dtype)
            room[self.count : total] = added
            rooms.append(room)
        self._rooms, self.count = tuple(rooms), total

    def extended(self, count: int, *tensors: Tensor) -> GrowingRows:
        """The first `count` rows and these; the same object where it has no others."""
        rows = self if count == self.count else GrowingRows(*(part[:count].clone() for part in self.tensors))
        rows.add(*tensors)
        return rows

    def _copied(self, room: Tensor, size: int, dtype: torch.dtype) -> Tensor:
        copied = room.new_empty((size, *room.shape[1:]), dtype=dtype)
        copied[: self.count] = room[: self.count]
        return copied
