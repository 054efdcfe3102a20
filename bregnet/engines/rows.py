"""Rows that are added to at the end, without a copy of those that are there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

GROWTH = 1.5  # room is made for so many times the rows; memory that was never written to costs nothing yet


class Rows:
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

    def extended(self, count: int, *tensors: Tensor) -> Rows:
        """The first `count` rows and these; the same object where it has no others."""
        rows = self if count == self.count else Rows(*(part[:count].clone() for part in self.tensors))
        rows.add(*tensors)
        return rows

    def _copied(self, room: Tensor, size: int, dtype: torch.dtype) -> Tensor:
        copied = room.new_empty((size, *room.shape[1:]), dtype=dtype)
        copied[: self.count] = room[: self.count]
        return copied
