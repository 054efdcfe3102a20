"""Values as plain JSON and tensors, for files, and back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core import validation as check

MOST_COPIES, SMALL = 64, 1 << 24  # how often the tensors of a file may be used, beyond some megabytes


class Tensors:
    """The tensors of a file by name, each stored once however many names it has.

    Parameters
    ----------
    stored : mapping of str to Tensor, default=None
    same : mapping of str to str, default=None
        From further names to those stored.
    mapped : bool, default=False
        Whether tensors are memory-mapped, and read when they are needed.
    """

    def __init__(self, stored: Mapping[str, Tensor] | None = None, same: Any = None, *, mapped: bool = False) -> None:
        self.stored = {} if stored is None else dict(stored)
        self.same = {} if same is None else mapping("same", same)
        self.mapped = mapped
        self._names: dict[tuple[Any, ...], str] = {}
        self._uses: Counter[tuple[Any, ...]] = Counter()
        self._alive: list[Tensor] = []  # so that no address is used again
        self._unread = {*self.stored, *self.same}
        self._room = SMALL + MOST_COPIES * sum(tensor.nbytes for tensor in self.stored.values())

    def put(self, name: str, tensor: Tensor) -> None:
        """Store a tensor."""
        tensor = tensor.detach().cpu().contiguous()
        known = tensor.data_ptr(), tensor.shape, tensor.dtype
        self._uses[known] += 1
        if tensor.numel() and self._uses[known] % (MOST_COPIES // 2) != 1:
            self.same[name] = self._names[known]
            return
        self._names[known] = name
        self._alive.append(tensor)
        # safetensors refuses tensors that share memory
        shared = self._uses[known] > 1 or tensor.untyped_storage().nbytes() != tensor.nbytes
        self.stored[name] = tensor.clone() if shared else tensor

    def put_array(self, name: str, array: Any) -> None:
        """Store a copy of an array."""
        copied = np.array(array)
        self.put(name, torch.as_tensor(copied.astype(copied.dtype.newbyteorder("="), copy=False)))

    def __contains__(self, name: object) -> bool:
        return name in self.stored or name in self.same

    def __getitem__(self, name: str) -> Tensor:
        """A stored tensor, which counts as read. A small file cannot take much memory by naming it many times."""
        tensor = self.stored[self.same.get(name, name)]
        self._unread.discard(name)
        self._room -= tensor.nbytes
        if self._room < 0:
            raise ValueError("its tensors are used too often")
        return tensor

    def expect_all_read(self) -> None:
        """Raise an error where a tensor was not read."""
        if self._unread:
            raise ValueError(f"nothing has the tensor {min(self._unread)!r}")

    def tensor(self, name: str, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> Tensor:
        """A stored tensor, checked, and copied where it has other names; None is any length."""
        tensor = self[name]
        fits = tensor.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, tensor.shape, strict=True))
        if not fits or tensor.dtype not in dtypes:
            wanted = f"{shape} and {' or '.join(map(str, dtypes))}"
            raise ValueError(f"{name} must have {wanted}, got {tuple(tensor.shape)} and {tensor.dtype}")
        if not self.mapped and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
        return tensor.clone() if name in self.same or name in self.same.values() else tensor

    def numbers_below(self, name: str, length: int | None, bound: int) -> Tensor:
        """Whole numbers from 0 to below a bound, (length,)."""
        numbers = self.tensor(name, (length,), torch.int64)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < bound:
            raise ValueError(f"{name} must be from 0 to {bound - 1}, got {numbers.min()} to {numbers.max()}")
        return numbers

    def array(self, name: str, *, ndim: int = 1, kinds: str = "f", finite: bool = True) -> np.ndarray:
        """A copy of a stored tensor as an array, checked."""
        array = self[name].clone().numpy()  # memory of torch, whose alignment decides how products round
        if array.ndim != ndim or array.dtype.kind not in kinds:
            raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape} and dtype {array.dtype}")
        if finite and not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
        return array


@dataclass(frozen=True)
class Field:
    """How a value is written, as plain values and tensors under its name, and how it is read and checked."""

    write: Callable[[str, Any, Tensors], Any]  # what JSON can hold of it
    read: Callable[[str, Any, Tensors], Any]  # the value; errors where the state is not what `write` gives


def text(name: str, state: Any) -> str:
    """Text."""
    if not isinstance(state, str):
        raise TypeError(f"{name} must be text, got {state!r}")
    return state


def texts(name: str, state: Any) -> list[str]:
    """A list of texts."""
    if not isinstance(state, list) or not all(isinstance(each, str) for each in state):
        raise TypeError(f"{name} must be a list of texts, got {state!r}")
    return state


def mapping(name: str, state: Any) -> dict[str, Any]:
    """A mapping."""
    if not isinstance(state, dict):
        raise TypeError(f"{name} must be a mapping, got {state!r}")
    return state


def plain(write: Callable[[Any], Any], read: Callable[[str, Any], Any]) -> Field:
    """A field without tensors."""
    return Field(lambda name, value, tensors: write(value), lambda name, state, tensors: read(name, state))


def whole(least: int) -> Field:
    """A field of whole numbers from `least`."""
    return plain(int, lambda name, state: check.integer_at_least(name, state, least))


def real(*, finite: bool = False) -> Field:
    """A field of numbers."""
    return plain(write_number, partial(read_number, finite=finite))


def write_number(value: float) -> float | str:
    """A number; JSON has no words for those that are not finite."""
    return float(value) if math.isfinite(value) else str(float(value))


def read_number(name: str, state: Any, *, finite: bool = False) -> float:
    """What `write_number` was given."""
    if state in ("inf", "-inf", "nan") and not finite:
        return float(state)
    if isinstance(state, bool) or not isinstance(state, int | float) or not math.isfinite(state):
        raise ValueError(f"{name} must be a {'finite ' if finite else ''}number, got {state!r}")
    return float(state)


def numbers(ndim: int = 1, kinds: str = "f") -> Field:
    """A field of arrays of finite numbers."""
    return Field(_write_array, lambda name, state, tensors: tensors.array(name, ndim=ndim, kinds=kinds))


def _write_array(name: str, value: Any, tensors: Tensors) -> str:
    tensors.put_array(name, value)
    return "array"


def write_labels(name: str, value: np.ndarray, tensors: Tensors) -> Any:
    """Class labels: the word "array" for numbers, or the texts."""
    if value.dtype.kind in "biuf":
        return _write_array(name, value, tensors)
    labels = value.tolist()
    if not all(isinstance(each, str) for each in labels):
        raise TypeError(f"labels must be numbers or text to be saved, got dtype {value.dtype}")
    if value.dtype.kind != "O":
        _expect_alike(name, labels)
    return {"text": labels, "object": value.dtype.kind == "O"}


def read_labels(name: str, state: Any, tensors: Tensors) -> np.ndarray:
    """What `write_labels` was given."""
    if state == "array":
        return tensors.array(name, kinds="biuf")
    labels = texts(name, mapping(name, state)["text"])
    if check.boolean("object", state["object"]):
        return np.array(labels, dtype=object)
    _expect_alike(name, labels)
    return np.array(labels, dtype=str)


def _expect_alike(name: str, labels: list[str]) -> None:
    """Raise an error for a few long labels among many: an array has as much room for each as for the longest."""
    longest, count = max(map(len, labels), default=0), len(labels)
    if 4 * longest * count > SMALL + MOST_COPIES * sum(map(len, labels)):
        raise ValueError(f"{name} must have labels of about one length, got {count}, of up to {longest} letters")
