"""Items that come and go, by their ids."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from bregnet import _arrays as arrays
from bregnet._arrays import Array
from bregnet.divergences import BregmanDivergence
from bregnet.engines.gallery import Gallery

LARGEST_ID = 2**63 - 1


class Collection:
    """The items of an index; those added last are put beside the others when all are needed.

    Parameters
    ----------
    divergence : BregmanDivergence
    side : str
    device : torch.device
    """

    def __init__(self, divergence: BregmanDivergence, side: str, device: torch.device) -> None:
        self._divergence, self._side, self._device = divergence, side, device
        self._gallery: Gallery | None = None
        self._added: list[tuple[Tensor, Tensor]] = []
        self.next_id = 0

    @classmethod
    def of(cls, divergence: BregmanDivergence, side: str, device: torch.device, gallery: Gallery | None) -> Collection:
        """The items of a gallery."""
        made = cls(divergence, side, device)
        made._gallery = gallery
        made.next_id = 0 if gallery is None else int(gallery.ids.max()) + 1
        return made

    def __len__(self) -> int:
        return sum(len(ids) for _, ids in self._parts())

    @property
    def n_features(self) -> int | None:
        """Number of features, None where there are no items yet and any number will do."""
        parts = self._parts()
        return parts[0][0].shape[1] if parts else self._divergence.n_features

    def _parts(self) -> list[tuple[Tensor, Tensor]]:
        """Points and ids, as they were added."""
        return ([] if self._gallery is None else [(self._gallery.points, self._gallery.ids)]) + self._added

    def add(self, points: Tensor, ids: Array | None) -> None:
        """Add items; all of them, or none where an id is not right."""
        numbers = self._new_ids(ids, len(points))
        if len(points):
            self._added.append((points.clone(), numbers.to(self._device)))
            self.next_id = max(self.next_id, int(numbers.max()) + 1)

    def remove(self, ids: Array) -> Tensor:
        """Remove items by their ids, all of them or none; returns the rows that stay."""
        gallery, gone = self.gallery(), torch.unique(integers("ids", ids)).to(self._device)
        leaving = torch.isin(gallery.ids, gone)
        if int(leaving.sum()) < len(gone):
            unknown = gone[~torch.isin(gone, gallery.ids)]
            raise ValueError(f"ids must be those of items in the index, got {_listed(unknown)}")
        rows = (~leaving).nonzero()[:, 0]
        self._gallery = replace(gallery, points=gallery.points[rows], ids=gallery.ids[rows])
        return rows

    def gallery(self) -> Gallery:
        """All items."""
        if self._added:
            points, ids = zip(*self._parts(), strict=True)
            dtype = reduce(torch.promote_types, [part.dtype for part in points])
            exact = self._divergence.to(torch.float64).to(self._device)
            together = torch.cat([part.to(dtype) for part in points])
            self._gallery, self._added = Gallery(exact, self._side, together, torch.cat(ids)), []
        if self._gallery is None:
            raise ValueError("the index is empty: add items first")
        return self._gallery

    def _new_ids(self, ids: Array | None, count: int) -> Tensor:
        if ids is None:
            if self.next_id + count > LARGEST_ID:
                raise ValueError(f"ids must be given where they cannot go on from the largest, {self.next_id - 1}")
            return torch.arange(self.next_id, self.next_id + count)
        numbers = integers("ids", ids)
        if numbers.shape != (count,):
            raise ValueError(f"ids must have shape ({count},), got {tuple(numbers.shape)}")
        if len(torch.unique(numbers)) < count:
            raise ValueError("ids must differ from each other, got some twice")
        if count and int(numbers.min()) < self.next_id:
            there = torch.zeros(count, dtype=torch.bool)
            for _, known in self._parts():
                there |= torch.isin(numbers, known.cpu())
            if there.any():
                raise ValueError(f"ids must not be in the index yet, got {_listed(numbers[there])}")
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


def _listed(numbers: Tensor) -> str:
    shown = ", ".join(str(number) for number in numbers[:5].tolist())
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
