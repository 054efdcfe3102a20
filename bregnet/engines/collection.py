"""Items that come and go, by their ids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bregnet import _arrays as arrays
from bregnet._arrays import Array
from bregnet.divergences import BregmanDivergence
from bregnet.engines.gallery import Gallery
from bregnet.engines.rows import Rows

LARGEST_ID = 2**63 - 1


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
        self._rows: Rows | None = None  # points and ids
        self._gallery: Gallery | None = None  # of the rows, where they were asked for since they changed
        self.next_id = 0

    @classmethod
    def of(cls, divergence: BregmanDivergence, side: str, device: torch.device, gallery: Gallery | None) -> Collection:
        """The items of a gallery."""
        made = cls(divergence, side, device)
        if gallery is not None:
            made._rows, made._gallery = Rows(gallery.points, gallery.ids), gallery
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
            self._rows = Rows(points.clone(), numbers.to(self._device, copy=True))
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
        self._rows, self._gallery = Rows(gallery.points[rows], gallery.ids[rows]), None
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
