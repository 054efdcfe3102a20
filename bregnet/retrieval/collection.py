"""The items of an index by their ids, and the engine that searches them, brought up to date when it is needed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet.divergences import BregmanDivergence
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.engines import build_engine
from bregnet.retrieval.items import Gallery, GrowingRows

LARGEST_ID = 2**63 - 1


class Collection:
    """The items of an index, and their engine.

    Several threads may use it: a gallery and an engine hold all items as they were at one moment.

    Parameters
    ----------
    divergence : BregmanDivergence
    side : str
    device : torch.device

    Attributes
    ----------
    rows : GrowingRows or None
        Points and ids; None before any were added.
    names : list of str or None
        Ids of the rows that are strings; None where they are numbers.
    next_id : int
        The first id for items that are added without ids.
    engine : Engine or None
        None until it is built.
    n_built : int
        Number of items that the engine was built for.
    lock : RLock
    """

    def __init__(self, divergence: BregmanDivergence, side: str, device: torch.device) -> None:
        self._divergence, self._side, self._device = divergence, side, device
        self.rows: GrowingRows | None = None
        self.names: list[str] | None = None
        self._gallery: Gallery | None = None  # of the rows, where they were asked for since they changed
        self.next_id = 0
        self.engine: Engine | None = None
        self.n_built = 0
        self.lock = threading.RLock()

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the engine, which the next search builds again."""
        with self.lock:
            return {**vars(self), "_gallery": None, "engine": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock())

    @property
    def n_features(self) -> int | None:
        """Number of features, None if there are no items yet and any number is accepted."""
        return self._divergence.n_features if self.rows is None else self.rows.tensors[0].shape[1]

    def add(self, points: Tensor, ids: Array | None) -> None:
        """Add all items, or none where an id is not accepted."""
        with self.lock:
            names = None if ids is None else _strings(ids)
            numbers = self._new_ids(ids if names is None else None, len(points))
            self._check_names(names, len(points))
            if not len(points):
                return
            if names is not None:
                self.names = [*(self.names or []), *names]
            if self.rows is None:
                self.rows = GrowingRows(points.clone(), numbers.to(self._device, copy=True))
            else:
                self.rows.add(points, numbers)
            self._gallery = None
            self.next_id = max(self.next_id, int(numbers.max()) + 1)

    def remove(self, ids: Array, settings: Settings) -> None:
        """Remove items by their ids, all of them or none."""
        with self.lock:
            engine = None if self.engine is None else self.ready(settings)  # with what was added last
            gallery = self.gallery()
            gone = torch.unique(_numbers(gallery, ids)).to(self._device)
            leaving = _among(gone, gallery.ids)
            if int(leaving.sum()) < len(gone):
                unknown = gone[~torch.isin(gone, gallery.ids)]
                raise ValueError(f"ids must be those of items in the index, got {_listed(unknown)}")
            staying = (~leaving).nonzero()[:, 0]
            self.names = None if gallery.names is None else gallery.names[staying.cpu()].tolist() or None
            self.rows, self._gallery = GrowingRows(gallery.points[staying], gallery.ids[staying]), None
            self.engine = engine.keep(self.gallery(), staying) if engine is not None and len(staying) else None

    def points_of(self, ids: Array) -> Tensor:
        """Points of items by their ids, (n_ids, n_features)."""
        gallery = self.gallery()
        wanted = _numbers(gallery, ids).to(self._device).contiguous()
        ordered, places = gallery.ids.sort()
        known = _among(ordered, wanted)
        if not known.all():
            raise ValueError(f"ids must be those of items in the index, got {_listed(wanted[~known])}")
        return gallery.points[places[torch.searchsorted(ordered, wanted)]]

    @torch.no_grad()
    def gallery(self) -> Gallery:
        """All items."""
        with self.lock:
            if self.rows is None:
                raise ValueError("the index is empty: add items first")
            if self._gallery is None:
                exact = self._divergence.to(torch.float64).to(self._device)
                names = None if self.names is None else np.array(self.names, dtype=np.str_)
                points, numbers = self.rows.tensors
                self._gallery = Gallery(exact, self._side, points, numbers, names)
            return self._gallery

    @torch.no_grad()
    def ready(self, settings: Settings, least: int = 1) -> Engine:
        """The engine of all items, of which there must be at least `least`."""
        with self.lock:
            if len(self) == 0:
                raise ValueError("the index is empty: add items first")
            if len(self) < least:
                raise ValueError(f"k must be at most the number of items ({len(self)}), got {least}")
            gallery = self.gallery()
            if self.engine is None or len(gallery) > 4 * self.n_built:  # what suited a few may not suit many
                self.engine, self.n_built = build_engine(gallery, settings), len(gallery)
            elif self.engine.gallery is not gallery:
                self.engine = self.engine.extend(gallery)
            return self.engine

    def _check_names(self, names: list[str] | None, count: int) -> None:
        """Raise an error for ids that are strings where others are numbers, or the other way round, or not new."""
        if names is None:
            if self.names is not None and count:
                raise ValueError("ids must be strings, as those of the items in the index")
            return
        if len(names) != count:
            raise ValueError(f"ids must have shape ({count},), got ({len(names)},)")
        if len(self) and self.names is None and count:
            raise ValueError(f"ids must be integers, as those of the items in the index, got {names[0]!r}")
        if len(set(names)) < count:
            raise ValueError("ids must differ from each other, got some twice")
        there = [name for name in names if name in self.gallery().row_of] if self.names else []
        if there:
            raise ValueError(f"ids must not be in the index yet, got {_listed(there)}")

    def _new_ids(self, ids: Array | None, count: int) -> Tensor:
        if ids is None:
            if self.next_id + count > LARGEST_ID:
                raise ValueError(f"ids must be given where they cannot go on from the largest, {self.next_id - 1}")
            return torch.arange(self.next_id, self.next_id + count)
        numbers = _integers("ids", ids)
        if numbers.shape != (count,):
            raise ValueError(f"ids must have shape ({count},), got {tuple(numbers.shape)}")
        distinct = torch.unique(numbers)
        if len(distinct) < count:
            raise ValueError("ids must differ from each other, got some twice")
        if self.rows is not None and count and int(distinct[0]) < self.next_id:
            known = self.rows.tensors[1].cpu()
            there = known[_among(distinct, known)]
            if len(there):
                found = numbers[torch.isin(numbers, there)]
                raise ValueError(f"ids must not be in the index yet, got {_listed(found)}")
        return numbers


def _strings(ids: Any) -> list[str] | None:
    """Ids that are strings, None where they are not."""
    values = None if isinstance(ids, Tensor) else arrays.table(ids)
    if values is None or values.ndim != 1 or not check.is_text(values) or not len(values):
        return None
    names = [str(each) for each in values]
    if any(not name or "\0" in name for name in names):
        raise ValueError("ids must be strings of at least one character, none of them a null character")
    return names


def _numbers(gallery: Gallery, ids: Any) -> Tensor:
    """The numbers of items by their ids; those of strings are looked up."""
    names = _strings(ids)
    if gallery.names is None or names is None:
        numbers = _integers("ids", ids)
        if gallery.names is not None and len(numbers):  # those of named items are not known outside
            raise ValueError(f"ids must be strings, as those of the items in the index, got {_listed(numbers)}")
        return numbers
    unknown = [name for name in names if name not in gallery.row_of]
    if unknown:
        raise ValueError(f"ids must be those of items in the index, got {_listed(unknown)}")
    return gallery.ids[[gallery.row_of[name] for name in names]].cpu()


def pack_names(names: list[str]) -> Tensor:
    """Strings as bytes, for files."""
    return torch.frombuffer(bytearray("\0".join(names), "utf-8"), dtype=torch.uint8)


def unpack_names(packed: Tensor) -> list[str]:
    """Read what `pack_names` wrote."""
    return packed.numpy().tobytes().decode("utf-8").split("\0")


def _integers(name: str, values: Array) -> Tensor:
    """A sequence of integers that 64 bits can hold."""
    numbers = arrays.to_torch(name, values).cpu()
    if numbers.dtype == torch.uint64 and (numbers.numpy() > LARGEST_ID).any():
        raise ValueError(f"{name} must be below 2**63, got {numbers.numpy().max()}")
    if numbers.ndim != 1 or (numbers.is_floating_point() and len(numbers)) or numbers.dtype == torch.bool:
        found = f"dtype {numbers.dtype} and shape {tuple(numbers.shape)}"
        raise ValueError(f"{name} must be a sequence of integers, got {found}")
    return numbers.long()


def _among(ordered: Tensor, numbers: Tensor) -> Tensor:
    """Whether each of the numbers is in an ordered sequence, without sorting the numbers."""
    if not len(ordered):
        return torch.zeros_like(numbers, dtype=torch.bool)
    return ordered[torch.searchsorted(ordered, numbers).clamp_max(len(ordered) - 1)] == numbers


def _listed(ids: Tensor | list[str]) -> str:
    numbers = ids.tolist() if isinstance(ids, Tensor) else ids
    shown = ", ".join(repr(number) for number in numbers[:5])
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
