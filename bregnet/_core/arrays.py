"""Arrays in and out: numpy or torch, checked, with errors that name the argument."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = "np.ndarray | Tensor"
ArrayT = TypeVar("ArrayT", bound=Array)


@cache
def survive_forks() -> None:
    """Make processes that are forked from now on compute on one thread.

    OpenMP's threads do not survive a fork, and a child of a process that has used them would wait for them forever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
    if "faiss" in sys.modules:
        sys.modules["faiss"].omp_set_num_threads(1)


def to_torch(name: str, values: float | Array) -> Tensor:
    """A tensor, sharing memory where torch allows it."""
    survive_forks()
    refuse_strange(name, values)
    if not isinstance(values, Tensor):
        try:
            values = table(values)
        except ValueError as error:  # lists of different lengths
            raise ValueError(f"{name} must be an array of numbers, got {type(values).__name__}: {error}") from error
        if values.dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold real numbers, got dtype {values.dtype}")
        if values.dtype == np.longdouble:
            values = values.astype(np.float64)
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        if not values.flags.writeable or any(stride < 0 for stride in values.strides):
            values = values.copy()
    return torch.as_tensor(values)


def refuse_strange(name: str, values: Any) -> None:
    """Raise an error for arrays that numpy would silently read as other numbers, or cannot read at all."""
    if isinstance(values, Tensor):
        if values.is_complex():
            raise TypeError(f"{name} must hold real numbers, got dtype {values.dtype}")
        if values.layout != torch.strided:
            raise TypeError(f"{name} must be dense, got a tensor of layout {values.layout}; to_dense() makes it so")
        if values.device.type == "meta":
            raise TypeError(f"{name} must hold data, got a tensor on the device 'meta'")
    elif type(values).__module__.startswith("scipy.sparse"):
        advice = "toarray() makes it so, and sklearn.decomposition.TruncatedSVD makes few columns of many"
        raise TypeError(f"{name} must be dense, got a sparse {type(values).__name__}; {advice}")
    elif getattr(getattr(values, "dtype", None), "kind", "") in ("M", "m"):  # numpy would read dates as numbers
        raise TypeError(f"{name} must hold numbers, got dtype {values.dtype}")
    refuse_masked(name, values)


def refuse_masked(name: str, values: Any) -> None:
    """Raise an error for masked entries: numpy would take what is under the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} must not have masked entries, got {np.ma.count_masked(values)}")


def refuse_complex(name: str, values: Any) -> None:
    """Raise an error, in scikit-learn's words, for complex numbers, whose imaginary parts a cast would drop."""
    dtypes = getattr(values, "dtypes", ()) if hasattr(values, "columns") else [getattr(values, "dtype", None)]
    for dtype in dtypes:
        if getattr(dtype, "kind", "") == "c":
            raise ValueError(f"Complex data not supported: {name} must hold real numbers, got dtype {dtype}")


def table(values: Any) -> np.ndarray:
    """Anything but a tensor as a numpy array; nullable numbers of a frame become plain ones, NaN if missing."""
    array = np.asarray(native(values))
    if array.dtype == object and hasattr(values, "columns") and hasattr(values, "items"):  # a frame of pandas
        return np.column_stack([np.asarray(column) for _, column in values.items()])
    return array


def native(values: Any) -> Any:
    """An array of another library (one with DLPack) as a numpy array; anything else as it is.

    Memory is shared where it is the CPU's.
    """
    if isinstance(values, Tensor | np.ndarray) or not hasattr(values, "__dlpack_device__"):
        return values
    main_memory = 1  # as a device type of DLPack
    if values.__dlpack_device__()[0] == main_memory and hasattr(values, "__array__"):
        return np.asarray(values)
    return to_numpy(torch.from_dlpack(values))


def parameter(name: str, values: float | Array, like: Tensor | None = None) -> Tensor:
    """A finite floating-point tensor, with the precision and the device of `like` if given."""
    tensor = to_torch(name, values)
    if not isinstance(values, Tensor):
        tensor = tensor.clone()  # the caller may change the array; a tensor is shared, so that it can be learned
    tensor = tensor.to(_precision(tensor)) if like is None else tensor.to(like)
    _check_finite(name, tensor)
    return tensor


def non_negative(name: str, values: float | Array, like: Tensor | None = None) -> Tensor:
    """A parameter whose entries are at least 0."""
    tensor = parameter(name, values, like)
    if (tensor < 0).any():
        raise ValueError(f"{name} must be at least 0, got {tensor.min():g}")
    return tensor


def points(
    name: str, values: Array, n_features: int | None, dtype: torch.dtype | None, device: torch.device | None
) -> Tensor:
    """Finite points, one in each row; None accepts any number of features, precision or device."""
    tensor = to_torch(name, values)
    if tensor.ndim != 2 or n_features not in (None, tensor.shape[1]):
        expected = "n_features" if n_features is None else n_features
        raise ValueError(f"{name} must have shape (n_points, {expected}), got {tuple(tensor.shape)}")
    tensor = tensor.to(device=device or tensor.device, dtype=dtype or _precision(tensor))
    _check_finite(name, tensor)
    return tensor


def check_entries(name: str, tensor: Tensor, accepted: Tensor, requirement: str) -> None:
    """Raise an error with the first entry that is not `accepted`."""
    if not accepted.all():
        place = tuple((~accepted).nonzero()[0].tolist())
        raise ValueError(f"{name} must be {requirement}, got {tensor[place].item():g} in row {place[0]}")


def refuse_overflow(names: str, out: Tensor, *given: Tensor) -> None:
    """Raise an error where finite points gave NaN, because intermediate results overflowed."""
    total = out.detach().sum()  # NaN if an entry is, and much faster than a look at each
    if torch.isnan(total) and torch.isnan(out).any():
        largest = max(part.detach().abs().max().item() for part in given)
        raise ValueError(f"{names} must not be so large that their functions overflow, got values up to {largest:g}")


def like(out: Tensor, given: ArrayT) -> ArrayT:
    """The result as the kind of array that was given, on its device."""
    return out.to(given.device) if isinstance(given, Tensor) else out.cpu().numpy()  # type: ignore[return-value]


def to_numpy(values: Any, name: str = "an array") -> Any:
    """Tensors and arrays of other libraries as numpy arrays, half precision as single.

    Frames stay frames, since their columns have names, and other objects stay as they are; a column of nullable numbers
    becomes one of plain numbers.
    """
    survive_forks()
    refuse_strange(name, values)
    refuse_complex(name, values)
    if not isinstance(values, Tensor):
        nullable = hasattr(getattr(values, "dtype", None), "numpy_dtype")  # one of pandas
        return np.asarray(values) if nullable else native(values)
    values = values.detach().cpu()
    return (values.to(_precision(values)) if values.is_floating_point() else values).numpy()


def gradients_for(given: Array) -> torch.set_grad_enabled:
    """Record gradients for torch tensors only: a numpy result could not carry them."""
    return torch.set_grad_enabled(torch.is_grad_enabled() and isinstance(given, Tensor))


def _precision(tensor: Tensor) -> torch.dtype:
    """The precision to compute in: single for half precision, double for integers."""
    return torch.promote_types(tensor.dtype, torch.float32) if tensor.is_floating_point() else torch.float64


def _check_finite(name: str, tensor: Tensor) -> None:
    if tensor.device.type == "cpu":  # by numpy: threads of torch spin for milliseconds and keep a search waiting
        with suppress(RuntimeError):  # a tensor of torch.func has no numbers of its own
            if np.isfinite(tensor.detach().numpy()).all():
                return
    finite = torch.isfinite(tensor)
    if tensor.ndim:
        check_entries(name, tensor, finite, "finite")
    elif not finite:
        raise ValueError(f"{name} must be finite, got {tensor.item():g}")
