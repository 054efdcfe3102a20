"""The items of an index: which of two is nearer to a query, rows that grow without a copy, and items by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core.arrays import Array
from bregnet.divergences import BregmanDivergence

ULPS = 256 * 2.0**-52  # divergences tie where they differ by less than this share of what was added up to them
KEPT_BITS = 41  # of squared distances that are compared
GATHERED = 1 << 22  # numbers of items that are gathered at once
SAMPLE = 8192  # items that say how large things are
GROWTH = 1.5  # room is made for so many times the rows; memory that was never written to costs nothing yet
LARGEST_ID = 2**63 - 1


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

    def paired(self, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Divergences between queries (m, d) and the items of the same place in `rows` (m,), and what is a tie."""
        generator = self.divergence.generator
        values, ties = queries.new_empty(len(rows)), queries.new_empty(len(rows))
        step = generator._batch_size(queries)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            pair = queries[part], self.points[rows[part]].double()
            first, second = pair if self.side == "right" else pair[::-1]
            values[part], ties[part] = generator._paired(first, second), ULPS * generator._rounding(first, second)
        return values, ties

    def squared_distances(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Squared Euclidean distances (m, c) of queries (m, d) and items (m, c), rounded so that ties are ties."""
        step = max(1, GATHERED // (queries.shape[1] * rows.shape[1]))
        parts = zip(queries.split(step), rows.split(step), strict=True)
        return rounded(torch.cat([(self.points[there] - q[:, None]).square_().sum(2) for q, there in parts]))


def rounded(values: Tensor) -> Tensor:
    """Double precision rounded to fewer bits."""
    cut = 53 - KEPT_BITS
    return ((values.view(torch.int64) + (1 << (cut - 1))) >> cut << cut).view(torch.float64)


def ties_with_next(values: Tensor, ties: Tensor) -> Tensor:
    """Whether each of ordered divergences (..., c) ties with the next, (..., c - 1).

    This decides ties in search and in evaluation: two that are next to each other in the order tie where they differ by
    no more than the rounding of both, the `ties` of :meth:`Gallery.paired`, and a chain of such pairs is one tie.
    (:mod:`bregnet.retrieval.compiled_pieces` has the same rule for lists of pieces, in compiled form.)
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
    """Tensors of as many rows each, with room for more.

    Rows are written once: who holds `tensors` keeps them as they are while others are added.

    Parameters
    ----------
    *tensors : Tensor of shape (n_rows, ...)
        They are taken as they are, and never written to.
    """

    def __init__(self, *tensors: Tensor) -> None:
        self._rooms, self.count = tensors, len(tensors[0])

    def __len__(self) -> int:
        return self.count

    def __getstate__(self) -> dict[str, Any]:
        """The rows without the room for others, which a pickle of a part of a tensor would hold."""
        return {"count": self.count, "_rooms": tuple(part.clone() for part in self.tensors)}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All rows."""
        return tuple(room[: self.count] for room in self._rooms)

    def add(self, *tensors: Tensor) -> None:
        """Add a copy of rows, (n_added, ...) each; a tensor takes on the larger of both precisions."""
        total = self.count + len(tensors[0])
        rooms = []
        for room, added in zip(self._rooms, tensors, strict=True):
            dtype = torch.promote_types(room.dtype, added.dtype)
            if len(room) < total or dtype != room.dtype:
                room = self._copied(room, max(total, int(GROWTH * self.count)), dtype)
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


class Collection:
    """The items of an index.

    Parameters
    ----------
    divergence : BregmanDivergence
    side : str
    device : torch.device
    """

    def __init__(self, divergence: BregmanDivergence, side: str, device: torch.device) -> None:
        self._divergence, self._side, self._device = divergence, side, device
        self._rows: GrowingRows | None = None  # points and ids
        self._gallery: Gallery | None = None  # of the rows, where they were asked for since they changed
        self.next_id = 0

    @classmethod
    def of(cls, divergence: BregmanDivergence, side: str, device: torch.device, gallery: Gallery | None) -> Collection:
        """The items of a gallery."""
        made = cls(divergence, side, device)
        if gallery is not None:
            made._rows, made._gallery = GrowingRows(gallery.points, gallery.ids), gallery
            made.next_id = int(gallery.ids.max()) + 1
        return made

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_gallery": None}

    @property
    def n_features(self) -> int | None:
        """Number of features, None where there are no items yet and any number will do."""
        return self._divergence.n_features if self._rows is None else self._rows.tensors[0].shape[1]

    def add(self, points: Tensor, ids: Array | None) -> None:
        """Add items; all of them, or none where an id is not right."""
        numbers = self._new_ids(ids, len(points))
        if not len(points):
            return
        if self._rows is None:
            self._rows = GrowingRows(points.clone(), numbers.to(self._device, copy=True))
        else:
            self._rows.add(points, numbers)
        self._gallery = None
        self.next_id = max(self.next_id, int(numbers.max()) + 1)

    def remove(self, ids: Array) -> Tensor:
        """Remove items by their ids, all of them or none; returns the rows that stay."""
        gallery, gone = self.gallery(), torch.unique(integers("ids", ids)).to(self._device)
        leaving = _among(gone, gallery.ids)
        if int(leaving.sum()) < len(gone):
            unknown = gone[~torch.isin(gone, gallery.ids)]
            raise ValueError(f"ids must be those of items in the index, got {_listed(unknown)}")
        rows = (~leaving).nonzero()[:, 0]
        self._rows, self._gallery = GrowingRows(gallery.points[rows], gallery.ids[rows]), None
        return rows

    def gallery(self) -> Gallery:
        """All items."""
        if self._rows is None:
            raise ValueError("the index is empty: add items first")
        if self._gallery is None:
            exact = self._divergence.to(torch.float64).to(self._device)
            points, ids = self._rows.tensors
            self._gallery = Gallery(exact, self._side, points, ids)
        return self._gallery

    def _new_ids(self, ids: Array | None, count: int) -> Tensor:
        if ids is None:
            if self.next_id + count > LARGEST_ID:
                raise ValueError(f"ids must be given where they cannot go on from the largest, {self.next_id - 1}")
            return torch.arange(self.next_id, self.next_id + count)
        numbers = integers("ids", ids)
        if numbers.shape != (count,):
            raise ValueError(f"ids must have shape ({count},), got {tuple(numbers.shape)}")
        distinct = torch.unique(numbers)
        if len(distinct) < count:
            raise ValueError("ids must differ from each other, got some twice")
        if self._rows is not None and count and int(distinct[0]) < self.next_id:
            known = self._rows.tensors[1].cpu()
            there = known[_among(distinct, known)]
            if len(there):
                found = numbers[torch.isin(numbers, there)]
                raise ValueError(f"ids must not be in the index yet, got {_listed(found)}")
        return numbers


def integers(name: str, values: Array) -> Tensor:
    """A sequence of integers that 64 bits can hold."""
    numbers = arrays.to_torch(name, values).cpu()
    if numbers.dtype == torch.uint64 and (numbers.numpy() > LARGEST_ID).any():
        raise ValueError(f"{name} must be below 2**63, got {numbers.numpy().max()}")
    if numbers.ndim != 1 or (numbers.is_floating_point() and len(numbers)) or numbers.dtype == torch.bool:
        found = f"dtype {numbers.dtype} and shape {tuple(numbers.shape)}"
        raise ValueError(f"{name} must be a sequence of integers, got {found}")
    return numbers.long()


def _among(ordered: Tensor, numbers: Tensor) -> Tensor:
    """Whether each of the numbers is in an ordered sequence; many numbers need not be sorted for it."""
    if not len(ordered):
        return torch.zeros_like(numbers, dtype=torch.bool)
    return ordered[torch.searchsorted(ordered, numbers).clamp_max(len(ordered) - 1)] == numbers


def _listed(numbers: Tensor) -> str:
    shown = ", ".join(str(number) for number in numbers[:5].tolist())
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
